"""KMP207: classes that derive from tf.Module, whose weights only TensorFlow knows.

before:  class Encoder(tf.Module):
after:   class Encoder(keras.layers.Layer):

Its weights are made by `add_weight` in `build` then, and `__call__` becomes `call`.
"""

from keras_mp.migration.to_backend.uses import Use, message

ANCHOR = "modules"
_DO = "derive from keras.layers.Layer, with the weights in build and the rest in call"


def decide(use: Use) -> str | None:
    if use.tensorflow != "Module" or not (use.is_base or use.is_call):
        return None
    return message("tf.Module", _DO, ANCHOR, use.target)
