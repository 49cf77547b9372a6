"""The lines of `functions` and `graph_ops`, read; and calls bound by them."""

import ast
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from keras_mp.compat.operations import expressions, functions, graph_ops
from keras_mp.compat.operations.expressions import Expression
from keras_mp.compat.operations.vocabulary import REQUIRED, signatures

# What the first argument is called in one function or the other.
_FIRST = frozenset(
    (
        *("a", "features", "image", "images", "input", "input_", "input_tensor", "inputs"),
        *("logits", "t", "tensor", "value", "values", "x"),
    )
)


class NotConverted(ValueError):
    """A call has no counterpart; the message says why, without the name of the function."""


@dataclass(frozen=True, slots=True)
class Line:
    """One function, or one op.

    Attributes:
        arguments: Name -> default; `REQUIRED` without.
        rest: The argument that takes all positional ones that are left, or None.
        attributes: Those of `arguments` that are attributes of an op, and not its inputs.
        result: What it computes.
        allowed: Argument -> the values that it may have.
    """

    arguments: dict[str, object]
    rest: str | None
    attributes: frozenset[str]
    result: ast.expr
    allowed: dict[str, tuple[object, ...]]


def of_functions() -> Mapping[str, Line]:
    """Returns the functions below `tf.` by their names.

    >>> "math.reduce_mean" in of_functions()
    True
    """
    return _read(functions.lines)


def of_graph_ops() -> Mapping[str, Line]:
    """Returns the ops of graphs by their names."""
    return _read(graph_ops.lines)


@functools.cache
def _read(lines: object) -> Mapping[str, Line]:
    assert callable(lines)
    found: dict[str, Line] = {}
    for text in lines():
        names, line = parsed_line(text)
        found |= dict.fromkeys(names, line)
    return found


def parsed_line(text: str) -> tuple[list[str], Line]:
    """Returns the names of a line, and what it says."""
    heads, _, _ = text.partition("(")
    before, _, after = text.partition(") = ")
    result, _, conditions = after.partition(" ; ")
    definition = ast.parse(f"def f({before.partition('(')[2]}): pass").body[0]
    assert isinstance(definition, ast.FunctionDef)
    given = definition.args
    bare = len(given.args) - len(given.defaults)
    defaults: list[ast.expr | None] = [*[None] * bare, *given.defaults, *given.kw_defaults]
    arguments = {
        one.arg: REQUIRED if default is None else _literal(default)
        for one, default in zip([*given.args, *given.kwonlyargs], defaults, strict=True)
    }
    allowed: dict[str, tuple[object, ...]] = {}
    if conditions:
        for condition in conditions.split(" and "):
            name, _, values = condition.partition(" in ")
            allowed[name.strip()] = ast.literal_eval(values)
    rest = given.vararg.arg if given.vararg else None
    attributes = frozenset(one.arg for one in given.kwonlyargs)
    expression = ast.parse(result, mode="eval").body
    names = [name.strip() for name in heads.split(",")]
    return names, Line(arguments, rest, attributes, expression, allowed)


def _literal(node: ast.expr) -> object:
    value = ast.literal_eval(node)
    return _listed(value)


def _listed(value: object) -> object:
    return [_listed(item) for item in value] if isinstance(value, tuple | list) else value


def result_of_call(
    line: Line, positional: Sequence[Expression], named: Mapping[str, Expression]
) -> Expression:
    """Returns what a call computes.

    Raises:
        NotConverted: An argument is missing, unknown, or has a value with no counterpart.
    """
    values: dict[str, Expression] = {}
    names = [name for name in line.arguments if name not in line.attributes]
    if line.rest is not None:
        head = names
        values |= zip(head, positional, strict=False)
        values[line.rest] = list(positional[len(head) :])
    elif len(positional) > len(names) + ("name" not in names):
        raise NotConverted(f"takes {len(names)} arguments, and got {len(positional)}")
    else:
        values |= zip(names, positional, strict=False)
    for key, value in named.items():
        if key == "name":
            continue
        if key not in line.arguments:
            first = names[0] if names else None
            if first is None or first in values or key not in _FIRST:
                raise NotConverted(f"has an argument {key!r} that is not known")
            key = first
        if key in values:
            raise NotConverted(f"has its argument {key!r} twice")
        values[key] = value
    for key, default in line.arguments.items():
        if key not in values:
            if default is REQUIRED:
                raise NotConverted(f"has no {key!r}")
            values[key] = default
    for key, allowed in line.allowed.items():
        if not any(_equal(values[key], _listed(value)) for value in allowed):
            found = expressions.as_source(values[key])
            raise NotConverted(f"has {key}={found}, which keras.ops does not have")
    return _computed(line.result, values)


def _equal(value: object, other: object) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _computed(node: ast.expr, values: Mapping[str, Expression]) -> Expression:
    match node:
        case ast.Name(name):
            return values[name]
        case ast.Constant(value):
            return value
        case ast.List(items) | ast.Tuple(items):
            return [_computed(item, values) for item in items]
        case ast.UnaryOp(ast.USub(), ast.Constant()):
            return ast.literal_eval(node)
        case ast.BoolOp(ast.Or(), options):
            found = [_computed(option, values) for option in options]
            return next((value for value in found[:-1] if value), found[-1])
        case ast.IfExp(test, then, otherwise):
            return _computed(then if _holds(test, values) else otherwise, values)
        case ast.Call(ast.Name(name), given, keywords):
            arguments = [_computed(one, values) for one in given]
            if name == "first":
                return next((value for value in arguments if value is not None), None)
            if name == "refuse":
                raise NotConverted(str(arguments[0]))
            if name in ("last", "all_but_last"):
                values_of = arguments[0]
                if not isinstance(values_of, list) or not values_of:
                    raise NotConverted("has no inputs")
                return values_of[-1] if name == "last" else values_of[:-1]
            assert name in signatures(), name
            named = {str(one.arg): _computed(one.value, values) for one in keywords}
            return expressions.operation(name, *arguments, **named)
    raise AssertionError(ast.dump(node))


def _holds(test: ast.expr, values: Mapping[str, Expression]) -> bool:
    match test:
        case ast.Compare(left, [ast.Is()], [ast.Constant(None)]):
            return _computed(left, values) is None
        case ast.Compare(left, [ast.Eq()], [right]):
            return _equal(_computed(left, values), _computed(right, values))
    raise AssertionError(ast.dump(test))
