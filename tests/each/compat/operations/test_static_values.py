"""What is computed with shapes is known when a model is called: no tensors on JAX and PyTorch."""

import operator
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from keras import ops

from keras_mp.compat.operations import expressions, tables
from keras_mp.compat.operations.computing.evaluating import evaluate
from keras_mp.compat.operations.computing.values import has_tensor
from keras_mp.compat.operations.expressions import operation
from keras_mp.compat.operations.vocabulary import STATIC, STAYS_STATIC
from tests.fuzzing import examples

BACKEND = keras.backend.backend()
SHAPE = (2, 6, 4)
X = np.arange(48, dtype="float32").reshape(SHAPE)
INPUT: dict[str, Any] = {"tensor": 0}
SIZES = operation("shape", INPUT)

PYTHON: dict[str, Callable[..., int]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "mod": operator.mod,
    "maximum": max,
    "minimum": min,
}


def size(axis: int) -> Any:
    return operation("item", SIZES, axis)


@st.composite
def _sums(draw: Any) -> tuple[Any, int]:
    """An expression of sizes and numbers, and its value by Python."""
    if draw(st.booleans()):
        axis = draw(st.integers(0, 2))
        return size(axis), SHAPE[axis]
    number = draw(st.integers(1, 9))
    return number, number


@st.composite
def arithmetic(draw: Any) -> tuple[Any, int]:
    """More of it."""
    one, value = draw(_sums())
    for _ in range(draw(st.integers(1, 5))):
        name = draw(st.sampled_from(sorted(PYTHON)))
        other, number = draw(_sums())
        if draw(st.booleans()) and not (value == 0 and name in ("floor_divide", "mod")):
            one, value = operation(name, other, one), PYTHON[name](number, value)
        else:
            one, value = operation(name, one, other), PYTHON[name](value, number)
    return one, value


def in_a_graph(function: Callable[[Any], Any], array: Any) -> Any:
    """Returns what a function computes as the backend compiles it; of unknown sizes, if it can."""
    if BACKEND == "jax":
        import jax

        return jax.jit(function)(array)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        kind = tf.TensorSpec([None] * array.ndim, array.dtype)
        return tf.function(function, input_signature=[kind])(array)
    return function(ops.convert_to_tensor(array))


@settings(deadline=None)  # the first example loads much
@given(arithmetic())
def test_arithmetic_is_that_of_python(pair: tuple[Any, int]) -> None:
    expression, value = pair
    found = evaluate(expression, [ops.convert_to_tensor(X)])
    assert type(found) is int
    assert found == value
    assert expressions.is_static(expression) or expressions.is_literal(expression)


@settings(max_examples=examples(5), deadline=None)
@given(arithmetic())
def test_arithmetic_in_a_graph(pair: tuple[Any, int]) -> None:
    expression, value = pair
    seen = []

    def function(x: Any) -> Any:
        seen.append(evaluate(expression, [x]))
        return ops.convert_to_tensor(seen[-1])

    assert int(in_a_graph(function, X)) == value
    if BACKEND != "tensorflow":
        assert type(seen[-1]) is int


def by_op(name: str, *inputs: Any, **attributes: Any) -> Any:
    """Returns an op of a graph, as TF 1.15 to 2.3 saved them."""
    return tables.result_of_call(tables.of_graph_ops()[name], inputs, attributes)


def _cut(begin: int) -> Any:
    return by_op(
        "StridedSlice", by_op("Shape", INPUT), [begin], [begin + 1], [1], shrink_axis_mask=1
    )


