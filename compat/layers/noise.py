"""`GaussianNoise` of any standard deviation, as tf.keras took it."""

from typing import Any

import keras


@keras.saving.register_keras_serializable("keras_mp")
class GaussianNoise(keras.layers.GaussianNoise):
    """Adds normal noise in training; Keras 3 refuses a `stddev` above 1.

    Args:
        stddev: Their standard deviation; of a negative one the magnitude counts.
        seed, **options: Those of `keras.layers.GaussianNoise`.

    Source: TF 2.15.1, keras/layers/regularization/gaussian_noise.py.

    >>> noise = GaussianNoise(100.0, seed=1)(keras.ops.zeros((9,)), training=True)
    >>> bool(keras.ops.max(keras.ops.abs(noise)) > 10)
    True
    """

    def __init__(self, stddev: float, seed: int | None = None, **options: Any) -> None:
        super().__init__(min(abs(stddev), 1.0), seed, **options)
        self.stddev = abs(stddev)
