"""Layers that models of tf.keras.applications have of their own, as Keras 2 had them."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_mp")
class LayerScale(keras.layers.Layer):
    """Multiplies each channel by a weight: of ConvNeXt.

    Args:
        init_values: What the weights begin with.
        projection_dim: The number of channels.
        **options: Those of `keras.layers.Layer`.

    Source: Touvron et al. 2021, "Going deeper with Image Transformers"; Keras 2.10 to 2.15,
    applications/convnext.py.

    >>> ops.convert_to_numpy(LayerScale(0.5, 2)(ops.ones((1, 2)))).tolist()
    [[0.5, 0.5]]
    """

    def __init__(self, init_values: float, projection_dim: int, **options: Any) -> None:
        super().__init__(**options)
        self.init_values, self.projection_dim = init_values, projection_dim

    def build(self, input_shape: Any) -> None:
        self.gamma = self.add_weight(
            name="gamma",
            shape=(self.projection_dim,),
            initializer=keras.initializers.Constant(self.init_values),
        )

    def call(self, inputs: Any) -> Any:
        return ops.multiply(inputs, self.gamma)

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        return config | {"init_values": self.init_values, "projection_dim": self.projection_dim}


@keras.saving.register_keras_serializable("keras_mp")
class StochasticDepth(keras.layers.Layer):
    """Drops whole examples in training: of ConvNeXt with a drop rate.

    Args:
        drop_path_rate: The probability to drop an example.
        **options: Those of `keras.layers.Layer`.

    Source: Huang et al. 2016; Keras 2.10 to 2.15, applications/convnext.py.

    >>> ops.convert_to_numpy(StochasticDepth(0.5)(ops.ones((1, 2)))).tolist()
    [[1.0, 1.0]]
    """

    def __init__(self, drop_path_rate: float, **options: Any) -> None:
        super().__init__(**options)
        self.drop_path_rate = drop_path_rate
        self.seed_generator = keras.random.SeedGenerator()

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        if not training:
            return inputs
        shape = (ops.shape(inputs)[0], *[1] * (len(inputs.shape) - 1))
        drawn = keras.random.uniform(shape, seed=self.seed_generator)
        kept = ops.floor(1.0 - self.drop_path_rate + drawn)
        return ops.divide(inputs, 1.0 - self.drop_path_rate) * ops.cast(kept, inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        return config | {"drop_path_rate": self.drop_path_rate}


@keras.saving.register_keras_serializable("keras_mp")
class CustomScaleLayer(keras.layers.Layer):
    """Adds a multiple of its second input to its first: of InceptionResNetV2.

    Args:
        scale: The factor.
        **options: Those of `keras.layers.Layer`.

    Source: Keras 2.11 to 2.15, applications/inception_resnet_v2.py.

    >>> one = ops.ones((1, 2))
    >>> ops.convert_to_numpy(CustomScaleLayer(0.5)([one, one])).tolist()
    [[1.5, 1.5]]
    """

    def __init__(self, scale: float, **options: Any) -> None:
        super().__init__(**options)
        self.scale = scale

    def call(self, inputs: Any) -> Any:
        return inputs[0] + inputs[1] * self.scale

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        return config | {"scale": self.scale}
