"""Images that are changed at random, otherwise at each call, by the seed generator of a layer."""

from typing import Any

import keras
from keras import ops

from keras_mp.compat.operations.computing.values import Tensor, Value, ints, tensor


def random_flip(images: Value, axis: Value, *, seed: Any) -> Tensor:
    """Each image of a batch by itself."""
    images = tensor(images)
    each = (ops.shape(images)[0], 1, 1, 1) if len(images.shape) == 4 else (1, 1, 1)
    is_turned = ops.less(keras.random.uniform(each, seed=seed), 0.5)
    return ops.where(is_turned, ops.flip(images, ints(axis)), images)


def random_crop(x: Value, size: Value, *, seed: Any) -> Tensor:
    """One place for all of a batch."""
    x = tensor(x)
    for axis, (wanted, there) in enumerate(zip(ints(size), ops.shape(x), strict=True)):
        if isinstance(wanted, int) and isinstance(there, int) and wanted == there:
            continue
        places = ops.cast(there - wanted + 1, "float32")
        first = ops.floor(keras.random.uniform((), seed=seed) * places)
        x = ops.take(x, ops.cast(first, "int32") + ops.arange(wanted, dtype="int32"), axis=axis)
    return x
