"""KMP102: names that Keras 3 has elsewhere.

before:  tf.keras.layers.experimental.preprocessing.Rescaling(1 / 255)
after:   tf.keras.layers.Rescaling(1 / 255)

before:  tf.keras.optimizers.experimental.AdamW()
after:   tf.keras.optimizers.AdamW()

before:  tf.keras.losses.mean_squared_error(a, b)
after:   tf.keras.losses.mse(a, b)

before:  from tensorflow.keras.layers.experimental import preprocessing
after:   from tensorflow.keras import layers as preprocessing

Safe: it is the same class or function. `tf.keras` and `keras` of today do not have all of them by
the same names. `tensorflow.compat.v1.keras` cannot be imported from, and is Keras 3, too.
Reported: imports with a comment in them that would become several, and names that are assigned.
"""

from collections.abc import Iterator

import libcst as cst

from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3 import replaced_names
from keras_mp.migration.keras3.code import Code
from keras_mp.migration.keras3.names import Known


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    yield from replaced_names.decisions_by_status(code, "moved", _message)


def _message(known: Known) -> str:
    where = "cannot be imported" if known.name == known.new else "is elsewhere"
    return f"{known} {where} in Keras 3: {known.advice}"
