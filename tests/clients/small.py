"""Optimizers to compare, and a small model for tools that take any."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_mp


def quick_on(*backends):
    """Returns the mark of what CI runs, which is each test on one or two backends only."""
    on = keras.backend.backend() in backends
    return pytest.mark.quick if on else pytest.mark.skipif(False, reason="not for CI")


def ours(initial_scale=1024.0, growth_steps=2, **options):
    """Returns Adam with our loss scaling; the scale doubles after `growth_steps` finite steps."""
    return keras_mp.LossScaleOptimizer(
        keras.optimizers.Adam(1e-2),
        initial_scale=initial_scale,
        dynamic_growth_steps=growth_steps,
        **options,
    )


def keras_own(initial_scale=1024.0, growth_steps=2):
    """Returns the same with the loss scaling of Keras."""
    return keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(1e-2),
        initial_scale=initial_scale,
        dynamic_growth_steps=growth_steps,
    )


def plain():
    """Returns what most programs pass to `compile`."""
    return keras.optimizers.Adam(1e-2)


def small_model(optimizer):
    """Returns a compiled model of 4 numbers to 1, and 32 rows of data for it."""
    random = np.random.RandomState(0)
    x = random.randn(32, 4).astype("float32")
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(1, dtype="float32"),
        ]
    )
    model.compile(optimizer, "mse")
    return model, x, 0.5 * x.sum(1, keepdims=True)


def state(variables):
    """Returns the bytes of every variable given."""
    return [ops.convert_to_numpy(v).tobytes() for v in variables]
