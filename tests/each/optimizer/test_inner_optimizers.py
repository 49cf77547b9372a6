"""Unusual inner optimizers and models: the plain optimizer is the oracle."""

import functools
import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer


def lso(inner, **settings):
    return LossScaleOptimizer(inner, initial_scale=256.0, **settings)


class Custom(keras.optimizers.Optimizer):
    """The tutorial's gradient descent, with an update_step only."""

    def update_step(self, gradient, variable, learning_rate):
        rate = ops.cast(learning_rate, variable.dtype)
        self.assign_sub(variable, ops.multiply(ops.cast(gradient, variable.dtype), rate))

    def get_config(self):
        return {"learning_rate": 0.01}


def test_custom_optimizer(fit, with_nan, weights):
    bad, without = with_nan
    found = weights(fit(lso(Custom(0.01)), *bad))
    assert np.allclose(found, weights(fit(Custom(0.01), *without)), rtol=1e-5)


def multi():
    if not hasattr(keras.optimizers, "MultiOptimizer"):
        pytest.skip("keras.optimizers.MultiOptimizer came with Keras 3.15")
    sgd, adam = keras.optimizers.SGD(0.01), keras.optimizers.Adam(0.01)
    return keras.optimizers.MultiOptimizer(lambda v: sgd if "kernel" in v.path else adam)


def test_multi_optimizer(fit, with_nan, weights):
    bad, without = with_nan
    model = fit(lso(multi(), count_skipped_steps=False), *bad)
    assert np.allclose(weights(model), weights(fit(multi(), *without)), rtol=1e-5)
    assert float(model.optimizer.loss_scale) == 128.0


def test_multi_optimizer_counts_skipped_steps_in_each_part(fit, with_nan):
    model = fit(lso(multi()), *with_nan[0])
    inner = model.optimizer.inner_optimizer
    assert int(model.optimizer.iterations) == 8
    assert [int(o.iterations) for o in inner.optimizers] == [8, 8]


def test_setting_iterations_reaches_each_part():
    """Schedules and bias corrections go by theirs."""
    opt = lso(multi())
    opt.build([keras.Variable([1.0], name=name) for name in ("kernel", "bias")])
    opt.iterations = 7
    assert int(opt.iterations) == 7
    assert [int(o.iterations) for o in opt.inner_optimizer.optimizers] == [7, 7]


def test_a_config_names_the_parts_of_a_multi_optimizer_by_public_names():
    """A config written on torch would make torch's optimizers on JAX otherwise."""
    multi()
    parts = keras.optimizers.OptimizerMap(keras.optimizers.Adam(), {"a": keras.optimizers.SGD()})
    config = lso(keras.optimizers.MultiOptimizer(parts)).get_config()
    text = json.dumps(config)
    assert "keras.src" not in text
    inner = LossScaleOptimizer.from_config(json.loads(text)).inner_optimizer
    assert {type(part).__name__ for part in inner.optimizers} == {"Adam", "SGD"}


def embedding(optimizer, tokens, y, **compile):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((3,), dtype="int32"),
            keras.layers.Embedding(12, 4),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer, keras.losses.MeanSquaredError(), **compile)
    model.fit(tokens, y, batch_size=4, shuffle=False, verbose=0)
    return model


@pytest.mark.parametrize("compile", [{}, {"run_eagerly": True}], ids=["default", "eager"])
def test_sparse_gradients(compile, weights):
    """On TensorFlow these are IndexedSlices; no token twice in a batch, where plain Keras errs."""
    random = np.random.RandomState(0)
    tokens = np.concatenate([random.permutation(12).reshape(4, 3) for _ in range(4)])
    y = random.randn(16, 1).astype("float32")
    bad_y = y.copy()
    bad_y[5] = np.inf
    keep = np.r_[0:4, 8:16]

    def adam():
        return keras.optimizers.Adam(0.01)

    found = embedding(lso(adam(), count_skipped_steps=False), tokens, bad_y, **compile)
    expected = embedding(adam(), tokens[keep], y[keep], **compile)
    assert np.allclose(weights(found), weights(expected), rtol=1e-5, atol=1e-7)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="IndexedSlices")
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("make", [keras.optimizers.Adam, keras.optimizers.Adagrad])
def test_a_row_named_twice_counts_once_with_its_sum(make, jit_compile):
    """As in tf.keras, and as a dense gradient; Keras 3.15 adds the squares instead."""
    import tensorflow as tf

    start = np.ones((4, 2), "float32")
    values, rows = np.float32([[1, 2], [3, -4], [5, 6], [1, 1]]), [2, 0, 2, 3]
    whole = np.zeros((4, 2), "float32")
    np.add.at(whole, rows, values)
    ends = []
    for gradient in (
        tf.IndexedSlices(values, tf.constant(rows), tf.constant([4, 2])),
        tf.constant(whole),
    ):
        table = keras.Variable(start)
        opt = lso(make(0.1))
        opt.build([table])

        apply = functools.partial(opt.apply_gradients, [(gradient, table)], gradients_scaled=False)
        tf.function(apply, jit_compile=jit_compile)()
        ends.append(table.numpy())
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-6)
    assert (ends[1][[0, 2, 3]] != start[[0, 2, 3]]).all()


