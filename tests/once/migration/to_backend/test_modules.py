"""KMP207: tf.Module."""

import pytest

from tests.obstacles import found

FOUND = {
    "a class": "class A(tf.Module):\n    pass\n",
    "beside others": "class A(Mixin, tf.Module, metaclass=M):\n    pass\n",
    "by its name": "from tensorflow import Module; \\\n    A = Module()\n",
    "an object": "state = tf.Module()\n",
}


@pytest.mark.parametrize("target", ["jax", "torch"])
@pytest.mark.parametrize("source", FOUND.values(), ids=FOUND)
def test_found(source, target):
    (message,) = found(source, "KMP207", target).values()
    assert "derive from keras.layers.Layer" in message
    assert message.endswith("leave-tensorflow.md#modules")


LEFT_ALONE = {
    "PyTorch's": "from torch.nn import Module\nclass A(Module):\n    pass\n",
    "a type": "def f(m: tf.Module): pass\n",
    "a class below": "class A(keras.layers.Layer):\n    pass\nclass B(A):\n    pass\n",
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(source):
    assert found(source, "KMP207") == {}
