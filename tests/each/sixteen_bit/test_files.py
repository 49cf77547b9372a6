"""Files of 16-bit weights: saved, loaded, and handed over to mixed policies and back."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer, MasterWeights, StochasticRounding, float32_weights_scope
from tests.each.sixteen_bit.test_master_weights import data, masters, model_with

WRAPPERS = {
    "copies": lambda: MasterWeights(keras.optimizers.Adam(0.01)),
    "halves": lambda: MasterWeights(keras.optimizers.Adam(0.01), "split"),
    "scaled": lambda: LossScaleOptimizer(MasterWeights(keras.optimizers.Adam(0.01))),
    "small slots": lambda: MasterWeights(keras.optimizers.Adam(0.01), "split", slots="bfloat16"),
    "rounded": lambda: StochasticRounding(keras.optimizers.Adam(0.01), slots="bfloat16", seed=3),
}


def wrapper_of(optimizer):
    return (
        getattr(optimizer, "inner_optimizer", optimizer)
        if "loss_scale" in optimizer.name
        else optimizer
    )


def compiled(optimizer, policy="bfloat16"):
    model = model_with(policy)
    model.compile(optimizer, loss="mse", run_eagerly=True, auto_scale_loss=False)
    return model


def fit(model, epochs=1):
    x, y = data(4)
    model.fit(x, y, batch_size=8, epochs=epochs, shuffle=False, verbose=0)


def state(model):
    return [
        np.asarray(ops.convert_to_numpy(ops.cast(v, "float32")))
        for v in (*model.variables, *model.optimizer.variables)
    ]


def assert_same(left, right):
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_whole_model_goes_on_as_it_would_have(name, tmp_path):
    model = compiled(WRAPPERS[name]())
    fit(model)
    model.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    other.compile(other.optimizer, loss="mse", run_eagerly=True, auto_scale_loss=False)
    assert_same(state(model), state(other))
    fit(model)
    fit(other)
    assert_same(state(model), state(other))


@pytest.mark.parametrize("name", WRAPPERS)
def test_weights_go_on_as_they_would_have(name, tmp_path):
    model, other = compiled(WRAPPERS[name]()), compiled(WRAPPERS[name]())
    fit(model)
    model.save_weights(tmp_path / "model.weights.h5")
    other.optimizer.build(other.trainable_variables)
    other.load_weights(tmp_path / "model.weights.h5")
    assert_same(state(model), state(other))


@pytest.mark.parametrize("name", ["copies", "halves", "scaled"])
def test_changes_over_from_a_mixed_policy_and_back(name, tmp_path):
    inner = keras.optimizers.Adam(0.01)
    optimizer = LossScaleOptimizer(inner) if name == "scaled" else inner
    mixed = compiled(optimizer, "mixed_bfloat16")
    fit(mixed)
    mixed.save_weights(tmp_path / "mixed.weights.h5")
    model = compiled(WRAPPERS[name]())
    model.optimizer.build(model.trainable_variables)
    with float32_weights_scope(model):
        model.load_weights(tmp_path / "mixed.weights.h5")
    exact = [ops.convert_to_numpy(v) for v in mixed.trainable_variables[:4]]
    assert_same(masters(wrapper_of(model.optimizer)), exact)
    assert_same(
        [ops.convert_to_numpy(v) for v in wrapper_of(model.optimizer)._narrow_weights.of_the_rule],
        [ops.convert_to_numpy(v) for v in inner.variables],
    )
    assert {str(v.dtype) for v in model.trainable_variables[:4]} == {"bfloat16"}
    fit(mixed)
    fit(model)
    with float32_weights_scope(model):
        model.save_weights(tmp_path / "back.weights.h5")
    back = compiled(
        LossScaleOptimizer(keras.optimizers.Adam(0.01))
        if name == "scaled"
        else keras.optimizers.Adam(0.01),
        "mixed_bfloat16",
    )
    back.optimizer.build(back.trainable_variables)
    back.load_weights(tmp_path / "back.weights.h5")
    assert_same(state(back), state(mixed))


def test_without_the_scope_masters_start_from_the_weights(tmp_path):
    mixed = compiled(keras.optimizers.Adam(0.01), "mixed_bfloat16")
    fit(mixed)
    mixed.save_weights(tmp_path / "mixed.weights.h5")
    model = compiled(WRAPPERS["copies"]())
    fit(model)
    model.load_weights(tmp_path / "mixed.weights.h5")
    for found, there in zip(masters(model.optimizer), mixed.trainable_variables, strict=False):
        rounded = ops.convert_to_numpy(ops.cast(ops.cast(there, "bfloat16"), "float32"))
        assert np.all(np.abs(found - rounded) <= np.abs(rounded) * 2.0**-8)
        now = ops.cast(ops.cast(found, "bfloat16"), "float32")
        np.testing.assert_array_equal(ops.convert_to_numpy(now), rounded)


def test_an_error_in_the_scope_changes_nothing():
    model = compiled(WRAPPERS["copies"]())
    fit(model)
    before = state(model)
    bad = [np.zeros(v.shape) for v in model.weights]
    bad[3] = np.zeros(3)
    with pytest.raises(ValueError, match="shape"), float32_weights_scope(model):
        model.set_weights(bad)
    assert_same(state(model), before)


def test_what_has_no_masters_is_refused():
    model = compiled(keras.optimizers.Adam())
    with (
        pytest.raises(TypeError, match=r"not compiled with keras_mp\.MasterWeights"),
        float32_weights_scope(model),
    ):
        pass
    model = compiled(WRAPPERS["copies"]())
    with (
        pytest.raises(ValueError, match=r"call `model.optimizer.build\("),
        float32_weights_scope(model),
    ):
        pass


@pytest.mark.filterwarnings("ignore:Sharding info not provided")
@pytest.mark.parametrize("name", WRAPPERS)
def test_orbax_has_every_bit(name, tmp_path):
    if not hasattr(keras.callbacks, "OrbaxCheckpoint"):
        pytest.skip("this Keras has no OrbaxCheckpoint")
    pytest.importorskip("orbax.checkpoint", reason="orbax-checkpoint is not installed")
    # Keras restores nothing of a Sequential model without an Input, and does not say so.
    x = inputs = keras.Input((4,))
    for width in (16, 8, 1):
        x = keras.layers.Dense(width, activation="tanh", dtype="bfloat16")(x)
    model = keras.Model(inputs, x)
    model.compile(WRAPPERS[name](), "mse", run_eagerly=True, auto_scale_loss=False)
    folder = str(tmp_path / "orbax")
    callback = keras.callbacks.OrbaxCheckpoint(directory=folder, save_freq="epoch")
    x, y = data(4)
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[callback])
    loaded = keras.saving.load_model(folder)
    assert_same(state(model), state(loaded))
    assert type(loaded.optimizer) is type(model.optimizer)
