"""Each operation in a functional model, whose batches and images may be of any size."""

import functools
from collections import defaultdict
from typing import Any

import keras
import numpy as np
import pytest

from keras_mp.compat.layers.operation import Operation
from keras_mp.compat.operations import expressions
from keras_mp.compat.operations.expressions import operation
from keras_mp.compat.operations.vocabulary import signatures
from tests.data.operations.reading import Case
from tests.each.compat.operations.recorded_calls import BACKEND, CALLS, flat, is_plain, problems

# Operation -> a part of the case to take, where the first has a number for the first axis, which
# may be of any size here, or other axes that are not of one size.
OTHER_CASES = {
    "unstack": "unstack[{'tensor': 0}, 4, 1]",
    "squeeze": "'axis': [1, -1]",
    "einsum": "bij,bkj->bik",
    "matmul": "'adjoint_b'",
    "batch_dot": "{'axes': 2}",
    "ctc_loss": "'logits_time_major'",
}
NOT_IN_MODELS = {
    "broadcast_to": "to [3, 4], where the first axis has any size",
    "tensor_scatter_update": "a place in the batch",
    "tensor_diagonal": "half of the axes have the sizes of the others",
}
SQUARE = "keras.ops wants to know that a matrix is square"
NOT_OF_ANY_SIZE = {
    **dict.fromkeys(
        ("inv", "det", "cholesky", "solve", "triangular_solve", "multiply", "log"), SQUARE
    ),
    **dict.fromkeys(("eigh", "slogdet"), SQUARE),
    **dict.fromkeys(("lstsq", "pinv", "matrix_rank"), "it depends on the sizes"),
    "resize_with_pad": "it depends on the sizes",
    "squeeze": "an axis of 1 has a size that is known",
}
if BACKEND == "jax":
    NOT_OF_ANY_SIZE["pad_to_bounding_box"] = "on JAX the box must be known to be the larger one"


def layer(expression: Any) -> Operation:
    """Returns the layer that conversion makes of an expression."""
    if not expressions.is_operation(expression):
        kind = "as_list" if isinstance(expression, list) else "identity"
        expression = operation(kind, expression)
    return Operation(expression["operation"], expression["arguments"])


@functools.cache
def calls_with() -> defaultdict[str, list[tuple[Any, Case]]]:
    """Returns the recorded calls in which each operation is."""
    found = defaultdict(list)
    for pair in (pair for of in CALLS.values() for pair in of):
        parts = [part for part in expressions.walk(pair[0]) if isinstance(part, dict)]
        for name in {part["operation"] for part in parts if "operation" in part}:
            found[name].append(pair)
    return found


@functools.cache
def chosen(name: str, axes: int = 1) -> tuple[Any, Case] | None:
    """Returns a recorded call of an operation that a model can have, of an input with axes."""
    for one, case in (*CALLS.get(name, ()), *calls_with()[name]):
        results = [] if is_plain(case.result) else flat(case.result)
        fits = results and all(result.ndim for result in results)
        fits = fits and case.inputs and case.inputs[0].ndim >= axes
        # The keys of random ops are inputs that no expression uses.
        parts = [part for part in expressions.walk(one) if isinstance(part, dict)]
        fits = fits and any("tensor" in part for part in parts)
        if fits and OTHER_CASES.get(name, "") in str(case):
            return one, case
    return None


def split_inputs(one: Any, case: Case) -> tuple[Any, list[Any]]:
    """Returns an expression, and the arrays that are batches; the others stand in it."""
    batch = case.inputs[0].shape[0]
    live = [i for i, array in enumerate(case.inputs) if array.ndim and len(array) == batch]

    def change(part: dict[str, Any]) -> Any:
        if "tensor" not in part:
            return None
        number = part["tensor"]
        if number in live:
            return {"tensor": live.index(number)}
        return case.inputs[number].tolist()

    return expressions.map_parts(one, change), [case.inputs[number] for number in live]


def predicted(expression: Any, arrays: list[Any], shapes: list[Any], *, any_size: bool) -> Any:
    """Returns the symbolic result of a model, and what it predicts."""
    inputs = [
        keras.Input(shape, dtype=array.dtype.name)
        for shape, array in zip(shapes, arrays, strict=True)
    ]
    outputs = layer(expression)(inputs)
    model = keras.Model(inputs, outputs)
    if not any_size or BACKEND != "tensorflow":
        return outputs, model.predict(arrays, batch_size=len(arrays[0]), verbose=0)
    import tensorflow as tf  # whose graphs have sizes that are not known

    kinds = [
        tf.TensorSpec([None] * len(array.shape[:-1]) + [*array.shape[-1:]], array.dtype)
        for array in arrays
    ]
    result = tf.function(lambda *given: model(list(given)), input_signature=kinds)(*arrays)
    return outputs, keras.tree.map_structure(keras.ops.convert_to_numpy, result)


