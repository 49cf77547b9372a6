"""Elementwise functions that need the index of each number, on whole tensors."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from keras import ops

from keras_mp.array_types import Tensor


def each_whole(
    function: Callable[..., Any], *columns: Sequence[Tensor], starts: Sequence[int] = ()
) -> list[Any]:
    """Returns `function(places, *row)` for each row of tensors of one shape.

    `places()` returns int32 indices of that shape, which start at the row's number in `starts`.

    >>> zeros = ops.zeros((2,), "int32")
    >>> [[int(n) for n in row] for row in each_whole(lambda places, x: x + places(), [zeros] * 2)]
    [[0, 1], [0, 1]]
    """
    rows = zip(*columns, strict=True)
    return [
        function(_places_of(row[0].shape, start), *row)
        for row, start in zip(rows, starts or [0] * len(columns[0]), strict=True)
    ]


def _places_of(shape: tuple[int, ...], start: int) -> Callable[[], Tensor]:
    numbers = math.prod(shape)
    return lambda: ops.reshape(ops.arange(numbers, dtype="int32") + signed(start), shape)


def signed(number: int) -> int:
    """Returns the lower 32 bits of `number` as an int32.

    >>> signed(0xFFFFFFFF), signed(2**32 + 7)
    (-1, 7)
    """
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number
