"""Where `import keras_mp` goes, if the program has none."""

from collections.abc import Sequence

import libcst as cst

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.parsed import Program

_LINE = "import keras_mp"
_BEFORE = ("tensorflow", "keras", "tf_keras", "tensorflow_core")


def import_of_ours(program: Program, edits: Sequence[Edit]) -> list[Edit]:
    """Returns the edit that imports keras_mp: before the import of TensorFlow or Keras.

    Args:
        program: The program.
        edits: What else is changed.
    """
    if any(_binds(line) for line in program.module.body):
        return []
    first = next((line for line in program.module.body if _imports_old(line)), None)
    if first is not None:
        at = program.lines.starts[program.where(first)[0] - 1]
    else:
        at = _after_header(program)
    newline = program.module.default_newline
    before = "" if at == 0 or program.text[at - 1] in "\r\n" else newline
    return [Edit(at, at, f"{before}{_LINE}{newline}")]


def _imports_old(statement: cst.CSTNode) -> bool:
    """Returns whether a statement imports TensorFlow or Keras, be it in an `if` or a `try`."""
    found = _Imported()
    statement.visit(found)
    return not found.roots.isdisjoint(_BEFORE)


class _Imported(cst.CSTVisitor):
    def __init__(self) -> None:
        self.roots: set[str] = set()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        return False

    def visit_Import(self, node: cst.Import) -> None:
        self.roots |= {_root(alias.name) for alias in node.names}

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        if node.module is not None and not node.relative:
            self.roots.add(_root(node.module))


def _binds(line: cst.CSTNode) -> bool:
    """Returns whether it is `import keras_mp`, without another name."""
    return isinstance(line, cst.SimpleStatementLine) and any(
        isinstance(statement, cst.Import)
        and any(
            alias.asname is None and _root(alias.name) == "keras_mp" for alias in statement.names
        )
        for statement in line.body
    )


def _root(name: cst.CSTNode) -> str:
    return (cst.helpers.get_full_name_for_node(name) or "").split(".")[0]


def _after_header(program: Program) -> int:
    """Returns the offset behind docstring and __future__ imports."""
    last = 0
    for i, line in enumerate(program.module.body):
        if not isinstance(line, cst.SimpleStatementLine):
            break
        first = line.body[0]
        is_docstring = (
            i == 0
            and isinstance(first, cst.Expr)
            and isinstance(first.value, (cst.SimpleString, cst.ConcatenatedString))
        )
        is_future = (
            isinstance(first, cst.ImportFrom)
            and first.module is not None
            and cst.helpers.get_full_name_for_node(first.module) == "__future__"
        )
        if not (is_docstring or is_future):
            break
        last = program.lines_of(line)[-1]
    if last == 0:
        body = program.module.body
        first_line = program.where(body[0])[0] if body else 1
        return program.lines.starts[first_line - 1]
    if last >= len(program.lines):
        return len(program.text)
    return program.lines.starts[last]