def assert_fits(outputs: Any, result: Any) -> None:
    """Asserts that symbolic shapes are of the rank of results, and of their sizes or open."""
    for symbol, array in zip(flat(outputs), flat(result), strict=True):
        assert len(symbol.shape) == array.ndim
        assert all(a in (None, b) for a, b in zip(symbol.shape, array.shape, strict=True))


@pytest.mark.parametrize("name", sorted(name for name in signatures() if chosen(name)))
def test_in_a_model(name: str) -> None:
    if name in NOT_IN_MODELS:
        pytest.skip(NOT_IN_MODELS[name])
    one, case = chosen(name) or (None, None)
    assert case is not None
    expression, arrays = split_inputs(one, case)
    shapes = [array.shape[1:] for array in arrays]
    outputs, result = predicted(expression, arrays, shapes, any_size=False)
    assert_fits(outputs, result)
    assert not problems(one, case, keras.tree.map_structure(keras.ops.convert_to_tensor, result))


@pytest.mark.parametrize("name", sorted(name for name in signatures() if chosen(name, 3)))
def test_of_any_size(name: str) -> None:
    if name in NOT_IN_MODELS or name in NOT_OF_ANY_SIZE:
        pytest.skip({**NOT_IN_MODELS, **NOT_OF_ANY_SIZE}[name])
    one, case = chosen(name, 3) or (None, None)
    assert case is not None
    expression, arrays = split_inputs(one, case)
    shapes = [(*[None] * (array.ndim - 2), *array.shape[1:][-1:]) for array in arrays]
    outputs, result = predicted(expression, arrays, shapes, any_size=True)
    assert_fits(outputs, result)
    assert not problems(one, case, keras.tree.map_structure(keras.ops.convert_to_tensor, result))


X = np.arange(1, 13, dtype="float32").reshape(3, 4)
INPUT: dict[str, Any] = {"tensor": 0}


def _size(axis: int, kind: str = "shape") -> Any:
    return operation("item", operation(kind, INPUT), axis)


ROWS, COLUMNS = _size(0), _size(1)
HALF = operation("floor_divide", COLUMNS, 2)


def _of_random(name: str, **options: Any) -> Any:
    numbers = operation(name, [ROWS, COLUMNS], **options)
    return operation("add", operation("multiply", numbers, 0.0), INPUT)


