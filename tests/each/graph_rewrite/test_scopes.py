"""Whose calls of the framework the graph rewrite sees: those of a model's author, in its layers."""

import threading

import keras
import numpy as np
import pytest

from keras_mp import graph_rewrite
from keras_mp.graph_rewrite import hooks
from keras_mp.graph_rewrite.hooks.dispatch import active

BACKEND = keras.backend.backend()
if BACKEND == "torch":
    import torch

    from keras_mp.backends.torch import functions

    MATMUL, EXP, matmul, exp = "torch.matmul", "torch.exp", torch.matmul, torch.exp
elif BACKEND == "jax":
    import jax
    import jax.numpy as jnp

    MATMUL, EXP, matmul, exp = "lax.dot_general", "lax.exp", jnp.matmul, jnp.exp

pytestmark = pytest.mark.skipif(
    BACKEND == "tensorflow" or not hooks.are_seen(), reason="its own ops are not seen"
)
OWN = ("torch.", "lax.", "jax.", "jnp.")


@pytest.fixture(autouse=True)
def restored():
    yield
    graph_rewrite.disable()


class Own(keras.layers.Layer):
    """Multiplies by a matrix, by a function of the framework."""

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 4), name="w")

    def call(self, x):
        return matmul(x, self.w.value)


def model_of(*layers):
    return keras.Sequential([keras.Input((4,)), *layers], name="model")


def ops_of(model):
    """Returns (layer, op) of what is recorded."""
    return [(row.layer, row.op) for row in graph_rewrite.report(model).rows]


def own_ops_of(model):
    return [each for each in ops_of(model) if each[1].startswith(OWN)]


def computed(function):
    """Returns what a function computes, compiled anew where the framework compiles."""
    x = keras.ops.full((2, 4), 1 / 3)
    compiled = jax.jit(lambda x: function(x)) if BACKEND == "jax" else function
    return keras.ops.convert_to_numpy(compiled(x))


# -- whose code ------------------------------------------------------------------------------------


def test_a_layer_of_the_user():
    assert own_ops_of(model_of(keras.layers.Dense(4), Own(name="own"))) == [("own", MATMUL)]


def test_a_layer_of_keras_inside_of_it():
    class Around(keras.layers.Layer):
        def __init__(self):
            super().__init__(name="around")
            self.dense = keras.layers.Dense(4, name="dense")
            self.own = Own(name="own")

        def call(self, x):
            return exp(self.own(self.dense(exp(x))))

    ops = ops_of(model_of(Around()))
    assert ("around/dense", "matmul") in ops
    own = [each for each in ops if each[1].startswith(OWN)]
    assert own == [("around", EXP), ("around/own", MATMUL), ("around", EXP)]


def test_a_class_derived_from_one_of_keras():
    class Mine(keras.layers.Dense):
        def call(self, x):
            return exp(super().call(x))

    ops = ops_of(model_of(Mine(4, name="mine")))
    assert [op for _, op in ops] == ["matmul", "add", EXP]


def test_a_function_of_the_user_in_a_layer_of_keras():
    layers = (
        keras.layers.Lambda(lambda x: matmul(x, keras.ops.ones((4, 4))), name="function"),
        keras.layers.Dense(4, activation=lambda x: exp(x), name="dense"),
        keras.layers.Activation(exp, name="activation"),
        keras.layers.Dense(4, activation="exponential"),
    )
    expected = [("function", MATMUL), ("dense", EXP), ("activation", EXP)]
    assert own_ops_of(model_of(*layers)) == expected


def test_a_cell_of_the_user():
    class Cell(keras.layers.Layer):
        state_size = output_size = 4

        def build(self, shape):
            self.w = self.add_weight(shape=(shape[-1], 4), name="w")

        def call(self, x, states):
            y = matmul(x, self.w.value) + states[0]
            return y, [y]

    model = keras.Sequential([keras.Input((3, 4)), keras.layers.RNN(Cell(name="cell"), name="rnn")])
    assert own_ops_of(model) == [("rnn/cell", MATMUL)]


def test_a_model_of_the_user():
    class Mine(keras.Model):
        def build(self, shape):
            self.w = self.add_weight(shape=(4, 4), name="w")

        def call(self, x):
            return matmul(x, self.w.value)

    model = Mine()
    model.build((None, 4))
    found = graph_rewrite.report(model, inputs=np.ones((2, 4), "float32"))
    assert [row.op for row in found.rows] == [MATMUL]


