"""What the texts of `explain` say is so, measured again."""

import math

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_mp import LossScaleOptimizer
from tests.explained import codes, hidden, ours, out, sequential


def numbers(tensor):
    return ops.convert_to_numpy(tensor).astype("float64").ravel()


def moved(optimizer, dtype, gradient, steps=10, start=0.5):
    variable = keras.Variable([start], dtype=dtype)
    optimizer.build([variable])
    for _ in range(steps):
        optimizer.apply([ops.cast(ops.array([gradient]), dtype)], [variable])
    return numbers(variable)[0] - start


def test_small_updates_of_float16_vanish():
    assert moved(keras.optimizers.SGD(1e-3), "float16", 0.1, steps=100, start=1.0) == 0
    change = moved(keras.optimizers.SGD(1e-3), "float32", 0.1, steps=100, start=1.0)
    assert change == pytest.approx(-0.01, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "gradient", "float16", "float32"),
    [
        ("Adam", 1e-3, -59, -0.1),
        ("Nadam", 1e-3, -652, -0.08),
        ("Adafactor", 1e-4, math.nan, -0.048),
        ("Adamax", 0.0, math.nan, 0),
        ("Lamb", 1e-3, 0, -0.048),
    ],
)
def test_slots_in_float16(name, gradient, float16, float32):
    make = getattr(keras.optimizers, name)
    found = moved(make(0.01), "float16", gradient)
    assert found == pytest.approx(float16, rel=0.01, nan_ok=True)
    assert moved(make(0.01), "float32", gradient) == pytest.approx(float32, rel=0.05, abs=1e-9)


def test_moving_statistics_in_float16():
    random = np.random.RandomState(0)
    norm = layers.BatchNormalization(dtype="float16")
    for _ in range(2000):
        norm((5 + 0.01 * random.randn(64, 2)).astype("float32"), training=True)
    assert (numbers(norm.moving_mean) == 4.8125).all()
    wide = layers.BatchNormalization(dtype="float16")
    for _ in range(800):
        wide(np.array([[400.0], [-400.0]], "float32"), training=True)
    assert np.isinf(numbers(wide.moving_variance)).all()


def confident(activation, loss, dtype, logit):
    """12 steps on labels that the model is sure are wrong, by `logit`."""
    width = 3 if activation == "softmax" else 1
    bias = [logit, 0.0, 0.0][:width]
    dense = layers.Dense(width, dtype="mixed_float16", kernel_initializer="zeros")
    last = layers.Activation(activation, dtype=dtype)
    model = keras.Sequential([keras.Input((4,)), dense, last])
    dense.bias.assign(bias)
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.1)), loss)
    x = np.random.RandomState(0).randn(8, 4).astype("float32")
    y = np.full((8, 1), 1 if width == 3 else 0)
    for _ in range(12):
        model.train_on_batch(x, y)
    return float(model.optimizer.loss_scale), numbers(dense.bias)[0] - logit


def test_softmax_in_float16():
    loss = "sparse_categorical_crossentropy"
    assert confident("softmax", loss, "mixed_float16", 12.0) == (8.0, 0.0)
    assert confident("softmax", loss, "mixed_float16", 17.0) == (2.0**15, 0.0)
    scale, change = confident("softmax", loss, "float32", 12.0)
    assert scale == 2.0**15
    assert change < -1


def test_sigmoid_in_float16():
    loss = "binary_crossentropy"
    assert confident("sigmoid", loss, "mixed_float16", 9.0) == (2.0**15, 0.0)
    scale, change = confident("sigmoid", loss, "float32", 9.0)
    assert scale == 2.0**15
    assert change < -1


def predicting(value, dtype, loss="mse", metrics=()):
    """{name: result} for predictions of `value` where -1 or 0 is right."""
    dense = layers.Dense(1, dtype=dtype, kernel_initializer=keras.initializers.Constant(value))
    model = keras.Sequential([keras.Input((1,)), dense])
    model.compile("sgd", loss, metrics=list(metrics), auto_scale_loss=False)
    y = -np.ones((2, 1), "float32")
    return model.evaluate(np.ones((2, 1), "float32"), y, verbose=0, return_dict=True)


def test_losses_and_metrics_of_float16_predictions():
    names = ["mse", keras.metrics.MeanSquaredError(name="of_class"), "squared_hinge"]
    found = predicting(300.0, "mixed_float16", metrics=names)
    assert found["loss"] == pytest.approx(301**2)
    assert all(math.isinf(found[name]) for name in ("mse", "of_class", "squared_hinge")), found
    assert math.isinf(
        predicting(300.0, "float32", keras.losses.MeanSquaredError(dtype="float16"))["loss"]
    )
    assert predicting(300.0, "float32", metrics=["mse"])["mse"] == pytest.approx(301**2)