# What takes no tensor, or is Python's: operation -> (an expression, the result).
BY_HAND: dict[str, tuple[Any, Any]] = {
    "shape": (operation("reshape", INPUT, [ROWS, 2, HALF]), X.reshape(3, 2, 2)),
    "static_shape": (
        operation("reshape", INPUT, [-1, operation("floor_divide", _size(1, "static_shape"), 2)]),
        X.reshape(6, 2),
    ),
    "rank": (
        operation("multiply", INPUT, operation("cast", operation("rank", INPUT), "float32")),
        2 * X,
    ),
    "size": (operation("reshape", INPUT, [operation("size", INPUT)]), X.ravel()),
    "length": (
        operation("multiply", INPUT, operation("length", operation("static_shape", INPUT))),
        2 * X,
    ),
    "dtype": (
        operation("cast", operation("cast", INPUT, "float16"), operation("dtype", INPUT)),
        X,
    ),
    "zeros": (
        operation("concatenate", [INPUT, operation("zeros", [ROWS, 1])], 1),
        np.pad(X, ((0, 0), (0, 1))),
    ),
    "ones": (operation("add", INPUT, operation("ones", [ROWS, COLUMNS])), X + 1),
    "full": (operation("add", INPUT, operation("full", [ROWS, 1], 2.0)), X + 2),
    "arange": (operation("take", INPUT, operation("arange", 0, COLUMNS, 2), 1), X[:, ::2]),
    "linspace": (operation("add", INPUT, operation("linspace", 0.0, 3.0, 4)), X + np.arange(4)),
    "eye": (operation("matmul", INPUT, operation("eye", COLUMNS)), X),
    "constant": (
        operation("add", INPUT, operation("constant", [1, 2, 3, 4], "float32")),
        X + np.arange(1, 5),
    ),
    "int": (
        operation("reshape", INPUT, [ROWS, operation("int", operation("divide", COLUMNS, 2)), 2]),
        X.reshape(3, 2, 2),
    ),
    "float": (operation("multiply", INPUT, operation("float", COLUMNS)), 4 * X),
    "is_none": (
        operation("if_else", operation("is_none", _size(1, "static_shape")), 0.0, INPUT),
        X,
    ),
    "if_else": (
        operation("if_else", operation("equal", COLUMNS, 4), operation("negative", INPUT), INPUT),
        -X,
    ),
    "join_lists": (
        operation("reshape", INPUT, operation("join_lists", [-1], [2, HALF])),
        X.reshape(3, 2, 2),
    ),
    "item": (operation("item", operation("split", INPUT, 2, 1), 1), X[:, 2:]),
    "as_list": (operation("stack", operation("as_list", [INPUT, INPUT]), 1), np.stack([X, X], 1)),
    "in_training": (operation("in_training", operation("negative", INPUT), INPUT), X),
    "random_normal": (_of_random("random_normal"), X),
    "random_truncated_normal": (_of_random("random_truncated_normal"), X),
    "random_uniform": (_of_random("random_uniform"), X),
    "random_binomial": (_of_random("random_binomial", p=0.5), X),
    "broadcast_to": (
        operation("broadcast_to", operation("expand_dims", INPUT, 1), [ROWS, 2, COLUMNS]),
        np.stack([X, X], 1),
    ),
    "is_increasing": (
        operation(
            "multiply", INPUT, operation("cast", operation("is_increasing", INPUT), "float32")
        ),
        X,
    ),
    "global_norm": (
        operation("divide", INPUT, operation("global_norm", [INPUT, INPUT])),
        X / np.sqrt(2 * np.square(X).sum()),
    ),
    "clip_by_global_norm": (
        operation("item", operation("item", operation("clip_by_global_norm", [INPUT], 1.0), 0), 0),
        X / np.sqrt(np.square(X).sum()),
    ),
    "sufficient_statistics": (
        operation("item", operation("sufficient_statistics", INPUT, [1]), 1),
        X.sum(1),
    ),
    "tensor_diagonal": (
        operation("add", INPUT, operation("tensor_diagonal", operation("eye", 4))),
        X + 1,
    ),
    "tensor_scatter_update": (
        operation("tensor_scatter_update", operation("multiply", INPUT, 1.0), [[0, 1]], [9.0]),
        np.where((X == 2), 9, X),
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_what_is_no_tensor(name: str) -> None:
    expression, expected = BY_HAND[name]
    outputs, result = predicted(expression, [X], [(4,)], any_size=False)
    assert_fits(outputs, result)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_all_operations_are_in_a_model() -> None:
    there = {name for name in signatures() if chosen(name)} - NOT_IN_MODELS.keys()
    assert there | BY_HAND.keys() >= signatures().keys()


@pytest.mark.parametrize(
    ("expression", "shape", "expected"),
    [
        pytest.param(operation("reshape", INPUT, [-1, 10, 4]), (4,), (None, 10, 4), id="reshape"),
        pytest.param(operation("reshape", INPUT, [-1, 11]), (4,), (None, 11), id="remainder"),
        pytest.param(
            operation("item", operation("split", INPUT, 4, 1), 0), (None,), (None, None), id="split"
        ),
        pytest.param(
            operation("space_to_depth", INPUT, 2),
            (None, None, 3),
            (None, None, None, 12),
            id="blocks",
        ),
        pytest.param(
            operation("batch_to_space", INPUT, [2, 2], [[0, 0], [0, 0]]),
            (3, 4, 1),
            (None, 6, 8, 1),
            id="batches",
        ),
        pytest.param(operation("flatten", INPUT), (None, 3), (None,), id="flatten"),
        pytest.param(operation("random_shuffle", INPUT), (3,), (None, 3), id="shuffle"),
    ],
)
def test_sizes_that_divide(expression: Any, shape: Any, expected: Any) -> None:
    assert layer(expression)(keras.Input(shape)).shape == expected


def test_an_axis_whose_size_varies_is_reflected() -> None:
    """TensorFlow has one program for batches of several sizes."""
    inputs = keras.Input((None,))
    padded = layer(operation("pad", INPUT, [[0, 0], [2, 1]], "REFLECT"))(inputs)
    model = keras.Model(inputs, keras.ops.sum(padded, 1, keepdims=True))
    batches = [np.arange(2.0 * size, dtype="float32").reshape(2, size) for size in (4, 6)]
    expected = [np.pad(x, [(0, 0), (2, 1)], "reflect").sum(1, keepdims=True) for x in batches]
    found = model.predict(((x,) for x in batches), steps=2, verbose=0)
    np.testing.assert_array_equal(found, np.concatenate(expected))


def test_what_no_size_fits_is_refused() -> None:
    wrong = operation("matmul", INPUT, [[1.0, 2.0]])
    with pytest.raises(Exception, match=r"infer|shape|dim"):
        layer(wrong)(keras.Input((3,)))
