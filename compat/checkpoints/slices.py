"""Parts of a tensor: how a partitioned variable is stored in a bundle.

Source: tensorflow/core/util/saved_tensor_slice_util.cc (EncodeTensorNameSlice) and
core/lib/strings/ordered_code.cc, TF 2.3.
"""

import math

import numpy as np

from keras_mp.compat.checkpoints import wire
from keras_mp.compat.checkpoints.errors import Malformed

# For each dimension (start, length); the length is None where the part has all of it.
Slice = tuple[tuple[int, int | None], ...]


def from_message(message: memoryview) -> Slice:
    """Returns a part from a TensorSliceProto."""
    extents = [
        wire.single(extent, {1: wire.signed, 2: wire.signed}) for extent in wire.all_of(message, 1)
    ]
    return tuple((extent.get(1, 0), extent.get(2)) for extent in extents)


def check(part: Slice, whole: tuple[int, ...]) -> None:
    """Raises Malformed unless `part` lies within a tensor of the shape `whole`."""
    inside = len(part) == len(whole) and all(
        start == 0 if length is None else start >= 0 and 0 < length <= size - start
        for (start, length), size in zip(part, whole, strict=False)
    )
    if not inside:
        raise Malformed(f"its part {part} lies outside of its shape {whole}")


def cover(parts: tuple[Slice, ...], whole: tuple[int, ...]) -> bool:
    """Returns whether parts that lie within a tensor cover it, and no place of it twice.

    >>> cover((((0, 2),), ((2, 1),)), (3,)), cover((((0, 2),), ((1, 1),)), (3,))
    (True, False)
    """
    if sum(math.prod(shape(part, whole)) for part in parts) != math.prod(whole):
        return False
    extents = [
        [(start, start + n) for (start, _), n in zip(part, shape(part, whole), strict=True)]
        for part in parts
    ]
    # On the grid of all edges, which has as many cells as there are parts where these are rows.
    edges = [{0, size} for size in whole]
    for extent in extents:
        for axis, ends in enumerate(extent):
            edges[axis].update(ends)
    places = [{edge: i for i, edge in enumerate(sorted(axis))} for axis in edges]
    taken = np.zeros([len(axis) - 1 for axis in edges], bool)
    for extent in extents:
        cells = tuple(
            slice(p[start], p[end]) for p, (start, end) in zip(places, extent, strict=True)
        )
        if taken[cells].any():
            return False
        taken[cells] = True
    return True


def shape(part: Slice, whole: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of `part` of a tensor of the shape `whole`.

    >>> shape(((2, 3), (0, None)), (7, 4))
    (3, 4)
    """
    return tuple(
        size if length is None else length for (_, length), size in zip(part, whole, strict=True)
    )


def index(part: Slice) -> tuple[slice, ...]:
    """Returns what selects `part` from an array of the whole.

    >>> index(((2, 3), (0, None)))
    (slice(2, 5, None), slice(0, None, None))
    """
    return tuple(slice(start, None if length is None else start + length) for start, length in part)


def key(name: str, part: Slice) -> bytes:
    """Returns the key under which a part is stored.

    >>> key("emb", ((0, 4), (0, None)))
    b'\\x00emb\\x00\\x01\\x01\\x02\\x80\\x84\\x80\\x7f'
    """
    escaped = name.encode().replace(b"\0", b"\0\xff")  # UTF-8 has no 0xff to escape
    numbers = b"".join(
        _signed(start) + _signed(-1 if length is None else length) for start, length in part
    )
    return _unsigned(0) + escaped + b"\0\1" + _unsigned(len(part)) + numbers


def _unsigned(value: int) -> bytes:
    digits = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([len(digits)]) + digits


def _signed(value: int) -> bytes:
    magnitude = ~value if value < 0 else value
    bits = magnitude.bit_length()
    size = 10 if bits == 63 else bits // 7 + 1
    digits = (value & ((1 << 80) - 1)).to_bytes(10, "big")[10 - size :]
    # As many leading ones as there are bytes, over the sign.
    header = ((1 << size) - 1) << (16 - size)
    first = int.from_bytes(digits[:2].ljust(2, b"\0"), "big") ^ header
    return (first.to_bytes(2, "big") + digits[2:])[:size]
