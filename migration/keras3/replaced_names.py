"""How names of Keras become others, where they are used and where they are imported.

Not a rule: `gone_names`, `moved_names` and `private_modules` say of which names.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import libcst as cst

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.names import legacy_name
from keras_mp.migration.code.parsed import Import, chain, dotted, imported, parts_of
from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3 import names
from keras_mp.migration.keras3.code import Code
from keras_mp.migration.keras3.names import Known, Status

_MODULES = {"tf.keras": "tensorflow.keras", "keras": "keras"}
_ONLY_ATTRIBUTES = ("tensorflow.compat.v1.keras", "tensorflow.compat.v2.keras")


@dataclass(frozen=True, slots=True)
class Use:
    """A name of Keras where it is used, or imported.

    Attributes:
        node: The part of the text that spells it; the alias in an import.
        known: What it is; for an import, `new` is where it is to be imported from, "" being Keras
            itself.
        edits: What makes another name of it; None where that is not possible here.
    """

    node: cst.CSTNode
    known: Known
    edits: tuple[Edit, ...] | None


def uses(code: Code) -> Iterator[Use]:
    """Yields the names of Keras that are used and not there today, of what is not so imported."""
    for node in code.chains:
        found = code.known(node)
        if found is None or found.status == "there":
            continue
        part = code.part(node, found.length)
        if isinstance(part, cst.Name):
            continue  # told where it is imported
        outer = next((one for one in [*parts_of(part)][1:] if _is_good(code, one)), None)
        if outer is None and found.status != "gone":
            continue  # so is the module that it is of
        if _is_imported_itself(code, part, found):
            continue
        edits = None
        if outer is not None and found.new is not None and not code.program.is_bound(part):
            edits = _renamed(code, part, found)
        yield Use(part, found, edits)


def decisions_by_status(
    code: Code, status: Status, said: Callable[[Known], str]
) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places of all names of one status, and what becomes of each.

    Args:
        code: The program.
        status: Which names.
        said: Returns the message about one.
    """
    for one in (*uses(code), *imported_and_gone(code)):
        if one.known.status == status:
            message = said(one.known)
            if one.known.new is None or one.edits is None:
                yield one.node, Decision("manual", message)
            else:
                yield one.node, Decision("rewritten", message, one.edits)
    for statement, known in stars(code):
        if known.status == status:
            yield statement, Decision("manual", said(known))


def _is_good(code: Code, node: cst.CSTNode) -> bool:
    """Returns whether a part of a chain is there today: TensorFlow, Keras, a module of it."""
    full = code.program.full_name(node)
    if full in ("tensorflow", "tensorflow.compat.v1", "tensorflow.compat.v2"):
        return True
    found = names.keras_name(full)
    return found is not None and found.status == "there"


def _is_imported_itself(code: Code, part: cst.CSTNode, found: Known) -> bool:
    """Returns whether a module that must be imported to be had is: `tensorflow.keras.saving`."""
    module = found.name.split(".")[0]
    if module not in names.table()["only imported"]:
        return False
    first = [*parts_of(part)][-1]
    return code.program.full_name(first).endswith(f".keras.{module}")


def _renamed(code: Code, part: cst.CSTNode, found: Known) -> tuple[Edit, ...] | None:
    assert found.new is not None
    end = code.program.span(part)[1]
    for outer in [*parts_of(part)][1:]:
        if not _is_good(code, outer):
            continue
        full, start = code.program.full_name(outer), code.program.span(outer)[1]
        if full.startswith("tensorflow") and ".keras" not in f".{full}":
            return (Edit(start, end, f".keras.{found.new}"),)
        module = names.keras_name(full)
        if module is None or not names.is_module(module.name):
            continue
        if not module.name:
            return (Edit(start, end, f".{found.new}"),)
        if found.new.startswith(f"{module.name}."):
            return (Edit(start, end, found.new[len(module.name) :]),)
    return None


def imported_and_gone(code: Code) -> Iterator[Use]:
    """Yields what is imported of Keras and not there today, or not by an import."""
    for statement in code.imports:
        found = {
            alias: _target(code, statement, alias, full) for alias, full in code.imported(statement)
        }
        edits = _statement(code, statement, found)
        for alias, known in found.items():
            if known.status != "there":
                yield Use(alias, known, edits if known.new is not None else None)
                if known.new is not None and edits:
                    edits = ()  # they are made once


def _target(code: Code, statement: Import, alias: cst.ImportAlias, full: str) -> Known:
    """Returns what is imported, `new` being where it is: of modules, where all that is used is."""
    found = names.keras_name(full)
    assert found is not None
    if found.status == "there":
        spelled = full if isinstance(statement, cst.Import) else full.rpartition(".")[0]
        if spelled.startswith(_ONLY_ATTRIBUTES):
            return replace(found, status="moved")
        return found
    if found.root == "tf.keras" and found.name.split(".")[0] in names.table()["only imported"]:
        return replace(found, status="there")
    if found.new is None and found.status == "private":
        return replace(found, new=_module_of_uses(code, statement, alias, full))
    return found