def metric(function, predictions, labels):
    half = ops.cast(ops.array(predictions), "float16")
    return numbers(function(labels, half)).mean(), numbers(function(labels, predictions)).mean()


def test_cosine_and_divergence_of_float16_predictions():
    large, ones = np.full((1, 2), 300.0, "float32"), np.ones((1, 2), "float32")
    half, single = metric(keras.losses.cosine_similarity, large, ones)
    assert half == 0
    assert abs(single) == pytest.approx(1)
    sure, label = np.array([[1.0, 1e-8]], "float32"), np.array([[0.0, 1.0]], "float32")
    half, single = metric(keras.losses.kl_divergence, sure, label)
    assert math.isinf(half)
    assert math.isfinite(single)


def test_regularizers_in_float16():
    full = keras.initializers.Constant(20.0)
    for policy, expected in (("float16", math.inf), ("mixed_float16", 16384.0)):
        dense = layers.Dense(64, kernel_regularizer="l2", kernel_initializer=full, dtype=policy)
        dense(np.zeros((1, 64), "float32"))
        assert numbers(dense.losses[0])[0] == expected
    activity = layers.ActivityRegularization(l2=1e-4, dtype="mixed_float16")
    activity(np.full((8, 64), 128.0, "float32"))
    assert math.isinf(numbers(activity.losses[0])[0])


def half(layer, *given):
    layer = layer(dtype="mixed_float16")
    arrays = [np.array(one, "float32") for one in given]
    return numbers(layer(arrays if len(arrays) > 1 else arrays[0]))


def test_norms_in_float16():
    assert (half(layers.UnitNormalization, [[182.0, 182.0]]) == 0).all(), "a norm of 257"
    assert half(layers.UnitNormalization, [[180.0, 180.0]]) == pytest.approx(0.7071, rel=0.01)
    assert np.isinf(half(layers.UnitNormalization, [[1.6e-4]])).all()
    assert np.isnan(half(layers.UnitNormalization, [[0.0, 0.0]])).all()
    big = [[182.0, 182.0]]
    cosine = half(lambda dtype: layers.Dot(1, normalize=True, dtype=dtype), big, big)
    assert (cosine == 0).all()


def test_sums_in_float16(backend):
    pooled = half(
        lambda dtype: layers.AveragePooling2D(16, dtype=dtype), np.full((1, 16, 16, 1), 257.0)
    )
    assert pooled == pytest.approx(257.0 if backend == "torch" else math.inf)
    whole = half(layers.GlobalAveragePooling2D, np.full((1, 16, 16, 1), 1000.0))
    assert whole == pytest.approx(1000.0)
    query = np.full((1, 2, 64), 40.0)
    assert np.isnan(half(layers.Attention, query, query)).all()


@pytest.mark.parametrize(
    "make",
    [
        layers.LayerNormalization,
        lambda **options: layers.GroupNormalization(1, **options),
        lambda **options: Training(layers.BatchNormalization(axis=0, **options)),
    ],
)
@pytest.mark.parametrize("epsilon", [1e-7, 1e-8])
def test_normalizations_are_no_finding(make, epsilon):
    """Keras computes these in float32: an epsilon that float16 cannot hold is no fault."""
    small = np.array([[1e-3, -1e-3]], "float32")
    single = numbers(make(epsilon=epsilon, dtype="float32")(small))
    for policy in ("mixed_float16", "float16"):
        assert numbers(make(epsilon=epsilon, dtype=policy)(small)) == pytest.approx(
            single, rel=2e-3
        )


class Training:
    def __init__(self, layer):
        self.layer = layer

    def __call__(self, x):
        return self.layer(x, training=True)


def test_two_factors_make_steps_too_small(data, fit, weights):
    def trained(factor):
        optimizer = LossScaleOptimizer(keras.optimizers.SGD(1e-3), initial_scale=8.0)
        optimizer.inner_optimizer.loss_scale_factor = factor
        keras.utils.set_random_seed(3)
        model = sequential(hidden, out(), policy="float32")
        before = weights(model)
        return np.abs(weights(fit(optimizer, *data, model=model)) - before).max()

    assert trained(128.0) == pytest.approx(trained(None) / 128, rel=0.3)


def test_rms_normalization_of_keras_3_10():
    """Said where it is so: measured on the Keras that runs."""
    model = sequential(lambda: layers.RMSNormalization(name="rms"), out())
    found = codes(model, ours())
    lost = half(layers.RMSNormalization, [[3e4, 3e4]])[0] == 0
    assert found == ({("float16_sum", "rms")} if lost else set())
