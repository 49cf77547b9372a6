"""The graph rewrite on JAX's own functions, beside the same models in keras.ops."""

import re
import warnings

import keras
import numpy as np
import pytest

if keras.backend.backend() != "jax":
    pytest.skip("about functions of JAX", allow_module_level=True)

import jax
import jax.numpy as jnp

from keras_mp import graph_rewrite
from keras_mp.backends.jax import primitives
from keras_mp.graph_rewrite import jax_primitives
from tests import foreign_modules, jax_models
from tests.foreign_modules import images

pytestmark = pytest.mark.skipif(
    not primitives.are_seen(), reason="this JAX does not tell traces apart"
)
# Of TensorFlow; both sides have them, by other names.
COMPUTING = {"MatMul", "BatchMatMulV2", "Conv2D", "Tanh", "Relu", "Exp", "Mean", "Sub", "Sqrt"}
COMPUTING |= {"Sigmoid", "Neg", "Abs", "AddV2", "Relu6"}


@pytest.fixture(autouse=True)
def restored():
    yield
    graph_rewrite.disable()


def decided(model, training):
    """Returns (layer, TensorFlow's op, dtype) in the order of the call."""
    rows = graph_rewrite.report(model, training=training).rows
    return [(row.layer, row.tf_op, row.dtype) for row in rows if row.tf_op in COMPUTING]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", jax_models.PAIRS)
def test_ops_are_decided_as_those_of_keras(name, training):
    found = decided(jax_models.model(name), training)
    assert found == decided(jax_models.model(name, twin=True), training)
    assert ("own", "Conv2D" if name == "convolution" else "MatMul", "float16") in found


def lowered(function, *args):
    return jax.jit(function).lower(*args).as_text()


def products(text):
    """Returns the dtypes of the products and convolutions of a lowered program."""
    lines = re.findall(r"stablehlo\.(?:dot_general|convolution).*-> tensor<[^>]*x(\w+)>", text)
    return set(lines)


def compiled(model, enabled):
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    if enabled:
        optimizer = graph_rewrite.enable(optimizer)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    return model


def models():
    made = {name: lambda name=name: jax_models.model(name) for name in jax_models.PAIRS}
    return {**made, "scan": jax_models.recurrent, "flax": foreign_modules.model}


@pytest.mark.parametrize("name", models())
def test_products_and_convolutions_are_float16_forward_and_backward(name):
    model = models()[name]()
    model.build((None, 8, 8, 1))
    graph_rewrite.apply(model)
    x = images(8)[0]

    def loss(trainable):
        values = [v.value for v in model.non_trainable_variables]
        out, _ = model.stateless_call(trainable, values, x, training=True)
        return (out**2).sum()

    trainable = [v.value for v in model.trainable_variables]
    assert products(lowered(jax.grad(loss), trainable)) == {"f16"}


@pytest.mark.parametrize("name", models())
def test_it_learns_as_in_float32(name):
    losses = []
    x, y = images(32)
    for enabled in (False, True):
        model = compiled(models()[name](), enabled)
        model.fit(x, y, batch_size=16, epochs=100, shuffle=False, verbose=0)
        losses.append(float(model.evaluate(x, y, verbose=0)))
        graph_rewrite.disable()
    assert abs(losses[1] - losses[0]) <= 0.01 * max(losses[0], 0.1), losses


@pytest.mark.parametrize("name", models())
def test_disable_leaves_no_trace(name):
    model = models()[name]()
    x = images(4)[0]
    before = model.predict(x, verbose=0)
    graph_rewrite.apply(model)
    changed = model.predict(x, verbose=0)
    graph_rewrite.disable()
    assert changed.dtype == "float32"
    assert not np.array_equal(changed, before)
    np.testing.assert_array_equal(model.predict(x, verbose=0), before)
    assert "bind" not in {
        name
        for name, value in vars(jax.extend.core.Primitive).items()
        if getattr(value, "__module__", "") == primitives.__name__
    }


def test_a_scan_is_a_loop():
    found = graph_rewrite.report(jax_models.recurrent())
    rows = [row for row in found.rows if row.layer == "own" and row.op == "lax.dot_general"]
    assert [row.dtype for row in rows] == ["float16", "float16"]
    once = graph_rewrite.report(jax_models.recurrent(), inputs=np.ones((4, 8, 8, 1), "float32"))
    first, second = (r for r in once.rows if r.layer == "own" and r.op == "lax.dot_general")
    assert second.flops == 8 * 2 * 4 * 16 * 16  # of each step
    assert first.flops == 2 * 4 * 8 * 8 * 16


