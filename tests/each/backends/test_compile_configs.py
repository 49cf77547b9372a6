"""`save("m.h5")` of Keras 3.15 takes the optimizer out of what a model says of `compile`."""

import keras
import pytest

import keras_mp
from keras_mp import LossScaleOptimizer, MasterWeights

# Keras says that HDF5 is a legacy format.
pytestmark = pytest.mark.filterwarnings("ignore")
OPTIMIZERS = {
    "ours": lambda: LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=64.0),
    "masters": lambda: MasterWeights(keras.optimizers.Adam(0.01)),
    "scaled masters": lambda: LossScaleOptimizer(MasterWeights(keras.optimizers.Adam(0.01))),
}


@pytest.fixture
def after_h5(data, tmp_path):
    """A function that returns a model that was trained, and saved as HDF5."""

    def make(optimizer):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(optimizer, keras.losses.MeanSquaredError(), metrics=["mae"])
        model.fit(*data, batch_size=8, verbose=0)
        model.save(tmp_path / "model.h5")
        return model

    return make


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("load", [keras.models.load_model, keras_mp.compat.load_model])
def test_the_next_file_has_the_optimizer(make, load, after_h5, tmp_path, state):
    model = after_h5(make())
    model.save(tmp_path / "model.keras")
    again = load(tmp_path / "model.keras")
    assert type(again.optimizer) is type(model.optimizer)
    assert again.optimizer.get_config() == model.optimizer.get_config()
    assert state(again.optimizer.variables) == state(model.optimizer.variables)
    assert int(again.optimizer.iterations) == 8


def test_so_has_a_clone(after_h5):
    model = after_h5(OPTIMIZERS["ours"]())
    config = model.get_compile_config()
    assert config["optimizer"]["class_name"] == "LossScaleOptimizer"
    clone = keras.models.clone_model(model)
    clone.compile_from_config(config)
    assert type(clone.optimizer) is LossScaleOptimizer
    assert clone.optimizer.initial_scale == 64.0


def test_what_keras_does_with_its_own(after_h5, tmp_path):
    """The fault: when this fails, Keras has mended it."""
    model = after_h5(keras.optimizers.Adam(0.01))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert (type(loaded).__name__, int(loaded.iterations)) == ("RMSprop", 0)


def test_a_model_that_is_not_compiled_says_nothing():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    assert not model.get_compile_config()
    model.compile(None, "mse")
    assert model.get_compile_config()["optimizer"] is None
