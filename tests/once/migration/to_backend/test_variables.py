"""KMP206: tf.Variable."""

import pytest

from tests.obstacles import found, messages

FOUND = {
    "at the top": ("step = tf.Variable(0)\n", {1}),
    "in a layer": (
        "class L(keras.layers.Layer):\n    def __init__(self):\n        self.v = tf.Variable(0)\n",
        {3},
    ),
    "by its name": ("from tensorflow import Variable\nv = Variable(1)\n", {2}),
    "of TensorFlow 1": ("import tensorflow.compat.v1 as tf1\nv = tf1.Variable(1)\n", {2}),
    "as a type": ("if isinstance(x, tf.Variable):\n    pass\n", {1}),
}


@pytest.mark.parametrize("target", ["jax", "torch"])
@pytest.mark.parametrize(("source", "lines"), FOUND.values(), ids=FOUND)
def test_found(source, lines, target):
    message = found(source, "KMP206", target)
    assert message.keys() == lines
    assert all("leave-tensorflow.md#variables" in one for one in message.values())


def test_a_layer_has_weights():
    assert "keras.Variable, or a number" in messages(FOUND["at the top"][0], "KMP206")[0]
    assert "self.add_weight(...)" in messages(FOUND["in a layer"][0], "KMP206")[0]


LEFT_ALONE = {
    "Keras'": "v = keras.Variable(0.0)\n",
    "an annotation": "def f(v: tf.Variable) -> tf.Variable: pass\n",
    "one's own": "class Variable: pass\nv = Variable()\n",
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(source):
    assert found(source, "KMP206") == {}
