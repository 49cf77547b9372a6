"""`repair` of layers whose gradients are all 0 at the highest loss scale that fits."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_mp
from keras_mp import graph_rewrite, repair
from tests.each.diagnosis.repair.test_callback import compiled, fitted, ones

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


@pytest.fixture(autouse=True)
def mixed_float16():
    keras_mp.set_global_policy("mixed_float16")
    yield
    graph_rewrite.disable()
    keras.config.set_dtype_policy("float32")


def far_apart(small=1e-9, frozen=False):
    """The gradients of one layer need a scale at which those of another overflow."""
    inputs = keras.Input((4,))
    big = layers.Dense(2, kernel_initializer="zeros", name="big")(inputs)
    little = layers.Dense(2, activation="relu" if frozen else None, name="little")
    if frozen:
        little.kernel_initializer = keras.initializers.Constant(-1.0)
    sides = [
        layers.Rescaling(1e3, dtype="float32", name="up")(big),
        layers.Rescaling(small, dtype="float32", name="down")(little(inputs)),
    ]
    out = layers.Dense(1, kernel_initializer="ones", dtype="float32", name="out")
    return keras.Model(inputs, out(layers.Add(dtype="float32")(sides)), name="net")


def little_of(model):
    return np.asarray(ops.convert_to_numpy(model.get_layer("little").kernel))


def test_a_layer_whose_gradients_are_lost():
    model = compiled(far_apart(), "mae", initial_scale=16.0)
    done = repair(model, *ones(4))
    assert done.layers == ("little",)
    assert "all gradients of little were 0 at a loss scale of 64, the highest" in str(done.made[0])
    assert float(model.optimizer.loss_scale) == 16.0
    model.optimizer.inner_optimizer.learning_rate = 1.0
    before = little_of(model)
    fitted(model, *ones(4))
    assert not np.array_equal(before, little_of(model))
    assert int(model.optimizer.skipped_steps) == 0


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(lambda: far_apart(small=1e-2), id="they are small, not 0"),
        pytest.param(lambda: far_apart(frozen=True), id="they are 0 in float32, too"),
    ],
)
def test_others_are_left_alone(model):
    model = compiled(model(), "mae", initial_scale=16.0)
    done = repair(model, *ones(4))
    assert (bool(done), done.verdict.kind) == (False, "nothing")


def test_a_scale_that_may_grow_is_left_to_grow():
    inputs = keras.Input((4,))
    little = layers.Dense(2, name="little")(inputs)
    out = layers.Dense(1, kernel_initializer="ones", dtype="float32", name="out")
    small = layers.Rescaling(1e-9, dtype="float32")(little)

    def made(**kwargs):
        return compiled(keras.Model(inputs, out(small), name="net"), "mae", **kwargs)

    assert not repair(made(initial_scale=16.0), *ones(4))
    assert repair(made(initial_scale=16.0, max_scale=32.0), *ones(4)).layers == ("little",)
