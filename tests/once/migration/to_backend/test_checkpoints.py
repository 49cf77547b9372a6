"""KMP208: TensorFlow's checkpoints."""

import pytest

from tests.obstacles import found

FOUND = {
    "written": ("c = tf.train.Checkpoint(model=m)\n", "model.save_weights"),
    "managed": ("m = tf.train.CheckpointManager(c, 'f', 3)\n", "keras_mp.resume"),
    "looked for": ("p = tf.train.latest_checkpoint('f')\n", "keras_mp.compat.restore"),
    "read": ("r = tf.train.load_checkpoint('f')\n", "keras_mp.compat.restore"),
    "of TensorFlow 1": ("s = tf.compat.v1.train.Saver()\n", "model.save_weights"),
    "by its module": ("from tensorflow import train\nc = train.Checkpoint()\n", "save_weights"),
}


@pytest.mark.parametrize("target", ["jax", "torch"])
@pytest.mark.parametrize(("source", "do"), FOUND.values(), ids=FOUND)
def test_found(source, do, target):
    (message,) = found(source, "KMP208", target).values()
    assert do in message
    assert message.endswith("leave-tensorflow.md#checkpoints")


LEFT_ALONE = {
    "records": "e = tf.train.Example(features=tf.train.Features(feature={}))\n",
    "Keras' own": "keras.callbacks.ModelCheckpoint('f.keras')\n",
    "a type": "def f(c: tf.train.Checkpoint): pass\n",
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(source):
    assert found(source, "KMP208") == {}
