"""`guard_statistics`: moving statistics after a skipped step."""

import keras
import numpy as np
import pytest

import keras_mp
from keras_mp import LossScaleOptimizer


@pytest.fixture
def run(fit, with_nan):
    def run(guard, **compile):
        keras.utils.set_random_seed(1)
        norm = keras.layers.BatchNormalization()
        model = keras.Sequential([keras.Input((4,)), norm, keras.layers.Dense(1)])
        if guard:
            assert keras_mp.guard_statistics(model) is model
        optimizer = LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=256.0)
        fit(optimizer, *with_nan[0], model=model, **compile)
        return model, norm

    return run


def test_without_it_they_are_nan_for_ever(run):
    """What the guard is for; plain Keras, any optimizer."""
    assert np.isnan(run(False)[1].moving_mean.numpy()).any()


@pytest.mark.parametrize("compile", [{}, {"run_eagerly": True}], ids=["default", "eager"])
def test_they_are_put_back_on_a_skipped_step(run, compile, data):
    model, norm = run(True, **compile)
    assert np.isfinite(norm.moving_mean.numpy()).all()
    assert np.isfinite(norm.moving_variance.numpy()).all()
    assert np.abs(norm.moving_mean.numpy()).max() > 0
    assert np.isfinite(model.predict(data[0], verbose=0)).all()
    assert float(model.optimizer.loss_scale) == 128.0


def test_steps_per_execution(run, backend):
    if backend == "torch":
        pytest.skip("Keras refuses steps_per_execution > 1 on torch")
    _, norm = run(True, steps_per_execution=4)
    assert np.isfinite(norm.moving_mean.numpy()).all()


def test_a_skip_is_bit_identical_and_a_good_step_is_not(make_model, data, state):
    norm = keras.layers.BatchNormalization(dtype="float32")
    model = keras_mp.guard_statistics(make_model("float32", norm))
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.01)), "mse")
    x, y = (a[:8] for a in data)
    model.train_on_batch(x, y)
    before = state(model.non_trainable_variables)
    model.train_on_batch(x, y * np.inf)
    assert state(model.non_trainable_variables) == before
    model.train_on_batch(x, y)
    assert state(model.non_trainable_variables) != before


def test_another_optimizer_is_refused(make_model, data):
    model = keras_mp.guard_statistics(make_model())
    model.compile("sgd", "mse", run_eagerly=True)
    with pytest.raises(TypeError, match="guard_statistics needs a model compiled with keras_mp"):
        model.train_on_batch(*data)


def test_asked_for_after_training_has_begun(data):
    norm = keras.layers.BatchNormalization()
    model = keras.Sequential([keras.Input((4,)), norm, keras.layers.Dense(1)])
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.01)), "mse")
    model.train_on_batch(*data)
    keras_mp.guard_statistics(model)
    model.train_on_batch(data[0] * np.nan, data[1])
    assert np.isfinite(norm.moving_mean.numpy()).all()


def test_seeds_go_on(data, backend):
    if backend == "torch":
        pytest.skip("Keras' seeds on torch are torch's own generator")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    keras_mp.guard_statistics(model)
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.01)), "mse")
    seed = model.layers[0].seed_generator.state
    before = seed.numpy().tolist()
    model.train_on_batch(data[0], data[1] * np.inf)
    assert seed.numpy().tolist() != before
