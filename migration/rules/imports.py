"""KMP013: imports of old names, and old modules as values.

before:  from tensorflow.keras import layers, mixed_precision
after:   from tensorflow.keras import layers              # if every use of it was rewritten
         from keras_mp.compat import mixed_precision      # if there is none, or another use

before:  mp = tf.keras.mixed_precision.experimental
after:   mp = keras_mp.compat.mixed_precision.experimental

Left alone, and reported: import *, and imports that KMP014 leaves alone.
"""

import functools
import re
from collections.abc import Collection, Iterator

import libcst as cst
from libcst.metadata import ClassScope

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.names import Old, legacy_name
from keras_mp.migration.code.parsed import Import, Nodes, Program, dotted, imported, root_of
from keras_mp.migration.code.sites import Decision, Site
from keras_mp.migration.rules import version_checks

_FOR_TOOLS = re.compile(r"#\s*(noqa|pylint|type:|pragma|isort|fmt|mypy|pyright|pytype|yapf|nosec)")


def decide(site: Site) -> Decision | None:
    """Decides about a module as a value."""
    if site.old is None or site.old.name is not None:
        return None
    # The import of a mere name becomes that of keras_mp.compat.
    if isinstance(site.node, cst.Name) or isinstance(site.program.parent(site.node), cst.Arg):
        return Decision(
            "manual", "the module is passed on: check which of its names are used there"
        )
    return Decision("rewritten", "the module of old names", (site.renamed(site.old.compat),))


def of_import(
    program: Program,
    statement: Import,
    settled: Collection[cst.CSTNode],
    left_alone: Collection[cst.CSTNode] = (),
) -> Iterator[tuple[bool, Decision]]:
    """Yields what becomes of an import statement, and whether KMP014 says so.

    Args:
        program: What it is in.
        statement: The statement.
        settled: The names, at the beginning of chains, that were rewritten.
        left_alone: Chains that would have been, and stay with what they mean.
    """
    if isinstance(statement.names, cst.ImportStar):
        if any(legacy_name(full.removesuffix(".*")) for _, full in imported(statement)):
            yield False, Decision("manual", "name what is imported: * cannot be followed")
        return
    aliases, found = list(statement.names), _old_aliases(statement)
    if not found:
        return
    if program.is_guarded(statement):
        first = next(iter(found.values()))
        yield True, version_checks.decide(first, several=False)
        return
    scope = program.scope(statement)
    in_class = isinstance(scope, ClassScope)
    for i in [*found]:
        meaning = program.bound(scope, _bound(aliases[i]).split(".")[0]) if scope else None
        if meaning is not None and (meaning.several or meaning.guarded):
            yield True, version_checks.decide(found.pop(i), several=meaning.several)
    unknown = [name for name in found.values() if not name.known]
    if unknown:
        why = f"{unknown[0]} has no counterpart: check what keras_mp.compat.mixed_precision has"
        yield False, Decision("manual", why)
    known = {i: name for i, name in found.items() if name.known}
    for i in [*known]:
        if _serves(program, statement, aliases[i], left_alone):
            del known[i]
            yield False, Decision("kept", "code that is not rewritten uses it")
    if not known:
        return
    new: list[tuple[str, str]] = []
    for i, name in [*known.items()]:
        if _is_plain(statement, aliases[i]):
            if _spells_unknown(program.text, dotted(aliases[i].name)):
                del known[i]
                yield False, Decision("manual", f"a name of {name} is used that has no counterpart")
            continue
        used = _references(program, statement, aliases[i])
        left = [node for node in used if root_of(node) not in settled]
        if any(_is_unknown(program, node) for node in left if not program.is_dead(node)):
            del known[i]
            yield False, Decision("manual", f"a name of {name} is used that has no counterpart")
        elif left or not used or in_class or _is_exported(program, _bound(aliases[i])):
            new.append(_compat_import(statement, aliases[i], name))
    if not known:
        return
    gone = _is_plain_all(statement, [aliases[i] for i in known])
    edits = _edits(program, statement, aliases, known, new, gone)
    if not unknown:
        why = "keras_mp.compat has it" if new else "no longer used"
        yield False, Decision("rewritten", why, edits)
    else:
        yield False, Decision("manual", why, edits)


