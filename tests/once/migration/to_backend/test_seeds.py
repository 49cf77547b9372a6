"""KMP213: seeds of TensorFlow."""

import pytest

from tests.obstacles import found

FOUND = [
    "tf.random.set_seed(1)\n",
    "tf.compat.v1.set_random_seed(1)\n",
    "tf.compat.v1.random.set_random_seed(1)\n",
    "from tensorflow.random import set_seed; set_seed(1)\n",
]


@pytest.mark.parametrize("target", ["jax", "torch"])
@pytest.mark.parametrize("source", FOUND)
def test_found(source, target):
    (message,) = found(source, "KMP213", target).values()
    assert "keras.utils.set_random_seed" in message
    assert message.endswith("leave-tensorflow.md#seeds")


@pytest.mark.parametrize(
    "source", ["keras.utils.set_random_seed(1)\n", "tf.keras.utils.set_random_seed(1)\n"]
)
def test_left_alone(source):
    assert found(source, "KMP213") == {}
