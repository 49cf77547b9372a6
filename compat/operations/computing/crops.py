"""Parts of images, scaled: boxes, and whole images between bars."""

from typing import Any

import numpy as np
from keras import ops

from keras_mp.compat.operations.computing.images import pad_to_bounding_box, resize
from keras_mp.compat.operations.computing.values import Tensor, Value, ints, tensor


def resize_with_pad(
    images: Value,
    height: Value,
    width: Value,
    method: Value = "bilinear",
    antialias: bool = False,
) -> Tensor:
    """In float32, as there: it decides about sizes."""
    images = tensor(images)
    wanted, there = ints([height, width]), images.shape[-3:-1]
    if None in there:
        raise ValueError("images between bars, whose size is not known")
    target, given = np.asarray(wanted, "float32"), np.asarray(there, "float32")
    scaled = given / (given[::-1] / target[::-1]).max()
    before = np.maximum(np.floor((target - scaled) / 2), 0)
    sizes = [int(one) for one in np.floor(scaled)]
    found = resize(images, sizes, method, bool(antialias))
    return pad_to_bounding_box(found, *(int(one) for one in before), *wanted)


def _places(starts: Tensor, ends: Tensor, size: Value, count: int) -> Tensor:
    """Returns where `count` pixels of each box are among `size` ones: (boxes, count)."""
    last = ops.cast(size, "float32") - 1.0
    if count == 1:
        return ops.expand_dims(0.5 * (starts + ends) * last, 1)
    step = ops.expand_dims((ends - starts) * last / (count - 1), 1)
    return ops.expand_dims(starts * last, 1) + step * ops.arange(count, dtype="float32")


def _picked(x: Tensor, numbers: Tensor, axis: int, size: Value) -> Tensor:
    """Returns rows (axis 1) or columns (axis 2) of each box by their numbers."""
    numbers = ops.cast(ops.clip(numbers, 0.0, ops.cast(size, "float32") - 1.0), "int32")
    shape = [1, 1, 1, 1]
    shape[0], shape[axis] = -1, numbers.shape[1]
    return ops.take_along_axis(x, ops.reshape(numbers, shape), axis)


def crop_and_resize(
    images: Value,
    boxes: Value,
    box_indices: Value,
    crop_size: Value,
    method: str = "bilinear",
    extrapolation_value: Value = 0.0,
) -> Tensor:
    """Source: TF 2.15, core/kernels/image/crop_and_resize_op.cc."""
    images, boxes = tensor(images), tensor(boxes)
    sizes: Any = ops.shape(images)[1:3]
    found = ops.take(ops.cast(images, "float32"), tensor(box_indices), axis=0)
    is_inside = ops.ones((1, 1, 1, 1), "bool")
    for axis, (size, count) in enumerate(zip(sizes, ints(crop_size), strict=True), 1):
        places = _places(boxes[:, axis - 1], boxes[:, axis + 1], size, count)
        last = ops.cast(size, "float32") - 1.0
        inside = ops.logical_and(ops.greater_equal(places, 0), ops.less_equal(places, last))
        shape = (-1, count, 1, 1) if axis == 1 else (-1, 1, count, 1)
        is_inside = ops.logical_and(is_inside, ops.reshape(inside, shape))
        if method == "nearest":
            # Halves go away from zero there, and not to even.
            found = _picked(found, ops.floor(places + 0.5), axis, size)
            continue
        low = ops.floor(places)
        share = ops.reshape(places - low, shape)
        first, second = (_picked(found, one, axis, size) for one in (low, ops.ceil(places)))
        found = first + (second - first) * share
    return ops.where(is_inside, found, ops.cast(extrapolation_value, "float32"))


def image_gradients(images: Value) -> list[Tensor]:
    """Returns differences along rows and columns; those of the last ones are 0."""
    images = tensor(images)
    found = []
    for axis in (1, 2):
        keys: Any = [slice(None)] * 4
        keys[axis] = slice(1, None)
        before = list(keys)
        before[axis] = slice(None, -1)
        widths = [(0, 1) if one == axis else (0, 0) for one in range(4)]
        found.append(ops.pad(images[tuple(keys)] - images[tuple(before)], widths))
    return found
