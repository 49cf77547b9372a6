"""`hysteresis`: the scale falls at the N-th overflow since the last growth, as elsewhere."""

import zipfile

import h5py
import keras
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from keras import ops

from keras_mp import LossScaleOptimizer
from keras_mp.scaling.loss_scale import next_hysteresis_left, next_scale
from tests.fuzzing import examples


def megatron(steps, scale, growth, hysteresis):
    """Megatron-LM's DynamicGradScaler.update, in words of our own; min_scale 1."""
    tracker, left, seen = 0, hysteresis, []
    for finite in steps:
        if not finite:
            tracker = 0
            left -= 1
            if left <= 0:
                scale = max(scale * 0.5, 1.0)
        else:
            tracker += 1
            if tracker == growth:
                tracker, left, scale = 0, hysteresis, scale * 2
        seen.append((scale, tracker))
    return seen


def deepspeed(steps, scale, growth, delayed_shift):
    """DeepSpeed's DynamicLossScaler.update_scale, without consecutive_hysteresis; scales only."""
    left, last_overflow, seen = delayed_shift, -1, []
    for iteration, finite in enumerate(steps):
        if not finite:
            if delayed_shift == 1 or left == 1:
                scale = max(scale / 2, 1)
            else:
                left -= 1
            last_overflow = iteration
        elif (iteration - last_overflow) % growth == 0:
            left, scale = delayed_shift, scale * 2
        seen.append(scale)
    return seen


def run(steps, scale, growth, hysteresis):
    scale, counter, left = ops.array(scale, "float32"), ops.array(0), ops.array(hysteresis)
    seen = []
    for finite in map(ops.array, steps):
        new = next_scale(scale, counter, finite, growth_steps=growth, hysteresis_left=left)
        left = next_hysteresis_left(
            left, counter, finite, growth_steps=growth, hysteresis=hysteresis
        )
        scale, counter = new
        seen.append((float(scale), int(counter)))
    return seen


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.booleans(), max_size=30), st.integers(1, 4), st.integers(1, 4))
def test_agrees_with_megatron_and_deepspeed(steps, growth, hysteresis):
    found = run(steps, 256.0, growth, hysteresis)
    assert found == megatron(steps, 256.0, growth, hysteresis)
    assert [scale for scale, _ in found] == deepspeed(steps, 256.0, growth, hysteresis)


GOOD, BAD = 1.0, float("inf")


def lso(hysteresis=2):
    return LossScaleOptimizer(
        keras.optimizers.SGD(0.25),
        initial_scale=64.0,
        dynamic_growth_steps=3,
        hysteresis=hysteresis,
    )


def stepped(opt, variable, *gradients):
    """Takes steps, and returns the scale after each."""
    scales = []
    for gradient in gradients:
        pair = (ops.array([gradient]), variable)
        opt.apply_gradients([pair], gradients_scaled=True)
        scales.append(float(opt.loss_scale))
    return scales


def test_steps():
    variable, opt = keras.Variable([1.0]), lso()
    opt.build([variable])
    assert stepped(opt, variable, BAD, BAD, BAD) == [64.0, 32.0, 16.0]
    assert variable.numpy().tolist() == [1.0]  # each of them was skipped
    assert stepped(opt, variable, GOOD, GOOD, GOOD, BAD, BAD) == [16.0, 16.0, 32.0, 32.0, 16.0]


def test_a_fit(fit, with_nan):
    opt = fit(lso(), *with_nan[0]).optimizer  # 3 good steps, a nan, 4 good steps
    assert float(opt.loss_scale) == 256.0
    assert int(opt.hysteresis_left) == 2
    assert int(opt.dynamic_counter) == 1


def test_variables():
    variable, opt, plain = keras.Variable([1.0]), lso(), lso(hysteresis=1)
    opt.build([variable])
    plain.build([keras.Variable([1.0])])
    names = [v.name for v in opt.variables]
    names.remove("hysteresis_left")
    assert names == [v.name for v in plain.variables]
    assert opt.variables.index(opt.hysteresis_left) > opt.variables.index(opt.iterations)
    assert not hasattr(plain, "hysteresis_left")


@pytest.fixture
def saved(make_model, data, tmp_path):
    """A file of a model that was saved between two overflows, and the model."""
    model = make_model()
    model.compile(lso(), "mse")
    x, y = (a[:8] for a in data)
    model.train_on_batch(x, y * np.inf)
    model.save(tmp_path / "model.keras")
    return tmp_path / "model.keras", model


def test_saved_and_loaded(saved, data):
    model = keras.models.load_model(saved[0])
    assert model.optimizer.get_config()["hysteresis"] == 2
    assert int(model.optimizer.hysteresis_left) == 1
    x, y = (a[:8] for a in data)
    model.train_on_batch(x, y * np.inf)
    assert float(model.optimizer.loss_scale) == 32.0


def test_a_file_without_it_leaves_it(saved, make_model, tmp_path):
    plain = make_model()
    plain.compile(lso(hysteresis=1), "mse")
    plain.optimizer.build(plain.trainable_variables)
    plain.optimizer.dynamic_scale.assign(128.0)
    plain.save_weights(tmp_path / "plain.weights.h5")
    _, model = saved
    model.load_weights(tmp_path / "plain.weights.h5")
    assert float(model.optimizer.loss_scale) == 128.0
    assert int(model.optimizer.hysteresis_left) == 1


def test_it_lies_beside_what_keras_own_class_reads(saved):

    path, model = saved
    with (
        zipfile.ZipFile(path) as archive,
        archive.open("model.weights.h5") as file,
        h5py.File(file) as arrays,
    ):
        known = sorted(arrays["optimizer/vars"], key=int)
        assert known == [str(i) for i in range(4 + len(model.optimizer.inner_optimizer.variables))]
        assert arrays["optimizer/extra_state/vars/hysteresis_left"][()] == 1


def test_a_longer_one_that_was_saved_is_cut_off():
    variable, opt = keras.Variable([1.0]), lso()
    opt.build([variable])
    opt.hysteresis_left.assign(9)
    assert stepped(opt, variable, BAD, BAD) == [64.0, 32.0]


def test_get_and_set_weights():
    """Of these, get_weights returns what Keras' own class has, too."""
    variable, opt = keras.Variable([1.0]), lso()
    opt.build([variable])
    stepped(opt, variable, BAD)
    other = lso()
    other.build([keras.Variable([1.0])])
    other.set_weights(opt.get_weights())
    assert int(other.hysteresis_left) == 2
    other.set_weights([v.numpy() for v in opt.variables])
    assert int(other.hysteresis_left) == 1


def test_what_is_no_scalar_is_not_taken():
    opt = lso()
    with pytest.warns(UserWarning, match=r"does not fit.*hysteresis_left \(float32 of"):
        opt.extra_state.load_own_variables({"hysteresis_left": np.ones((2,), "float32")})
    assert int(opt.hysteresis_left) == 2
