"""The weights and the images of the recordings, made by rule: pure NumPy, the same everywhere.

Every number is a multiple of 2**-15 from the bytes of `np.random.RandomState`, whose stream
NumPy keeps, times a float32. The seed is the position in the file. What a weight is for is
read from its name, as tf.keras gave it.
"""

import math

import numpy as np

SPREAD = math.sqrt(3)  # a uniform number in [-1, 1) times this has a standard deviation of one
CENTRED = 0.5  # how much of their mean the kernels lack
BATCH = 2  # images in an input


def integers(seed, shape):
    """Returns whole numbers from -2**15 to 2**15 - 1."""
    size = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(np.random.RandomState(seed).bytes(2 * size), dtype="<i2").reshape(shape)


def uniform(seed, shape):
    """Returns float32 numbers in [-1, 1)."""
    return integers(seed, shape).astype(np.float32) * np.float32(2.0**-15)


def kernel(seed, shape, depthwise, level):
    """Returns a kernel by He's rule, over 2**level: as much comes out of a `relu` as went in.

    Of the mean over the inputs a part is taken out. What is rectified has a mean, and the more
    of it passes, the less of what tells two images apart is left after many layers.
    """
    drawn = integers(seed, shape)
    numbers = drawn.astype(np.float32)
    if not depthwise and shape[-2] > 4:
        mean = drawn.sum(axis=-2, dtype=np.int64, keepdims=True) / shape[-2]  # sums are exact
        numbers -= (CENTRED * mean).astype(np.float32)
    fan_in = np.prod(shape[:2] if depthwise else shape[:-1], dtype=np.int64)
    numbers *= np.float32(2.0 ** (-15 - level) * SPREAD * math.sqrt(2 / fan_in))
    return numbers


def weight(position, name, shape, dtype="float32", level=0):
    """Returns the weight at a position of the file.

    Args:
        position: counts the weights of the file from 0, in its order.
        name: as in the file, e.g. "conv1/kernel:0".
        shape: as a list or tuple.
        dtype: of the array; only the `count` of Normalization is an integer.
        level: of a batch normalization, whose input is about 2**level large, and of the layer
            whose output would be so large without it; 0 for others.
    """
    kind = name.rpartition("/")[2].partition(":")[0]
    seed = 1000 + position
    if kind.endswith("kernel"):
        return kernel(seed, shape, kind == "depthwise_kernel", level)
    numbers = uniform(seed, shape)
    if kind == "bias":
        numbers *= np.float32(0.1)
    elif kind in ("gamma", "Variable"):  # LayerScale named its gamma so until TF 2.12
        numbers = 1 + np.float32(0.3) * numbers
    elif kind == "beta":
        numbers *= np.float32(0.3)
    elif kind == "moving_mean":
        numbers *= np.float32(0.3 * 2.0**level)
    elif kind == "moving_variance":
        numbers = (1 + np.float32(0.5) * numbers) * np.float32(4.0**level)
    elif kind == "mean":  # of Normalization: of pixels between 0 and 1
        numbers = np.float32(0.45) + np.float32(0.1) * numbers
    elif kind == "variance":
        numbers = np.float32(0.06) + np.float32(0.02) * numbers
    elif kind == "count":
        numbers = seed + 0 * numbers
    else:
        raise ValueError(f"no rule for a weight called {name}")
    return numbers.astype(dtype)


def weights(layers, levels):
    """Yields (layer name, weight name, array) in the order of the file.

    Args:
        layers: {layer name: [[weight name, shape] or [weight name, shape, dtype], ...]}.
        levels: {layer name: level}.
    """
    position = 0
    for layer, described in layers.items():
        for name, *rest in described:
            yield layer, name, weight(position, name, *rest, level=levels.get(layer, 0))
            position += 1


def images(shape, low, high):
    """Returns two images, float32: coarse spots of colour, and as much noise over them."""
    height, width, channels = shape
    spots = uniform(1, (BATCH, 4, 4, channels))
    rows, columns = np.arange(height) * 4 // height, np.arange(width) * 4 // width
    mixed = 0.5 * spots[:, rows][:, :, columns] + 0.5 * uniform(2, (BATCH, *shape))
    return (np.float32(low) + np.float32((high - low) / 2) * (1 + mixed)).astype(np.float32)
