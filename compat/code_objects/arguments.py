"""Binds the arguments of a call to the parameters of a function, by Python's rules."""

import ast
from collections.abc import Sequence

from keras_mp.compat.code_objects.errors import Refused
from keras_mp.compat.code_objects.expressions import Expressions, identifier
from keras_mp.compat.code_objects.stack_items import Item, Made, Module

Argument = ast.expr | Made | Module

_OTHERS = {0x80 | 0x100 | 0x200: "async", 0x20: "a generator"}


def variables_of_call(
    make: Expressions, made: Made, values: Sequence[Item], keywords: Sequence[tuple[str, Item]]
) -> dict[str, Argument]:
    """Returns the variables that a call sets.

    Args:
        make: Makes the nodes.
        made: What is called.
        values: The positional arguments.
        keywords: The others.

    Raises:
        Refused: The call does not fit, or the function is of another kind.
    """
    code = made.code
    for flag, what in _OTHERS.items():
        if code.flags & flag:
            raise Refused(f"{what} ({made.where})")
    positional = code.parameters[: code.positional]
    make.spend(1 + (len(code.parameters) + len(values) + len(keywords)) // 8)
    found: dict[str, Argument] = {}
    if made.defaults:
        found |= zip(positional[-len(made.defaults) :], made.defaults, strict=False)
    found |= made.kwdefaults
    given = dict(zip(positional, values, strict=False))
    more = list(values[code.positional :])
    others = []
    for name, value in keywords:
        if name in given:
            raise _does_not_fit(made)
        if name in code.parameters:
            given[name] = value
        else:
            others.append((name, value))
    stars = {kind: name for name, kind in code.starred}
    if (more and "*" not in stars) or (others and "**" not in stars):
        raise _does_not_fit(made)
    found |= {name: _value(made, value) for name, value in given.items()}
    if any(name not in found for name in code.parameters):
        raise _does_not_fit(made)
    if "*" in stars:
        found[stars["*"]] = make.sequence(ast.Tuple, [_expression(made, one) for one in more])
    if "**" in stars:
        keys = [make.constant(identifier(name)) for name, _ in others]
        found[stars["**"]] = make.dictionary(keys, [_expression(made, one) for _, one in others])
    return found


def _value(made: Made, item: Item) -> Argument:
    if isinstance(item, ast.Starred) or not isinstance(item, ast.expr | Made | Module):
        raise _does_not_fit(made)
    return item


def _expression(made: Made, item: Item) -> ast.expr:
    value = _value(made, item)
    if not isinstance(value, ast.expr):
        raise _does_not_fit(made)
    return value


def _does_not_fit(made: Made) -> Refused:
    return Refused(f"a call that does not fit its function ({made.where})")
