"""Optimizers and models that are pickled, copied or cloned: the copy goes on, by itself."""

import copy
import pickle

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer

BACKEND = keras.backend.backend()
COPIES = {
    "pickled": lambda x: pickle.loads(pickle.dumps(x)),
    "deep-copied": copy.deepcopy,
}
GOOD, BAD = 8.0, float("inf")


def lso():
    return LossScaleOptimizer(
        keras.optimizers.SGD(0.25, momentum=0.5),
        initial_scale=64.0,
        dynamic_growth_steps=3,
        hysteresis=2,
        diagnose=True,
        max_consecutive_skips=9,
    )


def step_of(opt, variable, compiled=True):
    """A step as this backend compiles one, on PyTorch if `compiled`; a function of the gradient."""

    def step(gradient):
        opt.apply_gradients([(gradient, variable)], gradients_scaled=True)

    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.function(step, input_signature=[tf.TensorSpec((1,), "float32")])
    if BACKEND == "torch":
        import torch

        if compiled:
            step = torch.compile(step, fullgraph=True, backend="eager")
        return torch.no_grad()(step)
    import jax

    opt.scale_loss(1.0)
    compiled = jax.jit(opt.stateless_apply)

    def with_state(gradient):
        states = [v.value for v in opt.variables]
        [value], states = compiled(states, [gradient], [variable.value])
        variable.assign(value)
        for own, state in zip(opt.variables, states, strict=True):
            own.assign(state)

    return with_state


def found(opt, variable):
    return [float(variable.numpy()[0]), *(v.numpy().tolist() for v in opt.variables)]


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("built", [True, False], ids=["built", "not built"])
def test_an_optimizer(copied, built):
    """The copy ends where the original does, and neither touches the other."""
    variable, opt = keras.Variable([1.0]), lso()
    if built:
        opt.build([variable])
        step = step_of(opt, variable, compiled=False)
        for gradient in (GOOD, BAD, GOOD):
            step(ops.array([gradient]))
    twin_variable, twin = keras.Variable(variable.numpy()), copied(opt)
    twin.build([twin_variable])
    if not built:
        opt.build([variable])
    assert found(twin, twin_variable) == found(opt, variable)
    if built:
        assert int(twin._most_skips) == 1
    before = found(opt, variable)
    twin_step = step_of(twin, twin_variable)
    for gradient in (BAD, GOOD, GOOD, GOOD):
        twin_step(ops.array([gradient]))
    assert found(opt, variable) == before
    step = step_of(opt, variable, compiled=False)
    for gradient in (BAD, GOOD, GOOD, GOOD):
        step(ops.array([gradient]))
    assert found(twin, twin_variable) == found(opt, variable)
    assert found(opt, variable) != before


# Keras 3.10 warns so of each copy of a Functional on PyTorch, a plain one, too.
@pytest.mark.filterwarnings("ignore:(?s).*structure of .inputs. doesn't match:UserWarning")
@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_model_in_the_middle_of_training(copied, make_model, data, state):
    model = make_model("mixed_float16")
    model.compile(lso(), keras.losses.MeanSquaredError())
    x, y = data
    model.fit(x[:32], y[:32], batch_size=8, shuffle=False, verbose=0)
    twin = copied(model)
    assert type(twin.optimizer) is LossScaleOptimizer
    assert float(twin.optimizer.loss_scale) == float(model.optimizer.loss_scale) == 128.0
    for each in (twin, model):
        each.train_on_batch(x[32:40], y[32:40] * np.inf)
        each.fit(x[40:], y[40:], batch_size=8, shuffle=False, verbose=0)
    assert state(twin.variables) == state(model.variables)
    assert state(twin.optimizer.variables) == state(model.optimizer.variables)


def test_a_cloned_model(make_model, data):
    """A clone is trained from the start: nothing of the scale comes along."""
    model = make_model()
    model.compile(lso(), keras.losses.MeanSquaredError())
    model.fit(*data, batch_size=8, verbose=0)
    assert float(model.optimizer.loss_scale) == 256.0
    clone = keras.models.clone_model(model)
    if clone.optimizer is not None:  # Keras compiles it where it can
        assert clone.optimizer is not model.optimizer
        assert float(clone.optimizer.loss_scale) == 64.0
    clone.compile(lso(), keras.losses.MeanSquaredError())
    clone.fit(data[0][:24], data[1][:24], batch_size=8, verbose=0)
    assert float(clone.optimizer.loss_scale) == 128.0
    assert float(model.optimizer.loss_scale) == 256.0


def test_the_optimizer_inside_a_copy_is_wrapped_by_the_copy():
    opt = lso()
    twin = copy.deepcopy(opt)
    inner = twin.inner_optimizer
    assert inner is not opt.inner_optimizer
    with pytest.raises(ValueError, match="already wrapped"):
        LossScaleOptimizer(inner)
    del twin
    LossScaleOptimizer(inner)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="about tf.function")
def test_shapes_that_trace_again():
    """Each trace reads the scale of its time."""
    import tensorflow as tf

    opt = lso()

    @tf.function
    def scaled(x):
        return opt.scale_loss(tf.reduce_sum(x))

    variable = keras.Variable([1.0])
    opt.build([variable])
    assert float(scaled(tf.ones(1))) == 64.0
    for _ in range(3):
        opt.apply_gradients([(tf.constant([1.0]), variable)], gradients_scaled=True)
    assert [float(scaled(tf.ones(n))) / n for n in (1, 2, 3)] == [128.0] * 3
    assert scaled.experimental_get_tracing_count() == 3
