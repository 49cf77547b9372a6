"""What one call of a rewritten model is recorded as, and which plan it gets."""

import gc
import weakref
from collections import namedtuple

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_mp import graph_rewrite
from keras_mp.graph_rewrite import rewritten
from tests.gradients import gradients
from tests.graph_rewrite_kinds import BACKEND, assert_close, dense, floats, low_ops, numpy, trained

X = floats(4)


pytestmark = pytest.mark.usefixtures("rewrite_ends")


def plans(model):
    return [*rewritten.state_of(model).plans.values()]


# -- which plan ------------------------------------------------------------------------------------


class Either(keras.Model):
    """Does one thing with `a`, another with `b`, and the same with keys of a dictionary."""

    def __init__(self):
        super().__init__()
        self.dense = dense(4)

    def build(self, shape):
        self.dense.build((None, 4))

    def call(self, x, a=None, b=None):
        if isinstance(x, dict):
            a, b, x = x.get("a"), x.get("b"), x["x"]
        y = self.dense(x)
        return ops.exp(a + y) if a is not None else self.dense(b + y)


@pytest.mark.parametrize(
    "call",
    [
        lambda model, name: model(X, **{name: X}),
        lambda model, name: model({"x": X, name: X}),
    ],
    ids=["arguments", "keys"],
)
def test_calls_are_told_apart_by_names(call):
    model = Either()
    model.build((None, 4))
    graph_rewrite.apply(model)
    for name in "abab":
        call(model, name)
    assert [[op.name for op in plan.graph.ops].count("matmul") for plan in plans(model)] == [1, 2]
    assert not any(plan.missed for plan in plans(model))


def test_structures_are_told_apart():
    one, two = np.ones((2, 4)), np.ones((2, 5))
    calls = [(one, two), [one, two], {"a": one, "b": two}, {"b": two, "a": one}, [[one], two]]
    found = [rewritten._signature(call) for call in (*calls, [np.ones((9, 4)), np.ones((9, 5))])]
    assert len(set(found)) == len(calls)
    assert found[-1] == found[1], "the batch decides nothing"


def test_the_plan_of_the_last_call_is_reported():
    model = Either()
    model.build((None, 4))
    graph_rewrite.apply(model)
    for name, products in (("a", 1), ("b", 2), ("a", 1)):
        model(X, **{name: X})
        rows = graph_rewrite.report(model).rows
        assert [row.op for row in rows].count("matmul") == products


def test_plans_that_were_made_long_ago_are_forgotten(monkeypatch):
    monkeypatch.setattr(rewritten, "_PLANS", 2)
    model = Either()
    model.build((None, 4))
    graph_rewrite.apply(model)
    expected = [numpy(model(X, **{name: X})) for name in "ab"]
    for name, first in zip("abab", expected * 2, strict=True):
        np.testing.assert_array_equal(numpy(model({"x": X, name: X})), first)
        np.testing.assert_array_equal(numpy(model(X, **{name: X})), first)
    assert len(plans(model)) == 2


Pair = namedtuple("Pair", ["left", "right"])


class Of(keras.Model):
    """A dense layer, and a function of keras ops after it."""

    def __init__(self, function):
        super().__init__()
        self.dense, self.function = dense(4), function

    def build(self, shape):
        self.dense.build((None, 4))

    def call(self, x):
        return self.function(self.dense(x))


class OfTraining(Of):
    def call(self, x, training=False):
        return super().call(x)


def test_an_argument_that_there_is_not_is_told_by_the_call_itself():
    model = OfTraining(ops.relu)
    model.build((None, 4))
    graph_rewrite.apply(model)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        model.call(X, nonsense=1)


def _attention(y, heads=2, **more):
    query = ops.reshape(y, (1, -1, 2, 2))
    key = query[:, :, :heads]
    return ops.dot_product_attention(query, key, key, **more)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda y: ops.stack(Pair(y, y)), "stack"),
        (lambda y: ops.matmul(ops.transpose(y), y), "matmul"),
        (lambda y: _attention(y, bias=ops.ones((1, 1, 2, 2))), "softmax"),
        (lambda y: _attention(y), "softmax"),
        pytest.param(
            lambda y: _attention(y, heads=1),
            "dot_product_attention",
            marks=pytest.mark.skipif(BACKEND == "tensorflow", reason="Keras has it not there"),
        ),
    ],
    ids=["a named tuple", "a square", "a bias", "no scale", "grouped queries"],
)
def test_arguments_of_ops(function, named):
    model = Of(function)
    model.build((None, 4))
    plain = numpy(model(X[:2]))
    graph_rewrite.apply(model)
    assert_close(numpy(model(X[:2])), plain)
    assert named in [row.op for row in graph_rewrite.report(model).rows]


# -- where -----------------------------------------------------------------------------------------


def test_a_model_that_was_first_built_inside_another():
    """Keras calls its layers outer/inner/a for ever."""
    inner = keras.Sequential([dense(name="a"), layers.Dense(2, name="b")], name="inner")
    keras.Sequential([keras.Input((4,)), inner], name="outer")(X)
    assert inner.layers[0].path == "outer/inner/a"
    plain = numpy(inner(X))
    graph_rewrite.apply(inner)
    assert_close(numpy(inner(X)), plain)
    assert {row.layer for row in graph_rewrite.report(inner).rows} == {"a", "b"}
    assert {layer for layer, _ in plans(inner)[0].low} == {"a", "b"}


# -- what is seen ----------------------------------------------------------------------------------


