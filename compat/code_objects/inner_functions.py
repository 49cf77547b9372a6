"""Functions that are made within another one, and what a call takes, as each version has it."""

import ast
from collections.abc import Sequence

from keras_mp.compat.code_objects.errors import Malformed
from keras_mp.compat.code_objects.instructions import Instruction
from keras_mp.compat.code_objects.marshalled import Code
from keras_mp.compat.code_objects.opcodes import Version
from keras_mp.compat.code_objects.operands import Operands
from keras_mp.compat.code_objects.stack_items import NULL, Cells, Frame, Item, Made


def made_function(
    operands: Operands,
    python: Version,
    instruction: Instruction,
    stack: list[Item],
    frame: Frame,
    where: str,
) -> Made:
    """Takes what MAKE_FUNCTION or MAKE_CLOSURE makes a function of off the stack.

    Args:
        operands: Takes it.
        python: The version of the instructions.
        instruction: It.
        stack: Of the function that makes it.
        frame: The same function.
        where: The instruction with its line.
    """
    if python < (3, 11) and not _is_text(operands.pop(stack)):
        raise Malformed("makes a function without a name")
    code = operands.pop(stack)
    if not isinstance(code, Code):
        raise Malformed("makes a function of no code")
    flags, cells = instruction.argument, Cells(())
    if python < (3, 6):
        # Defaults, defaults of keywords with their names, annotations.
        closed = instruction.name == "MAKE_CLOSURE"
        others = (flags & 255) + 2 * (flags >> 8 & 255) + (flags >> 16)
    else:
        closed, others = bool(flags & 8), (flags & 7).bit_count()
    if closed:
        top = operands.pop(stack)
        if not isinstance(top, Cells):
            raise Malformed("makes a closure of no cells")
        cells = top
    values = operands.several(stack, others)
    if cells.names != code.free:
        raise Malformed("makes a closure of other variables than it has")
    defaults, kwdefaults = _defaults(operands, python, flags, values)
    return Made(code, frame, where, defaults, kwdefaults)


def _defaults(
    operands: Operands, python: Version, flags: int, values: list[Item]
) -> tuple[tuple[ast.expr, ...], tuple[tuple[str, ast.expr], ...]]:
    if python < (3, 6):
        # Those of keywords come after their names.
        end = (flags & 255) + 2 * (flags >> 8 & 255)
        positional = values[: flags & 255]
        named = [operands.expression(item) for item in values[flags & 255 : end]]
        pairs = zip(texts(named[::2]), named[1::2], strict=True)
        return tuple(operands.expression(item) for item in positional), tuple(pairs)
    whole = operands.expression(values[0]) if flags & 1 else None
    by_name = operands.expression(values[flags & 1]) if flags & 2 else None
    if not isinstance(whole, ast.Tuple | None) or not isinstance(by_name, ast.Dict | None):
        raise Malformed("makes a function with other defaults than values")
    keys = by_name.keys if by_name else []
    names = texts([key for key in keys if key is not None])
    pairs = zip(names, by_name.values if by_name else [], strict=True)
    return tuple(whole.elts if whole else ()), tuple(pairs)


def call_of(
    operands: Operands,
    python: Version,
    instruction: Instruction,
    keywords: tuple[str, ...],
    stack: list[Item],
) -> tuple[Item, list[Item], list[tuple[str, Item]]]:
    """Takes what a call needs off the stack.

    Args:
        operands: Takes it.
        python: The version of the instructions.
        instruction: The call, but for CALL_FUNCTION_EX.
        keywords: Those that KW_NAMES gave before it.
        stack: Of the function that calls.

    Returns:
        The function, its positional arguments, and those by name.
    """
    name, count = instruction.name, instruction.argument
    given: list[tuple[str, Item]] = []
    if python < (3, 6):
        flat, count = operands.several(stack, 2 * (count >> 8)), count & 255
        given = list(zip(texts(flat[::2]), flat[1::2], strict=True))
    elif name == "CALL_FUNCTION_KW":
        names = operands.pop(stack)
        keywords = texts(names.elts if isinstance(names, ast.Tuple) else [names])
    if len(keywords) > count:
        raise Malformed(f"names {len(keywords)} of {count} arguments")
    arguments = operands.several(stack, count)
    of = operands.pop(stack)
    if name == "CALL_METHOD":
        if of is not NULL:
            raise Malformed("calls a method that it did not load")
        of = operands.pop(stack)
    elif name == "CALL":
        below = operands.pop(stack)
        if below is not NULL:
            of, arguments = below, [of, *arguments]
    split = len(arguments) - len(keywords)
    given += zip(keywords, arguments[split:], strict=True)
    return of, arguments[:split], given


def texts(nodes: Sequence[Item]) -> tuple[str, ...]:
    """Returns the names that constants are; raises where one is no text."""
    return all_texts([n.value if isinstance(n, ast.Constant) else None for n in nodes])


def all_texts(values: Sequence[object]) -> tuple[str, ...]:
    """Returns names; raises where one is no text."""
    found = [value for value in values if isinstance(value, str)]
    if len(found) != len(values):
        raise Malformed("has something else where keywords belong")
    return tuple(found)


def _is_text(item: Item) -> bool:
    return isinstance(item, ast.Constant) and isinstance(item.value, str)