def _module_of_uses(code: Code, statement: Import, alias: cst.ImportAlias, full: str) -> str | None:
    """Returns the one module of today that has all that is used of an imported one; or None."""
    if isinstance(statement, cst.Import) and alias.asname is None:
        return None
    bound = _bound(alias)
    modules = set()
    for node in code.chains_by_name.get(bound, ()):
        parts = chain(node) or []
        used = code.program.full_name(node)
        if used != full and not used.startswith(f"{full}."):
            continue
        found = names.keras_name(used)
        if found is None or found.new is None or len(parts) < 2:
            return None
        if found.new.rpartition(".")[2] != parts[1].value:
            return None
        modules.add(found.new.rpartition(".")[0])
    return modules.pop() if len(modules) == 1 else None


def _bound(alias: cst.ImportAlias) -> str:
    name = alias.asname.name if alias.asname is not None else alias.name
    return dotted(name).split(".")[0]


def _statement(
    code: Code, statement: Import, found: Mapping[cst.ImportAlias, Known]
) -> tuple[Edit, ...] | None:
    """Returns the edits after which a statement imports what is there today."""
    if isinstance(statement, cst.Import):
        return _plain(code, found)
    if isinstance(statement.names, cst.ImportStar):
        return None
    homes = [_home(found.get(alias)) for alias in statement.names]
    modules = {home[0] if home is not None else None for home in homes}
    if modules == {None}:
        return None
    if len(modules) == 1:
        return _one_module(code, statement, homes)
    return _several(code, statement, homes)


def _plain(code: Code, found: Mapping[cst.ImportAlias, Known]) -> tuple[Edit, ...] | None:
    edits = []
    for alias, known in found.items():
        if known.status != "there" and known.new is not None:
            if alias.asname is None:
                return None
            edits.append(code.replaced(alias.name, _spelled(known)))
    return tuple(edits) or None


def _spelled(known: Known) -> str:
    return ".".join(filter(None, (_MODULES[known.root], known.new)))


# Where a name is imported from today, and what it is called there.
_Home = tuple[str, str]


def _home(known: Known | None) -> _Home | None:
    """Returns where a name is to be imported from; None where it stays."""
    if known is None or known.status == "there" or known.new is None:
        return None
    module, _, name = _spelled(known).rpartition(".")
    return (module, name) if module else None


def _one_module(
    code: Code, statement: cst.ImportFrom, homes: Sequence[_Home | None]
) -> tuple[Edit, ...]:
    assert not isinstance(statement.names, cst.ImportStar)
    assert statement.module is not None
    edits: list[Edit] = []
    for alias, home in zip(statement.names, homes, strict=True):
        assert home is not None
        edits += [] if edits else [code.replaced(statement.module, home[0])]
        if home[1] != dotted(alias.name):
            edits.append(code.replaced(alias.name, _named(alias, home[1])))
    return tuple(edits)


def _named(alias: cst.ImportAlias, name: str) -> str:
    """Returns a name, bound to what the old one was bound to."""
    return name if alias.asname is not None else f"{name} as {dotted(alias.name)}"


def _several(
    code: Code, statement: cst.ImportFrom, homes: Sequence[_Home | None]
) -> tuple[Edit, ...] | None:
    """Returns the edit that makes several statements of one that is alone on its lines."""
    assert not isinstance(statement.names, cst.ImportStar)
    assert statement.module is not None
    line = code.program.parent(statement)
    text = code.program.source(statement)
    alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
    if not alone or "#" in text or "\\" in text:
        return None
    staying: dict[str, list[str]] = {}
    for alias, home in zip(statement.names, homes, strict=True):
        bound = _bound(alias)
        module, name = home if home is not None else (dotted(statement.module), dotted(alias.name))
        staying.setdefault(module, []).append(name if name == bound else f"{name} as {bound}")
    column = code.program.where(statement)[1] - 1
    number = code.program.where(statement)[0]
    indent = code.program.lines.of(number)[:column]
    new = f"{code.program.lines.ending(number)}{indent}".join(
        f"from {module} import {', '.join(of)}" for module, of in staying.items()
    )
    return (code.replaced(statement, new),)


def stars(code: Code) -> Iterator[tuple[Import, Known]]:
    """Yields `from module import *` of modules of Keras that are not there today."""
    for statement in code.imports:
        for alias, everything in imported(statement):
            full = everything.removesuffix(".*")
            found = names.keras_name(full) if alias is None else None
            if found is not None and found.status != "there" and legacy_name(full) is None:
                yield statement, found
