"""Small models of mixed dtypes, and the findings of `explain` for them."""

import keras
from keras import layers

from keras_mp import LossScaleOptimizer
from keras_mp.diagnosis.explaining import explain


def ours(**settings):
    return LossScaleOptimizer(keras.optimizers.SGD(0.1), **settings)


def sequential(*parts, policy="mixed_float16", shape=(4,)):
    keras.config.set_dtype_policy(policy)
    model = keras.Sequential([keras.Input(shape, dtype="float32"), *[part() for part in parts]])
    keras.config.set_dtype_policy("float32")
    return model


def hidden():
    return layers.Dense(8, activation="relu", name="hidden")


def out(**options):
    return lambda: layers.Dense(1, name="out", **{"dtype": "float32", **options})


def codes(model, optimizer=None):
    """{(code, path)} of all findings; fails on a duplicate."""
    found = explain(model, optimizer).findings
    listed = [(finding.code, finding.path) for finding in found]
    assert len(set(listed)) == len(listed)
    return set(listed)