def _serves(
    program: Program,
    statement: Import,
    alias: cst.ImportAlias,
    chains: Collection[cst.CSTNode],
) -> bool:
    """Returns whether one of these chains begins with what an import binds."""
    if not chains:
        return False
    if _is_plain(statement, alias):
        return any(program.source(one).startswith(f"{dotted(alias.name)}.") for one in chains)
    roots = {root_of(one) for one in chains}
    return any(root_of(one) in roots for one in _references(program, statement, alias))


def _whole(full: str) -> Old | None:
    found = legacy_name(full)
    return found if found is not None and found.length == full.count(".") + 1 else None


def _is_plain(statement: Import, alias: cst.ImportAlias) -> bool:
    """Returns whether it is `import a.b.c`, which binds a."""
    return isinstance(statement, cst.Import) and alias.asname is None


def _is_plain_all(statement: Import, aliases: list[cst.ImportAlias]) -> str:
    """Returns the statement that binds what imports of whole paths have bound; "" for none."""
    roots = (dotted(a.name).split(".")[0] for a in aliases if _is_plain(statement, a))
    names = ", ".join(dict.fromkeys(roots))
    return f"import {names}" if names else ""


def _bound(alias: cst.ImportAlias) -> str:
    if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
        return alias.asname.name.value
    return dotted(alias.name)


def _references(program: Program, statement: Import, alias: cst.ImportAlias) -> list[cst.CSTNode]:
    bound = program.bindings(statement, _bound(alias).split(".")[0])
    return [access.node for assignment in bound for access in assignment.references]


def _is_unknown(program: Program, node: cst.CSTNode) -> bool:
    """Returns whether a name begins a chain to something that keras_mp.compat does not have."""
    whole = root_of(node)
    while isinstance(parent := program.parent(whole), cst.Attribute):
        whole = parent
        found = program.old(whole)
        if found is not None and not found.known:
            return True
    return False


@functools.lru_cache(maxsize=16)  # a program may import one module many times
def _spells_unknown(text: str, module: str) -> bool:
    """Returns whether something of a module, by its whole path, is not known."""
    spelled = re.findall(rf"\b{re.escape(module)}(?:\.\w+)+", text)
    return any(found is not None and not found.known for found in map(legacy_name, spelled))


def _is_exported(program: Program, name: str) -> bool:
    return "__all__" in program.text and re.search(rf"[\"']{name}[\"']", program.text) is not None


def _compat_import(statement: Import, alias: cst.ImportAlias, name: Old) -> tuple[str, str]:
    """Returns the module to import from, and what of it; or nothing, and the statement."""
    module, _, last = name.compat.rpartition(".")
    bound = _bound(alias)
    if isinstance(statement, cst.Import):
        return "", f"import {name.compat} as {bound}"
    renamed = "" if bound == last else f" as {bound}"
    return module, f"{last}{renamed}"


def _edits(
    program: Program,
    statement: Import,
    aliases: list[cst.ImportAlias],
    known: Collection[int],
    new: list[tuple[str, str]],
    kept: str,
) -> tuple[Edit, ...]:
    modules = dict.fromkeys(module for module, _ in new)
    lines = [kept] if kept else []
    for module in modules:
        names = ", ".join(name for of, name in new if of == module)
        lines.append(f"from {module} import {names}" if module else names)
    if len(known) == len(aliases):
        return _replaced(program, statement, lines)
    edits = [_without(program, aliases, i, known) for i in sorted(known)]
    if lines:
        edits.append(_line_after(program, statement, lines))
    return tuple(_joined(edits))


