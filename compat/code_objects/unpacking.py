"""`a, *b = value`: what each name is given."""

import ast

from keras_mp.compat.code_objects.errors import Refused
from keras_mp.compat.code_objects.expressions import Expressions


def parts_of(value: ast.expr) -> list[ast.expr] | None:
    """Returns the parts of a value, where it is a tuple or a list of which all are known."""
    if not isinstance(value, ast.Tuple | ast.List):
        return None
    return None if any(isinstance(one, ast.Starred) for one in value.elts) else value.elts


def shared_out(
    make: Expressions, parts: list[ast.expr], before: int, after: int, starred: bool
) -> list[ast.expr]:
    """Returns known parts as an unpacking shares them out, those of `*` as a list.

    Raises:
        Refused: There are too few, or too many.
    """
    least = before + after
    if len(parts) < least or (len(parts) > least and not starred):
        raise Refused(f"an unpacking of {len(parts)} values to {least} names")
    if not starred:
        return parts
    end = len(parts) - after
    rest = make.sequence(ast.List, parts[before:end])
    return [*parts[:before], rest, *parts[end:]]


def places_of(
    make: Expressions, value: ast.expr, before: int, after: int, starred: bool
) -> list[ast.expr]:
    """Returns the parts of a value whose parts are not known: `value[0]`, `[*value[1:]]`."""
    items = [_place(make, value, place) for place in range(before)]
    if starred:
        items.append(_rest(make, value, before, after))
    return items + [_place(make, value, place) for place in range(-after, 0)]


def _place(make: Expressions, of: ast.expr, place: int) -> ast.expr:
    return make.item(of, make.constant(place))


def _rest(make: Expressions, of: ast.expr, before: int, after: int) -> ast.expr:
    lower = make.constant(before) if before else None
    upper = make.constant(-after) if after else None
    parts = [one for one in (lower, upper) if one is not None]
    key = make.register(ast.Slice(lower=lower, upper=upper, step=None), parts)
    whole = make.starred(make.item(of, key))
    return make.sequence(ast.List, [whole])
