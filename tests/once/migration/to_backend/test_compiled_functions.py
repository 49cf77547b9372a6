"""KMP205: @tf.function around what calls or trains a model."""

import pytest

from tests.obstacles import found, messages

STEP = "    with tf.GradientTape() as tape:\n        loss = model(x)\n"
FOUND = {
    "a train step": (f"@tf.function\ndef step(x):\n{STEP}", {1}),
    "with arguments": (f"@tf.function(jit_compile=True)\ndef step(x):\n{STEP}", {1}),
    "by a name of its own": (
        f"from tensorflow import function as compiled\n@compiled\ndef step(x):\n{STEP}",
        {2},
    ),
    "a test step": ("@tf.function\ndef test(x):\n    return net(x, training=False)\n", {1}),
    "a metric": ("@tf.function\ndef test(x):\n    accuracy.update_state(x, x)\n", {1}),
    "a model of the class": (
        "class T:\n    @tf.function\n    def f(self, x):\n        return self.model(x)\n",
        {2},
    ),
    "call of a layer": (
        "class L(keras.layers.Layer):\n    @tf.function\n    def call(self, x):\n        pass\n",
        {2},
    ),
    "what a train step calls": (
        "class T:\n    @tf.function\n    def loss(self, x):\n        return self.vgg(x)\n"
        "    def step(self, x):\n        with tf.GradientTape() as tape:\n"
        "            l = self.loss(x)\n",
        {2},
    ),
    "a call": (f"def step(x):\n{STEP}fast = tf.function(step)\n", {4}),
    "a call of something unknown": ("fast = tf.function(model.call)\n", {1}),
}


@pytest.mark.parametrize("target", ["jax", "torch"])
@pytest.mark.parametrize(("source", "lines"), FOUND.values(), ids=FOUND)
def test_found(source, lines, target):
    message = found(source, "KMP205", target)
    assert message.keys() == lines
    assert all("leave-tensorflow.md#compiled-functions" in one for one in message.values())


def test_each_backend_compiles_in_its_way():
    source = FOUND["a train step"][0]
    assert "jax.jit" in messages(source, "KMP205")[0]
    assert "torch.compile" in messages(source, "KMP205", "torch")[0]


LEFT_ALONE = {
    "a function of images": "@tf.function\ndef flip(x):\n    return tf.reverse(x, [1])\n",
    "a function of a pipeline": (
        "@tf.function\ndef f(x):\n    return model_names[x]\nds = tf.data.Dataset.range(3).map(f)\n"
    ),
    "a call with a function of a pipeline": (
        "def f(x):\n    return tf.cast(x, 'int32')\ng = tf.function(f)\n"
    ),
    "one's own": "def function(f): return f\n@function\ndef step(x):\n    return model(x)\n",
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(source):
    assert found(source, "KMP205") == {}
