"""`fit` in every mode and with every option: the plain optimizer is the oracle.

A run with one bad batch must end where the plain optimizer ends that never saw that batch.
"""

import keras
import numpy as np
import pytest

from keras_mp import LossScaleOptimizer
from tests.compiled_steps import settled

MODES = {
    "default": {},
    "jit": {"jit_compile": True},
    "no jit": {"jit_compile": False},
    "eager": {"run_eagerly": True},
    "steps_per_execution": {"steps_per_execution": 4},
}
OPTIONS = {
    "plain": {},
    "ema": {"use_ema": True, "ema_momentum": 0.5},
    "ema overwrite": {"use_ema": True, "ema_overwrite_frequency": 2},
    "clipnorm": {"clipnorm": 0.01},
    "global_clipnorm": {"global_clipnorm": 0.01},
    "clipvalue": {"clipvalue": 0.01},
    "weight_decay": {"weight_decay": 0.1},
    "accumulation": {"gradient_accumulation_steps": 2},
    "schedule": {"learning_rate": keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)},
}


def adam(**options):
    return keras.optimizers.Adam(**{"learning_rate": 0.01, **options})


def lso(inner, **settings):
    """As Keras 3 counts iterations, so that the oracle's schedule and slots see the same ones."""
    settings = {"initial_scale": 256.0, "dynamic_growth_steps": 3, **settings}
    return LossScaleOptimizer(inner, count_skipped_steps=False, **settings)


ON_TORCH = {
    "steps_per_execution": pytest.mark.skip(reason="Keras refuses more than 1 on torch"),
}


def marks(name):
    return ON_TORCH.get(name, ()) if keras.backend.backend() == "torch" else ()


EACH_MODE = pytest.mark.parametrize(
    "mode", [pytest.param(mode, id=name, marks=marks(name)) for name, mode in MODES.items()]
)


def close(a, b):
    # XLA and inductor contract a*b+c in ways that differ between two programs.
    return np.allclose(a, b, rtol=2e-5, atol=2e-7)


def test_finite_run(fit, data, weights):
    assert close(weights(fit(lso(adam()), *data)), weights(fit(adam(), *data)))


@EACH_MODE
def test_bad_batch(mode, fit, with_nan, weights, backend, compiled_once):
    bad, without = with_nan
    model = fit(settled(lso(adam())), *bad, **mode)
    steps = {"steps_per_execution": 1} if "steps_per_execution" in mode else {}
    if backend == "torch":
        steps["jit_compile"] = False  # half a minute, for the same numbers
    assert close(weights(model), weights(fit(adam(), *without, **{**mode, **steps})))
    # 3 good steps: 512; bad: 256; 3 good: 512; 1 more.
    assert (float(model.optimizer.loss_scale), int(model.optimizer.dynamic_counter)) == (512.0, 1)
    assert int(model.optimizer.iterations) == 7


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options_on_a_bad_batch(options, fit, with_nan, weights):
    bad, without = with_nan
    ours, plain = lso(adam(**options)), adam(**options)
    assert close(weights(fit(ours, *bad)), weights(fit(plain, *without)))
    own, theirs = ours.inner_optimizer.variables, plain.variables
    assert [v.name for v in own] == [v.name for v in theirs]
    for ours_v, plain_v in zip(own, theirs, strict=True):
        assert close(ours_v.numpy(), plain_v.numpy())


@pytest.mark.parametrize("frequency", [None, 3])
def test_an_average_after_a_first_batch_that_is_bad(frequency, fit, data, weights):
    """With iterations that count it: at the end of `fit` the average becomes the weights."""
    x, y = data
    first, sgd = x.copy(), keras.optimizers.SGD
    first[0] = np.nan
    options = {"use_ema": True, "ema_momentum": 0.75, "ema_overwrite_frequency": frequency}
    ours = LossScaleOptimizer(sgd(0.01, **options), initial_scale=256.0)
    plain = sgd(0.01, **options)
    assert close(weights(fit(ours, first, y)), weights(fit(plain, x[8:], y[8:])))
    assert int(ours.iterations) == 7


def test_as_keras_own_class_in_mixed_float16(fit, data, weights):
    """Where Keras' class is right (finite gradients, growth in time), the same numbers."""
    settings = {"initial_scale": 256.0, "dynamic_growth_steps": 3}
    keras.config.set_dtype_policy("mixed_float16")
    theirs = keras.optimizers.LossScaleOptimizer(adam(), **settings)
    theirs = fit(theirs, *data, policy="mixed_float16")
    ours = fit(lso(adam()), *data, policy="mixed_float16")
    assert np.allclose(weights(ours), weights(theirs), rtol=1e-6, atol=1e-7)
    assert float(ours.optimizer.loss_scale) == float(theirs.optimizer.dynamic_scale.numpy())


