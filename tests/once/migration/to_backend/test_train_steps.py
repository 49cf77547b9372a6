"""KMP203: train_step and its like, overridden in models."""

import pytest

from tests.obstacles import found, messages

TAPED = "        with tf.GradientTape() as tape:\n            pass\n"
BASES = {
    "keras": "keras.Model",
    "tf.keras": "tf.keras.Model",
    "a Sequential": "tf.keras.models.Sequential",
    "a class of this file": "Base",
    "a class of another file": "base.MyModel",
}


def model(method, body, base="keras.Model"):
    head = "from . import base\nclass Base(tf.keras.Model): pass\n"
    return f"{head}class M({base}):\n    def {method}:\n{body}"


@pytest.mark.parametrize("target", ["jax", "torch"])
@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_a_step_with_a_tape(base, target):
    message = found(model("train_step(self, data)", TAPED, base), "KMP203", target)
    assert message.keys() == {4}
    assert message[4].startswith("train_step of a model with tf.GradientTape: ")
    assert message[4].endswith("leave-tensorflow.md#train-steps")


def test_each_backend_has_its_step():
    source = model("train_step(self, data)", TAPED)
    assert "train_step(self, state, data)" in messages(source, "KMP203")[0]
    assert "loss.backward()" in messages(source, "KMP203", "torch")[0]


@pytest.mark.parametrize("step", ["train_step", "test_step", "predict_step"])
def test_without_a_tape_only_jax_needs_another(step):
    source = model(f"{step}(self, data)", "        return {}\n")
    assert found(source, "KMP203", "jax").keys() == {4}
    assert f"{step}(self, state, data)" in messages(source, "KMP203")[0]
    assert found(source, "KMP203", "torch") == {}


LEFT_ALONE = {
    "JAX's own": model("train_step(self, state, data)", "        return {}, state\n"),
    "a trainer of one's own": "class T:\n    def train_step(self, data):\n        return 1\n",
    "a function": "def train_step(data):\n    return 1\n",
    "PyTorch's Lightning": (
        "import lightning as L\nclass M(L.LightningModule):\n"
        "    def training_step(self, batch):\n        return 1\n"
    ),
    "a task of another package": (
        "from official.core import base_task\nclass T(base_task.Task):\n"
        "    def train_step(self, inputs, model, optimizer):\n        return 1\n"
    ),
    "another method": model("compute_loss(self, x, y)", "        return 1\n"),
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(source):
    assert found(source, "KMP203") == {}
