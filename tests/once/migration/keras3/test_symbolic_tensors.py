"""KMP114: functions of TensorFlow on KerasTensors."""

import pytest

from tests.keras3_rules import messages, verdicts

REPORTED = {
    "of an input": ("tf.nn.relu(x)", "keras.ops.relu"),
    "in a list": ("tf.concat([x, x], -1)", "keras.ops.concatenate"),
    "by a keyword": ("tf.reduce_mean(input_tensor=x)", "keras.ops.mean"),
    "after layers": ("h = layers.Dense(1)(x)\ntf.square(h)", "keras.ops.square"),
    "a name assigned twice": ("h = layer(x)\nh = layer(h)\ntf.abs(h)", "keras.ops.abs"),
    "after operators": ("h = x * 2 + 1\ntf.abs(-h[:, 0])", "keras.ops.abs"),
    "of a model's output": ("tf.abs(model.output)", "keras.ops.abs"),
    "of its outputs": ("tf.abs(model.outputs[0])", "keras.ops.abs"),
    "of the backend": ("K.sum(x)", "keras.ops.sum"),
    "without a counterpart": ("tf.nn.max_pool_with_argmax(x, 2, 2, 'SAME')", "custom layer"),
}
FINE = {
    "a parameter": "def f(t): return tf.nn.relu(t)",
    "in call": "class L(layers.Layer):\n    def call(self, t): return tf.nn.relu(t)",
    "its shape": "K.int_shape(x), tf.TensorShape(x.shape)",
    "asked for": "tf.is_tensor(x), isinstance(x, tf.Tensor)",
    "a layer on numbers": "h = layer(numbers)\ntf.abs(h)",
    "anything else, too": "h = layer(x)\nif a: h = other()\ntf.abs(h)",
    "layers": "layers.concatenate([x, x]), keras.activations.relu(x)",
    "ops": "keras.ops.relu(x)",
    "data": "tf.data.Dataset.from_tensors(x)",
    "of an own model": "class M(Model): pass\ntf.abs(M().output)",
}


@pytest.mark.parametrize(("line", "advice"), REPORTED.values(), ids=REPORTED)
def test_is_reported(line, advice):
    found = messages(line, "KMP114")
    assert len(found) == 1
    assert advice in found[0]
    assert verdicts(line, "KMP114") == ["manual"]


@pytest.mark.parametrize("line", FINE.values(), ids=FINE)
def test_is_left_alone(line):
    assert messages(line, "KMP114") == []


def test_what_tensorflow_made_of_one_is_one_too():
    assert verdicts("h = tf.nn.relu(x)\nh = tf.abs(h)", "KMP114") == ["manual", "manual"]
