"""Images: (batch, height, width, channels), or one image without the batch."""

from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from keras_mp.compat.operations.computing.elementwise import (
    add,
    cast,
    floor,
    maximum,
    minimum,
    multiply,
    power,
    saturate_cast,
    subtract,
)
from keras_mp.compat.operations.computing.shapes import flip, pad, size
from keras_mp.compat.operations.computing.values import (
    Tensor,
    Value,
    dtype_of,
    ints,
    is_floating,
    is_tensor,
    tensor,
)

_METHODS = ("bilinear", "nearest", "bicubic", "area")  # by their numbers in TF 1
_GRAY = (0.2989, 0.5870, 0.1140)


def _name(method: Value) -> str:
    return _METHODS[method] if isinstance(method, int) else str(method).lower()


def _batched(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(images: Value, *arguments: Any, **options: Any) -> Tensor:
        images = tensor(images)
        if len(images.shape) == 3:
            return ops.squeeze(function(ops.expand_dims(images, 0), *arguments, **options), 0)
        return function(images, *arguments, **options)

    return call


def _triangle(x: Any) -> Any:
    return np.maximum(0.0, 1.0 - np.abs(x))


def _keys(x: Any) -> Any:
    x = np.abs(x)
    near, far = (1.5 * x - 2.5) * x * x + 1.0, ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return np.where(x >= 2, 0.0, np.where(x >= 1, far, near))


def _mitchell(x: Any) -> Any:
    x = np.abs(x)
    far = ((-7.0 / 18 * x + 2.0) * x - 10.0 / 3) * x + 16.0 / 9
    near = ((7.0 / 6 * x - 2.0) * x) * x + 8.0 / 9
    return np.where(x >= 2, 0.0, np.where(x >= 1, far, near))


def _gaussian(x: Any) -> Any:
    return np.where(np.abs(x) < 1.5, np.exp(-np.square(x) / (2.0 * 0.5**2)), 0.0)


def _lanczos(radius: float) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        return np.where(np.abs(x) < radius, np.sinc(x) * np.sinc(x / radius), 0.0)

    return kernel


# Name -> (how far a kernel reaches, the kernel).
_KERNELS: dict[str, tuple[float, Callable[[Any], Any]]] = {
    "bilinear": (1.0, _triangle),
    "bicubic": (2.0, _keys),
    "mitchellcubic": (2.0, _mitchell),
    "gaussian": (1.5, _gaussian),
    "lanczos3": (3.0, _lanczos(3.0)),
    "lanczos5": (5.0, _lanczos(5.0)),
}


def _weights(size: int, out: int, method: str, antialias: bool) -> Any:
    """Returns what each of `out` places takes of `size` ones: float32, (out, size).

    Source: TF 2.15, core/kernels/image/scale_and_translate_op.cc.
    """
    # In float32, as there: the edge of a kernel is where rounding puts it.
    scale = np.float32(1) / (np.float32(out) / np.float32(size))
    centers = (np.arange(out, dtype="float32") + np.float32(0.5)) * scale - np.float32(0.5)
    if method == "area":
        starts, places = np.arange(out)[:, None] * scale, np.arange(size)[None]
        shared = np.minimum(places + 1, starts + scale) - np.maximum(places, starts)
        return (np.maximum(shared, 0) / scale).astype("float32")
    _, kernel = _KERNELS[method]
    if method == "bicubic" and not antialias:  # its kernel was a table of 1024 steps
        centers = np.rint(centers * 1024) / 1024
    wide = np.maximum(scale, np.float32(1)) if antialias else np.float32(1)
    found = kernel((np.arange(size, dtype="float32")[None] - centers[:, None]) * (1 / wide))
    total = found.sum(1, keepdims=True)
    return np.where(total != 0, found / np.where(total == 0, 1, total), 0).astype("float32")


def _places(size: Value, out: Value, align_corners: bool, half_pixel_centers: bool) -> Value:
    """Returns where `out` pixels are among `size` ones: NumPy's float32 if both are known.

    Source: TF 2.15, core/util/image_resizer_state.h.
    """
    if is_tensor(size) or is_tensor(out):
        size, out = ops.cast(size, "float32"), ops.cast(out, "float32")
        numbers, corners = ops.arange(out), ops.where(out > 1, (size - 1) / (out - 1), size / out)
    else:
        size, out = np.float32(size), np.float32(out)
        numbers = np.arange(out, dtype="float32")
        corners = (size - 1) / (out - 1) if out > 1 else size / out
    if half_pixel_centers:
        return (numbers + np.float32(0.5)) * (size / out) - np.float32(0.5)
    return numbers * (corners if align_corners else size / out)


def _nearest(images: Tensor, axis: int, places: Value, size: Value, up: bool) -> Tensor:
    places = add(places, np.float32(0.5)) if up else places
    found = minimum(maximum(cast(floor(places), "int32"), 0), subtract(size, 1))
    return ops.take(images, found, axis=axis)


def _bilinear(images: Tensor, axis: int, places: Value, size: Value) -> Tensor:
    places = maximum(places, np.float32(0))
    low = minimum(cast(floor(places), "int32"), subtract(size, 1))
    high = minimum(add(low, 1), subtract(size, 1))
    share = tensor(subtract(places, cast(low, "float32")))
    first, second = (ops.take(images, one, axis=axis) for one in (low, high))
    return first + (second - first) * ops.reshape(share, (-1, *[1] * (3 - axis)))


def _resize(images: Tensor, size: Value, method: Value, antialias: bool) -> Tensor:
    name = _name(method)
    wanted, given = ints(size), images.shape[1:3]
    is_known = None not in given and not any(map(is_tensor, wanted))
    if is_known and tuple(wanted) == tuple(given):
        return images
    if name == "nearest" or (name == "bilinear" and not antialias):
        return _resize_v1(images, size, name, False, True)
    if name != "area" and name not in _KERNELS:
        raise ValueError(f"method={name!r} of an image that is resized")
    if not is_known:
        raise ValueError(f"{name} resizing of images whose size is not known")
    x = ops.cast(images, "float32")
    pairs = zip(given, wanted, strict=True)
    rows, columns = (ops.convert_to_tensor(_weights(*pair, name, antialias)) for pair in pairs)
    return ops.einsum("ow,bhwc->bhoc", columns, ops.einsum("oh,bhwc->bowc", rows, x))


def resize(
    images: Value, size: Value, method: Value = "bilinear", antialias: bool = False
) -> Tensor:
    return _batched(_resize)(images, size, method, antialias)


def _resize_v1(
    images: Tensor, size: Value, method: Value, align_corners: bool, half_pixel_centers: bool
) -> Tensor:
    name = _name(method)
    if name not in ("bilinear", "nearest"):
        raise ValueError(f"method={name!r} of TF 1's image.resize")
    images = images if name == "nearest" else ops.cast(images, "float32")
    for axis, there, out in zip((1, 2), ops.shape(images)[1:3], ints(size), strict=True):
        places = _places(there, out, align_corners, half_pixel_centers)
        if name == "nearest":
            images = _nearest(images, axis, places, there, align_corners or half_pixel_centers)
        else:
            images = _bilinear(images, axis, places, there)
    return images


def resize_v1(
    images: Value,
    size: Value,
    method: Value,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
) -> Tensor:
    return _batched(_resize_v1)(images, size, method, align_corners, half_pixel_centers)


def resize_by(
    images: Value,
    height_factor: Value,
    width_factor: Value,
    data_format: str,
    interpolation: str = "nearest",
) -> Tensor:
    x, down, across = tensor(images), ints(height_factor), ints(width_factor)
    axis = 2 if data_format == "channels_first" else 1
    if interpolation == "nearest":
        return ops.repeat(ops.repeat(x, down, axis), across, axis + 1)
    x = ops.transpose(x, (0, 2, 3, 1)) if axis == 2 else x
    height, width = ops.shape(x)[1:3]
    x = _resize(x, [height * down, width * across], interpolation, False)
    return ops.transpose(x, (0, 3, 1, 2)) if axis == 2 else x


def temporal_padding(x: Value, padding: Value) -> Tensor:
    return pad(x, [(0, 0), tuple(padding), (0, 0)])


def spatial_padding(x: Value, padding: Value, data_format: str | None) -> Tensor:
    inner = [tuple(pair) for pair in padding]
    is_first = data_format == "channels_first"
    return pad(x, [(0, 0), (0, 0), *inner] if is_first else [(0, 0), *inner, (0, 0)])


def rot90(images: Value, k: Value = 1) -> Tensor:
    """Not keras.ops.rot90, which on TensorFlow takes k=2 for another axis."""
    images, turns = tensor(images), ints(k) % 4
    if turns == 2:
        return flip(images, [-3, -2])
    if turns == 1:
        return transpose_images(ops.flip(images, -2))
    return ops.flip(transpose_images(images), -2) if turns else images


def transpose_images(images: Value) -> Tensor:
    return ops.swapaxes(tensor(images), -3, -2)


def rgb_to_grayscale(images: Value) -> Tensor:
    weights = ops.convert_to_tensor(np.asarray(_GRAY, "float32"))
    return _changed(images, lambda x: ops.sum(x * weights, -1, keepdims=True), "float32")


def grayscale_to_rgb(images: Value) -> Tensor:
    images = tensor(images)
    return ops.tile(images, [1] * (len(images.shape) - 1) + [3])


def _as_image(function: Callable[[Tensor], Tensor]) -> Callable[[Value], Tensor]:
    """Takes tensors of any rank to a function that takes images."""

    def call(images: Value) -> Tensor:
        images = tensor(images)
        if len(images.shape) in (3, 4):
            return function(images)
        return ops.reshape(function(ops.reshape(images, (1, -1, 3))), ops.shape(images))

    return call


rgb_to_hsv = _as_image(ops.image.rgb_to_hsv)
hsv_to_rgb = _as_image(ops.image.hsv_to_rgb)


def _changed(images: Value, change: Callable[[Tensor], Tensor], dtype: str | None = None) -> Tensor:
    """Returns images with a change made in floating numbers: in a dtype, or in their own."""
    images = tensor(images)
    given = dtype_of(images)
    own = given if is_floating(given) else "float32"
    return convert_image_dtype(change(convert_image_dtype(images, dtype or own)), given)


def _like(value: Value, x: Tensor) -> Value:
    return cast(value, dtype_of(x)) if is_tensor(value) else value


def adjust_brightness(images: Value, delta: Value) -> Tensor:
    return _changed(images, lambda x: add(x, _like(delta, x)))


def adjust_gamma(images: Value, gamma: Value = 1, gain: Value = 1) -> Tensor:
    return _changed(images, lambda x: multiply(power(x, gamma), gain), "float32")


def adjust_contrast(images: Value, factor: Value) -> Tensor:
    def change(x: Tensor) -> Tensor:
        mean = ops.mean(x, axis=(-3, -2), keepdims=True)
        return add(multiply(x - mean, _like(factor, x)), mean)

    return _changed(images, change)


def adjust_saturation(images: Value, factor: Value) -> Tensor:
    return _in_hsv(images, lambda h, s, v: (h, ops.clip(s * factor, 0.0, 1.0), v))


def adjust_hue(images: Value, delta: Value) -> Tensor:
    return _in_hsv(images, lambda h, s, v: (ops.mod(h + delta, 1.0), s, v))


def _in_hsv(images: Value, change: Callable[..., Any]) -> Tensor:
    def changed(x: Tensor) -> Tensor:
        x = rgb_to_hsv(x)
        return hsv_to_rgb(ops.stack(change(x[..., 0], x[..., 1], x[..., 2]), -1))

    return _changed(images, changed)


def per_image_standardization(images: Value) -> Tensor:
    x = ops.cast(tensor(images), "float32")
    mean = ops.mean(x, axis=(-3, -2, -1), keepdims=True)
    std = ops.std(x, axis=(-3, -2, -1), keepdims=True)
    count = ops.cast(size(x[0] if len(x.shape) == 4 else x), "float32")
    return (x - mean) / ops.maximum(std, ops.rsqrt(count))


def convert_image_dtype(images: Value, dtype: str) -> Tensor:
    images = tensor(images)
    given = dtype_of(images)
    if given == dtype:
        return images
    if is_floating(given) and is_floating(dtype):
        return cast(images, dtype)
    if is_floating(dtype):
        return cast(images, dtype) * (1.0 / np.iinfo(given).max)
    if is_floating(given):
        return saturate_cast(images * (np.iinfo(dtype).max + 0.5), dtype)
    raise ValueError(f"an image of {given} as {dtype}")


def central_crop(images: Value, fraction: Value) -> Tensor:
    images = tensor(images)
    keys = [slice(None)] * (len(images.shape) - 3)
    for there in ops.shape(images)[-3:-1]:
        # In float64, as there; a size that is not known is one of TensorFlow's.
        whole = ops.cast(there, "float64") if is_tensor(there) else there
        start = cast((whole - whole * float(fraction)) / 2, "int32")
        keys.append(slice(start, start + there - start * 2))
    return images[tuple(keys)]


def crop_to_bounding_box(
    images: Value, top: Value, left: Value, height: Value, width: Value
) -> Tensor:
    top, left, height, width = ints([top, left, height, width])
    return tensor(images)[..., top : top + height, left : left + width, :]


def pad_to_bounding_box(
    images: Value, top: Value, left: Value, height: Value, width: Value
) -> Tensor:
    images = tensor(images)
    top, left, height, width = ints([top, left, height, width])
    rows, columns = ops.shape(images)[-3:-1]
    inner = [(top, height - top - rows), (left, width - left - columns), (0, 0)]
    return pad(images, [(0, 0)] * (len(images.shape) - 3) + inner)


def resize_with_crop_or_pad(images: Value, height: Value, width: Value) -> Tensor:
    images = tensor(images)
    wanted, given = ints([height, width]), ops.shape(images)[-3:-1]
    more = [one - there for one, there in zip(wanted, given, strict=True)]
    kept = [minimum(one, there) for one, there in zip(wanted, given, strict=True)]
    images = crop_to_bounding_box(images, *[maximum(-one // 2, 0) for one in more], *kept)
    return pad_to_bounding_box(images, *[maximum(one // 2, 0) for one in more], *wanted)


def extract_patches(
    images: Value, sizes: Value, strides: Value, rates: Value, padding: str
) -> Tensor:
    size, steps, rate = (tuple(ints(one)[1:3]) for one in (sizes, strides, rates))
    if len(set(rate)) > 1:
        raise ValueError(f"patches with rates {list(rate)}")
    x, padding = tensor(images), padding.lower()
    if rate[0] == 1 or max(steps) == 1:
        return ops.image.extract_patches(
            x, size, strides=steps, dilation_rate=rate[0], padding=padding
        )
    if padding == "same":  # which with strides of 1 would pad otherwise
        given = x.shape[1:3]
        if None in given:
            raise ValueError("patches with rates and strides of images whose size is not known")
        more = [
            max((-(-there // step) - 1) * step + (width - 1) * rate[0] + 1 - there, 0)
            for there, step, width in zip(given, steps, size, strict=True)
        ]
        x = pad(x, [(0, 0), *((one // 2, one - one // 2) for one in more), (0, 0)])
    found = ops.image.extract_patches(x, size, strides=1, dilation_rate=rate[0], padding="valid")
    return found[:, :: steps[0], :: steps[1]]


def total_variation(images: Value) -> Tensor:
    images = tensor(images)
    rows = ops.absolute(images[..., 1:, :, :] - images[..., :-1, :, :])
    columns = ops.absolute(images[..., :, 1:, :] - images[..., :, :-1, :])
    return ops.sum(rows, axis=(-3, -2, -1)) + ops.sum(columns, axis=(-3, -2, -1))


def sobel_edges(images: Value) -> Tensor:
    x = pad(images, [(0, 0), (1, 1), (1, 1), (0, 0)], "reflect")
    height, width = ops.shape(images)[1:3]

    def at(row: int, column: int) -> Tensor:
        return x[:, row : row + height, column : column + width]

    down = (at(2, 0) + 2 * at(2, 1) + at(2, 2)) - (at(0, 0) + 2 * at(0, 1) + at(0, 2))
    across = (at(0, 2) + 2 * at(1, 2) + at(2, 2)) - (at(0, 0) + 2 * at(1, 0) + at(2, 0))
    return ops.stack([down, across], -1)