class Pooled(keras.Model):
    def __init__(self):
        super().__init__(name="pooled")
        self.dense, self.pool = dense(4, name="dense"), layers.GlobalAveragePooling1D(name="pool")

    def call(self, x):
        return self.pool(self.dense(x))


@pytest.mark.parametrize("compiled", [False, True])
def test_the_mask_of_an_input(compiled, recwarn):
    """A masked mean is other ops than a mean."""
    inner, steps = Pooled(), keras.Input((5,), dtype="int32")
    embedded = layers.Embedding(7, 4, mask_zero=True)(steps)
    outer = keras.Model(steps, inner(embedded))
    x = np.array([[1, 2, 3, 0, 0], [4, 0, 0, 0, 0]], "int32")
    plain = numpy(outer(x))
    graph_rewrite.apply(inner)
    if compiled:
        assert_close(outer.predict(x, verbose=0), plain)
    assert_close(numpy(outer(x)), plain)
    for plan in plans(inner):
        assert "sum" in {op.name for op in plan.graph.ops if op.layer == "pool"}
        assert not plan.missed
    assert not [each for each in recwarn if "has not recorded" in str(each.message)]


@pytest.mark.parametrize("module", ["jaxlayers", "torch_model", "numpyro.nn", "tensorflow_own"])
def test_operators_in_a_module_that_is_called_like_a_library(module):
    scope = {"__name__": module, "keras": keras}
    exec("class Own(keras.layers.Layer):\n def call(self, x): return x @ x", scope)
    layer = scope["Own"]()
    (row,) = graph_rewrite.report(layer, np.ones((4, 4), "float32")).rows
    assert (row.op, row.dtype) == ("matmul", "float16")


class Rematerialized(keras.Model):
    """Makes what is computed again before it is rewritten."""

    def __init__(self, inside):
        super().__init__()
        self.first, self.last, self.inside = dense(4), layers.Dense(2, name="last"), inside
        self.again = keras.remat(lambda x: ops.tanh(self.first(x) @ ops.ones((4, 4))))

    def call(self, x, training=False):
        again = keras.remat(self.again) if self.inside else self.again
        return self.last(again(x))


@pytest.mark.skipif(BACKEND == "jax", reason="jax.checkpoint keeps weights that it closes over")
@pytest.mark.parametrize("inside", [False, True])
def test_what_is_computed_again_is_computed_as_it_was(inside):
    model = Rematerialized(inside)
    model(X)
    upstream = floats(2)
    plain = gradients(model, X, upstream)
    graph_rewrite.apply(model)
    for path, gradient in gradients(model, X, upstream).items():
        np.testing.assert_allclose(gradient, plain[path], rtol=2e-2, atol=2e-1)
        assert not np.array_equal(gradient, plain[path]) or path.endswith("last/bias")


@pytest.mark.parametrize("mode", ["full", "list_of_layers"])
def test_a_model_that_is_made_in_a_scope_for_it(mode):
    """The model itself is computed again, too."""
    if not hasattr(keras, "RematScope"):
        pytest.skip("this Keras has no RematScope")

    def plain():
        wide = layers.Dense(8, activation="relu", name="wide")
        return keras.Sequential([keras.Input((4,)), wide, layers.Dense(2)]), floats(4)

    def in_a_scope():
        with keras.RematScope(mode=mode, layer_names=["wide"]):
            return plain()

    model, said, predictions = trained(in_a_scope, rewrite=True)
    _, expected, of_plain = trained(plain, rewrite=True)
    assert_close(said, expected)
    assert_close(predictions, of_plain)
    assert "matmul" in low_ops(model)


@pytest.mark.skipif(BACKEND != "jax", reason="what JAX jits it caches")
@pytest.mark.parametrize("way", ["apply", "report"])
def test_a_model_that_jits_can_be_collected(way):
    import jax

    product = jax.jit(lambda x: ops.matmul(x, x))

    class Squared(layers.Layer):
        def build(self, shape):
            self.w = self.add_weight(shape=(4, 4))

        def call(self, x):
            return product(x @ self.w)

    layer, x = Squared(), np.ones((4, 4), "float32")
    if way == "apply":
        graph_rewrite.apply(layer)
        layer(x)
    else:
        graph_rewrite.report(layer, x)
    held = weakref.ref(layer.w)
    del layer
    gc.collect()
    assert held() is None


# -- a `call` of one's own, and one that is kept ---------------------------------------------------


def test_a_call_that_somebody_kept_computes_as_it_did():
    model = keras.Sequential([keras.Input((4,)), dense(), layers.Dense(2)])
    plain = numpy(model(X))
    graph_rewrite.apply(model)
    kept = model.call
    assert not np.array_equal(numpy(kept(X)), plain)
    graph_rewrite.disable()
    assert np.array_equal(numpy(kept(ops.convert_to_tensor(X))), plain)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_call_that_was_set_stays(when):
    model = keras.Sequential([keras.Input((4,)), dense(), layers.Dense(2)])
    plain = numpy(model(X))

    def wrap():
        inner = model.call
        object.__setattr__(model, "call", lambda *args, **kwargs: -inner(*args, **kwargs))

    if when == "before":
        wrap()
    graph_rewrite.apply(model)
    if when == "after":
        wrap()
    assert_close(numpy(model(X)), -plain)
    assert not np.array_equal(numpy(model(X)), -plain)
    graph_rewrite.disable()
    assert np.array_equal(numpy(model(X)), -plain)
