"""How `tf.image.resize` computed an axis: the weight of each old pixel in each new one.

Source: TF 2.15.1, core/kernels/image: scale_and_translate_op.cc, resize_bicubic_op.cc,
resize_area_op.cc and sampling_kernels.h. All without antialiasing, as layers of tf.keras resized.
"""

import math
from collections.abc import Callable

import numpy as np

from keras_mp.compat.file_formats.values import Array

Kernel = Callable[[float], float]
_STEPS = 1024  # of the table in which the kernel of bicubic was looked up


def matrix(method: str, old: int, new: int) -> Array:
    """Returns the weights of an axis, of the shape (new, old), float32.

    Args:
        method: "area", "bicubic", "gaussian", "lanczos3", "lanczos5" or "mitchellcubic".
        old: Pixels along the axis.
        new: Pixels that there are to be.

    >>> matrix("area", 4, 2).tolist()
    [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    """
    rows = np.zeros((new, old), "float64")
    for i in range(new):
        if method == "area":
            _area(rows[i], i * old / new, (i + 1) * old / new)
        elif method == "bicubic":
            _bicubic(rows[i], (i + 0.5) * old / new - 0.5)
        else:
            _sampled(rows[i], (i + 0.5) * old / new, *_KERNELS[method])
    return rows.astype("float32")


def _area(row: Array, start: float, end: float) -> None:
    for pixel in range(math.floor(start), math.ceil(end)):
        overlap = min(pixel + 1, end) - max(pixel, start)
        row[min(pixel, len(row) - 1)] += overlap / (end - start)


def _bicubic(row: Array, at: float) -> None:
    first = math.floor(at)
    offset = round((at - first) * _STEPS) / _STEPS
    weights = [_keys(offset + 1), _keys(offset), _keys(1 - offset), _keys(2 - offset)]
    for pixel, weight in zip(range(first - 1, first + 3), weights, strict=True):
        if 0 <= pixel < len(row):
            row[pixel] += weight
    row /= row.sum()


def _sampled(row: Array, at: float, kernel: Kernel, radius: float) -> None:
    first, last = math.ceil(at - radius - 0.5), math.floor(at + radius - 0.5)
    for pixel in range(max(first, 0), min(last, len(row) - 1) + 1):
        row[pixel] = kernel(abs(pixel + 0.5 - at))
    if row.any():
        row /= row.sum()


def _keys(x: float) -> float:
    if x >= 2:
        return 0.0
    if x >= 1:
        return ((-0.5 * x + 2.5) * x - 4) * x + 2
    return (1.5 * x - 2.5) * x * x + 1


def _mitchell(x: float) -> float:
    if x >= 2:
        return 0.0
    if x >= 1:
        return (((-7 / 18) * x + 2) * x - 10 / 3) * x + 16 / 9
    return ((7 / 6) * x - 2) * x * x + 8 / 9


def _gaussian(x: float) -> float:
    return math.exp(-x * x / (2 * 0.5 * 0.5)) if x < 1.5 else 0.0


def _lanczos(radius: float) -> Kernel:
    def kernel(x: float) -> float:
        if x > radius:
            return 0.0
        if x <= 1e-3:
            return 1.0
        sines = math.sin(math.pi * x) * math.sin(math.pi * x / radius)
        return radius * sines / (math.pi * math.pi * x * x)

    return kernel


_KERNELS: dict[str, tuple[Kernel, float]] = {
    "gaussian": (_gaussian, 1.5),
    "lanczos3": (_lanczos(3.0), 3.0),
    "lanczos5": (_lanczos(5.0), 5.0),
    "mitchellcubic": (_mitchell, 2.0),
}
METHODS = ("area", "bicubic", *_KERNELS)
