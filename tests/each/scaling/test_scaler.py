"""Scaling a loss: dtypes, Python numbers, callables, gradients through it, and loops of Keras 2."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer


def lso(**settings):
    return LossScaleOptimizer(keras.optimizers.SGD(0.25), **settings)


def dtype(x):
    return keras.backend.standardize_dtype(x.dtype)


@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize(
    ("given", "expected"),
    [("float16", "float32"), ("bfloat16", "float32"), ("float32", "float32"), ("int32", "float32")],
)
def test_scale_loss_is_float32(given, expected, built):
    opt = lso()
    if built:
        opt.build([keras.Variable(1.0)])
    scaled = opt.scale_loss(ops.cast(ops.array(4), given))
    assert dtype(scaled) == expected
    assert float(scaled) == 4 * 2.0**15, "4 * 2**15 is inf in float16"


def test_scale_loss_keeps_float64(backend):
    if backend == "jax":
        pytest.skip("JAX has no float64 unless jax_enable_x64 is set")
    assert dtype(lso().scale_loss(ops.cast(ops.array(4.0), "float64"))) == "float64"


@pytest.mark.parametrize(
    "loss", [3, 3.0, np.float32(3.0), np.float64(3.0), np.array(3.0, "float32"), np.array(3.0)]
)
def test_numbers_are_losses(loss):
    """Those of 64 bits too, on a JAX that has none, and warns where it is asked for some."""
    opt = lso(initial_scale=8.0)
    scaled = [opt.scale_loss(loss), opt.get_scaled_loss(loss)]
    assert [float(each) for each in scaled] == [24.0, 24.0]
    kept = dtype(ops.convert_to_tensor(loss)) if hasattr(loss, "dtype") else "float32"
    assert [dtype(each) for each in scaled] == [kept, kept]


def test_vector_losses():
    scaled = lso(initial_scale=8.0).scale_loss(ops.array([1.0, 2.0]))
    assert ops.convert_to_numpy(scaled).tolist() == [8.0, 16.0]


def test_get_scaled_loss_keeps_the_dtype():
    opt = lso(initial_scale=8.0)
    assert dtype(opt.get_scaled_loss(ops.cast(ops.array(2.0), "bfloat16"))) == "bfloat16"
    with pytest.warns(UserWarning, match="scale_loss"):
        half = opt.get_scaled_loss(ops.cast(ops.array(2.0), "float16"))
    assert (dtype(half), float(half)) == ("float16", 16.0)
    opt.get_scaled_loss(ops.cast(ops.array(2.0), "float16"))  # warns once


def test_get_scaled_loss_multiplies_in_float32():
    """2**-10 * 2**20 is 2**10, though the scale by itself would be inf in float16."""
    opt = lso(initial_scale=2.0**20)
    with pytest.warns(UserWarning, match="float16 loss") as caught:
        scaled = opt.get_scaled_loss(ops.cast(ops.array(2.0**-10), "float16"))
    assert float(scaled) == 2.0**10
    assert [warning.filename for warning in caught] == [__file__]


def test_get_unscaled_gradients():
    opt = lso(initial_scale=8.0)
    dense, none = opt.get_unscaled_gradients([ops.array([4.0]), None])
    assert ops.convert_to_numpy(dense).tolist() == [0.5]
    assert none is None


def test_sparse_gradients_stay_sparse(backend):
    opt = lso(initial_scale=8.0)
    if backend == "tensorflow":
        import tensorflow as tf

        given = tf.IndexedSlices(tf.constant([[8.0], [16.0]]), tf.constant([1, 1]), (3, 1))
        (found,) = opt.get_unscaled_gradients([given])
        assert isinstance(found, tf.IndexedSlices)
        assert found.values.numpy().tolist() == [[1.0], [2.0]]
        bad = tf.IndexedSlices(tf.constant([[float("nan")]]), tf.constant([0]), (3, 1))
    elif backend == "torch":
        import torch

        given = torch.sparse_coo_tensor([[1, 1]], [[8.0], [16.0]], (3, 1), check_invariants=False)
        (found,) = opt.get_unscaled_gradients([given])
        assert found.is_sparse
        assert found.to_dense().tolist() == [[0.0], [3.0], [0.0]]
        bad = torch.sparse_coo_tensor([[0]], [[float("nan")]], (3, 1), check_invariants=False)
    else:
        from jax.experimental import sparse

        dense = np.array([[0.0], [24.0], [0.0]], "float32")
        (found,) = opt.get_unscaled_gradients([sparse.BCOO.fromdense(dense)])
        assert isinstance(found, sparse.BCOO)
        assert found.todense().tolist() == [[0.0], [3.0], [0.0]]
        bad = sparse.BCOO.fromdense(dense * np.nan)
    assert bool(opt.check_finite([found]))
    assert not bool(opt.check_finite([bad]))


def loss_and_gradient(backend, scale, variable, factor):
    """(scaled loss, gradient of it) of sum(variable) * factor, by the backend's own means."""
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = scale(tf.reduce_sum(variable.value) * factor)
        return loss, tape.gradient(loss, variable.value)
    if backend == "torch":
        variable.value.grad = None
        loss = scale(variable.value.sum() * factor)
        loss.backward()
        return loss, variable.value.grad
    import jax

    return jax.value_and_grad(lambda value: scale(value.sum() * factor))(variable.value)


