"""Operators and comparisons, as each version writes them."""

import ast

from keras_mp.compat.code_objects import opcodes
from keras_mp.compat.code_objects.errors import Malformed
from keras_mp.compat.code_objects.expressions import Expressions
from keras_mp.compat.code_objects.instructions import Instruction
from keras_mp.compat.code_objects.opcodes import Version
from keras_mp.compat.code_objects.supported import OPERATORS

_BINARY: dict[str, type[ast.operator]] = {
    "+": ast.Add,
    "&": ast.BitAnd,
    "//": ast.FloorDiv,
    "<<": ast.LShift,
    "@": ast.MatMult,
    "*": ast.Mult,
    "%": ast.Mod,
    "|": ast.BitOr,
    "**": ast.Pow,
    ">>": ast.RShift,
    "-": ast.Sub,
    "/": ast.Div,
    "^": ast.BitXor,
}
UNARY: dict[str, type[ast.unaryop]] = {
    "UNARY_POSITIVE": ast.UAdd,
    "UNARY_NEGATIVE": ast.USub,
    "UNARY_NOT": ast.Not,
    "UNARY_INVERT": ast.Invert,
}
_COMPARISONS: dict[str, type[ast.cmpop]] = {
    "<": ast.Lt,
    "<=": ast.LtE,
    "==": ast.Eq,
    "!=": ast.NotEq,
    ">": ast.Gt,
    ">=": ast.GtE,
    "in": ast.In,
    "not in": ast.NotIn,
    "is": ast.Is,
    "is not": ast.IsNot,
}
ADD_IN_PLACE = 13  # of BINARY_OP


def unary(make: Expressions, name: str, value: ast.expr) -> ast.expr:
    """Returns what one of `UNARY` computes."""
    return make.unary(UNARY[name](), value)


def binary(
    make: Expressions, python: Version, instruction: Instruction, left: ast.expr, right: ast.expr
) -> ast.expr:
    """Returns what an operator or a comparison of two values computes."""
    name, argument = instruction.name, instruction.argument
    if name == "BINARY_OP":
        if argument >= 2 * len(opcodes.OPERATORS):
            raise Malformed(f"has the operator {argument}")
        operator = opcodes.OPERATORS[argument % len(opcodes.OPERATORS)]
        return make.binary(left, _BINARY[operator](), right)
    if name in ("COMPARE_OP", "IS_OP", "CONTAINS_OP"):
        compared = _COMPARISONS[_comparison(python, name, argument)]
        return make.comparison(left, compared(), right)
    operator = OPERATORS[name.partition("_")[2]]
    return make.binary(left, _BINARY[operator](), right)


def is_sum(instruction: Instruction) -> bool:
    """Returns whether an instruction is `left + right`."""
    return instruction.name == "BINARY_ADD" or (
        instruction.name == "BINARY_OP" and instruction.argument == 0
    )


def is_sum_in_place(instruction: Instruction) -> bool:
    """Returns whether an instruction is `left += right`."""
    return instruction.name == "INPLACE_ADD" or (
        instruction.name == "BINARY_OP" and instruction.argument == ADD_IN_PLACE
    )


def _comparison(python: Version, name: str, argument: int) -> str:
    if name == "IS_OP" and argument < 2:
        return ("is", "is not")[argument]
    if name == "CONTAINS_OP" and argument < 2:
        return ("in", "not in")[argument]
    most = 6 if python >= (3, 9) else len(opcodes.COMPARISONS)
    if name != "COMPARE_OP" or argument >= most:
        raise Malformed(f"has {name} {argument}")
    return opcodes.COMPARISONS[argument]
