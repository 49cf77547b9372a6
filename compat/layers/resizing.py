"""`Resizing` and `UpSampling2D` that interpolate on every backend as TensorFlow did."""

import functools
from types import SimpleNamespace
from typing import Any

import keras

from keras_mp.compat.layers import interpolation as kernels

# Those that Keras 3 computes alike on every backend.
_KERAS_OWN = ("nearest", "bilinear")


def _resized(images: Any, backend: Any, method: str, axes: dict[int, int]) -> Any:
    """Returns images in float32 with other sizes along some axes.

    Args:
        images: Of known sizes along these axes.
        backend: `keras.ops`, or what a preprocessing layer computes with in a `tf.data` pipeline.
        method: As of `interpolation.matrix`.
        axes: Axis, from 0 on -> its new size.
    """
    images = backend.cast(images, "float32")
    for axis, size in axes.items():
        weights = _matrix(method, images.shape[axis], size)
        order = [*(i for i in range(len(images.shape)) if i != axis), axis]
        back = [order.index(i) for i in range(len(order))]
        turned = backend.numpy.transpose(images, order)
        turned = backend.numpy.matmul(turned, backend.convert_to_tensor(weights.T))
        images = backend.numpy.transpose(turned, back)
    return images


_matrix = functools.lru_cache(maxsize=64)(kernels.matrix)
_OPS = SimpleNamespace(
    numpy=keras.ops, cast=keras.ops.cast, convert_to_tensor=keras.ops.convert_to_tensor
)


@keras.saving.register_keras_serializable("keras_mp")
class Resizing(keras.layers.Resizing):
    """`keras.layers.Resizing` with the interpolations of TensorFlow on every backend.

    Of those of `tf.image.resize` Keras 3 has some, and computes "bicubic" otherwise on JAX and
    PyTorch.

    Args:
        height, width: Of what is returned, in pixels.
        interpolation: "bilinear", "nearest", "area", "bicubic", "gaussian", "lanczos3", "lanczos5"
            or "mitchellcubic".
        crop_to_aspect_ratio: Whether to crop to the new aspect ratio first.
        **options: Those of `keras.layers.Resizing`.

    Source: TF 2.15.1, keras/layers/preprocessing/image_preprocessing.py.

    >>> Resizing(2, 1, interpolation="area")(keras.ops.ones((1, 4, 6, 3))).shape == (1, 2, 1, 3)
    True
    """

    def transform_images(
        self, images: Any, transformation: Any = None, training: bool = True
    ) -> Any:
        """Returns resized images, in the layer's compute dtype."""
        first = len(images.shape) - (2 if self.data_format == "channels_first" else 3)
        sizes = tuple(images.shape[first : first + 2])
        if self.interpolation in _KERAS_OWN or None in sizes:
            return super().transform_images(images, transformation, training)
        if self.crop_to_aspect_ratio:
            images = self._cropped(images, first, sizes)
        axes = {first: self.height, first + 1: self.width}
        found = _resized(images, self.backend, self.interpolation, axes)
        return self.backend.cast(found, self.compute_dtype)

    def _cropped(self, images: Any, first: int, sizes: tuple[int, int]) -> Any:
        height, width = sizes
        rows = min(height, int(width * self.height / self.width))
        columns = min(width, int(height * self.width / self.height))
        where = [slice(None)] * len(images.shape)
        for axis, size, kept in ((first, height, rows), (first + 1, width, columns)):
            start = int((size - kept) / 2)
            where[axis] = slice(start, start + kept)
        return images[tuple(where)]


@keras.saving.register_keras_serializable("keras_mp")
class UpSampling2D(keras.layers.UpSampling2D):
    """`keras.layers.UpSampling2D` with the interpolations of TensorFlow on every backend.

    Args:
        size: Factors of rows and columns.
        data_format: "channels_last" or "channels_first".
        interpolation: As of `Resizing`.
        **options: Those of `keras.layers.UpSampling2D`.

    Source: TF 2.15.1, keras/layers/reshaping/up_sampling2d.py.

    >>> layer = UpSampling2D(2, interpolation="gaussian")
    >>> layer(keras.ops.ones((1, 2, 3, 1))).shape == (1, 4, 6, 1)
    True
    """

    def call(self, inputs: Any) -> Any:
        """Returns the larger images, in the dtype of the inputs."""
        first = 2 if self.data_format == "channels_first" else 1
        sizes = inputs.shape[first : first + 2]
        if self.interpolation in _KERAS_OWN or None in tuple(sizes):
            return super().call(inputs)
        axes = {first + i: sizes[i] * self.size[i] for i in range(2)}
        found = _resized(inputs, _OPS, self.interpolation, axes)
        return keras.ops.cast(found, inputs.dtype)
