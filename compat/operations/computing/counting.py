"""How often whole numbers are there, and where places are in arrays."""

from typing import Any

from keras import ops

from keras_mp.compat.operations.computing.values import (
    Tensor,
    Value,
    as_tensor,
    dtype_of,
    ints,
    tensor,
)


def _hits(x: Tensor, size: int, dtype: str) -> Tensor:
    """Returns a further axis, with a one where a number is; none for those beyond the end."""
    return as_tensor(ops.equal(ops.expand_dims(x, -1), ops.arange(size, dtype=dtype_of(x))), dtype)


def bincount(
    x: Value,
    weights: Value = None,
    length: Value = 0,
    axis: Value = None,
    binary_output: bool = False,
    dtype: str = "int32",
) -> Tensor:
    x = tensor(x)
    if ints(axis) != -1:
        x = ops.reshape(x, (-1,))
    if weights is None:
        hits = _hits(x, ints(length), dtype)
    else:
        weights = ops.reshape(tensor(weights), ops.shape(x))
        hits = _hits(x, ints(length), dtype_of(weights)) * ops.expand_dims(weights, -1)
    return ops.max(hits, -2) if binary_output else ops.sum(hits, -2)


def confusion_matrix(
    labels: Value, predictions: Value, classes: Value, weights: Value = None, dtype: str = "int32"
) -> Tensor:
    size = ints(classes)
    rows, columns = (ops.cast(tensor(one), "int32") for one in (labels, predictions))
    if len(rows.shape) != len(columns.shape):
        rows, columns = ops.reshape(rows, (-1,)), ops.reshape(columns, (-1,))
    weights = ops.ones_like(rows) if weights is None else tensor(weights)
    counts = bincount(rows * size + columns, as_tensor(weights, dtype), size * size)
    return ops.reshape(counts, (size, size))


def unravel_index(indices: Value, dims: Value) -> Tensor:
    rest: Any = tensor(indices)
    found = []
    for size in reversed(ints(dims)):
        found.append(ops.mod(rest, size))
        rest = ops.floor_divide(rest, size)
    return ops.cast(ops.stack(found[::-1]), dtype_of(tensor(indices)))
