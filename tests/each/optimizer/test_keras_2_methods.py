"""`minimize`, `compute_gradients` and `get_gradients` on every backend."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer


def lso(rate=0.25, **settings):
    return LossScaleOptimizer(keras.optimizers.SGD(rate), **settings)


def test_minimize_one_variable():
    opt = lso()
    var = keras.Variable(1.0)
    iterations = opt.minimize(lambda: var**2, var_list=var)
    assert var.numpy() == 0.5
    assert int(iterations) == int(opt.iterations) == 1


def test_minimize_several_variables():
    opt = lso()
    a, b = keras.Variable([1.0, 2.0]), keras.Variable(3.0)
    opt.minimize(lambda: ops.sum(a * a) + b, [a, b])
    assert (a.numpy().tolist(), float(b.numpy())) == ([0.5, 1.0], 2.75)


def test_var_list_as_a_callable():
    opt, var = lso(), keras.Variable(1.0)
    opt.minimize(lambda: var**2, lambda: [var])
    assert var.numpy() == 0.5


def test_vector_loss_is_summed_and_weighted():
    opt, var = lso(), keras.Variable([1.0, 1.0])
    opt.minimize(lambda: var * 2.0, var, grad_loss=ops.array([1.0, 0.5]))
    assert var.numpy().tolist() == [0.5, 0.75]


def test_minimize_skips_an_overflow():
    opt, var = lso(initial_scale=8.0), keras.Variable(1.0)
    opt.minimize(lambda: var * float("inf"), var)
    assert (float(var.numpy()), float(opt.loss_scale)) == (1.0, 4.0)


def test_a_float16_loss_is_scaled_in_float32():
    """4 * 2**15 does not fit float16, and 2**-20 * 2**15 does."""
    opt, var = lso(), keras.Variable(2.0)
    opt.minimize(lambda: ops.cast(var * var, "float16"), var)
    assert var.numpy() == 1.0


def test_minimize_agrees_with_the_closed_form():
    random = np.random.RandomState(0)
    x, y = random.randn(20, 3).astype("float32"), random.randn(20, 1).astype("float32")
    w, start = keras.Variable(np.ones((3, 1), "float32")), np.ones((3, 1))
    opt = lso(0.1)
    for _ in range(5):
        opt.minimize(lambda: ops.mean(ops.square(ops.subtract(ops.matmul(x, w), y))), w)
        start = start - 0.1 * 2 * x.T @ (x @ start - y) / len(x)
    assert w.numpy() == pytest.approx(start, rel=1e-5)


def test_compute_gradients_then_apply():
    opt, var = lso(), keras.Variable(3.0)
    pairs = opt.compute_gradients(lambda: var**2, [var])
    assert [(float(g), v is var) for g, v in pairs] == [(6.0, True)]
    opt.apply_gradients(pairs, gradients_scaled=False)
    assert var.numpy() == 1.5


def test_get_gradients():
    opt, var = lso(), keras.Variable(3.0)
    assert [float(g) for g in opt.get_gradients(lambda: var**2, [var])] == [6.0]


def test_side_effects_of_the_loss_are_kept():
    """Seeds and moving statistics that the loss assigns, on JAX too."""
    opt, var = lso(), keras.Variable(1.0)
    calls = keras.Variable(0.0, trainable=False)

    def loss():
        calls.assign(calls + 1.0)
        return var**2

    opt.minimize(loss, var)
    opt.minimize(loss, var)
    assert (float(calls.numpy()), float(var.numpy())) == (2.0, 0.25)


def test_a_layer_with_batch_statistics(make_model, data):
    model = make_model("mixed_float16", keras.layers.BatchNormalization())
    opt = lso(0.01)
    x, y = data
    start = model.layers[2].moving_mean.numpy()
    for _ in range(3):
        opt.minimize(
            lambda: ops.mean(ops.square(ops.subtract(model(x, training=True), y))),
            model.trainable_variables,
        )
    assert not np.array_equal(start, model.layers[2].moving_mean.numpy())
    assert int(opt.iterations) == 3


class Penalised(keras.layers.Layer):
    """One weight w of 2, and the loss 3 * w beside what it returns, w * x."""

    def build(self, shape):
        self.w = self.add_weight(name="w", shape=(), initializer=lambda shape, dtype: 2.0)

    def call(self, x):
        self.add_loss(3.0 * ops.convert_to_tensor(self.w))
        return x * self.w


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        pytest.param(Penalised, 4.0, id="add_loss"),
        pytest.param(
            lambda: keras.layers.Dense(
                1, use_bias=False, kernel_initializer="ones", activity_regularizer="l2"
            ),
            1.02,
            id="activity regularizer",
        ),
        pytest.param(
            lambda: keras.layers.Dense(
                1, use_bias=False, kernel_initializer="ones", kernel_regularizer="l2"
            ),
            1.02,
            id="weight regularizer",
        ),
    ],
)
def test_losses_of_layers_count(layer, expected):
    """Those of the call that is differentiated, and of it alone."""
    layer, x = layer(), np.ones((1, 1), "float32")
    layer(x)
    for _ in range(2):
        [gradient] = lso().get_gradients(
            lambda: ops.sum(layer(x)) + sum(layer.losses), layer.trainable_variables
        )
        assert ops.convert_to_numpy(gradient).item() == pytest.approx(expected)
        assert np.isfinite([ops.convert_to_numpy(loss) for loss in layer.losses]).all()
    layer(x)
    assert len(layer.losses) == 1


def test_a_tensor_needs_its_tape(backend):
    opt, var = lso(), keras.Variable(1.0)
    with pytest.raises(TypeError, match="loss must be a callable"):
        opt.minimize(var**2, var)
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = var.value**2
        opt.minimize(loss, [var], tape=tape)
        assert var.numpy() == 0.5


@pytest.mark.parametrize("before", [(), ("scale_loss",)], ids=["fresh", "after fit"])
def test_the_pairs_of_compute_gradients_are_unscaled(before):
    """As tf.keras users write it, whatever was called on the optimizer before."""
    opt, var = lso(1.0, initial_scale=8.0), keras.Variable(3.0)
    for name in before:
        getattr(opt, name)(1.0)
        opt.apply([], [])
    opt.apply_gradients(opt.compute_gradients(lambda: var * 1.0, var))
    assert float(var.numpy()) == 2.0


def test_variables_of_a_model_that_the_loss_builds():
    """What tf.keras documents a callable var_list for."""
    model = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    x = np.ones((2, 2), "float32")
    opt = lso()
    opt.minimize(lambda: ops.mean(model(x)), lambda: model.trainable_variables)
    assert model.layers[0].kernel.numpy().ravel().tolist() == [0.75, 0.75]


def test_var_list_may_be_any_iterable_but_not_empty():
    opt, var = lso(), keras.Variable(1.0)
    opt.minimize(lambda: var**2, (v for v in [var]))
    assert var.numpy() == 0.5
    for empty in ([], list):
        with pytest.raises(ValueError, match="var_list is empty"):
            opt.minimize(lambda: var**2, empty)


def test_values_that_overwrite_are_not_divided():
    """The "gradients" of float8's scales are new values."""
    var = keras.Variable(1.0)
    var.overwrite_with_gradient = True
    opt = lso(dynamic=False, initial_scale=1024.0)
    [(gradient, _)] = opt.compute_gradients(lambda: var * 3.0, var)
    assert float(gradient) == 3.0 * 1024.0