TWO_THIRDS = operation("floor_divide", operation("multiply", size(1), 2), 3)
# What programs did: a new shape, and the shape that it is.
IDIOMS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "two thirds": (operation("reshape", INPUT, [size(0), TWO_THIRDS, -1]), (2, 4, 6)),
    "heads": (
        operation("reshape", INPUT, [size(0), size(1), 2, operation("floor_divide", size(2), 2)]),
        (2, 6, 2, 2),
    ),
    "flat": (
        operation(
            "reshape",
            INPUT,
            [-1, operation("prod", operation("get_item", SIZES, {"slice": [1, None, None]}))],
        ),
        (2, 24),
    ),
    "joined lists": (
        operation(
            "reshape",
            INPUT,
            operation("concatenate", [operation("slice", SIZES, [0], [1]), [-1]], 0),
        ),
        (2, 24),
    ),
    "ops": (by_op("Reshape", INPUT, by_op("Pack", _cut(0), _cut(2), -1)), (2, 4, 6)),
    "product of ops": (
        by_op("Reshape", INPUT, by_op("Pack", by_op("Mul", _cut(0), _cut(1)), _cut(2))),
        (12, 4),
    ),
    "gathered": (
        by_op(
            "Reshape",
            INPUT,
            by_op("ConcatV2", by_op("GatherV2", by_op("Shape", INPUT), [2, 0], 0), [6], 0),
        ),
        (4, 2, 6),
    ),
    "product of some": (
        by_op(
            "Reshape",
            INPUT,
            by_op(
                "Pack", -1, by_op("Prod", by_op("GatherV2", by_op("Shape", INPUT), [1, 2], 0), [0])
            ),
        ),
        (2, 24),
    ),
    "cast": (
        operation(
            "reshape", INPUT, [operation("cast", operation("divide", size(1), 2), "int32"), -1]
        ),
        (3, 16),
    ),
    "fill": (operation("full", [size(0), size(1), 1], 0.0), (2, 6, 1)),
    "tiled": (
        operation("tile", operation("slice", INPUT, [0, 0, 0], [1, 1, 1]), [size(0), size(1), 1]),
        (2, 6, 1),
    ),
    "broadcast": (operation("broadcast_to", 1.0, SIZES), (2, 6, 4)),
    "sliced": (
        operation(
            "get_item",
            INPUT,
            [{"ellipsis": True}, {"slice": [None, operation("floor_divide", size(2), 2), None]}],
        ),
        (2, 6, 2),
    ),
    "halves": (
        operation(
            "item", operation("split", INPUT, [operation("floor_divide", size(1), 2), -1], 1), 0
        ),
        (2, 3, 4),
    ),
    "of int64": (operation("reshape", INPUT, operation("cast", [size(0), 24], "int64")), (2, 24)),
}


@pytest.mark.parametrize("name", IDIOMS)
def test_shapes_in_a_graph(name: str) -> None:
    expression, shape = IDIOMS[name]
    assert in_a_graph(lambda x: evaluate(expression, [x]), X).shape == shape


SIZES_OF = {"x": SIZES, "x1": SIZES, "x2": 2, "value": SIZES, "xs": [SIZES, SIZES], "axis": 0}
ARGUMENTS: dict[str, Any] = {
    "item": {"key": 1},
    "length": {},
    "divide": {},
    "power": {},
    "cast": {"dtype": "int32"},
    "constant": {"value": [1, 2]},
    "get_item": {"key": {"slice": [1, None, None]}},
    "strided_slice": {"begin": [1], "end": [3]},
    "slice": {"begin": [1], "size": [2]},
    "stack": {"x": [size(0), size(1)]},
    "split": {"indices_or_sections": 3},
    "squeeze": {"x": [size(0)], "axis": None},
    "reshape": {"newshape": [3, 1]},
    "take": {"indices": [2, 0]},
    "arange": {"start": 0, "stop": size(0)},
    "is_none": {"value": size(0)},
    "int": {"value": size(0)},
    "float": {"value": size(0)},
    "join_lists": {"x2": [1]},
    "logical_not": {"x": operation("equal", size(0), 2)},
    "logical_and": {"x1": True, "x2": operation("equal", size(0), 2)},
    "logical_or": {"x1": False, "x2": operation("equal", size(0), 2)},
}


@pytest.mark.parametrize(
    "name", sorted(STAYS_STATIC - {"shape", "static_shape", "rank", "size", "dtype"})
)
def test_stays_known(name: str) -> None:
    from keras_mp.compat.operations.vocabulary import REQUIRED, signatures

    of = signatures()[name].arguments
    wanted = [key for key, default in of.items() if default is REQUIRED]
    given_here = ARGUMENTS.get(name, {})
    arguments = {key: given_here.get(key, SIZES_OF.get(key)) for key in {*wanted, *given_here}}
    expression = operation(name, **arguments)
    assert expressions.is_static(expression)
    seen = []

    def function(x: Any) -> Any:
        seen.append(evaluate(expression, [x]))
        return x

    if BACKEND == "jax":
        in_a_graph(function, X)
    function(ops.convert_to_tensor(X))
    assert not any(map(has_tensor, seen))


def test_what_is_known_of_a_tensor() -> None:
    x = ops.convert_to_tensor(X)
    found = {
        name: evaluate(operation(name, INPUT), [x])
        for name in ("shape", "static_shape", "rank", "size", "dtype")
    }
    assert found == {
        "shape": [2, 6, 4],
        "static_shape": [2, 6, 4],
        "rank": 3,
        "size": 48,
        "dtype": "float32",
    }
    assert found.keys() <= STATIC