def _without(
    program: Program, aliases: list[cst.ImportAlias], i: int, gone: Collection[int]
) -> Edit:
    """Returns the edit that takes one of several names out of an import."""
    text = program.text
    start, end = program.span(aliases[i])
    comma = re.match(r"\s*,", text[end:])
    if comma is None:  # the last one, and so the comma before it goes, if there is one to keep
        left = max(j for j in range(len(aliases)) if j not in gone)
        before = program.span(aliases[left])[1]
        return Edit(start if "#" in text[before:start] else before, end, "")
    end += comma.end()
    line = program.where(aliases[i])[0]
    begin = program.lines.starts[line - 1]
    rest = program.lines.of(line)[end - begin :]
    alone = not text[begin:start].strip() and (not rest.strip() or _FOR_TOOLS.search(rest))
    if alone and line < len(program.lines):
        return Edit(begin, program.lines.after(line), "")
    return Edit(start, end + len(rest) - len(rest.lstrip(" \t")), "")


def _joined(edits: list[Edit]) -> list[Edit]:
    """Returns deletions that touch or overlap as one."""
    joined: list[Edit] = []
    for edit in sorted(edits):
        if joined and edit.start < joined[-1].end and not edit.text:
            joined[-1] = Edit(joined[-1].start, max(edit.end, joined[-1].end), joined[-1].text)
        else:
            joined.append(edit)
    return joined


def _line_after(program: Program, statement: Import, lines: list[str]) -> Edit:
    holder = program.parent(statement)
    if not isinstance(holder, cst.SimpleStatementLine) or len(holder.body) > 1:
        end = program.span(statement)[1]
        return Edit(end, end, "".join(f"; {one}" for one in lines))
    line, _ = program.where(statement)
    last = program.lines_of(statement)[-1]
    indent, newline = program.lines.indent(line), program.lines.ending(line)
    at = program.lines.after(last)
    text = "".join(f"{indent}{one}{newline}" for one in lines)
    return Edit(at, at, text if last < len(program.lines) else newline + text)


def _replaced(program: Program, statement: Import, lines: list[str]) -> tuple[Edit, ...]:
    start, end = program.span(statement)
    line = program.parent(statement)
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) > 1:
        if lines or not isinstance(line, cst.SimpleStatementLine):
            return (Edit(start, end, "; ".join(lines) or "pass"),)
        at = line.body.index(statement)
        if at + 1 < len(line.body):
            return (Edit(start, program.span(line.body[at + 1])[0], ""),)
        return (Edit(program.span(line.body[at - 1])[1], end, ""),)
    first = program.where(statement)[0]
    indent, newline = program.lines.indent(first), program.lines.ending(first)
    comments = [node.value for node in Nodes(statement).of(cst.Comment)]
    lines = [text for text in comments if not _FOR_TOOLS.search(text)] + lines
    if lines:
        return (Edit(start, end, (newline + indent).join(lines)),)
    block = program.parent(line)
    if isinstance(block, cst.IndentedBlock) and all(map(_imports_only_old, block.body)):
        return (Edit(start, end, "pass"),)
    finish = program.lines.after(program.lines_of(statement)[-1])
    behind = program.text[end:finish]
    if "#" in behind and not _FOR_TOOLS.search(behind):  # a comment behind it stays
        return (Edit(start, end + len(behind) - len(behind.lstrip()), ""),)
    return (Edit(program.lines.starts[first - 1], finish, ""),)


def _imports_only_old(line: cst.CSTNode) -> bool:
    """Returns whether a line of a block may go."""
    return isinstance(line, cst.SimpleStatementLine) and all(
        isinstance(one, (cst.Import, cst.ImportFrom))
        and not isinstance(one.names, cst.ImportStar)
        and len(_old_aliases(one)) == len(one.names)
        for one in line.body
    )


def _old_aliases(statement: Import) -> dict[int, Old]:
    """Returns the old names that a statement imports, by their position in it."""
    assert not isinstance(statement.names, cst.ImportStar)  # which neither caller hands on
    named = ((i, _whole(full)) for i, (_, full) in enumerate(imported(statement)))
    return {i: name for i, name in named if name is not None}
