"""Expressions: JSON and back, as text, and what is not one."""

import ast
import json
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from keras_mp.compat.operations import expressions
from keras_mp.compat.operations.expressions import as_source, checked_expression, operation
from keras_mp.compat.operations.vocabulary import REQUIRED, STAYS_STATIC, signatures

X, Y = {"tensor": 0}, {"tensor": 1}
numbers = st.integers(-9, 9) | st.sampled_from([0.5, -0.25, 1e-7, math.inf, -math.inf])
leaves = numbers | st.booleans() | st.none() | st.sampled_from([X, Y, "float32", {"step": 0}])


@st.composite
def _operations(draw: Any, inside: Any) -> Any:
    name = draw(st.sampled_from(sorted(signatures())))
    known = signatures()[name].arguments
    given_here = {
        key: draw(inside)
        for key, default in known.items()
        if default is REQUIRED or draw(st.booleans())
    }
    return operation(name, **given_here)


@st.composite
def _parts(draw: Any, inside: Any) -> Any:
    ends = st.none() | st.integers(-3, 3)
    key = draw(
        inside
        | st.just({"ellipsis": True})
        | st.builds(lambda *three: {"slice": [*three]}, ends, ends, ends)
    )
    return operation("get_item", draw(inside), draw(st.sampled_from([key, [key, None]])))


any_expression = st.recursive(
    leaves,
    lambda inside: st.lists(inside, max_size=3) | _operations(inside) | _parts(inside),
    max_leaves=12,
)


@given(any_expression)
def test_json_and_back(expression: Any) -> None:
    assert checked_expression(json.loads(json.dumps(expression))) == expression


@given(any_expression)
def test_text_is_python(expression: Any) -> None:
    ast.parse(as_source(expression), mode="eval")


@given(any_expression)
def test_parts(expression: Any) -> None:
    parts = list(expressions.walk(expression))
    assert expressions.map_parts(expression, lambda part: None) == expression
    used = {part["tensor"] for part in parts if isinstance(part, dict) and "tensor" in part}
    assert expressions.tensors(expression) == sorted(used)
    renamed = expressions.map_parts(expression, lambda part: Y if part == X else None)
    assert X not in list(expressions.walk(renamed))
    assert expressions.is_literal(expression) is not any(isinstance(part, dict) for part in parts)


OPERATORS = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "floor_divide": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "power": lambda a, b: a ** (b % 3),
    "less": lambda a, b: int(a < b),
    "equal": lambda a, b: int(a == b),
    "greater_equal": lambda a, b: int(a >= b),
}


@st.composite
def _arithmetic(draw: Any, inside: Any) -> Any:
    name = draw(st.sampled_from([*OPERATORS, "negative"]))
    return operation(name, *(draw(inside) for _ in range(1 if name == "negative" else 2)))


class Number:
    """A whole number whose operators are those of OPERATORS, divided by nothing but not 0."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __neg__(self) -> "Number":
        return Number(-self.value)


def _of(name: str, turned: bool) -> Any:
    def method(self: Number, other: Number | int) -> Number:
        one = other.value if isinstance(other, Number) else other
        a, b = (one, self.value) if turned else (self.value, one)
        return Number(value_of(name, a, b))

    return method


def value_of(name: str, a: int, b: int) -> int:
    if name in ("floor_divide", "mod") and b == 0:
        return 0
    return OPERATORS[name](a, b) % 1009


for _name, _sign in {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "floor_divide": "floordiv",
    "mod": "mod",
    "power": "pow",
}.items():
    setattr(Number, f"__{_sign}__", _of(_name, turned=False))
    setattr(Number, f"__r{_sign}__", _of(_name, turned=True))
for _name, _sign in {"less": "lt", "equal": "eq", "greater_equal": "ge"}.items():
    setattr(Number, f"__{_sign}__", _of(_name, turned=False))


def evaluated(expression: Any, x: int) -> int:
    if not isinstance(expression, dict):
        return int(expression)
    if "tensor" in expression:
        return x
    parts = [evaluated(part, x) for part in expression["arguments"].values()]
    name = expression["operation"]
    return -parts[0] if name == "negative" else value_of(name, *parts)


class _Numbers(ast.NodeTransformer):
    """Makes numbers ours, as 1 < 2 is else computed by Python."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.parse(f"Number({node.value})", mode="eval").body


