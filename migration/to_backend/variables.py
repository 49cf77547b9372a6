"""KMP206: tf.Variable. In a layer a weight is made by `add_weight`; elsewhere by keras.Variable.

before:  self.count = tf.Variable(0.0, trainable=False)
after:   self.count = self.add_weight(initializer="zeros", trainable=False)
"""

import libcst as cst

from keras_mp.migration.to_backend.uses import Use, message

ANCHOR = "variables"
_IN_MODEL = "write self.add_weight(...) in a layer or a model, and keras.Variable elsewhere"


def decide(use: Use) -> str | None:
    if use.tensorflow != "Variable":
        return None
    if use.call is not None:
        do = _IN_MODEL if use.in_model else "write keras.Variable, or a number of Python"
        return message("tf.Variable", do, ANCHOR, use.target)
    if isinstance(use.parent, cst.Arg) and isinstance(use.outer, cst.Call):
        return message("tf.Variable", "weights are keras.Variable", ANCHOR, use.target)
    return None
