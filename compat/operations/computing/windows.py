"""Morphology: the largest sum, and the smallest difference, in windows of images."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from keras import ops

from keras_mp.compat.operations.computing.shapes import pad
from keras_mp.compat.operations.computing.values import (
    Tensor,
    Value,
    dtype_of,
    ints,
    together,
)


def _lowest(x: Tensor) -> float:
    return -65504.0 if dtype_of(x) == "float16" else float(np.finfo("float32").min)


def _of_space(value: Value) -> tuple[int, int]:
    """Returns the two numbers of height and width."""
    found = ints(value)
    if isinstance(found, int):
        return found, found
    if len(found) == 4:
        if (found[0], found[3]) != (1, 1):
            raise ValueError(f"{found} reaches over images or channels")
        found = found[1:3]
    return (found[0], found[-1])


def _widths(x: Tensor, sizes: Any, steps: Any, padding: str) -> list[tuple[int, int]]:
    """Returns how wide "SAME" pads height and width."""
    found = []
    for there, size, step in zip(x.shape[1:3], sizes, steps, strict=True):
        if padding.upper() == "VALID":
            found.append((0, 0))
            continue
        if there is None and step != 1:
            raise ValueError("windows with strides in images whose size is not known")
        more = size - 1 if step == 1 else max((-(-there // step) - 1) * step + size - there, 0)
        found.append((more // 2, more - more // 2))
    return found


def _places(
    x: Tensor, window: Any, steps: Any, rates: Any, padding: str
) -> Iterator[tuple[int, int, Tensor]]:
    """Yields (row, column, the numbers there) of all places in a window."""
    reach = [(size - 1) * rate + 1 for size, rate in zip(window, rates, strict=True)]
    x = pad(x, [(0, 0), *_widths(x, reach, steps, padding), (0, 0)], "constant", _lowest(x))
    for row in range(window[0]):
        for column in range(window[1]):
            keys = [
                slice(at * rate, at * rate - (size - 1) * rate or None, step)
                for at, rate, size, step in zip((row, column), rates, window, steps, strict=True)
            ]
            yield row, column, x[:, keys[0], keys[1]]


def dilation(x: Value, kernel: Value, strides: Value, padding: str, dilations: Value = 1) -> Tensor:
    x, kernel = together(x, kernel)
    steps, rates = _of_space(strides), _of_space(dilations)
    sums = [
        numbers + kernel[row, column]
        for row, column, numbers in _places(x, kernel.shape[:2], steps, rates, padding)
    ]
    return _largest(sums)


def _largest(tensors: list[Tensor]) -> Tensor:
    found, *others = tensors
    for other in others:
        found = ops.maximum(found, other)
    return found


def erosion(x: Value, kernel: Value, strides: Value, padding: str, dilations: Value = 1) -> Tensor:
    x, kernel = together(x, kernel)
    return -dilation(-x, ops.flip(kernel, (0, 1)), strides, padding, dilations)
