"""KMP115: tf.Variable in a layer or a model.

    class Scale(tf.keras.layers.Layer):
        def build(self, shape):
            self.scale = tf.Variable(1.0)     # self.add_weight(shape=(), initializer="ones")

Keras 3 does not find it: it is none of the weights, so `fit` does not train it and `save` does not
write it, and nothing says so.
Reported in classes that are derived from Layer or Model, where `self` is assigned tf.Variable(...).
"""

from collections.abc import Iterator

import libcst as cst

from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3.code import Code

_VARIABLES = (
    "tensorflow.Variable",
    "tensorflow.compat.v1.Variable",
    "tensorflow.compat.v2.Variable",
)
_SAID = (
    "Keras 3 does not track a tf.Variable (fit does not train it, save does not store it): "
    "write self.add_weight(...)"
)


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    for one in code.classes:
        found = code.objects.class_of(one)
        if found is None or not found.is_a("layers.Layer"):
            continue
        for node in code.objects.attributes_of(one):
            if isinstance(node, cst.Call) and code.program.full_name(node.func) in _VARIABLES:
                yield node, Decision("manual", _SAID)
