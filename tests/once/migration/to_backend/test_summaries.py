"""KMP210: tf.summary."""

import pytest

from tests.obstacles import found, messages

FOUND = {
    "a writer": "w = tf.summary.create_file_writer('logs')\n",
    "a number": "tf.summary.scalar('loss', loss, step=1)\n",
    "of TensorFlow 1": "tf.compat.v1.summary.FileWriter('logs')\n",
    "by its name": "from tensorflow.summary import scalar; scalar('loss', 1)\n",
}


@pytest.mark.parametrize("target", ["jax", "torch"])
@pytest.mark.parametrize("source", FOUND.values(), ids=FOUND)
def test_found(source, target):
    (message,) = found(source, "KMP210", target).values()
    assert "SummaryWriter" in message
    assert message.endswith("leave-tensorflow.md#summaries")


def test_each_backend_has_its_writer():
    source = FOUND["a number"]
    assert "tensorboardX" in messages(source, "KMP210")[0]
    assert "torch.utils.tensorboard" in messages(source, "KMP210", "torch")[0]


LEFT_ALONE = {
    "a summary of a model": "model.summary()\n",
    "a callback of Keras": "keras.callbacks.TensorBoard('logs')\n",
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(source):
    assert found(source, "KMP210") == {}
