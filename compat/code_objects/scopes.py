"""`with` around a name scope, which changes no number: its block is read as if it stood alone.

| version | enters | leaves |
| --- | --- | --- |
| 3.5 to 3.7 | SETUP_WITH | POP_BLOCK, None, WITH_CLEANUP_*, END_FINALLY; nothing before a return |
| 3.8 | SETUP_WITH | POP_BLOCK, BEGIN_FINALLY, WITH_CLEANUP_*, END_FINALLY or POP_FINALLY |
| 3.9, 3.10 | SETUP_WITH | POP_BLOCK, a call with three None |
| 3.11 | BEFORE_WITH | the same call; what is left by an exception stands in a table |
"""

import ast
from collections.abc import Iterator, Sequence

from keras_mp.compat.code_objects.errors import Malformed, Refused, Underflow
from keras_mp.compat.code_objects.expressions import Expressions
from keras_mp.compat.code_objects.instructions import Instruction
from keras_mp.compat.code_objects.opcodes import named
from keras_mp.compat.code_objects.stack_items import LEFT, NULL, Item

ENTERING = frozenset({"SETUP_WITH", "BEFORE_WITH"})
PASSED = named("POP_BLOCK WITH_CLEANUP_START WITH_CLEANUP_FINISH")
LEAVING = frozenset({"BEGIN_FINALLY", "END_FINALLY", "POP_FINALLY"})

# Below `tf`, `K`, `keras` or `tf.compat.v1`.
_TRANSPARENT = frozenset({"name_scope", "variable_scope"})


def items_of_scope(make: Expressions, of: ast.expr, where: str) -> list[Item]:
    """Returns what entering a scope leaves on the stack.

    Args:
        make: Makes the nodes.
        of: What stands after `with`.
        where: The instruction, with its line.

    Raises:
        Refused: It is no name scope.
    """
    if not _is_name_scope(of):
        raise Refused(f"try or with ({where})")
    value: ast.expr = make.missing("scope", "the name of a scope as a value")
    if isinstance(of, ast.Call) and of.args and isinstance(of.args[0], ast.Constant):
        text = of.args[0].value
        if isinstance(text, str):
            value = make.constant(f"{text}/")
    return [LEFT, value]


def _is_name_scope(of: ast.expr) -> bool:
    if not isinstance(of, ast.Call) or not isinstance(of.func, ast.Attribute):
        return False
    root = of.func.value
    while isinstance(root, ast.Attribute):
        root = root.value
    return of.func.attr in _TRANSPARENT and isinstance(root, ast.Name)


def leave(name: str, stack: list[Item]) -> None:
    """Changes the stack as an instruction at the end of a scope does."""
    if name == "BEGIN_FINALLY":
        stack.append(NULL)
        return
    if len(stack) < 2:
        raise Underflow(f"ends a scope with {len(stack)} values")
    if stack[-2] is not LEFT:
        raise Malformed("ends a scope that it did not enter")
    del stack[-2:]


def are_of_scopes(handlers: bytes, instructions: Sequence[Instruction]) -> bool:
    """Returns whether the exception table of 3.11 is of `with` only.

    What it leads to then begins with WITH_EXCEPT_START, or only ends the handling.
    """
    places = {one.offset: place for place, one in enumerate(instructions)}
    for target in _targets(handlers):
        place = places.get(2 * target, len(instructions))
        names = tuple(one.name for one in instructions[place : place + 3])
        is_end = names == ("COPY", "POP_EXCEPT", "RERAISE")
        if names[:2] != ("PUSH_EXC_INFO", "WITH_EXCEPT_START") and not is_end:
            return False
    return True


def _targets(table: bytes) -> Iterator[int]:
    """Yields where the entries lead. Source: Objects/exception_handling_notes.txt of 3.11."""
    numbers = []
    value = 0
    for byte in table:
        value = (value << 6 | byte & 63) & 0xFFFFFF
        if not byte & 64:
            numbers.append(value)
            value = 0
    # Each has a start, a length, a target, and a depth.
    yield from numbers[2::4]
    if len(numbers) % 4:
        yield -1
