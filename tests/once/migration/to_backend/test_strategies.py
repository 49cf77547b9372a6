"""KMP209: tf.distribute."""

import pytest

from tests.obstacles import found, messages

FOUND = {
    "a strategy": ("s = tf.distribute.MirroredStrategy()\n", {1}),
    "an experimental one": ("s = tf.distribute.experimental.TPUStrategy(r)\n", {1}),
    "the present one": ("n = tf.distribute.get_strategy().num_replicas_in_sync\n", {1}),
    "a TPU": ("tf.tpu.experimental.initialize_tpu_system(r)\n", {1}),
    "by its module": ("import tensorflow.distribute as d\ns = d.OneDeviceStrategy('cpu')\n", {2}),
}


@pytest.mark.parametrize("target", ["jax", "torch"])
@pytest.mark.parametrize(("source", "lines"), FOUND.values(), ids=FOUND)
def test_found(source, lines, target):
    message = found(source, "KMP209", target)
    assert message.keys() == lines
    assert all("leave-tensorflow.md#strategies" in one for one in message.values())


def test_each_backend_has_its_way():
    source = "s = tf.distribute.MirroredStrategy()\n"
    assert "keras.distribution.DataParallel" in messages(source, "KMP209")[0]
    assert "DistributedDataParallel" in messages(source, "KMP209", "torch")[0]


LEFT_ALONE = {
    "a type": "def f(s: tf.distribute.Strategy): pass\n",
    "a name of a reduction, which the strategy is given": (
        "x = s.reduce(tf.distribute.ReduceOp.SUM, y)\n"
    ),
    "Keras' own": "keras.distribution.DataParallel()\n",
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(source):
    assert found(source, "KMP209") == {}
