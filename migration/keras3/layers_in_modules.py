"""KMP111: layers of Keras in a tf.Module.

    class Generator(tf.Module):                 # tf.keras.Model, or tf.keras.layers.Layer
        def __init__(self):
            self.dense = tf.keras.layers.Dense(8)

Its `variables` and `trainable_variables` find none of the variables of the layer in Keras 3, and
nothing says so: gradients of no variables are applied. Derive from tf.keras.Model or
tf.keras.layers.Layer, or add the variables of the layers yourself.
Reported once a class that is derived from tf.Module, where `self` is assigned a layer or a model.
"""

from collections.abc import Iterator

import libcst as cst

from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3.code import Code

_MODULES = ("tensorflow.Module", "tensorflow.compat.v2.Module")
_SAID = (
    "tf.Module does not track variables of Keras 3 layers: derive from tf.keras.Model, or give "
    "their variables to the optimizer yourself"
)


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    for one in code.classes:
        if not any(code.program.full_name(base.value) in _MODULES for base in one.bases):
            continue
        for node in code.objects.attributes_of(one):
            if code.objects.is_a(node, "layers.Layer"):
                yield node, Decision("manual", _SAID)
                break
