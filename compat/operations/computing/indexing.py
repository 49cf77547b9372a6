"""Parts of tensors, and their order."""

from typing import Any

import numpy as np
from keras import ops

from keras_mp.compat.operations.computing.values import (
    Tensor,
    Value,
    as_tensor,
    dims,
    dtype_of,
    has_tensor,
    ints,
    is_floating,
    is_tensor,
    tensor,
    together,
)


def get_item(x: Value, key: Value) -> Value:
    """`x[key]`; a list is a tuple of keys, one for each axis."""
    keys = list(key) if isinstance(key, list | tuple) else [key]
    if isinstance(x, list) and not is_tensor(x):
        first = keys[0] if len(keys) == 1 else None
        if isinstance(first, slice):
            return x[slice(*map(ints, (first.start, first.stop, first.step)))]
        if isinstance(first, int | np.integer):
            return x[int(first)]
        x = tensor(x)
    if isinstance(x, np.ndarray):
        return x[tuple(keys)]
    x = tensor(x)
    return _of_tensor(x, _spelt_out(keys, len(x.shape)))


def _spelt_out(keys: list[Any], rank: int) -> list[Any]:
    """Returns keys without an ellipsis: one for each axis, and None for new ones."""
    there = [key for key in keys if key is not None and key is not Ellipsis]
    rest: list[Any] = [slice(None)] * (rank - len(there))
    found: list[Any] = []
    for key in keys:
        if key is Ellipsis:
            found, rest = found + rest, []
        else:
            found.append(key)
    return found + rest


def _of_tensor(x: Tensor, keys: list[Any]) -> Tensor:
    plain: list[Any] = []
    picked: list[tuple[int, Any]] = []
    axis = 0  # of x, as it is when `plain` was taken and before new axes came
    for key in keys:
        if key is None:
            continue
        if isinstance(key, slice):
            step = ints(key.step)
            if step is not None and step < 0:
                x = ops.take(x, _backwards(key, x.shape[axis]), axis=axis)
                plain.append(slice(None))
            else:
                plain.append(slice(ints(key.start), ints(key.stop), step))
        elif isinstance(key, int | np.integer):
            plain.append(int(key))
        else:
            if "bool" in dtype_of(key):
                raise ValueError("x[mask] has a size that is not known before it runs")
            picked.append((axis, key))
            plain.append(slice(None))
        axis += 1
    taken = x[tuple(plain)] if any(one != slice(None) for one in plain) else x
    for place, key in reversed(picked):
        now = place - sum(isinstance(one, int) for one in plain[:place])
        taken = ops.take(taken, tensor(key), axis=now)
    new = 0
    for key in keys:
        if key is None:
            taken = ops.expand_dims(taken, new)
        if not isinstance(key, int | np.integer):
            new += 1
    return taken


def _backwards(key: slice, length: int | None) -> Any:
    if length is None:
        raise ValueError("x[::-1] along an axis whose size is not known")
    found = np.arange(length)[slice(*map(ints, (key.start, key.stop, key.step)))]
    return found.astype("int32")


def slice_(x: Value, begin: Value, size: Value) -> Value:
    begin, size = ints(begin), ints(size)
    if is_tensor(begin) or is_tensor(size):
        return ops.slice(tensor(x), begin, dims(size))
    keys = []
    for start, length in zip(begin, size, strict=True):
        is_rest = isinstance(length, int) and length == -1
        keys.append(slice(start, None if is_rest else start + length))
    return get_item(x, keys if len(keys) > 1 else keys[0])


