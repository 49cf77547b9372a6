"""Where the code uses what Keras keeps to itself, read off its sources.

A use is an attribute `x._name`, or that name as a string handed to `getattr` and its like; and each
attribute, or import, of `keras.src`. A private name is Keras' if Keras' own sources define it and
ours do not, or if the table in `keras_mp/backends/private_names.md` has it.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "keras_mp" / "backends" / "private_names.md"
PACKAGES = ("keras_mp", "compat", "migration")
BY_STRING = {"getattr", "hasattr", "setattr", "delattr", "replaced"}


class PrivateName(NamedTuple):
    """A row of the table: a name that Keras may change."""

    name: str
    why: str
    without: str
    used_by: tuple[str, ...]


def table() -> list[PrivateName]:
    """Returns the rows of the table."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    return [
        PrivateName(name.strip("`"), why, without, tuple(users.replace("`", "").split(", ")))
        for name, why, without, users in rows
    ]


@dataclass(frozen=True, slots=True)
class Use:
    """A place in the code; `owner` is the function or class, at the top of its module, around."""

    name: str
    owner: str
    file: Path
    line: int


def sources() -> list[Path]:
    """Returns the modules of the three packages; two of them are links in the first."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if package != "keras_mp" or path.relative_to(ROOT).parts[1] not in PACKAGES:
                found.append(path)
    return found


def uses(known: set[str], of_keras: set[str]) -> list[Use]:
    """Returns all uses.

    Args:
        known: Private names of the table, without leading class.
        of_keras: Those that Keras' sources define.
    """
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sources()}
    ours = set().union(*(defined(tree) for tree in trees.values()))
    found = []
    for path, tree in trees.items():
        here = defined(tree)
        for node, owner in _owned(tree):
            name = _name(node)
            if name is None:
                continue
            if not name.startswith("keras.src"):
                is_keras = name in known if name in ours else name in of_keras | known
                if not is_keras or name in here:
                    continue
            found.append(Use(name, owner, path, node.lineno))
    return found


def defined(tree: ast.Module) -> set[str]:
    """Returns the private names that a module defines: functions, and attributes of its classes.

    >>> sorted(defined(ast.parse("class A:\\n def _f(self):\\n  self._x = 1")))
    ['_f', '_x']
    """
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Assign(targets=targets):
                found.update(each.id for each in targets if isinstance(each, ast.Name))
    return {name for name in found if _is_private(name)}


def _owned(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for top in tree.body:
        owner = getattr(top, "name", "<module>")
        parts = set()
        for node in ast.walk(top):
            if isinstance(node, ast.Attribute):  # of a chain the whole is taken
                part = node.value
                while isinstance(part, ast.Call):
                    part = part.func
                parts.add(part)
        for node in ast.walk(top):
            if node not in parts or not ast.unparse(node).startswith("keras.src"):
                yield node, owner


def _name(node: ast.AST) -> str | None:
    match node:
        case ast.Attribute(attr=name) if _is_private(name):
            return name
        case ast.Attribute() if (text := ast.unparse(node)).startswith("keras.src."):
            return text
        case ast.ImportFrom(module=str(module)) if module.startswith("keras.src"):
            return f"{module}.{node.names[0].name}"
        case ast.Call(args=[_, ast.Constant(value=str(name)), *_]) if _is_private(name):
            called = ast.unparse(node.func)
            by_string = (
                called in BY_STRING
                or called.endswith(("__setattr__", ".replaced"))
                or called == "replaced"
            )
            return name if by_string else None
    return None


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")
