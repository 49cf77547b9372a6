"""Expressions as conditions: `and`, `or`, `not`, `a if b else c`, `a < b < c`.

Python keeps no trace of how a condition was written, only where it jumps. So there is one form for
all that jump alike: `not` is as far in as it goes, and what can be a chain is one.
"""

import ast

from keras_mp.compat.code_objects.errors import Malformed
from keras_mp.compat.code_objects.expressions import Expressions, truth

_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


def both(make: Expressions, left: ast.expr, right: ast.expr) -> ast.expr:
    """Returns `left and right`; `a < b and b < c` is `a < b < c` if `b` is made once."""
    values = _values(left, ast.And)
    for value in _values(right, ast.And):
        values[-1:] = _chained(make, values[-1], value) or [values[-1], value]
    if len(values) == 1:
        return values[0]
    return make.register(ast.BoolOp(op=ast.And(), values=values), values)


def either(make: Expressions, left: ast.expr, right: ast.expr) -> ast.expr:
    """Returns `left or right`; `not a < b or not b < c` likewise is `not a < b < c`."""
    values = _values(left, ast.Or)
    for value in _values(right, ast.Or):
        before, after = _operand_of_not(values[-1]), _operand_of_not(value)
        chain = _chained(make, before, after) if before and after else None
        values[-1:] = [make.unary(ast.Not(), *chain)] if chain else [values[-1], value]
    if len(values) == 1:
        return values[0]
    return make.register(ast.BoolOp(op=ast.Or(), values=values), values)


def _chained(make: Expressions, left: ast.expr, right: ast.expr) -> list[ast.expr] | None:
    if not isinstance(left, ast.Compare) or not isinstance(right, ast.Compare):
        return None
    if left.comparators[-1] is not right.left:
        return None
    comparators = [*left.comparators, *right.comparators]
    node = ast.Compare(left=left.left, ops=[*left.ops, *right.ops], comparators=comparators)
    return [make.register(node, [left.left, *comparators])]


def conditional(
    make: Expressions, test: ast.expr, yes: ast.expr, no: ast.expr, falls: bool
) -> ast.expr:
    """Returns what a branch gives: `yes if test else no`, or `and`, or `or`.

    Args:
        test: What is asked. As `yes` or `no`, it stands for its own value.
        yes: The value if it is true.
        no: The value if not.
        falls: Whether `yes` comes first in the code: if not, it was `no if not test else yes`.
    """
    for value in (test, yes, no):
        if make.facts(value).slices:
            raise Malformed("chooses between slices")
    if no is test:
        return both(make, test, yes)
    if yes is test:
        return either(make, test, no)
    if not falls:
        test, yes, no = negated(make, test), no, yes
    test = as_condition(make, test)
    return make.register(ast.IfExp(test=test, body=yes, orelse=no), [test, yes, no])


def as_condition(make: Expressions, test: ast.expr) -> ast.expr:
    """Returns an expression of which only the truth counts, with `not` as far in as it goes.

    3.5 and 3.6 keep `not (a and b)`, and the others make it `not a or not b`.
    """
    make.spend(1)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = test.operand
        if isinstance(inner, ast.UnaryOp | ast.BoolOp | ast.IfExp | ast.Compare):
            turned = negated(make, inner)
            same = isinstance(turned, ast.UnaryOp) and turned.operand is inner
            return test if same else turned
        return test
    if isinstance(test, ast.BoolOp):
        values = [as_condition(make, value) for value in test.values]
        if all(new is old for new, old in zip(values, test.values, strict=True)):
            return test
        join = both if isinstance(test.op, ast.And) else either
        joined = values[0]
        for value in values[1:]:
            joined = join(make, joined, value)
        return joined
    if isinstance(test, ast.IfExp):
        yes, no = as_condition(make, test.body), as_condition(make, test.orelse)
        if truth(yes) is not None:
            return (
                either(make, test.test, no)
                if truth(yes)
                else both(make, negated(make, test.test), no)
            )
        if truth(no) is not None:
            return (
                either(make, negated(make, test.test), yes)
                if truth(no)
                else both(make, test.test, yes)
            )
        if yes is not test.body or no is not test.orelse:
            return make.register(
                ast.IfExp(test=test.test, body=yes, orelse=no), [test.test, yes, no]
            )
    return test


def negated(make: Expressions, test: ast.expr) -> ast.expr:
    """Returns `not test`, of which only the truth counts."""
    test = as_condition(make, test)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return as_condition(make, test.operand)
    if isinstance(test, ast.BoolOp):
        join = either if isinstance(test.op, ast.And) else both
        joined = negated(make, test.values[0])
        for value in test.values[1:]:
            joined = join(make, joined, negated(make, value))
        return joined
    if isinstance(test, ast.IfExp):
        yes, no = negated(make, test.body), negated(make, test.orelse)
        return make.register(ast.IfExp(test=test.test, body=yes, orelse=no), [test.test, yes, no])
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        opposite = _OPPOSITES.get(type(test.ops[0]))
        if opposite:
            return make.comparison(test.left, opposite(), test.comparators[0])
    return make.unary(ast.Not(), test)


def _operand_of_not(node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    return None


def _values(node: ast.expr, operator: type[ast.boolop]) -> list[ast.expr]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, operator):
        return list(node.values)
    return [node]
