"""KMP102: names that Keras 3 has elsewhere."""

import pytest

from tests.keras3_rules import header, holds, rewritten, verdicts

REWRITES = {
    "by a module": ("layers.experimental.preprocessing.Resizing(1, 1)", "layers.Resizing(1, 1)"),
    "class that is imported": (
        "from tensorflow.keras.layers.experimental.preprocessing import RandomFlip, Resizing",
        "from tensorflow.keras.layers import RandomFlip, Resizing",
    ),
    "one of two": (
        "from tensorflow.keras.losses import mean_squared_error, huber",
        "from tensorflow.keras.losses import mse as mean_squared_error, huber",
    ),
    "two modules": (
        "from tensorflow.keras.experimental import CosineDecay, LinearModel",
        "from tensorflow.keras.optimizers.schedules import CosineDecay\n"
        "from tensorflow.keras.experimental import LinearModel",
    ),
    "in brackets": (
        "from tensorflow.keras.losses import (\n    mean_squared_error as m,\n)",
        "from tensorflow.keras.losses import (\n    mse as m,\n)",
    ),
    "keras spells it otherwise": (
        "import keras as k\nk.losses.MSE(1, 2)",
        "import keras as k\nk.losses.mean_squared_error(1, 2)",
    ),
    "saving": ("tf.keras.saving.load_model('a.h5')", "tf.keras.models.load_model('a.h5')"),
    "compat.v1": (
        "from tensorflow.compat.v1.keras.layers import Dense",
        "from tensorflow.keras.layers import Dense",
    ),
    "compat.v1 as a module": (
        "import tensorflow.compat.v1.keras.layers as L",
        "import tensorflow.keras.layers as L",
    ),
}
FINE = {
    "compat.v1 by attribute": "tf.compat.v1.keras.layers.Dense(1)",
    "saving that is imported": "from tensorflow.keras import saving\nsaving.load_model('a.h5')",
    "of saving": "from tensorflow.keras.saving import load_model",
    "there": "tf.keras.losses.huber(1, 2)",
}


@pytest.mark.parametrize(("before", "after"), header("KMP102"))
def test_the_header(before, after):
    assert holds(before, after)


@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(before, after):
    assert rewritten(before) == after
    assert "rewritten" in verdicts(before, "KMP102")


@pytest.mark.parametrize("line", FINE.values(), ids=FINE)
def test_leaves_alone(line):
    assert rewritten(line) == line
    assert verdicts(line, "KMP102") == []


def test_a_module_that_moved_keeps_its_name_here():
    program = (
        "from tensorflow.keras.layers.experimental import preprocessing\n"
        "a = preprocessing.Rescaling(1), preprocessing.PreprocessingLayer"
    )
    assert rewritten(program).split("\n")[0] == (
        "from tensorflow.keras import layers as preprocessing"
    )
    assert verdicts(program, "KMP101") == ["manual"]


@pytest.mark.parametrize(
    "line",
    [
        "tf.keras.losses.mean_squared_error = f",
        "from tensorflow.keras.losses import (  # both\n    mean_squared_error, huber)",
    ],
    ids=["assigned", "comment"],
)
def test_is_reported_where_it_is_not_rewritten(line):
    assert rewritten(line) == line
    assert verdicts(line, "KMP102") == ["manual"]
