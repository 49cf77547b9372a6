"""KMP202: tf.GradientTape, wherever it is."""

import pytest

from tests.obstacles import found, messages

LOOP = """\
def step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_fn(y, model(x))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
"""
SCALED = LOOP.replace("tape.gradient(loss", "tape.gradient(optimizer.get_scaled_loss(loss)")
FOUND = {
    "in a function": (LOOP, {2}),
    "at the top": ("with tf.GradientTape(persistent=True) as tape:\n    pass\n", {1}),
    "by another name": ("Tape = tf.GradientTape\nwith Tape() as tape:\n    pass\n", {2}),
    "two of them": ("with tf.GradientTape() as a, tf.GradientTape() as b:\n    pass\n", {1}),
    "in a trainer of one's own": (
        "class Trainer:\n    def train_step(self, x):\n"
        "        with tf.GradientTape() as tape:\n            pass\n",
        {3},
    ),
    "in a helper of a model": (
        "class M(keras.Model):\n    def gradients(self, x):\n"
        "        with tf.GradientTape() as tape:\n            pass\n",
        {3},
    ),
}


@pytest.mark.parametrize("target", ["jax", "torch"])
@pytest.mark.parametrize(("source", "lines"), FOUND.values(), ids=FOUND)
def test_found(source, lines, target):
    message = found(source, "KMP202", target)
    assert message.keys() == lines
    assert all("leave-tensorflow.md#gradient-tapes" in one for one in message.values())


def test_each_backend_has_its_loop():
    (jax,), (torch,) = messages(LOOP, "KMP202"), messages(LOOP, "KMP202", "torch")
    assert "jax.grad" in jax
    assert "stateless_apply" in jax
    assert "scale" not in jax
    assert "loss.backward()" in torch
    assert "scale" not in torch


def test_a_scaled_loss_stays_scaled():
    (jax,), (torch,) = messages(SCALED, "KMP202"), messages(SCALED, "KMP202", "torch")
    assert jax.startswith("tf.GradientTape with a scaled loss")
    assert "optimizer.stateless_scale_loss of keras_mp" in jax
    assert "optimizer.scale_loss(loss).backward() of keras_mp" in torch


LEFT_ALONE = {
    "the tape of a train step, which KMP203 tells": (
        "class M(keras.Model):\n    def train_step(self, data):\n"
        "        with tf.GradientTape() as tape:\n            pass\n"
    ),
    "a class of one's own": "class GradientTape: pass\nGradientTape()\n",
    "an annotation": "def f(tape: tf.GradientTape): pass\n",
    "a mention": "# tf.GradientTape()\nx = 'tf.GradientTape'\n",
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(source):
    assert found(source, "KMP202") == {}
