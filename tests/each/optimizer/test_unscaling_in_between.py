"""Gradients that a step uses before it applies them: to clip, to perturb (SAM), to penalize."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer
from tests.backends import on

NONFINITE = [float("inf"), float("nan")]
stateless = pytest.mark.skipif(
    keras.backend.backend() == "tensorflow", reason="Keras has no stateless_apply on TensorFlow"
)


def lso(rate=0.5, scale=256.0, **settings):
    return LossScaleOptimizer(keras.optimizers.SGD(rate), initial_scale=scale, **settings)


def built(**settings):
    optimizer, weights = lso(**settings), [keras.Variable([1.0, 2.0]), keras.Variable(3.0)]
    optimizer.build(weights)
    return optimizer, weights


def values_of(variables):
    return [ops.copy(variable.value) for variable in variables]  # torch's would be the same ones


def test_the_loss_scale_is_that_of_the_values():
    optimizer, _ = built()
    values = values_of(optimizer.variables)
    optimizer.dynamic_scale.assign(1.0)
    gradients = [ops.array([256.0, 512.0]), None, ops.array(1.0, "float16")]
    first, none, last = optimizer.stateless_unscale_gradients(values, gradients)
    assert ops.convert_to_numpy(first).tolist() == [1.0, 2.0]
    assert none is None
    assert (float(last), keras.backend.standardize_dtype(last.dtype)) == (2.0**-8, "float32")


def test_one_value_for_each_variable():
    optimizer, _ = built()
    with pytest.raises(ValueError, match=r"zip\(\)"):
        optimizer.stateless_unscale_gradients(values_of(optimizer.variables)[:-1], [])


@stateless
def test_unscaled_gradients_are_not_divided_again():
    optimizer, weights = built()
    values = values_of(optimizer.variables), values_of(weights)
    scaled = [ops.array([256.0, 512.0]), ops.array(256.0)]
    gradients = optimizer.stateless_unscale_gradients(values[0], scaled)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        once, _ = optimizer.stateless_apply(values[0], gradients, values[1], gradients_scaled=False)
        optimizer.stateless_scale_loss(values[0], 1.0)
        again, _ = optimizer.stateless_apply(values[0], scaled, values[1])
    for found in (once, again):
        assert [ops.convert_to_numpy(each).tolist() for each in found] == [[0.5, 1.0], 2.5]


@stateless
@pytest.mark.parametrize("bad", NONFINITE)
def test_what_is_not_finite_is_skipped(bad):
    optimizer, weights = built()
    values = values_of(optimizer.variables), values_of(weights)
    gradients = [ops.array([1.0, bad]), ops.array(1.0)]
    found, state = optimizer.stateless_apply(
        values[0], gradients, values[1], gradients_scaled=False
    )
    assert [ops.convert_to_numpy(each).tolist() for each in found] == [[1.0, 2.0], 3.0]
    said = optimizer.read_state(state)
    assert (float(said.loss_scale), int(said.skipped_steps)) == (128.0, 1)
    assert "apply" not in vars(optimizer)


@stateless
def test_unscaled_gradients_that_would_be_divided_again_are_warned_of():
    optimizer, weights = built()
    values = values_of(optimizer.variables)
    optimizer.stateless_scale_loss(values, 1.0)
    zeros = [ops.zeros(weight.shape) for weight in weights]
    gradients = optimizer.stateless_unscale_gradients(values, zeros)
    with pytest.warns(UserWarning, match=r"has done so already.*gradients_scaled=False"):
        optimizer.stateless_apply(values, gradients, values_of(weights))


def model_of(policy="float32"):
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(8, activation="tanh", dtype=policy), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input((4,)), *layers])


def loss_of(model, x, y):
    return ops.mean(ops.square(ops.subtract(model(x), y)))


def gradients_of(model, loss):
    """Of `loss()`, with respect to the weights of the model."""
    variables = model.trainable_variables
    match keras.backend.backend():
        case "tensorflow":
            import tensorflow as tf

            with tf.GradientTape() as tape:
                value = loss()
            return tape.gradient(value, [v.value for v in variables])
        case "torch":
            import torch

            return torch.autograd.grad(loss(), [v.value for v in variables])
    import jax

    def of_values(values):
        with keras.StatelessScope(zip(variables, values, strict=True)):
            return loss()

    return jax.grad(of_values)([v.value for v in variables])


def sam_step(model, x, y, first, second, apply):
    """Moves the weights up the gradient, and takes the step with the gradient there."""
    gradients = first(lambda scale: gradients_of(model, lambda: scale(loss_of(model, x, y))))
    before = [ops.copy(v.value) for v in model.trainable_variables]
    norm = ops.sqrt(sum(ops.sum(ops.square(g)) for g in gradients))
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        variable.assign_add(0.05 * gradient / norm)
    gradients = second(lambda scale: gradients_of(model, lambda: scale(loss_of(model, x, y))))
    for variable, value in zip(model.trainable_variables, before, strict=True):
        variable.assign(value)
    apply(gradients, model.trainable_variables)


KERAS_2 = "get_scaled_loss", "get_unscaled_gradients"
WAYS = {
    "both of Keras 2": (KERAS_2, KERAS_2),
    "the second of Keras 3": (KERAS_2, ("scale_loss", None)),
    "both of Keras 3": (("scale_loss", "get_unscaled_gradients"), ("scale_loss", None)),
}


@pytest.mark.parametrize(("first", "second"), WAYS.values(), ids=WAYS)
def test_the_two_passes_of_sam(first, second, data, weights):
    """As without a loss scale, and without a warning."""
    x, y = data

    def through(optimizer, names):
        scale, unscale = names

        def run(take):
            gradients = take(getattr(optimizer, scale))
            return gradients if unscale is None else getattr(optimizer, unscale)(gradients)

        return run

    ours, plain = model_of(), model_of()
    optimizer, sgd = lso(0.1), keras.optimizers.SGD(0.1)
    optimizer.build(ours.trainable_variables)

    def apply(gradients, variables):
        if second[1] is None:
            optimizer.apply(gradients, variables)
        else:
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="LossScaleOptimizer")
        for i in range(0, 24, 8):
            batch = x[i : i + 8], y[i : i + 8]
            sam_step(ours, *batch, through(optimizer, first), through(optimizer, second), apply)
            sam_step(plain, *batch, *[lambda take: take(lambda loss: loss)] * 2, sgd.apply)
    np.testing.assert_allclose(weights(ours), weights(plain), rtol=1e-5)
    assert int(optimizer.skipped_steps) == 0


@on("jax")
def test_a_rule_for_the_gradients_in_a_compiled_step(data):
    """A float16 model whose gradients are below what float16 holds, unless they are scaled."""
    import jax
    import jax.numpy as jnp

    def clipped(gradients):
        return [g * jnp.minimum(1.0, 1e-6 / jnp.linalg.norm(g)) for g in gradients]

    def trained(optimizer, policy):
        model = model_of(policy)
        optimizer.build(model.trainable_variables)
        scales = hasattr(optimizer, "stateless_unscale_gradients")

        def loss(trainable, state, x, y):
            predictions, _ = model.stateless_call(trainable, [], x)
            found = 1e-6 * jnp.mean((predictions - y) ** 2)
            return optimizer.stateless_scale_loss(state, found) if scales else found

        @jax.jit
        def step(trainable, state, x, y):
            gradients = jax.grad(loss)(trainable, state, x, y)
            if not scales:
                return optimizer.stateless_apply(state, clipped(gradients), trainable)
            gradients = clipped(optimizer.stateless_unscale_gradients(state, gradients))
            return optimizer.stateless_apply(state, gradients, trainable, gradients_scaled=False)

        values = values_of(model.trainable_variables), values_of(optimizer.variables)
        for i in range(0, 32, 8):
            values = step(*values, data[0][i : i + 8], data[1][i : i + 8])
        return np.concatenate([np.ravel(each) for each in values[0]]), values[1]

    optimizer = lso(rate=1e4, scale=2.0**15)
    found, state = trained(optimizer, "mixed_float16")
    expected, _ = trained(keras.optimizers.SGD(1e4), "float32")
    start = np.concatenate([np.ravel(v.numpy()) for v in model_of().trainable_variables])
    assert np.abs(expected - start).max() > 1e-3
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected - start).max() + 1e-4)
    assert int(optimizer.read_state(state).skipped_steps) == 0
