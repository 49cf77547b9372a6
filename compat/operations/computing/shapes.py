"""What tensors look like, and the same numbers in another order."""

import itertools
import math
from typing import Any

import numpy as np
from keras import ops

from keras_mp.compat.operations.computing.symbolic import is_trying
from keras_mp.compat.operations.computing.values import (
    Tensor,
    Value,
    as_tensor,
    axes,
    checked_size,
    dims,
    dtype_of,
    has_symbol,
    has_tensor,
    ints,
    is_tensor,
    tensor,
    together,
)


def shape(x: Value) -> list[Any]:
    if not is_tensor(x):
        return list(np.shape(x))
    return list(ops.shape(x))


def static_shape(x: Value) -> list[int | None]:
    return list(x.shape) if is_tensor(x) else list(np.shape(x))


def rank(x: Value) -> int:
    return len(static_shape(x))


def size(x: Value) -> Any:
    total: Any = 1
    for one in shape(x):
        total = total * one
    return total


def dtype(x: Value) -> str:
    return dtype_of(x)


def reshape(x: Value, newshape: Value) -> Value:
    if not has_tensor(x) and not has_tensor(newshape):
        return _plain(np.reshape(np.asarray(x), dims(newshape)), x)
    x, shape = tensor(x), dims(newshape)
    plain = is_trying() and not is_tensor(shape)
    return _of_shape(x, shape) if plain else ops.reshape(x, shape)