def loop(backend, scale, step):
    """Trains through an overflow; `step(opt, gradient, variable)` returns the gradient seen."""
    variable = keras.Variable([1.0, 1.0])
    opt = lso(initial_scale=8.0, dynamic_growth_steps=2)
    opt.build([variable])
    seen = []
    for factor in (1.0, 1.0, float("inf"), 1.0):
        _, gradient = loss_and_gradient(backend, getattr(opt, scale), variable, factor)
        seen.append((float(step(opt, gradient, variable)[0]), float(opt.loss_scale)))
    assert variable.numpy().tolist() == [0.25, 0.25]
    return seen


def test_a_loop_of_keras_2(backend):
    """As written for tf.keras 2.4: the scaled pair of calls, then unscaled gradients."""

    def step(opt, gradient, variable):
        (gradient,) = opt.get_unscaled_gradients([gradient])
        opt.apply_gradients(zip([gradient], [variable], strict=True))
        return gradient

    seen = loop(backend, "get_scaled_loss", step)
    assert seen == [(1.0, 8.0), (1.0, 16.0), (float("inf"), 8.0), (1.0, 8.0)]


def test_a_loop_of_keras_3(backend):
    def step(opt, gradient, variable):
        opt.apply([gradient], [variable])
        return gradient

    seen = loop(backend, "scale_loss", step)
    assert seen == [(8.0, 8.0), (8.0, 16.0), (float("inf"), 8.0), (8.0, 8.0)]


def test_numpy_gradients_are_unscaled():
    (gradient,) = lso(initial_scale=8.0).get_unscaled_gradients([np.array([4.0], "float32")])
    assert ops.is_tensor(gradient)
    assert ops.convert_to_numpy(gradient).tolist() == [0.5]


def test_mixed_dtypes_are_unscaled(backend):
    if backend == "jax":
        pytest.skip("JAX has no float64 unless jax_enable_x64 is set")
    given = [ops.ones((1,), name) for name in ("float16", "float32", "float64")]
    found = lso(initial_scale=8.0).get_unscaled_gradients(given)
    assert [dtype(g) for g in found] == ["float32", "float32", "float64"]
    assert [float(g[0]) for g in found] == [0.125] * 3


def test_a_loop_of_keras_2_before_fit(make_model, fit, data, weights):
    """The protocol of the last call decides: fit after such a loop is fit."""
    model, opt = make_model(), lso(initial_scale=256.0)
    opt.get_scaled_loss(ops.array(1.0))
    nothing = opt.get_unscaled_gradients([ops.zeros(v.shape) for v in model.trainable_variables])
    opt.apply_gradients(zip(nothing, model.trainable_variables, strict=True))
    looped = fit(opt, *data, model=model)
    assert weights(looped).tolist() == weights(fit(lso(initial_scale=256.0), *data)).tolist()


def test_a_callable_loss_follows_the_protocol():
    opt, variable = lso(initial_scale=8.0), keras.Variable([1.0])
    loss = opt.get_scaled_loss(lambda: ops.cast(ops.array(2.0), "bfloat16"))()
    assert dtype(loss) == "bfloat16"
    with pytest.warns(UserWarning, match="get_unscaled_gradients was not"):
        opt.apply_gradients([(ops.array([1.0]), variable)])


def test_unscaling_without_having_scaled_warns():
    opt, variable = lso(), keras.Variable([1.0])
    (gradient,) = opt.get_unscaled_gradients(iter([ops.array([1.0])]))
    with pytest.warns(UserWarning, match="scale_loss was never called"):
        opt.apply_gradients([(gradient, variable)])


def test_float16_sparse_gradients_are_unscaled_in_float32(backend):
    if backend != "torch":
        pytest.skip("dense values share this code elsewhere")
    import torch

    half = torch.tensor([[2.0**-8]], dtype=torch.float16)
    given = torch.sparse_coo_tensor([[1]], half, (3, 1), check_invariants=False)
    (found,) = lso(initial_scale=2.0**20).get_unscaled_gradients([given])
    assert found.to_dense().tolist() == [[0.0], [2.0**-28], [0.0]]