def strided_slice(
    x: Value,
    begin: Value,
    end: Value,
    strides: Value = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Value:
    begin, end = ints(begin), ints(end)
    begin = begin if isinstance(begin, list) else [begin]
    end = end if isinstance(end, list) else [end]
    steps = [1] * len(begin) if strides is None else ints(strides)
    steps = steps if isinstance(steps, list) else [steps]
    keys: list[Any] = []
    for i, (start, stop, step) in enumerate(zip(begin, end, steps, strict=True)):
        bit = 1 << i
        if ellipsis_mask & bit:
            keys.append(Ellipsis)
        elif new_axis_mask & bit:
            keys.append(None)
        elif shrink_axis_mask & bit:
            keys.append(start)
        else:
            first = None if begin_mask & bit else start
            keys.append(slice(first, None if end_mask & bit else stop, step))
    return get_item(x, keys if len(keys) > 1 else keys[0])


def take(x: Value, indices: Value, axis: Value = 0, batch_dims: Value = 0) -> Value:
    if not has_tensor(indices) and isinstance(x, list) and not is_tensor(x):
        places = ints(indices)
        return [x[i] for i in places] if isinstance(places, list) else x[places]
    x, indices = tensor(x), tensor(indices)
    axis, batch_dims = ints(axis), ints(batch_dims)
    if not batch_dims:
        return ops.take(x, indices, axis=axis)
    rank = len(x.shape)
    axis %= rank
    if batch_dims < 0:
        batch_dims += len(indices.shape)
    order = [i for i in range(rank) if i != axis]
    order.insert(batch_dims, axis)
    moved = ops.transpose(x, order)
    shape = ops.shape(moved)
    batch, length, inner = shape[:batch_dims], shape[batch_dims], shape[batch_dims + 1 :]
    picks = ops.shape(indices)[batch_dims:]
    rows = ops.reshape(moved, (-1, *inner))
    flat = ops.reshape(indices, (-1, _product(picks)))
    starts = ops.expand_dims(ops.arange(_product(batch)) * length, 1)
    found = ops.take(rows, flat + ops.cast(starts, dtype_of(flat)), axis=0)
    found = ops.reshape(found, (*batch, *picks, *inner))
    # The axes that were between the batch and `axis` stand before what was picked.
    between = axis - batch_dims
    if not between:
        return found
    b, p = len(batch), len(picks)
    back = [*range(b), *range(b + p, b + p + between), *range(b, b + p)]
    return ops.transpose(found, [*back, *range(b + p + between, b + p + len(inner))])


def _product(sizes: Any) -> Any:
    total: Any = 1
    for one in sizes:
        total = total * one
    return total


def gather_nd(x: Value, indices: Value, batch_dims: Value = 0) -> Tensor:
    x, indices = tensor(x), tensor(indices)
    batch_dims = ints(batch_dims)
    shape, depth = ops.shape(x), indices.shape[-1]
    places: Any = 0
    picks = ops.shape(indices)[:-1]
    for axis in range(batch_dims):
        along = ops.arange(shape[axis])
        width = [1] * len(picks)
        width[axis] = shape[axis]
        places = (places + ops.reshape(along, width)) * (1 if axis == -1 else shape[axis + 1])
    for i in range(depth):
        axis = batch_dims + i
        one = ops.cast(indices[..., i], "int32")
        places = places + one if i == 0 and batch_dims else places * shape[axis] + one
    inner = shape[batch_dims + depth :]
    return ops.take(ops.reshape(x, (-1, *inner)), places, axis=0)


def one_hot(
    indices: Value,
    depth: Value,
    on_value: Value = None,
    off_value: Value = None,
    axis: Value = -1,
    dtype: str | None = None,
) -> Tensor:
    given = next((dtype_of(one) for one in (on_value, off_value) if one is not None), "float32")
    dtype = dtype or given
    # Not keras.ops.one_hot, which on torch raises where an index is none of the depth.
    places = ops.cast(tensor(indices), "int32")
    along = ints(axis) % (len(places.shape) + 1)
    after = len(places.shape) - along
    choices = ops.reshape(ops.arange(ints(depth), dtype="int32"), (-1, *[1] * after))
    hot = ops.equal(ops.expand_dims(places, along), choices)
    if on_value is None and off_value is None:
        return as_tensor(hot, dtype)
    on, off = (1 if on_value is None else on_value), (0 if off_value is None else off_value)
    return ops.where(hot, as_tensor(tensor(on), dtype), as_tensor(tensor(off), dtype))


def sequence_mask(lengths: Value, maxlen: Value, dtype: str = "bool") -> Tensor:
    if maxlen is None:
        raise ValueError("sequence_mask without maxlen has a size that is not known before it runs")
    lengths = ops.expand_dims(tensor(lengths), -1)
    places = ops.cast(ops.arange(ints(maxlen)), dtype_of(lengths))
    return as_tensor(ops.less(places, lengths), dtype)


def reverse_sequence(
    x: Value, seq_lengths: Value, seq_axis: Value, batch_axis: Value = 0
) -> Tensor:
    x, lengths = tensor(x), ops.cast(tensor(seq_lengths), "int32")
    rank = len(x.shape)
    seq_axis, batch_axis = ints(seq_axis) % rank, ints(batch_axis) % rank
    places = ops.arange(ops.shape(x)[seq_axis])
    lengths = ops.expand_dims(lengths, -1)
    turned = ops.where(ops.less(places, lengths), lengths - 1 - places, places)
    order = [batch_axis, seq_axis, *[i for i in range(rank) if i not in (batch_axis, seq_axis)]]
    moved = ops.transpose(x, order)
    turned = ops.reshape(turned, (*ops.shape(turned), *[1] * (rank - 2)))
    found = ops.take_along_axis(moved, ops.broadcast_to(turned, ops.shape(moved)), axis=1)
    return ops.transpose(found, [int(i) for i in np.argsort(order)])


def sort(x: Value, axis: Value = -1, direction: str = "ASCENDING") -> Tensor:
    found = ops.sort(tensor(x), ints(axis))
    return ops.flip(found, ints(axis)) if direction == "DESCENDING" else found


def argsort(x: Value, axis: Value = -1, direction: str = "ASCENDING") -> Tensor:
    """Of equal numbers the first comes first, in both directions."""
    x, along = tensor(x), ints(axis)
    if direction != "DESCENDING":
        return ops.cast(ops.argsort(x, along), "int32")
    found = ops.flip(ops.argsort(ops.flip(x, along), along), along)
    return ops.shape(x)[along] - 1 - ops.cast(found, "int32")


def top_k(x: Value, k: Value = 1, sorted: bool = True) -> list[Tensor]:
    """As argsort; keras.ops.top_k leaves open which of equal numbers comes first."""
    x = tensor(x)
    indices = argsort(x, -1, "DESCENDING")[..., : ints(k)]
    return [ops.take_along_axis(x, indices, axis=-1), indices]


def in_top_k(targets: Value, predictions: Value, k: Value) -> Tensor:
    return ops.in_top_k(tensor(targets), tensor(predictions), ints(k))


def searchsorted(sorted_sequence: Value, values: Value, side: str = "left") -> Tensor:
    row, of = together(sorted_sequence, values)
    row, of = ops.expand_dims(row, -2), ops.expand_dims(of, -1)
    before = ops.less(row, of) if side == "left" else ops.less_equal(row, of)
    return ops.sum(ops.cast(before, "int32"), -1)


def tensor_scatter_update(x: Value, indices: Value, updates: Value) -> Tensor:
    x, updates = together(x, updates)
    return ops.scatter_update(x, ops.cast(tensor(indices), "int32"), updates)


def tensor_scatter_add(x: Value, indices: Value, updates: Value) -> Tensor:
    x, updates = together(x, updates)
    added = ops.scatter(ops.cast(tensor(indices), "int32"), updates, ops.shape(x))
    return x + (added if not is_floating(dtype_of(x)) else ops.cast(added, dtype_of(x)))
