"""KMP115: tf.Variable in a layer or a model."""

import pytest

from tests.keras3_rules import in_layer, verdicts


@pytest.mark.parametrize("base", ["layers.Layer", "Model", "keras.Sequential"])
def test_is_reported(base):
    program = f"class L({base}):\n    def build(self, s): self.v = tf.Variable(1.0)"
    assert verdicts(program, "KMP115") == ["manual"]


def test_is_reported_of_compat_v1():
    assert verdicts(in_layer("self.v = tf.compat.v1.Variable(1.0)"), "KMP115") == ["manual"]


@pytest.mark.parametrize(
    "program",
    [
        "class L:\n    def f(self): self.v = tf.Variable(1.0)",
        "class L(tf.Module):\n    def f(self): self.v = tf.Variable(1.0)",
        "class L(layers.Layer):\n    def f(self): v = tf.Variable(1.0)",
        "class L(layers.Layer):\n    def f(self): self.v = self.add_weight(name='v')",
        "class L(keras.callbacks.Callback):\n    def f(self): self.v = tf.Variable(1.0)",
    ],
)
def test_is_left_alone(program):
    assert verdicts(program, "KMP115") == []
