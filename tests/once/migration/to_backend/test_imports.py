"""KMP201: Keras by way of TensorFlow, once a file."""

import pytest

from tests.obstacles import found

FOUND = {
    "from tensorflow": ("from tensorflow import keras\n", 1),
    "a part of it": ("import os\nfrom tensorflow.keras.layers import Dense\n", 2),
    "as a module": ("import tensorflow.keras.layers as layers\n", 1),
    "the first of several": (
        "from tensorflow.keras import Model\nfrom tensorflow import keras\n",
        1,
    ),
    "private": ("from tensorflow.python.keras.layers import Dense\n", 1),
    "tf_keras": ("import tf_keras as keras\n", 1),
    "used, and TensorFlow imported": (
        "import os\nimport tensorflow as tf\nx = 1\nm = tf.keras.Sequential()\n",
        2,
    ),
    "an alias": ("import tensorflow as tf\nlayers = tf.keras.layers\nlayers.Dense(2)\n", 1),
    "an optimizer of tf.optimizers": ("import tensorflow as tf\ntf.optimizers.Adam()\n", 1),
    "in a function": ("def f():\n    import tensorflow as tf\n    tf.keras.Model()\n", 2),
    "TensorFlow may be missing": (
        "try:\n    import tensorflow as tf\nexcept ImportError:\n    tf = None\ntf.keras.Model()\n",
        2,
    ),
    "a star": ("from tensorflow.keras.layers import *\n", 1),
}


@pytest.mark.parametrize("target", ["jax", "torch"])
@pytest.mark.parametrize(("source", "line"), FOUND.values(), ids=FOUND)
def test_found_once(source, line, target):
    message = found(source, "KMP201", target, head="")
    assert message.keys() == {line}
    assert message[line].endswith("docs/how-to/leave-tensorflow.md#imports")


def test_tf_keras_is_keras_2():
    assert "tf_keras is Keras 2" in found("import tf_keras\n", "KMP201", head="")[1]


LEFT_ALONE = {
    "Keras itself": "import keras\nfrom keras import layers\n",
    "only tf.data": "import tensorflow as tf\nds = tf.data.Dataset.range(3)\n",
    "one's own": "from .keras import Model\nfrom mine.tensorflow import keras\n",
    "a string and a comment": "x = 'tensorflow.keras'  # from tensorflow import keras\n",
    "mixed precision, which has rules of its own": (
        "from tensorflow.keras import mixed_precision\nmixed_precision.global_policy()\n"
    ),
    "TensorFlow 1's losses": "import tensorflow.compat.v1 as tf\ntf.losses.get_losses()\n",
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(source):
    assert found(source, "KMP201", head="") == {}
