"""KMP103: private modules of Keras."""

import pytest

from tests.keras3_rules import header, holds, messages, rewritten, verdicts

REWRITES = {
    "several of one module": (
        "from tensorflow.python.keras.layers import Dense, Conv2D as C",
        "from tensorflow.keras.layers import Dense, Conv2D as C",
    ),
    "of several": (
        "from tensorflow.python.keras.engine.base_layer import Layer, InputSpec",
        "from tensorflow.keras import Layer, InputSpec",
    ),
    "some are none": (
        "from keras.layers.core import Dense, Unknown",
        "from keras.layers import Dense\nfrom keras.layers.core import Unknown",
    ),
    "module, with what is used of it": (
        "from keras.utils import np_utils\nnp_utils.to_categorical(1)",
        "from keras import utils as np_utils\nnp_utils.to_categorical(1)",
    ),
    "module as": (
        "import tensorflow.python.keras.backend as B\nB.mean(1)",
        "import tensorflow.keras.backend as B\nB.mean(1)",
    ),
    "attribute": ("tf.python.keras.layers.Dense(1)", "tf.keras.layers.Dense(1)"),
    "keras.src": (
        "from keras.src.layers.core.dense import Dense",
        "from keras.layers import Dense",
    ),
    "the room decides": (
        "from keras.metrics.metrics import SparseCategoricalCrossentropy",
        "from keras.metrics import SparseCategoricalCrossentropy",
    ),
    "optimizers": (
        "from tensorflow.python.keras.optimizer_v2.adam import Adam",
        "from tensorflow.keras.optimizers import Adam",
    ),
    "indented": (
        "def f():\n    from keras.layers.core import Dense, Unknown",
        "def f():\n    from keras.layers import Dense\n    from keras.layers.core import Unknown",
    ),
}
REPORTED = {
    "no public one": "from tensorflow.python.keras.utils import tf_utils",
    "star": "from keras.layers.core import *",
    "module that is not used": "from keras.engine import training",
    "not all of it is public": "from keras.utils import np_utils\n"
    "np_utils.to_x(np_utils.normalize)",
    "never was": "tf.keras.layers.Dens(1)",
    "module without a name": "import keras.engine.training",
}


@pytest.mark.parametrize(("before", "after"), header("KMP103"))
def test_the_header(before, after):
    assert holds(before, after)


@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(before, after):
    assert rewritten(before) == after
    assert "rewritten" in verdicts(before, "KMP103")


@pytest.mark.parametrize("line", REPORTED.values(), ids=REPORTED)
def test_is_reported(line):
    assert rewritten(line) == line
    assert verdicts(line, "KMP103") == ["manual"]


def test_says_how_it_was_spelled():
    found = messages("from tensorflow.python.keras.layers import Dense", "KMP103")
    assert found == ["tf.python.keras.layers.Dense is private: write tf.keras.layers.Dense"]


def test_a_name_that_is_private_and_gone_is_told_as_gone():
    line = "from tensorflow.python.keras.backend import placeholder"
    assert verdicts(line, "KMP103") == []
    assert verdicts(line, "KMP101") == ["manual"]