@given(st.recursive(st.just(X) | st.integers(-5, 5), _arithmetic, max_leaves=8), st.integers(-4, 4))
def test_brackets_are_where_python_needs_them(expression: Any, x: int) -> None:
    tree = ast.fix_missing_locations(
        _Numbers().visit(ast.parse(as_source(expression), mode="eval"))
    )
    names = {"x": Number(x), "Number": Number}
    assert eval(compile(tree, "shown", "eval"), names).value == evaluated(expression, x)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (operation("power", -2, 2), "(-2) ** 2"),
        (operation("negative", operation("power", X, 2)), "-x ** 2"),
        (operation("less", operation("less", X, 1), 2), "(x < 1) < 2"),
        (operation("subtract", X, operation("subtract", X, 1)), "x - (x - 1)"),
        (
            operation("get_item", X, [{"slice": [None, 2, None]}, {"ellipsis": True}, 0]),
            "x[:2, ..., 0]",
        ),
        (operation("get_item", operation("add", X, Y), 0), "(x[0] + x[1])[0]"),
        (operation("mean", X, [1, 2], True), "ops.mean(x, axis=[1, 2], keepdims=True)"),
        (operation("where", operation("greater", X, 0), X, 0.0), "ops.where(x > 0, x, 0.0)"),
        (operation("clip", X, None, math.inf), 'ops.clip(x, x_max=float("inf"))'),
        ({"step": 2}, "step_2"),
    ],
)
def test_as_text(expression: Any, text: str) -> None:
    assert as_source(expression) == text


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"operation": "sqare", "arguments": {}}, "there is no operation 'sqare'"),
        ({"operation": "add", "arguments": {"x1": 1}}, "add needs 'x2'"),
        ({"operation": "abs", "arguments": []}, "there is no operation 'abs'"),
        ({"operation": "absolute", "arguments": [1]}, "the arguments of absolute are no object"),
        ({"operation": "absolute", "arguments": {"y": 1}}, "absolute has no argument 'y'"),
        ({"operation": "absolute"}, r'no part of an expression: \["operation"\]'),
        ({"tensor": -1}, "tensor -1 is no number of one"),
        ({"tensor": True}, "tensor True is no number of one"),
        ({"step": "0"}, "step '0' is no number of one"),
        ({"tensor": 0, "step": 0}, "no part of an expression"),
        ({"slice": [0, 1]}, "a slice has a start, a stop and a step"),
        ({"slice": 3}, "a slice has a start, a stop and a step"),
        ([1, {1, 2}], "an expression has no set"),
        ([0] * 20_001, "an expression of more than 20000 parts"),
    ],
)
def test_what_is_none(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        checked_expression([value])


@pytest.mark.parametrize(
    ("arguments", "options", "why"),
    [
        ((X, 1, False, 3), {}, "sum takes 3 arguments, not 4"),
        ((X,), {"x": X}, "sum has no argument 'x', or has it twice"),
        ((X,), {"dims": 1}, "sum has no argument 'dims', or has it twice"),
        ((), {"axis": 1}, "sum needs 'x'"),
    ],
)
def test_arguments_that_do_not_fit(arguments: Any, options: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        operation("sum", *arguments, **options)


def test_defaults_are_left_out() -> None:
    assert operation("sum", X, None, False) == {"operation": "sum", "arguments": {"x": X}}
    assert operation("sum", X, 0)["arguments"] == {"x": X, "axis": 0}
    assert operation("relu", X, 0)["arguments"] == {"x": X, "negative_slope": 0}  # no 0.0


@pytest.mark.parametrize(
    ("expression", "steps", "is_static"),
    [
        (operation("shape", X), (), True),
        (operation("item", operation("shape", X), 1), (), True),
        (operation("floor_divide", operation("item", operation("shape", X), 1), 2), (), True),
        (operation("add", operation("rank", X), X), (), False),
        (operation("sin", 1.0), (), False),
        ({"step": 0}, (True,), True),
        ({"step": 0}, (False,), False),
        ({"step": 1}, (True,), False),
        ([1, 2.5, None, "a"], (), True),
    ],
)
def test_is_static(expression: Any, steps: tuple[bool, ...], is_static: bool) -> None:
    assert expressions.is_static(expression, steps) is is_static


def test_what_stays_static_is_there() -> None:
    assert signatures().keys() >= STAYS_STATIC


def test_depth_is_bounded() -> None:
    value: object = {"tensor": 0}
    for _ in range(expressions.MOST_LEVELS - 2):
        value = operation("sqrt", value)
    assert expressions.levels(expressions.checked_expression(value)) == expressions.MOST_LEVELS
    with pytest.raises(ValueError, match="more than 100 levels"):
        expressions.checked_expression(operation("sqrt", value))
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="more than 100 levels"):
        expressions.checked_expression(value)