def test_float8_variables_are_overwritten_unscaled(make_model, data):
    """Their gradients are new values (amax history and scale), not slopes: never divided."""

    def trained(optimizer):
        model = make_model("float32")
        for name in ("hidden", "out"):
            model.get_layer(name).quantize("float8")
        model.compile(optimizer, keras.losses.MeanSquaredError())
        model.fit(*data, batch_size=8, shuffle=False, verbose=0)
        return model

    ours, plain = trained(lso(keras.optimizers.Adam(0.01))), trained(keras.optimizers.Adam(0.01))
    marked = [v for v in ours.trainable_weights if getattr(v, "overwrite_with_gradient", False)]
    assert marked
    for a, b in zip(ours.trainable_weights, plain.trainable_weights, strict=True):
        # The amax of the gradient of the outputs is that of the scaled loss, and float8 has it so.
        factor = 256.0 if "outputs_grad" in a.path else 1.0
        assert np.allclose(a.numpy(), b.numpy() * factor, rtol=2e-2), a.path
    gradient = ops.ones(marked[0].shape)
    zeros = [ops.zeros(v.shape) if v is not marked[0] else gradient for v in ours.trainable_weights]
    pairs = list(zip(zeros, ours.trainable_weights, strict=True))
    ours.optimizer.apply_gradients(pairs, gradients_scaled=True)
    assert (marked[0].numpy() == 1.0).all()


def test_lora_after_build(make_model, data, fit, weights):
    def trained(wrap):
        model = fit(wrap(keras.optimizers.Adam(0.01)), *data)
        keras.utils.set_random_seed(5)  # of LoRA's random matrix
        model.get_layer("hidden").enable_lora(2)
        return fit(wrap(keras.optimizers.Adam(0.01)), *data, model=model)

    ours, plain = trained(lso), trained(lambda optimizer: optimizer)
    names = [v.name for v in ours.trainable_weights]
    assert any("lora" in name for name in names)
    assert names == [v.name for v in plain.trainable_weights]
    assert np.allclose(weights(ours), weights(plain), rtol=2e-5, atol=1e-6)
    assert int(ours.optimizer.iterations) == 8


@pytest.mark.parametrize("wrap", [lso, lambda optimizer: optimizer], ids=["ours", "plain"])
def test_lora_of_a_reloaded_model_learns_once_a_factor_is_filled(
    make_model, data, fit, tmp_path, wrap
):
    """Keras loads both factors as zeros, and so are their gradients: docs/how-to/recipes.md."""
    model = make_model()
    model.get_layer("hidden").enable_lora(2)
    model.save(tmp_path / "model.keras")

    def trained(fill):
        loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
        factor = loaded.get_layer("hidden").lora_kernel_a
        if fill:
            factor.assign(keras.initializers.HeUniform(seed=0)(factor.shape))
        fit(wrap(keras.optimizers.Adam(0.01)), *data, model=loaded)
        return loaded.get_layer("hidden").lora_kernel_b.numpy()

    assert not trained(fill=False).any()
    assert trained(fill=True).any()


def test_int8_quantization_after_training(data, fit):
    def quantized(optimizer):
        model = fit(optimizer, *data)
        for name in ("hidden", "out"):
            model.get_layer(name).quantize("int8")
        model.predict_function = None
        assert int(model.optimizer.iterations) == 8
        return model.predict(data[0], verbose=0)

    ours, plain = (
        quantized(lso(keras.optimizers.Adam(0.01))),
        quantized(keras.optimizers.Adam(0.01)),
    )
    # One step of int8, where a last bit decides on the rounding of a weight.
    assert np.abs(ours - plain).max() < np.abs(plain).max() / 64


# PyTorch 2.4, of the checkpoints of Keras 3.10.
@pytest.mark.filterwarnings("ignore:.torch.cpu.amp.autocast:FutureWarning")
def test_rematerialised_layers(fit, with_nan, weights):
    if not hasattr(keras, "RematScope"):
        pytest.skip("this Keras has no RematScope")

    def model():
        keras.utils.set_random_seed(1)
        with keras.RematScope(mode="full"):
            return keras.Sequential(
                [keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
            )

    bad, without = with_nan
    sgd = lso(keras.optimizers.SGD(0.01), count_skipped_steps=False)
    ours = fit(sgd, *bad, model=model())
    plain = fit(keras.optimizers.SGD(0.01), *without, model=model())
    assert np.allclose(weights(ours), weights(plain), rtol=1e-5)


def test_frozen_layer_after_recompile(make_model, fit, data):
    """Keras' rule for every optimizer: other trainable variables, another optimizer."""
    model = fit(lso(keras.optimizers.SGD(0.01)), *data)
    model.get_layer("hidden").trainable = False
    frozen = model.get_layer("hidden").kernel.numpy()
    fit(lso(keras.optimizers.SGD(0.01)), *data, model=model)
    assert (model.get_layer("hidden").kernel.numpy() == frozen).all()


def test_mixed_float16_overflow_is_skipped(make_model, data, state):
    """A real float16 overflow: finite data, gradients beyond 65504."""
    model = make_model("mixed_float16")
    model.compile(LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=2.0**30), "mse")
    model.optimizer.build(model.trainable_variables)
    before = state(model.trainable_variables)
    model.train_on_batch(*[a[:8] for a in data])
    assert state(model.trainable_variables) == before
    assert float(model.optimizer.loss_scale) == 2.0**29