def test_a_loss_without_the_variable(backend):
    opt, var, other = lso(), keras.Variable(1.0), keras.Variable(1.0)
    [(gradient, _)] = opt.compute_gradients(lambda: other * 2.0, var)
    assert float(gradient) == 0.0 if backend == "jax" else gradient is None


def test_a_frozen_variable_is_named_on_torch(backend):
    if backend != "torch":
        pytest.skip("elsewhere it can be differentiated by")
    frozen = keras.Variable(1.0, trainable=False, name="frozen")
    with pytest.raises(ValueError, match=r"Not trainable.*frozen"):
        lso().minimize(lambda: frozen * 2.0, frozen)


def test_a_python_number_as_loss_and_weight(backend):
    opt, var = lso(), keras.Variable(1.0)
    if backend == "tensorflow":
        pytest.skip("a tape of TensorFlow sees no number at all")
    [(gradient, _)] = opt.compute_gradients(lambda: 3.0, var, grad_loss=2.0)
    assert gradient is None or float(gradient) == 0.0


def test_the_loss_is_not_computed_for_nothing():
    calls = []
    with pytest.raises(ValueError, match="var_list is empty"):
        lso().minimize(lambda: calls.append(1), [])
    assert not calls


def test_a_tape_is_tensorflows(backend):
    if backend == "tensorflow":
        pytest.skip("test_a_tensor_needs_its_tape has it")
    var = keras.Variable(1.0)
    with pytest.raises(TypeError, match="loss must be a callable"):
        lso().minimize(var * 2.0, var, tape=object())


def test_plain_and_frozen_variables_of_tensorflow(backend):
    if backend != "tensorflow":
        pytest.skip("about tf.Variable")
    import tensorflow as tf

    var, frozen = tf.Variable(1.0), keras.Variable(3.0, trainable=False)
    lso().minimize(lambda: var**2, var)
    assert var.numpy() == 0.5
    with tf.GradientTape() as tape:
        loss = var**2
    lso().minimize(loss, [var], tape=tape)
    assert var.numpy() == 0.25
    [(gradient, _)] = lso().compute_gradients(lambda: frozen**2, frozen)
    assert float(gradient) == 6.0


def test_minimize_under_no_grad(backend):
    if backend != "torch":
        pytest.skip("about torch.no_grad")
    import torch

    opt, var = lso(), keras.Variable(1.0)
    with torch.no_grad():
        opt.minimize(lambda: var**2, var)
    assert var.numpy() == 0.5
