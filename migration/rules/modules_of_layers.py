"""KMP019: variables of a tf.Module that holds layers of Keras. Reported, never rewritten.

    class Net(tf.Module):
        def __init__(self):
            self.dense = tf.keras.layers.Dense(1)

    gradients = tape.gradient(loss, net.trainable_variables)

A layer of Keras 3 is no tf.Module on which another one finds variables: the list is empty, or lacks
those of the layers, and nothing is trained.
"""

import libcst as cst

from keras_mp.migration.code.facts import Facts
from keras_mp.migration.code.sites import Decision

ATTRIBUTES = frozenset(
    {"variables", "trainable_variables", "non_trainable_variables", "submodules"}
)
_REPORTED = Decision(
    "manual",
    "tf.Module does not track variables of Keras 3 layers, so a loop over them trains nothing: "
    "derive the class from keras.Model or keras.layers.Layer, or collect the variables of each "
    "layer",
)


def decide(facts: Facts, node: cst.Attribute) -> Decision | None:
    """Returns what is said where one of `ATTRIBUTES` is read; None of other objects."""
    is_one = node.attr.value in ATTRIBUTES and facts.is_module_of_layers(node.value)
    return _REPORTED if is_one else None