def test_iterations_advance_on_skipped_steps_by_default(fit, with_nan):
    optimizer = LossScaleOptimizer(adam(), initial_scale=256.0)
    assert int(fit(optimizer, *with_nan[0]).optimizer.iterations) == 8


@pytest.mark.essential
def test_a_stretch_of_bad_batches_then_good_ones(fit, data, weights):
    """170 batches of nan took Keras' own class to scale 0 and the weights to nan."""
    x, y = data
    bad = np.tile(np.where(np.arange(4) == 0, np.nan, x[:1]), (170 * 8, 1)).astype("float32")
    model = fit(LossScaleOptimizer(adam()), bad, np.zeros((len(bad), 1), "float32"))
    start = weights(model)
    assert float(model.optimizer.loss_scale) == 1.0
    model.fit(x, y, batch_size=8, verbose=0)
    assert np.isfinite(weights(model)).all()
    assert np.abs(weights(model) - start).max() > 1e-3


def test_fixed_scale(fit, with_nan, weights):
    bad, without = with_nan
    fixed = LossScaleOptimizer(adam(), dynamic=False, initial_scale=64.0, count_skipped_steps=False)
    model = fit(fixed, *bad)
    assert close(weights(model), weights(fit(adam(), *without)))
    assert float(model.optimizer.loss_scale) == 64.0


def test_fixed_scale_without_guard_becomes_nan_as_documented(fit, with_nan, weights):
    fixed = LossScaleOptimizer(adam(), dynamic=False, initial_scale=64.0, skip_nonfinite=False)
    assert np.isnan(weights(fit(fixed, *with_nan[0]))).any()


def test_train_on_batch(make_model, data):
    model = make_model("mixed_float16")
    model.compile(LossScaleOptimizer(adam(), initial_scale=256.0), "mse")
    for _ in range(4):
        model.train_on_batch(data[0][:8], data[1][:8])
    assert int(model.optimizer.iterations) == 4


def test_recompiling_with_the_same_optimizer_goes_on(fit, data):
    model = fit(lso(adam()), *data)
    scale = float(model.optimizer.loss_scale)
    fit(model.optimizer, *data, model=model)
    assert int(model.optimizer.iterations) == 16
    assert float(model.optimizer.loss_scale) > scale


class Forgetful(keras.Model):
    """A train step written as for an optimizer that scales nothing."""

    def train_step(self, *arguments):
        return getattr(self, f"_{keras.backend.backend()}_step")(*arguments)

    def _tensorflow_step(self, batch):
        import tensorflow as tf

        x, y = batch
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}

    def _torch_step(self, batch):
        x, y = batch
        self.zero_grad()
        loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        loss.backward()
        gradients = [v.value.grad for v in self.trainable_weights]
        self.optimizer.apply(gradients, self.trainable_weights)
        return {"loss": loss}

    def _jax_step(self, state, batch):
        import jax

        (trainable, other, optimizer, metrics), (x, y) = state, batch

        def total(trainable):
            predictions, _ = self.stateless_call(trainable, other, x, training=True)
            return self.compute_loss(y=y, y_pred=predictions)

        loss, gradients = jax.value_and_grad(total)(trainable)
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
        return {"loss": loss}, (trainable, other, optimizer, metrics)


def test_a_train_step_that_forgets_scale_loss_warns(data):
    """In Keras' own class the weights silently move 32768 times too little."""
    inputs = keras.Input((4,))
    model = Forgetful(inputs, keras.layers.Dense(1)(inputs))
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.1)), keras.losses.MeanSquaredError())
    with pytest.warns(UserWarning, match="scale_loss was never called"):
        model.fit(*data, batch_size=8, verbose=0)


@pytest.mark.parametrize("frequency", [None, 2])
def test_ema_over_two_fits(frequency, make_model, data, weights):
    """On JAX plain Keras fails in the second fit: the average and the weight share an array."""
    model = make_model()
    inner = adam(use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=frequency)
    model.compile(lso(inner), keras.losses.MeanSquaredError())
    for _ in range(2):
        model.fit(*data, batch_size=8, shuffle=False, verbose=0)
    assert int(model.optimizer.iterations) == 16
    assert np.isfinite(weights(model)).all()


def test_exclude_from_weight_decay(fit, with_nan, weights):
    def adamw():
        return keras.optimizers.AdamW(0.01, weight_decay=0.5)

    bad, without = with_nan
    ours, plain = lso(adamw()), adamw()
    for optimizer in (ours, plain):
        optimizer.exclude_from_weight_decay(var_names=["bias"])
    found = weights(fit(ours, *bad))
    assert close(found, weights(fit(plain, *without)))
    assert not close(found, weights(fit(adamw(), *without)))
