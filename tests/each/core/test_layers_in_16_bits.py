"""Layers in 16 bits that Keras 3.15 does not train on every backend, and keras_mp has trained."""

import contextlib
import warnings

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_mp
from keras_mp import LossScaleOptimizer

# PyTorch 2.4, of the checkpoints of Keras 3.10.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.cpu.amp.autocast:FutureWarning")


@pytest.fixture(autouse=True)
def _no_global_policy():
    yield
    keras_mp.set_global_policy(None)


class AddsLoss(layers.Layer):
    def call(self, x):
        self.add_loss(0.5 * ops.mean(ops.square(x)))
        return x


class AddsVector(layers.Layer):
    """Of which Keras takes the sum; in float16 it would be infinite."""

    def call(self, x):
        self.add_loss(ops.full((128,), 1024.0, dtype=self.compute_dtype))
        return x


LOSSES = {
    "of a regularizer": lambda policy: [
        layers.Dense(8, activity_regularizer=keras.regularizers.L2(0.5), dtype=policy)
    ],
    "of a layer for it": lambda policy: [
        layers.Dense(8, dtype=policy),
        layers.ActivityRegularization(l1=0.1, l2=0.2, dtype=policy),
    ],
    "of a layer's call": lambda policy: [layers.Dense(8, dtype=policy), AddsLoss(dtype=policy)],
    "of a vector": lambda policy: [layers.Dense(8, dtype=policy), AddsVector(dtype=policy)],
}


def with_loss(make, policy):
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input((4,)), *make(policy), layers.Dense(1, dtype=policy)])


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
def test_losses_of_layers(make, policy, data):
    """The float32 model of plain Keras is the oracle."""
    if make is LOSSES["of a vector"] and keras.backend.backend() != "tensorflow":
        pytest.skip("Keras adds it up, in 16 bits")
    x, y = data[0][:16], data[1][:16]
    found = []
    for name in (policy, "float32"):
        if name == "mixed_bfloat16":  # without a loss scale
            keras_mp.set_global_policy(name)
        model, sgd = with_loss(make, name), keras.optimizers.SGD(0.01)
        optimizer = LossScaleOptimizer(sgd, initial_scale=16.0) if name == "mixed_float16" else sgd
        model.compile(optimizer, keras.losses.MeanSquaredError(), auto_scale_loss=False)
        first = model.evaluate(x, y, verbose=0)
        found.append([first, *model.fit(x, y, epochs=2, verbose=0).history["loss"]])
    np.testing.assert_allclose(*found, rtol=0.05)


def scope_of(mode):
    if mode is None:
        return contextlib.nullcontext()
    if not hasattr(keras, "RematScope"):
        pytest.skip("this Keras has no RematScope")
    more = {"layer_names": ["wide"]} if mode == "list_of_layers" else {}
    return keras.RematScope(mode=mode, **more)


class Gate(layers.Layer):
    def call(self, x, by=None):
        return x * ops.sigmoid(by)

    def compute_output_shape(self, shape):
        return shape


class Gated(layers.Layer):
    """Hands a tensor over by keyword, which is differentiated, too."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.by, self.gate = layers.Dense(4, dtype=kwargs["dtype"]), Gate(dtype=kwargs["dtype"])

    def build(self, shape):
        self.by.build(shape)

    def call(self, x):
        return self.gate(x, by=self.by(x))

    def compute_output_shape(self, shape):
        return shape


STACKS = {
    "dense": lambda policy: [
        layers.Dense(16, activation="relu", name="wide", dtype=policy),
        layers.LayerNormalization(dtype=policy),
    ],
    "a tensor by keyword": lambda policy: [Gated(name="wide", dtype=policy)],
}


@pytest.mark.parametrize("mode", ["full", "list_of_layers"])
@pytest.mark.parametrize("eagerly", [False, True], ids=["compiled", "eager"])
@pytest.mark.parametrize("make", STACKS.values(), ids=STACKS)
def test_layers_that_are_computed_again(make, eagerly, mode, data, weights):
    """As without: in 16 bits again, with the same gradients."""
    ends = []
    for each in (mode, None):
        keras.utils.set_random_seed(1)
        with scope_of(each):
            stack = [*make("mixed_float16"), layers.Dense(1, dtype="mixed_float16")]
            model = keras.Sequential([keras.Input((4,)), *stack])
        optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=256.0)
        model.compile(optimizer, keras.losses.MeanSquaredError(), run_eagerly=eagerly)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The RematScope at call time")
            model.fit(*data, batch_size=32, shuffle=False, verbose=0)
        assert int(optimizer.skipped_steps) == 0
        ends.append(weights(model))
    np.testing.assert_allclose(*ends, rtol=2e-3, atol=1e-5)
