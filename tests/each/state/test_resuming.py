"""`keras_mp.resume`: a weights file goes on bit for bit, or an error lists what differs."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp import LossScaleOptimizer


def ours(inner=None, **options):
    settings = {"initial_scale": 256.0, "dynamic_growth_steps": 3, **options}
    return LossScaleOptimizer(inner or keras.optimizers.Adam(0.01), **settings)


@pytest.fixture
def trained(fit, data):
    def make(optimizer, **more):
        return fit(optimizer, *data, policy="mixed_float16", auto_scale_loss=False, **more)

    return make


@pytest.fixture
def compiled(make_model):
    def make(optimizer, *more):
        model = make_model("mixed_float16", *more)
        model.compile(optimizer, keras.losses.MeanSquaredError(), auto_scale_loss=False)
        return model

    return make


def save(model, path):
    if path.endswith(".keras"):
        model.save(path)
    else:
        model.save_weights(path)


@pytest.mark.parametrize("name", ["a.weights.h5", "a.keras", "a.weights.json"])
@pytest.mark.parametrize("built", [False, True])
def test_goes_on_bit_for_bit(name, built, trained, compiled, data, weights, state, tmp_path):
    model, again = trained(ours()), compiled(ours(keras.optimizers.Adam(0.5)))
    model.optimizer._skipped_steps.assign(7)
    path = str(tmp_path / name)
    if name.endswith("json"):
        model.save_weights(path, max_shard_size=1.0)
    else:
        save(model, path)
    if built:
        again.optimizer.build(again.trainable_variables)
    assert keras_mp.resume(again, path) == 8
    assert state(again.optimizer.variables) == state(model.optimizer.variables)
    assert (float(again.optimizer.loss_scale), int(again.optimizer.skipped_steps)) == (1024.0, 7)
    for each in (model, again):
        each.fit(*data, batch_size=8, shuffle=False, verbose=0)
    assert weights(again).tolist() == weights(model).tolist()


def test_a_path_may_be_a_path_object(trained, compiled, tmp_path):
    trained(ours()).save_weights(tmp_path / "a.weights.h5")
    assert keras_mp.resume(compiled(ours()), tmp_path / "a.weights.h5") == 8


def test_takes_a_file_of_keras_own_class(trained, compiled, tmp_path):
    path = str(tmp_path / "a.weights.h5")
    inner = keras.optimizers.Adam(0.01)
    trained(keras.optimizers.LossScaleOptimizer(inner, 256.0, 3)).save_weights(path)
    again = compiled(ours())
    assert keras_mp.resume(again, path) == 8
    assert float(again.optimizer.loss_scale) == 1024.0


def frozen(model):
    model.layers[1].trainable = False
    model.compile(model.optimizer, "mse")
    return model


OTHERS = {
    "another optimizer": (
        ours(),
        lambda make: make(ours(keras.optimizers.SGD(0.1))),
        r"it has 14 arrays, but this optimizer has 6 variables",
    ),
    "other trainable variables": (
        ours(),
        lambda make: frozen(make(ours())),
        r"it has 14 arrays, but this optimizer has 10",
    ),
    "no loss scale": (
        keras.optimizers.Adam(0.01),
        lambda make: make(ours()),
        "holds no loss scale",
    ),
    "another fixed scale": (
        ours(),
        lambda make: make(ours(dynamic=False, initial_scale=8.0, dynamic_growth_steps=None)),
        r"fixed at 8\.0; the saved one, 1024\.0",
    ),
}


@pytest.mark.parametrize(("wrote", "make", "message"), OTHERS.values(), ids=OTHERS)
def test_what_differs_is_listed_and_nothing_changed(
    wrote, make, message, fit, data, compiled, state, tmp_path
):
    path = str(tmp_path / "a.weights.h5")
    config = keras.optimizers.serialize(wrote)
    model = fit(
        keras.optimizers.deserialize(config), *data, policy="mixed_float16", auto_scale_loss=False
    )
    model.save_weights(path)
    again = make(compiled)
    again.optimizer.build(again.trainable_variables)
    before = state([*again.variables, *again.optimizer.variables])
    with pytest.raises(ValueError, match=message) as caught:
        keras_mp.resume(again, path)
    assert "no variable was changed" in str(caught.value)
    assert path in str(caught.value)
    assert state([*again.variables, *again.optimizer.variables]) == before


def test_other_weights_are_listed_with_the_optimizer(trained, tmp_path, data, state):
    """Both at once; and the layer that computes constants from its variables has its own again."""
    path = str(tmp_path / "a.weights.h5")

    def made(units):
        norm = keras.layers.Normalization()
        norm.adapt(data[0] * units)
        model = keras.Sequential([keras.Input((4,)), norm, keras.layers.Dense(units)])
        model.compile(ours(), "mse")
        return model

    made(1).save_weights(path)
    other = made(2)
    before, predicted = state(other.variables), other.predict(data[0], verbose=0)
    with pytest.raises(ValueError, match=r"(?s)could not be loaded.*arrays, but this optimizer"):
        keras_mp.resume(other, path)
    assert state(other.variables) == before
    np.testing.assert_array_equal(other.predict(data[0], verbose=0), predicted)


def test_a_file_without_an_optimizer(make_model, compiled, tmp_path):
    path = str(tmp_path / "a.weights.h5")
    make_model("mixed_float16").save_weights(path)
    with pytest.raises(ValueError, match=r"the state of optimizer '\w+': the file holds none"):
        keras_mp.resume(compiled(ours()), path)


def test_the_scale_is_that_of_the_whole_group(trained, compiled, tmp_path):
    """With a SharedLossScale, and not before it is certain that everything fits."""
    path = str(tmp_path / "a.weights.h5")
    trained(ours()).save_weights(path)
    again, other = compiled(ours()), ours()
    keras_mp.SharedLossScale(again.optimizer, other)
    keras_mp.resume(again, path)
    assert float(other.loss_scale) == 1024.0


@pytest.mark.parametrize("optimizer", [None, "sgd"])
def test_needs_our_optimizer(optimizer, make_model, tmp_path):
    model = make_model()
    if optimizer:
        model.compile(optimizer, "mse")
    found = r"compiled with keras\.optimizers\.SGD: wrap it" if optimizer else "is not compiled"
    with pytest.raises(TypeError, match=found):
        keras_mp.resume(model, tmp_path / "a.weights.h5")


def test_needs_a_built_model_and_a_file(compiled, tmp_path):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(ours(), "mse")
    (tmp_path / "a.weights.h5").touch()
    with pytest.raises(ValueError, match="is not built"):
        keras_mp.resume(model, tmp_path / "a.weights.h5")
    with pytest.raises(FileNotFoundError, match=r"There is no file .*b\.weights\.h5"):
        keras_mp.resume(compiled(ours()), tmp_path / "b.weights.h5")
    with pytest.raises(ValueError, match=r"end in \.weights\.h5.*but got .*x\.h5"):
        keras_mp.resume(compiled(ours()), tmp_path / "x.h5")


def test_a_damaged_file_changes_nothing(trained, compiled, state, tmp_path):
    path = tmp_path / "a.weights.h5"
    trained(ours()).save_weights(path)
    path.write_bytes(path.read_bytes()[:-500])
    again = compiled(ours())
    before = state(again.variables)
    with pytest.raises(OSError, match="truncated"):
        keras_mp.resume(again, path)
    assert state(again.variables) == before


def test_a_file_that_ends_in_the_middle_changes_nothing(
    trained, compiled, state, tmp_path, monkeypatch
):
    """Somebody stops it when half of the layers are loaded."""
    path = str(tmp_path / "a.weights.h5")
    trained(ours()).save_weights(path)
    again = compiled(ours())
    before = state(again.variables)

    class Stopped(BaseException):
        pass

    def stop(store):
        raise Stopped

    monkeypatch.setattr(again.layers[-1], "load_own_variables", stop)
    with pytest.raises(Stopped):
        keras_mp.resume(again, path)
    assert state(again.variables) == before


def test_after_a_refusal_load_weights_takes_the_weights(trained, compiled, weights, tmp_path):
    path = str(tmp_path / "a.weights.h5")
    model = trained(ours())
    model.save_weights(path)
    again = compiled(ours(keras.optimizers.SGD(0.1)))
    with pytest.raises(ValueError, match=r"call model\.load_weights"):
        keras_mp.resume(again, path)
    with pytest.warns(UserWarning, match="was not loaded"):
        again.load_weights(path)
    assert weights(again).tolist() == weights(model).tolist()
    assert float(ops.convert_to_numpy(again.optimizer.learning_rate)) == np.float32(0.1)
