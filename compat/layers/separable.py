"""`SeparableConv1D` with causal padding, which Keras 3 does not take."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_mp")
class SeparableConv1D(keras.layers.SeparableConv1D):
    """`keras.layers.SeparableConv1D` that also takes `padding="causal"`, as tf.keras did.

    With it, zeros stand before the first step, and an output depends on no later input.

    Args:
        filters, kernel_size, strides: As of the layer of Keras.
        padding: "valid", "same" or "causal".
        **options: As of the layer of Keras.

    Raises:
        ValueError: An argument that Keras refuses.

    Source: TF 2.15.1, keras/src/layers/convolutional/separable_conv1d.py.

    >>> layer = SeparableConv1D(2, 3, padding="causal")
    >>> tuple(layer(keras.ops.ones((1, 4, 3))).shape)
    (1, 4, 2)
    """

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        **options: Any,
    ) -> None:
        self._causal = padding == "causal"
        super().__init__(
            filters, kernel_size, strides, "valid" if self._causal else padding, **options
        )

    def call(self, inputs: Any) -> Any:
        """Returns the convolution."""
        if self._causal:
            pads = [(0, 0)] * 3
            pads[self._time] = self._before, 0
            inputs = ops.pad(inputs, pads)
        return super().call(inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the shape that `call` returns for an input of a shape."""
        shape = list(input_shape)
        if self._causal and shape[self._time] is not None:
            shape[self._time] += self._before
        return super().compute_output_shape(tuple(shape))

    @property
    def _time(self) -> int:
        return 1 if self.data_format == "channels_last" else 2

    @property
    def _before(self) -> int:
        return int(self.dilation_rate[0] * (self.kernel_size[0] - 1))

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments."""
        return {**super().get_config(), "padding": "causal" if self._causal else self.padding}
