"""Many numbers to one."""

from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from keras_mp.compat.operations.computing.elementwise import divide_no_nan
from keras_mp.compat.operations.computing.shapes import flip, squeeze
from keras_mp.compat.operations.computing.values import (
    Tensor,
    Value,
    as_tensor,
    axes,
    dtype_of,
    has_tensor,
    ints,
    is_floating,
    is_tensor,
    number,
    tensor,
    together,
)


def _reduction(
    of_tensors: Callable[..., Tensor], of_known: Callable[..., Any], dtype: str | None = None
) -> Callable[..., Value]:
    def function(x: Value, axis: Value = None, keepdims: bool = False) -> Value:
        over = axes(axis)
        if not has_tensor(x):
            return number(of_known(np.asarray(x), axis=over, keepdims=bool(keepdims)), [])
        x = tensor(x)
        kept = dtype or dtype_of(x)
        if over == ():  # none at all, where None is all
            x, over, keepdims = ops.expand_dims(x, 0), 0, False
        if over is None and keepdims:  # which keras.ops.sum of torch forgets
            over = tuple(range(len(x.shape)))
        y = of_tensors(x, axis=over, keepdims=bool(keepdims))
        return y if dtype_of(y) == kept else as_tensor(y, kept)

    return function


def _mean(x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    if dtype_of(x) == "bool":
        return ops.mean(ops.cast(x, "float32"), axis, keepdims=keepdims)
    y = ops.mean(x, axis, keepdims=keepdims)
    return y if is_floating(dtype_of(x)) else ops.trunc(y)


sum = _reduction(ops.sum, np.sum)
prod = _reduction(ops.prod, np.prod)
max = _reduction(ops.max, np.max)
min = _reduction(ops.min, np.min)
all = _reduction(ops.all, np.all, "bool")
any = _reduction(ops.any, np.any, "bool")
var = _reduction(ops.var, np.var)
std = _reduction(ops.std, np.std)
logsumexp = _reduction(ops.logsumexp, lambda x, **o: np.log(np.sum(np.exp(x), **o)))
_mean_of = _reduction(_mean, np.mean)


def mean(x: Value, axis: Value = None, keepdims: bool = False) -> Value:
    if is_tensor(x) and dtype_of(x) == "bool":
        x = ops.cast(x, "float32")
    return _mean_of(x, axis, keepdims)


def count_nonzero(
    x: Value, axis: Value = None, keepdims: bool = False, dtype: str = "int64"
) -> Tensor:
    x = ops.cast(ops.not_equal(tensor(x), 0), "int32")
    return as_tensor(sum(x, axis, keepdims), dtype)


def norm(
    x: Value,
    ord: Value = "euclidean",
    axis: Value = None,
    keepdims: bool = False,
) -> Tensor:
    x, over = tensor(x), axes(axis)
    if isinstance(ord, str) or (ord == 2 and not isinstance(over, tuple)):
        return ops.sqrt(sum(ops.square(x), over, keepdims))
    if isinstance(over, tuple):
        return ops.norm(x, ord, over, keepdims=bool(keepdims))
    size = ops.absolute(x)
    if ord == np.inf:
        return max(size, over, keepdims)
    if ord == 1:
        return sum(size, over, keepdims)
    total = sum(ops.power(size, float(ord)), over, keepdims)
    return ops.power(total, 1.0 / float(ord))


def argmax(x: Value, axis: Value = 0, dtype: str = "int64") -> Tensor:
    return as_tensor(ops.argmax(tensor(x), axes(axis)), dtype)


def argmin(x: Value, axis: Value = 0, dtype: str = "int64") -> Tensor:
    return as_tensor(ops.argmin(tensor(x), axes(axis)), dtype)


def _cumulative(
    function: Callable[..., Tensor], first: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    def cumulative(
        x: Value, axis: Value = 0, exclusive: bool = False, reverse: bool = False
    ) -> Tensor:
        x, along = tensor(x), axes(axis)
        dtype = dtype_of(x)
        x = flip(x, along) if reverse else x
        if exclusive:
            along = along % len(x.shape)
            before, after = [slice(None)] * len(x.shape), [slice(None)] * len(x.shape)
            before[along], after[along] = slice(0, 1), slice(0, -1)
            x = ops.concatenate([first(x[tuple(before)]), x[tuple(after)]], along)
        y = function(x, axis=along)
        y = flip(y, along) if reverse else y
        return y if dtype_of(y) == dtype else ops.cast(y, dtype)

    return cumulative


cumsum = _cumulative(ops.cumsum, ops.zeros_like)
cumprod = _cumulative(ops.cumprod, ops.ones_like)


def moments(x: Value, axes: Value, keepdims: bool = False) -> list[Tensor]:
    x = tensor(x)
    dtype = dtype_of(x)
    x = ops.cast(x, "float32") if dtype in ("float16", "bfloat16") else x
    mean, variance = ops.moments(x, tuple(axes) if isinstance(axes, list) else axes, bool(keepdims))
    return [ops.cast(mean, dtype), ops.cast(variance, dtype)]


def _in_rows(data: Value, segment_ids: Value) -> tuple[Tensor, Tensor]:
    """Returns data with one first axis for all axes of the segments."""
    data, ids = tensor(data), tensor(segment_ids)
    inner = ops.shape(data)[len(ids.shape) :]
    return ops.reshape(data, (-1, *inner)), ops.reshape(ids, (-1,))


def segment_sum(data: Value, segment_ids: Value, num_segments: Value) -> Tensor:
    return ops.segment_sum(*_in_rows(data, segment_ids), int(num_segments))


_LOWEST = {"float16": -65504.0, "bfloat16": -3.3895313892515355e38}


def segment_max(data: Value, segment_ids: Value, num_segments: Value) -> Tensor:
    """Where nothing is, the lowest number that there is, and not -inf."""
    found = ops.segment_max(*_in_rows(data, segment_ids), int(num_segments))
    dtype = dtype_of(found)
    if not is_floating(dtype):
        return found
    return ops.maximum(found, _LOWEST.get(dtype) or float(np.finfo(dtype).min))


def segment_min(data: Value, segment_ids: Value, num_segments: Value) -> Tensor:
    data = tensor(data)
    # ~x turns the order of whole numbers, and no number is left out.
    turned = ops.negative if is_floating(dtype_of(data)) else ops.bitwise_invert
    return turned(segment_max(turned(data), segment_ids, num_segments))


def segment_prod(data: Value, segment_ids: Value, num_segments: Value) -> Tensor:
    rows, ids = _in_rows(data, segment_ids)
    numbers = ops.arange(int(num_segments), dtype=dtype_of(ids))
    is_in = ops.equal(ops.expand_dims(numbers, 1), ids)
    is_in = ops.reshape(is_in, (*ops.shape(is_in), *[1] * (len(rows.shape) - 1)))
    return prod(ops.where(is_in, rows, ops.ones_like(rows)), 1)


def weighted_moments(
    x: Value, axes: Value, frequency_weights: Value, keepdims: bool = False
) -> list[Tensor]:
    """Source: TF 2.15, python/ops/nn_impl.py."""
    x, weights = tensor(x), tensor(frequency_weights)
    dtype = dtype_of(x)
    x = ops.cast(x, "float32") if dtype == "float16" else x
    weights = ops.cast(weights, dtype_of(x))
    total = sum(weights + ops.zeros_like(x), axes, True)
    mean = divide_no_nan(sum(weights * x, axes, True), total)
    variance = divide_no_nan(sum(weights * ops.square(x - mean), axes, True), total)
    found = [mean, variance] if keepdims else [squeeze(one, axes) for one in (mean, variance)]
    return [ops.cast(one, dtype) for one in found]


def sufficient_statistics(
    x: Value, axes: Value, shift: Value = None, keepdims: bool = False
) -> list[Tensor]:
    """Returns the count, the sum, the sum of squares, and the shift if there is one."""
    x = tensor(x)
    count: Any = 1
    for axis in ints(axes):
        count = count * ops.shape(x)[axis]
    moved = x if shift is None else x - together(x, shift)[1]
    sums = [sum(one, axes, keepdims) for one in (moved, ops.square(moved))]
    found = [ops.cast(count, dtype_of(x)), *sums]
    return found if shift is None else [*found, together(x, shift)[1]]


def is_increasing(x: Value, strictly: bool = False) -> Tensor:
    x = ops.reshape(tensor(x), (-1,))
    return ops.all((ops.less if strictly else ops.less_equal)(x[:-1], x[1:]))
