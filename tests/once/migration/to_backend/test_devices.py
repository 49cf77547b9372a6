"""KMP212: tf.config and tf.device."""

import pytest

from tests.obstacles import found, messages

FOUND = {
    "memory": ("tf.config.experimental.set_memory_growth(g, True)\n", "PREALLOCATE", "memory"),
    "devices": ("tf.config.list_physical_devices('GPU')\n", "list_devices()", "device_count()"),
    "eager": ("tf.config.run_functions_eagerly(True)\n", "run_eagerly=True", "run_eagerly=True"),
    "XLA": ("tf.config.optimizer.set_jit(True)\n", "jit_compile=True", "jit_compile=True"),
    "others": ("tf.config.threading.set_inter_op_parallelism_threads(1)\n", *["remove it"] * 2),
    "some devices": ("tf.config.set_visible_devices(g[0], 'GPU')\n", *["remove it"] * 2),
    "a GPU": ("tf.test.is_gpu_available()\n", "list_devices()", "is_available()"),
    "of TensorFlow 1": ("c = tf.compat.v1.ConfigProto()\n", "PREALLOCATE", "memory"),
    "a model on a device": (
        "with tf.device('/GPU:0'):\n    model.fit(x)\n",
        *["keras.device"] * 2,
    ),
    "a device in a model": (
        "class L(keras.layers.Layer):\n    def call(self, x):\n"
        "        with tf.device('/CPU:0'):\n            return x\n",
        *["keras.device"] * 2,
    ),
}


@pytest.mark.parametrize(("source", "jax", "torch"), FOUND.values(), ids=FOUND)
def test_found(source, jax, torch):
    for target, do in (("jax", jax), ("torch", torch)):
        (message,) = found(source, "KMP212", target).values()
        assert do in message
        assert message.endswith("leave-tensorflow.md#devices")


LEFT_ALONE = {
    "TensorFlow takes no GPU": "tf.config.set_visible_devices([], 'GPU')\n",
    "the same of old": "tf.config.experimental.set_visible_devices([], device_type='GPU')\n",
    "data on a device": "with tf.device('/CPU:0'):\n    x = tf.reverse(x, [1])\n",
    "Keras' own": "keras.config.set_floatx('float32')\nwith keras.device('cpu:0'):\n    pass\n",
    "a name": "x = tf.config.PhysicalDevice\n",
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(source):
    assert found(source, "KMP212") == {}


def test_the_name_is_that_of_the_program():
    said = messages("tf.compat.v2.config.list_logical_devices()\n", "KMP212")
    assert said[0].startswith("tf.config.list_logical_devices: ")
