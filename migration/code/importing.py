"""Where `import keras_mp` goes, if the program has none."""

from collections.abc import Sequence

import libcst as cst

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.parsed import Import, Program, imported

_LINE = "import keras_mp"
_BEFORE = ("tensorflow", "keras", "tf_keras", "tensorflow_core")


def import_of_ours(program: Program, edits: Sequence[Edit]) -> list[Edit]:
    """Returns the edits that import keras_mp: before the import of TensorFlow or Keras.

    Where these are imported in functions only, so is keras_mp.

    Args:
        program: The program.
        edits: What else is changed.
    """
    used = min((edit.start for edit in edits if _NAME in edit.text), default=len(program.text))
    if any(_binds(line) and program.span(line)[0] < used for line in program.module.body):
        return []
    first = next((line for line in program.module.body if _imports_old(line)), None)
    if isinstance(first, cst.SimpleStatementLine) and _is_header(first.body[0]):
        within = next(one for one in first.body if _imports_old(one))
        at = program.span(within)[0]
        return [Edit(at, at, f"{_LINE}; ")]
    if first is not None:
        return [_at(program, program.where(first)[0])]
    functions = _functions(program)
    inner = {}
    for edit in edits:
        if _NAME not in edit.text:
            continue
        around = next((f for f in functions if _spans(program, f, edit)), None)
        if around is None:
            return [_at(program, _below_header(program))]
        inner[around] = program.where(functions[around])[0]
    return [_at(program, line) for line in inner.values()]


_NAME = "keras_mp."


def _spans(program: Program, function: cst.FunctionDef, edit: Edit) -> bool:
    start, end = program.span(function)
    return start <= edit.start < end


def _at(program: Program, line: int) -> Edit:
    """Returns the edit that imports it before a line, indented as that."""
    at = program.lines.starts[line - 1]
    return Edit(at, at, f"{program.lines.indent(line)}{_LINE}{program.lines.ending(line)}")


def _functions(program: Program) -> dict[cst.FunctionDef, cst.CSTNode]:
    """Returns outermost functions that import TensorFlow or Keras, and the first such statement."""
    found: dict[cst.FunctionDef, cst.CSTNode] = {}
    for one in program.nodes.of(cst.FunctionDef):
        if isinstance(one.body, cst.IndentedBlock) and program.function(one) is program.module:
            first = next((line for line in one.body.body if _imports_old(line)), None)
            if first is not None:
                found[one] = first
    return found


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
        self.roots |= _roots(node)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        self.roots |= _roots(node)


def _binds(line: cst.CSTNode) -> bool:
    """Returns whether it is `import keras_mp`, without another name."""
    return isinstance(line, cst.SimpleStatementLine) and any(
        alias is not None and alias.asname is None and full.split(".")[0] == "keras_mp"
        for statement in line.body
        if isinstance(statement, cst.Import)
        for alias, full in imported(statement)
    )


def _roots(statement: Import) -> set[str]:
    return {full.split(".")[0] for _, full in imported(statement)}


def _is_header(statement: cst.CSTNode) -> bool:
    """Returns whether nothing may stand before it: a docstring, an import of __future__."""
    if isinstance(statement, cst.Expr):
        return isinstance(statement.value, (cst.SimpleString, cst.ConcatenatedString))
    return isinstance(statement, cst.ImportFrom) and "__future__" in _roots(statement)


def _below_header(program: Program) -> int:
    """Returns the first line behind docstring and __future__ imports: one of what is rewritten."""
    body = program.module.body
    count = next(
        i
        for i, line in enumerate(body)
        if not isinstance(line, cst.SimpleStatementLine) or not _is_header(line.body[0])
    )
    if count:
        return program.lines_of(body[count - 1])[-1] + 1
    return program.where([*getattr(body[0], "decorators", ()), body[0]][0])[0]
