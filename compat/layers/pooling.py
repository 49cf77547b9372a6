"""`AveragePooling` that leaves padding out of the mean on every backend, as TensorFlow did."""

from typing import Any

import keras
from keras import ops


class _AveragePooling:
    """Pads before and after, and divides by how many numbers of a window are no padding."""

    pool_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str
    data_format: str

    def call(self, inputs: Any) -> Any:
        """Returns the averages."""
        first = 2 if self.data_format == "channels_first" else 1
        sizes = tuple(inputs.shape[first : first + len(self.pool_size)])
        if self.padding != "same" or None in sizes:
            return super().call(inputs)  # type: ignore[misc]
        pads = [(0, 0)] * len(inputs.shape)
        shape = [1] * len(inputs.shape)
        for axis, (size, pool, stride) in enumerate(
            zip(sizes, self.pool_size, self.strides, strict=True), first
        ):
            total = max((-(-size // stride) - 1) * stride + pool - size, 0)
            pads[axis] = total // 2, total - total // 2
            shape[axis] = size
        ones = ops.ones(shape, dtype=inputs.dtype)
        return self._mean(ops.pad(inputs, pads)) / self._mean(ops.pad(ones, pads))

    def _mean(self, padded: Any) -> Any:
        return ops.average_pool(
            padded, self.pool_size, self.strides, padding="valid", data_format=self.data_format
        )


@keras.saving.register_keras_serializable("keras_mp")
class AveragePooling1D(_AveragePooling, keras.layers.AveragePooling1D):
    """`keras.layers.AveragePooling1D`, without counting zeros of "same" padding on PyTorch.

    Args:
        pool_size, strides, padding, data_format, **options: As of the layer of Keras.

    Source: TF 2.15.1, keras/layers/pooling.

    >>> layer = AveragePooling1D(3, strides=2, padding="same")
    >>> keras.ops.convert_to_numpy(layer(keras.ops.ones((1, 4, 1)))).tolist()
    [[[1.0], [1.0]]]
    """


@keras.saving.register_keras_serializable("keras_mp")
class AveragePooling2D(_AveragePooling, keras.layers.AveragePooling2D):
    """`keras.layers.AveragePooling2D`, without counting zeros of "same" padding on PyTorch.

    Args:
        pool_size, strides, padding, data_format, **options: As of the layer of Keras.

    Source: TF 2.15.1, keras/layers/pooling.

    >>> layer = AveragePooling2D(3, strides=2, padding="same")
    >>> float(keras.ops.min(layer(keras.ops.ones((1, 4, 4, 1)))))
    1.0
    """


@keras.saving.register_keras_serializable("keras_mp")
class AveragePooling3D(_AveragePooling, keras.layers.AveragePooling3D):
    """`keras.layers.AveragePooling3D`, without counting zeros of "same" padding on PyTorch.

    Args:
        pool_size, strides, padding, data_format, **options: As of the layer of Keras.

    Source: TF 2.15.1, keras/layers/pooling.

    >>> layer = AveragePooling3D(3, strides=2, padding="same")
    >>> float(keras.ops.min(layer(keras.ops.ones((1, 4, 4, 4, 1)))))
    1.0
    """