def test_a_function_with_a_gradient_of_its_own_is_kept_whole():
    @jax.custom_vjp
    def own(x):
        return jnp.matmul(x, x.T) @ x

    own.defvjp(lambda x: (own(x), x), lambda x, dy: (dy,))

    class Layer(keras.layers.Layer):
        def call(self, x):
            return own(x)

    model = keras.Sequential([keras.Input((4,), 4), keras.layers.Dense(4), Layer(name="own")])
    (row,) = graph_rewrite.report(model).layer("own").rows
    assert (row.op, row.dtype) == ("lax.custom_vjp_call", "float32")
    assert row.why == "it is an op that the graph rewrite does not know"


def test_a_constant_that_float16_cannot_hold_denies_an_op():
    class Layer(keras.layers.Layer):
        def call(self, x):
            return jnp.matmul(jnp.divide(x, jnp.add(jnp.abs(x), 1e-9)), jnp.ones((4, 4)))

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), Layer(name="own")])
    rows = {row.op: row for row in graph_rewrite.report(model).layer("own").rows}
    assert rows["lax.add"].dtype == "float32"
    assert rows["lax.add"].why.startswith("float16 cannot hold its constant")
    assert rows["lax.dot_general"].dtype == "float16"


def test_a_model_without_such_ops_is_lowered_as_before(monkeypatch):
    inputs = keras.Input((5, 8))
    x = keras.layers.MultiHeadAttention(2, 4, dropout=0.1)(inputs, inputs)
    x = keras.layers.LSTM(4)(keras.layers.GaussianNoise(0.1)(keras.layers.LayerNormalization()(x)))
    model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Dropout(0.1)(x)))
    watched = []
    original = primitives.watched
    monkeypatch.setattr(
        primitives, "watched", lambda *args: (watched.append(args[2]), original(*args))[1]
    )
    graph_rewrite.apply(model)
    x = np.ones((2, 5, 8), "float32")
    jax.jit(lambda x: model(x, training=True)).lower(x)
    assert set(watched) == {True}  # only while it is recorded


def test_it_does_not_warn_that_nothing_was_found():
    model = jax_models.model("perceptron")
    graph_rewrite.apply(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.jit(lambda x: model(x))(images(2)[0])


def test_a_call_that_is_not_compiled_computes_them_in_float32():
    model = keras.Sequential([keras.Input((4,)), jax_models.Own(jax_models.perceptron)])
    x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    plain = np.asarray(model(x))
    graph_rewrite.apply(model)
    np.testing.assert_array_equal(np.asarray(model(x)), plain)
    assert not np.array_equal(np.asarray(jax.jit(lambda x: model(x))(x)), plain)


def in_a_loop(x):
    return keras.ops.fori_loop(0, 2, lambda i, y: keras.ops.matmul(y, keras.ops.ones((4, 4))), x)


def in_a_branch(x):
    product = keras.ops.matmul(x, keras.ops.ones((4, 4)))
    return keras.ops.cond(x[0, 0] > 0, lambda: keras.ops.exp(product), lambda: product)


def in_remat(x):
    return keras.remat(lambda x: keras.ops.matmul(x, keras.ops.ones((4, 4))))(x)


@pytest.mark.parametrize("function", [in_a_loop, in_a_branch, in_remat])
def test_ops_of_keras_in_a_function_that_the_user_jits(function):
    class Layer(keras.layers.Layer):
        def call(self, x):
            return jax.jit(lambda x: function(x))(x)

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), Layer(name="own")])
    x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32") / 9

    def computed():
        return np.asarray(jax.jit(lambda x: model(x))(x))

    plain = computed()
    graph_rewrite.apply(model)
    np.testing.assert_allclose(computed(), plain, rtol=2e-2, atol=2e-2)
    assert not graph_rewrite.report(model).missed
    ops = {row.op for row in graph_rewrite.report(model).layer("own").rows}
    assert ops & {"lax.dot_general", "lax.while"}


def test_the_cost_of_a_product_and_a_convolution():
    numbers = (((1,), (0,)), ((), ()))
    product = jax_primitives.op_of("dot_general", {"dimension_numbers": numbers})
    assert product.as_keras([(4, 8), (8, 3)])[0] == (4, 8)
    found = graph_rewrite.report(
        jax_models.model("convolution"), inputs=np.ones((1, 8, 8, 1), "float32")
    )
    flops = [row.flops for row in found.rows if row.op == "lax.conv_general_dilated"]
    assert flops == [2 * 64 * 16 * 9, 2 * 36 * 8 * 9 * 16]