def _of_shape(x: Tensor, shape: Any) -> Tensor:
    """Returns a tensor of a shape, whether the numbers of another fit into it or not."""
    count = math.prod(x.shape)
    known = math.prod(size for size in shape if size != -1)
    if known == count or (known and -1 in shape and count % known == 0):
        return ops.reshape(x, shape)
    return ops.zeros([max(1, count // max(1, known)) if n == -1 else n for n in shape], x.dtype)


def _plain(array: Any, given: Value) -> Value:
    """Returns a result as plain numbers where plain numbers were given."""
    return array if isinstance(given, np.ndarray | np.generic) else array.tolist()


def transpose(x: Value, axes: Value = None) -> Tensor:
    x = tensor(x)
    return ops.transpose(x, tuple(range(len(x.shape)))[::-1] if axes is None else dims(axes))


def matrix_transpose(x: Value) -> Tensor:
    return ops.swapaxes(tensor(x), -1, -2)


def expand_dims(x: Value, axis: Value) -> Value:
    if not has_tensor(x):
        return _plain(np.expand_dims(np.asarray(x), ints(axis)), x)
    return (
        [x] if isinstance(x, list) and ints(axis) == 0 else ops.expand_dims(tensor(x), axes(axis))
    )


def squeeze(x: Value, axis: Value = None) -> Value:
    over = axes(axis)
    if isinstance(x, list) and len(x) == 1 and over in (None, (), 0, (0,)):
        return x[0]
    if not has_tensor(x):
        return _plain(np.squeeze(np.asarray(x), None if over == () else over), x)
    x = tensor(x)
    if over in (None, ()):
        if None in x.shape[1:]:
            raise ValueError("squeeze without axes, where sizes are not known")
        over = tuple(i for i, one in enumerate(x.shape) if one == 1)
    return ops.squeeze(x, over)


def flatten(x: Value) -> Tensor:
    return ops.reshape(tensor(x), (-1,))


def batch_flatten(x: Value) -> Tensor:
    x = tensor(x)
    width = size_of(x.shape[1:])
    return ops.reshape(x, (-1, width) if width is not None else (ops.shape(x)[0], -1))


def size_of(shape: Any) -> int | None:
    """Returns how many numbers a shape has; None if that is not known."""
    return None if any(one is None for one in shape) else int(np.prod(shape))


def tile(x: Value, repeats: Value) -> Value:
    if not has_tensor(x) and not has_tensor(repeats):
        checked_size(np.size(x) * math.prod(dims(repeats)))
        return _plain(np.tile(np.asarray(x), dims(repeats)), x)
    return ops.tile(tensor(x), dims(repeats))


def repeat(x: Value, repeats: Value, axis: Value = None) -> Tensor:
    repeats = ints(repeats)
    return ops.repeat(
        tensor(x), np.asarray(repeats) if isinstance(repeats, list) else repeats, axes(axis)
    )


def broadcast_to(x: Value, shape: Value) -> Tensor:
    return ops.broadcast_to(tensor(x), dims(shape))


def pad(x: Value, pad_width: Value, mode: str = "constant", constant_values: Value = 0) -> Tensor:
    x = tensor(x)
    widths = [tuple(pair) for pair in ints(pad_width)]
    mode = mode.lower()
    if mode == "constant":
        value = constant_values
        if is_tensor(value):
            inner = ops.pad(ops.ones_like(x), widths)
            return ops.where(ops.equal(inner, 1), ops.pad(x, widths), ops.cast(value, dtype_of(x)))
        return ops.pad(x, widths, constant_values=value if value else None)
    for axis, (before, after) in enumerate(widths):
        if before or after:
            length = x.shape[axis]
            if length is None:
                return ops.pad(x, widths, mode=mode)
            kind: Any = mode
            places = np.pad(np.arange(length), (before, after), mode=kind)
            x = ops.take(x, places.astype("int32"), axis=axis)
    return x


def flip(x: Value, axis: Value) -> Value:
    if isinstance(x, list) and not is_tensor(x):
        return x[::-1]
    x, over = tensor(x), axes(axis)
    for one in over if isinstance(over, tuple) else (over,):
        x = ops.flip(x, one)
    return x


def roll(x: Value, shift: Value, axis: Value) -> Tensor:
    x, shifts, along = tensor(x), ints(shift), ints(axis)
    pairs = zip(shifts, along, strict=True) if isinstance(shifts, list) else [(shifts, along)]
    for by, one in pairs:
        x = ops.roll(x, by, one)
    return x


def stack(x: Value, axis: Value = 0) -> Value:
    items = x if isinstance(x, list) else [x]
    if all(rank(item) == 0 for item in items):
        return items  # a shape, as it may be
    if not has_tensor(items):
        return np.stack([np.asarray(item) for item in items], ints(axis)).tolist()
    return ops.stack(together(*items), ints(axis))


def unstack(x: Value, num: Value = None, axis: Value = 0) -> list[Value]:
    if isinstance(x, list):
        return x
    return list(ops.unstack(tensor(x), ints(num), ints(axis)))


def concatenate(xs: Value, axis: Value) -> Value:
    xs = xs if isinstance(xs, list) else [xs]
    if all(isinstance(x, list | tuple) for x in xs) and all(rank_of(x) == 1 for x in xs):
        return [item for x in xs for item in x]
    if not has_tensor(xs):
        return np.concatenate([np.asarray(x) for x in xs], ints(axis))
    return ops.concatenate(together(*xs), ints(axis))


def rank_of(x: Value) -> int:
    """Returns the rank of a value, which may be a list with scalar tensors."""
    return 1 + rank_of(x[0]) if isinstance(x, list | tuple) and x else rank(x)


def split(x: Value, indices_or_sections: Value, axis: Value = 0, num: Value = None) -> list[Value]:
    sizes, along = ints(indices_or_sections), ints(axis)
    if isinstance(x, list):
        if isinstance(sizes, int):
            sizes = [len(x) // sizes] * sizes
        ends = np.cumsum(sizes).tolist()
        return [x[end - one : end] for end, one in zip(ends, sizes, strict=True)]
    x = tensor(x)
    if not isinstance(sizes, list):
        return list(ops.split(x, sizes, along))
    is_rest = [not is_tensor(one) and one == -1 for one in sizes]
    at = is_rest.index(True) if True in is_rest else len(sizes)
    keys = []
    start: Any = 0
    for size in sizes[:at]:
        keys.append(slice(start, start + size))
        start = start + size
    if at < len(sizes):  # what comes behind is counted from the end, as the size may be open
        behind = sizes[at + 1 :]
        ends = [-sum(behind[i:]) for i in range(len(behind) + 1)]
        keys.append(slice(start, ends[0] or None))
        keys += [slice(a, b or None) if a else slice(0, 0) for a, b in itertools.pairwise(ends)]
    around = [slice(None)] * (along % len(x.shape))
    return [x[(*around, key)] for key in keys]


def zeros(shape: Value, dtype: str = "float32") -> Tensor:
    return full(shape, 0, dtype)


def ones(shape: Value, dtype: str = "float32") -> Tensor:
    return full(shape, 1, dtype)


def full(shape: Value, fill_value: Value, dtype: str | None = None) -> Value:
    kind = dtype or dtype_of(fill_value)
    sizes = None if has_tensor(shape) or has_symbol(shape) else dims(shape)
    is_known = not is_tensor(fill_value) and kind in ("int32", "int64")
    if dtype is None and is_known and sizes is not None and len(sizes) == 1:
        checked_size(sizes[0])
        return np.full(sizes, fill_value, kind)  # part of a shape, as it may be
    value = as_tensor(tensor(fill_value), kind)
    return ops.broadcast_to(value, dims(shape))


def zeros_like(x: Value, dtype: str | None = None) -> Value:
    if not has_tensor(x):
        return _plain(np.zeros_like(np.asarray(x), dtype), x)
    x = tensor(x)
    return as_tensor(ops.zeros_like(x), dtype or dtype_of(x))


def ones_like(x: Value, dtype: str | None = None) -> Value:
    if not has_tensor(x):
        return _plain(np.ones_like(np.asarray(x), dtype), x)
    x = tensor(x)
    return as_tensor(ops.ones_like(x), dtype or dtype_of(x))


def arange(start: Value, stop: Value, step: Value = 1, dtype: str | None = None) -> Value:
    if has_tensor([start, stop, step]):
        return ops.arange(start, stop, step, dtype=dtype or "int32")
    checked_size((stop - start) / step)
    return np.arange(start, stop, step, dtype=dtype or dtype_of([start, stop, step]))


def linspace(start: Value, stop: Value, num: Value) -> Tensor:
    start, stop = together(start, stop)
    checked_size(0 if is_tensor(num) else num)
    return ops.linspace(start, stop, ints(num), dtype=dtype_of(start))


def eye(rows: Value, columns: Value = None, dtype: str = "float32") -> Tensor:
    sizes = [one for one in (rows, columns or rows) if isinstance(one, int)]
    checked_size(math.prod(sizes))
    return ops.eye(ints(rows), ints(columns), dtype=dtype)


def meshgrid(xs: Value, indexing: str = "xy") -> list[Tensor]:
    return list(ops.meshgrid(*[tensor(x) for x in xs], indexing=indexing))


def diag(x: Value) -> Tensor:
    x = tensor(x)
    places = ops.arange(ops.shape(x)[-1])
    is_on = ops.equal(ops.expand_dims(places, 1), places)
    return ops.where(is_on, ops.expand_dims(x, -1), ops.zeros((), dtype_of(x)))


def tensor_diag(x: Value) -> Tensor:
    x = tensor(x)
    sizes = ops.shape(x)
    return ops.reshape(diag(ops.reshape(x, (-1,))), (*sizes, *sizes))


def diagonal(x: Value) -> Tensor:
    return ops.diagonal(tensor(x), axis1=-2, axis2=-1)


def set_diagonal(x: Value, diagonal: Value) -> Tensor:
    x, diagonal = together(x, diagonal)
    rows, columns = ops.shape(x)[-2:]
    is_on = ops.equal(ops.expand_dims(ops.arange(rows), 1), ops.arange(columns))
    last = ops.shape(diagonal)[-1] - 1
    in_rows = ops.take(diagonal, ops.minimum(ops.arange(rows), last), axis=-1)
    return ops.where(is_on, ops.expand_dims(in_rows, -1), x)


def tensor_diagonal(x: Value) -> Tensor:
    x = tensor(x)
    sizes = ops.shape(x)[: len(x.shape) // 2]
    flat = ops.reshape(x, (math.prod(sizes), -1))
    return ops.reshape(ops.diagonal(flat), sizes)


def band_part(x: Value, lower: Value, upper: Value) -> Tensor:
    x = tensor(x)
    rows, columns = ops.shape(x)[-2:]
    distance = ops.expand_dims(ops.arange(rows), 1) - ops.expand_dims(ops.arange(columns), 0)
    lower, upper = ints(lower), ints(upper)
    kept = ops.ones_like(distance, dtype="bool")
    if lower >= 0:
        kept = ops.logical_and(kept, ops.less_equal(distance, lower))
    if upper >= 0:
        kept = ops.logical_and(kept, ops.less_equal(-distance, upper))
    return ops.where(kept, x, ops.zeros_like(x))


def _blocks(x: Tensor, data_format: str) -> tuple[Tensor, bool]:
    if data_format not in ("NHWC", "NCHW"):
        raise ValueError(f"data_format={data_format!r}")
    is_first = data_format == "NCHW"
    return (ops.transpose(x, (0, 2, 3, 1)) if is_first else x), is_first


def space_to_depth(x: Value, block_size: Value, data_format: str = "NHWC") -> Tensor:
    x, is_first = _blocks(tensor(x), data_format)
    size, (_, height, width, depth) = ints(block_size), ops.shape(x)
    x = ops.reshape(x, (-1, height // size, size, width // size, size, depth))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    x = ops.reshape(x, (-1, height // size, width // size, size * size * depth))
    return ops.transpose(x, (0, 3, 1, 2)) if is_first else x


def depth_to_space(x: Value, block_size: Value, data_format: str = "NHWC") -> Tensor:
    x, is_first = _blocks(tensor(x), data_format)
    size, (_, height, width, depth) = ints(block_size), ops.shape(x)
    x = ops.reshape(x, (-1, height, width, size, size, depth // size**2))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    x = ops.reshape(x, (-1, height * size, width * size, depth // size**2))
    return ops.transpose(x, (0, 3, 1, 2)) if is_first else x


def space_to_batch(x: Value, block_shape: Value, paddings: Value) -> Tensor:
    """Source: the four steps in the documentation of tf.space_to_batch."""
    blocks = ints(block_shape)
    n = len(blocks)
    x = tensor(x)
    rest = len(x.shape) - 1 - n
    x = pad(x, [(0, 0), *(tuple(pair) for pair in ints(paddings)), *[(0, 0)] * rest])
    batch, *sizes = ops.shape(x)
    inner = sizes[n:]
    divided = [size // block for size, block in zip(sizes, blocks, strict=False)]
    pairs = [one for pair in zip(divided, blocks, strict=True) for one in pair]
    x = ops.reshape(x, (batch, *pairs, *inner))
    order = [*range(2, 2 * n + 1, 2), 0, *range(1, 2 * n, 2), *range(2 * n + 1, 2 * n + 1 + rest)]
    return ops.reshape(ops.transpose(x, order), (-1, *divided, *inner))


def batch_to_space(x: Value, block_shape: Value, crops: Value) -> Tensor:
    """Source: the four steps in the documentation of tf.batch_to_space."""
    blocks = ints(block_shape)
    n = len(blocks)
    x = tensor(x)
    _, *sizes = ops.shape(x)
    inner = sizes[n:]
    x = ops.reshape(x, (*blocks, -1, *sizes))
    pairs = [one for i in range(n) for one in (n + 1 + i, i)]
    x = ops.transpose(x, [n, *pairs, *range(2 * n + 1, 2 * n + 1 + len(inner))])
    x = ops.reshape(
        x, (-1, *(size * block for size, block in zip(sizes, blocks, strict=False)), *inner)
    )
    keys = [slice(before, -after or None) for before, after in ints(crops)]
    return x[(slice(None), *keys)]