def test_helpers_of_keras_are_no_ops():
    class Helped(keras.layers.Layer):
        def __init__(self):
            super().__init__(name="helped")
            self.seeds = keras.random.SeedGenerator(0)

        def call(self, x):
            noise = keras.random.normal(keras.ops.shape(x), seed=self.seeds)
            x = keras.ops.cast(keras.ops.cast(x, "float16"), "float32")
            return matmul(keras.ops.convert_to_tensor(x), keras.ops.transpose(noise))

    assert own_ops_of(model_of(Helped())) == [("helped", MATMUL)]


def test_a_branch_and_a_loop_of_the_user():
    class Branching(keras.layers.Layer):
        def call(self, x):
            x = keras.ops.cond(keras.ops.sum(x) > 0, lambda: exp(x), lambda: exp(-x))
            x = keras.ops.fori_loop(0, 2, lambda i, y: matmul(y, keras.ops.ones((4, 4))), x)
            return keras.ops.vectorized_map(lambda row: exp(row), x)

    found = [op for _, op in own_ops_of(model_of(Branching(name="branching")))]
    assert set(found) == {EXP, MATMUL}


# -- where it ends ---------------------------------------------------------------------------------


def state():
    return active.dispatch, active.is_seen, active.has_mode


def test_an_exception_ends_the_scope():
    class Failing(keras.layers.Layer):
        fails = False

        def call(self, x):
            if self.fails:
                raise ValueError("no")
            return exp(x)

    model = model_of(Own(), Failing(), keras.layers.Dense(4))
    expected = computed(model)
    graph_rewrite.apply(model)
    rewritten = computed(model)
    model.layers[1].fails = True
    with pytest.raises(ValueError, match="no"):
        computed(model)
    assert state() == (None, False, False)
    model.layers[1].fails = False
    np.testing.assert_array_equal(computed(model), rewritten)
    graph_rewrite.disable()
    np.testing.assert_array_equal(computed(model), expected)


def test_another_thread_has_its_own_scope():
    inside, go_on, found = threading.Event(), threading.Event(), {}

    class Waiting(keras.layers.Layer):
        waits = False

        def call(self, x):
            if self.waits:
                inside.set()
                assert go_on.wait(60)
            return exp(x)

    model = model_of(Own(), Waiting())
    graph_rewrite.apply(model)
    expected = computed(model)
    model.layers[1].waits = True
    thread = threading.Thread(target=lambda: found.update(here=computed(model)))
    thread.start()
    assert inside.wait(60)
    found["there"] = state()
    go_on.set()
    thread.join()
    assert found["there"] == (None, False, False)
    np.testing.assert_array_equal(found["here"], expected)


def test_a_layer_that_is_called_twice_and_a_model_in_a_model():
    own = Own(name="own")
    inner = keras.Sequential([keras.Input((4,)), own, own], name="inner")
    inputs = keras.Input((4,))
    outer = keras.Model(inputs, keras.layers.Dense(4)(inner(inner(inputs))))
    rows = [row for row in graph_rewrite.report(outer).rows if row.op == MATMUL]
    assert [row.dtype for row in rows] == ["float16"] * 4
    graph_rewrite.apply(outer)
    computed(outer)
    assert not graph_rewrite.report(outer).missed


def test_a_direct_call_of_call():
    class Mine(keras.Model):
        def __init__(self):
            super().__init__()
            self.own = Own()

        def call(self, x):
            return matmul(self.own(x), keras.ops.ones((4, 4)))

    model = Mine()
    model(np.ones((2, 4)))
    graph_rewrite.apply(model)
    expected = computed(model)
    np.testing.assert_array_equal(computed(model.call), expected)


def test_remat_computes_again_what_was_seen():
    with keras.RematScope("full"):
        model = model_of(Own(), keras.layers.Dense(4))
    model.build((None, 4))
    graph_rewrite.apply(model)
    model.compile("sgd", "mse")
    loss = model.train_on_batch(np.ones((2, 4)), np.zeros((2, 4)))
    assert np.isfinite(loss)


@pytest.mark.skipif(BACKEND != "torch", reason="JAX needs no mode")
def test_the_mode_of_torch_is_entered_in_layers_of_the_user_only(monkeypatch):
    entered = []
    enter = functions.Watching.__enter__
    monkeypatch.setattr(
        functions.Watching,
        "__enter__",
        lambda self: (entered.append(hooks.layer_path()), enter(self))[1],
    )
    own = Own(name="own")
    model = model_of(keras.layers.Dense(4), own, keras.layers.Dense(4), own, keras.layers.Dense(4))
    graph_rewrite.apply(model)
    model(np.ones((2, 4)))
    entered.clear()
    model(np.ones((2, 4)))
    assert entered == ["model/own"] * 2
    entered.clear()
    model.layers[-1](np.ones((2, 4)))
    own(np.ones((2, 4)))
    assert not entered
