"""KMP111: layers of Keras in a tf.Module."""

import pytest

from tests.keras3_rules import said, verdicts

MODULE = "class G({}):\n    def __init__(self):\n        self.{}\n        self.b = layers.Dense(1)"


def test_is_reported_once_a_class():
    assert said(MODULE.format("tf.Module", "a = layers.Dense(1)"), "KMP111") == [(3, "manual")]


def test_a_model_counts_too():
    program = "class G(tf.Module):\n    def __init__(self): self.m = keras.Sequential()"
    assert verdicts(program, "KMP111") == ["manual"]


@pytest.mark.parametrize("base", ["Model", "layers.Layer", "object", "torch.nn.Module"])
def test_other_classes_are_left_alone(base):
    assert verdicts(MODULE.format(base, "a = layers.Dense(1)"), "KMP111") == []


def test_a_module_without_layers_is_left_alone():
    program = "class G(tf.Module):\n    def __init__(self): self.v = tf.Variable(1)"
    assert verdicts(program, "KMP111") == []
