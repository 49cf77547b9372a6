"""How much two images are alike.

Source: TF 2.15, python/ops/image_ops_impl.py.
"""

from typing import Any

import numpy as np
from keras import ops

from keras_mp.compat.operations.computing.images import convert_image_dtype
from keras_mp.compat.operations.computing.networks import depthwise_conv
from keras_mp.compat.operations.computing.values import Tensor, Value, dtype_of, ints, tensor


def _prepared(a: Value, b: Value, max_val: Value) -> tuple[Tensor, Tensor, Tensor]:
    a, b = tensor(a), tensor(b)
    of = [a, b, ops.cast(max_val, dtype_of(a))]
    first, second, most = (convert_image_dtype(one, "float32") for one in of)
    return first, second, most


def psnr(a: Value, b: Value, max_val: Value) -> Tensor:
    a, b, most = _prepared(a, b, max_val)
    error = ops.mean(ops.square(a - b), axis=(-3, -2, -1))
    return 20.0 * ops.log(most) / float(np.log(10.0)) - float(10.0 / np.log(10.0)) * ops.log(error)


def _gaussian(size: int, sigma: float) -> Any:
    places = np.square(np.arange(size) - (size - 1) / 2) * (-0.5 / sigma**2)
    weights = np.exp(places)
    return np.multiply.outer(weights, weights) / weights.sum() ** 2


def ssim(
    a: Value,
    b: Value,
    max_val: Value,
    filter_size: Value = 11,
    filter_sigma: Value = 1.5,
    k1: Value = 0.01,
    k2: Value = 0.03,
    return_index_map: bool = False,
) -> Tensor:
    x, y, most = _prepared(a, b, max_val)
    depth = int(x.shape[-1])
    weights = _gaussian(ints(filter_size), filter_sigma).astype("float32")
    kernel = ops.convert_to_tensor(np.tile(weights[..., None, None], (1, 1, depth, 1)))
    is_one = len(x.shape) == 3
    x, y = (ops.expand_dims(one, 0) if is_one else one for one in (x, y))

    def blurred(images: Tensor) -> Tensor:
        return depthwise_conv(images, kernel, 1, "VALID")

    luminance, contrast = ops.square(k1 * most), ops.square(k2 * most)
    first, second = blurred(x), blurred(y)
    product, squares = 2.0 * first * second, ops.square(first) + ops.square(second)
    products, sums = 2.0 * blurred(x * y), blurred(ops.square(x) + ops.square(y))
    found = (product + luminance) / (squares + luminance)
    found = found * (products - product + contrast) / (sums - squares + contrast)
    if not return_index_map:
        found = ops.mean(found, axis=(-3, -2))
    found = ops.mean(found, axis=-1)
    return ops.squeeze(found, 0) if is_one else found
