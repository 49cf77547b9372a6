"""Loops of Keras in a rewritten model: what they compute, in which dtype, and how often."""

import gc
import weakref

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_mp import graph_rewrite
from keras_mp.graph_rewrite import hooks
from tests.gradients import gradients
from tests.graph_rewrite_kinds import BACKEND, Compute, numpy

pytestmark = pytest.mark.usefixtures("rewrite_ends")

STEPS = 6


def model_of(*more, shape=(STEPS, 4)):
    keras.utils.set_random_seed(0)
    x = inputs = keras.Input(shape)
    for layer in more:
        x = layer(x)
    return keras.Model(inputs, x)


class Weighted(layers.Layer):
    """A layer with a kernel, for loops of keras ops."""

    def __init__(self, loop, **options):
        super().__init__(**options)
        self.loop = loop

    def build(self, shape):
        self.w = self.add_weight(shape=(4, 4), name="w")

    def call(self, x):
        return self.loop(self, x)


def scanned(layer, x):
    """tanh(W h + x) over the steps, whose sequence is returned."""

    def step(h, x):
        h = ops.tanh(ops.add(ops.matmul(h, layer.w), x))
        return h, ops.relu(h)

    _, made = ops.scan(step, x[:, 0], ops.transpose(x, (1, 0, 2)))
    return ops.transpose(made, (1, 0, 2))


def counted(layer, x):
    """Three products, one after another."""
    return ops.fori_loop(0, 3, lambda i, h: ops.relu(ops.matmul(h, layer.w)), x)


def asked(layer, x):
    """The same with a condition and a counter."""

    def step(i, h):
        return i + 1, ops.relu(ops.matmul(h, layer.w))

    options = {"maximum_iterations": 3} if BACKEND == "tensorflow" else {}
    return ops.while_loop(lambda i, h: i < 3, step, (ops.array(0), x), **options)[1]


def mapped(layer, x):
    """A product for each example."""
    return ops.map(lambda row: ops.relu(ops.matmul(row, layer.w)), x)


def nested(layer, x):
    """A loop in each step of a loop."""

    def step(h, x):
        for_each = lambda i, h: ops.tanh(ops.matmul(h, layer.w))  # noqa: E731
        h = ops.add(ops.fori_loop(0, 2, for_each, h) * 0.5, x)
        return h, h

    _, made = ops.scan(step, x[:, 0], ops.transpose(x, (1, 0, 2)))
    return ops.transpose(made, (1, 0, 2))


class Peephole(layers.Layer):
    """A cell whose output is not its state."""

    def __init__(self, units, **options):
        super().__init__(**options)
        self.units = self.state_size = self.output_size = units

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], self.units), name="w")
        self.u = self.add_weight(shape=(self.units, self.units), name="u")

    def call(self, x, states):
        h = ops.tanh(ops.matmul(x, self.w) + ops.matmul(states[0], self.u))
        return ops.sigmoid(h) * h, [h]


LAYERS = {
    "LSTM": lambda: layers.LSTM(5),
    "LSTM, all steps": lambda: layers.LSTM(5, return_sequences=True),
    "LSTM, backwards": lambda: layers.LSTM(5, go_backwards=True, return_sequences=True),
    "LSTM, unrolled": lambda: layers.LSTM(5, unroll=True),
    "LSTM, masked": lambda: keras.Sequential([layers.Masking(), layers.LSTM(5)]),
    "LSTM, zeros for masked": lambda: keras.Sequential(
        [
            layers.Masking(),
            layers.RNN(layers.LSTMCell(5), zero_output_for_mask=True, return_sequences=True),
        ]
    ),
    "GRU": lambda: layers.GRU(5),
    "GRU, masked": lambda: keras.Sequential([layers.Masking(), layers.GRU(5)]),
    "GRU, before": lambda: layers.GRU(5, reset_after=False),
    "SimpleRNN": lambda: layers.SimpleRNN(5),
    "two products": lambda: layers.LSTM(5, implementation=1),
    "Bidirectional": lambda: layers.Bidirectional(layers.LSTM(5)),
    "stacked cells": lambda: layers.RNN([layers.LSTMCell(5), layers.GRUCell(3)]),
    "a cell of one's own": lambda: layers.RNN(Peephole(5), return_sequences=True),
    "ConvLSTM1D": lambda: keras.Sequential(
        [layers.Reshape((STEPS, 4, 1)), layers.ConvLSTM1D(3, 2), layers.Flatten()]
    ),
    "scan": lambda: Weighted(scanned),
    "fori_loop": lambda: Weighted(counted),
    "while_loop": lambda: Weighted(asked),
    "map": lambda: Weighted(mapped),
    "a loop in a loop": lambda: Weighted(nested),
}


def around(name):
    keras.utils.set_random_seed(0)
    return model_of(layers.Dense(4, activation="relu"), LAYERS[name](), layers.Dense(2))


def example(rows=3):
    x = np.random.RandomState(0).rand(rows, STEPS, 4).astype("float32")
    x[-1, 4:] = 0.0
    return x


@pytest.mark.parametrize("name", LAYERS)
def test_computes_what_the_plain_model_does(name):
    model = around(name)
    x = example()
    # JAX has no gradient of a loop whose number of steps is not known.
    slopes = gradients if (BACKEND, name) != ("jax", "while_loop") else lambda *_: {}
    plain = numpy(model(x)), numpy(model.predict_on_batch(x)), slopes(model, x, 1.0)
    graph_rewrite.apply(model)
    ours = numpy(model(x)), numpy(model.predict_on_batch(x)), slopes(model, x, 1.0)
    for _ in range(2):
        again = numpy(model(x))
    np.testing.assert_array_equal(again, ours[0])
    for theirs, mine in zip(plain[:2], ours[:2], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-2, atol=5e-3)
    for path, gradient in plain[2].items():
        largest = np.max(np.abs(gradient))
        np.testing.assert_allclose(ours[2][path], gradient, rtol=1e-2, atol=1e-2 * largest + 1e-4)
    found = graph_rewrite.report(model, x, training=False)
    assert found.missed == {}
    assert sum(row.dtype == "float16" and row.op == "matmul" for row in found.rows) >= 2


@pytest.mark.parametrize("name", ["LSTM", "scan"])
def test_more_steps_and_fewer_examples(name):
    model = around(name) if name == "scan" else model_of(layers.LSTM(5), shape=(None, 4))
    for rows in (3, 1):
        x = example(rows) if name == "scan" or rows == 3 else example(3)[:, :2]
        graph_rewrite.disable()
        plain = numpy(model(x))
        graph_rewrite.apply(model)
        np.testing.assert_allclose(numpy(model(x)), plain, rtol=1e-2, atol=5e-3)


def over_steps(step, state, x, **options):
    return ops.scan(step, state, ops.transpose(x, (1, 0, 2)), **options)


def product(layer, h):
    return ops.tanh(ops.matmul(h, layer.w))


# What `keras.ops` lets one write: each takes a layer with a kernel and what it is called with.
FORMS = {
    "without sequences": lambda layer, x: ops.scan(
        lambda h, _: (product(layer, h), h), x[:, 0], length=4
    )[0],
    "nothing for each step": lambda layer, x: over_steps(
        lambda h, x: (product(layer, h) + x, None), x[:, 0], x
    )[0],
    "in reverse": lambda layer, x: over_steps(
        lambda h, x: (product(layer, h) + x, h), x[:, 0], x, reverse=True
    )[1][1],
    "dicts": lambda layer, x: over_steps(
        lambda state, x: ({"h": product(layer, state["h"]) + x}, {"h": x}), {"h": x[:, 0]}, x
    )[0]["h"],
    "a map of dicts": lambda layer, x: ops.map(
        lambda of: product(layer, of["a"]) + of["b"], {"a": x, "b": x}
    ),
    "a number as state": lambda layer, x: ops.while_loop(
        lambda i, h: i < 3, lambda i, h: (i + 1, product(layer, h)), (0, x)
    )[1],
    "a list as state": lambda layer, x: ops.while_loop(
        lambda i, h: i < 3, lambda i, h: [i + 1, product(layer, h)], [ops.array(0), x]
    )[1],
    "one state alone": lambda layer, x: ops.while_loop(
        lambda h: ops.sum(h) < 50.0, lambda h: ops.relu(product(layer, h)) + 1.0, x
    ),
    "the number of the step": lambda layer, x: ops.fori_loop(
        0, 4, lambda i, h: product(layer, h) + ops.cast(i, "float32"), x
    ),
    "no step": lambda layer, x: ops.fori_loop(0, 0, lambda i, h: product(layer, h), x),
    "one after another": lambda layer, x: over_steps(
        lambda h, x: (product(layer, h) + x, h),
        over_steps(lambda h, x: (product(layer, h) + x, h), x[:, 0], x)[0],
        x,
    )[0],
    "what was made before": lambda layer, x: (
        lambda before: over_steps(lambda h, x: (ops.tanh(h + before * x), h), x[:, 0], x)[0]
    )(product(layer, x[:, 0])),
    "in one branch": lambda layer, x: ops.cond(
        ops.sum(x) > 0, lambda: ops.fori_loop(0, 2, lambda i, h: product(layer, h), x), lambda: x
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_each_way_to_write_a_loop(name):
    model = model_of(Weighted(FORMS[name]))
    x = example()
    plain = numpy(model(x)), numpy(model.predict_on_batch(x))
    graph_rewrite.apply(model)
    for _ in range(2):
        ours = numpy(model(x)), numpy(model.predict_on_batch(x))
        for mine, theirs in zip(ours, plain, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-2, atol=5e-3)
    assert graph_rewrite.report(model, x).missed == {}


@pytest.mark.parametrize("name", ["LSTM", "GRU, masked", "Bidirectional", "scan"])
def test_fits_with_a_smaller_last_batch(name):
    """Then TensorFlow knows no size of a batch, and XLA wants to know each."""

    def fitted(rewrite):
        model = around(name)
        optimizer = keras.optimizers.SGD(0.1)
        if rewrite:
            optimizer = graph_rewrite.enable(optimizer, loss_scale=64.0)
        # Keras' scan on TensorFlow does not tell XLA how long its arrays are.
        compiled = BACKEND == "jax" or (BACKEND == "tensorflow" and name != "scan")
        model.compile(optimizer, "mse", jit_compile=compiled)
        x = example(7)
        y = np.ones((7, *model.output_shape[1:]), "float32")
        return model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0).history["loss"]

    plain = fitted(False)
    np.testing.assert_allclose(fitted(True), plain, rtol=1e-2)


# -- states ----------------------------------------------------------------------------------------


def test_returned_and_stateful_states_are_float32():
    keras.utils.set_random_seed(0)
    inputs = keras.Input(batch_shape=(3, STEPS, 4))
    outputs = layers.LSTM(5, return_state=True, stateful=True, name="lstm")(inputs)
    model = keras.Model(inputs, outputs)
    x = example()
    plain = [numpy(model(x)), numpy(model(x))]
    # `reset_states` of Keras 3.10 fails on JAX.
    for state in model.get_layer("lstm").states:
        state.assign(np.zeros(state.shape))
    graph_rewrite.apply(model)
    found = [model(x), model(x)]
    for states in found:
        assert {str(numpy(state).dtype) for state in states} == {"float32"}
    for ours, theirs in zip(map(numpy, found), plain, strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-2, atol=5e-3)
    assert not np.allclose(numpy(found[0])[2], numpy(found[1])[2])
    assert {v.dtype for v in model.get_layer("lstm").states} == {"float32"}


def summing(layer, x):
    """Adds products to a state: 2048 + 1 is 2048 in float16."""

    def step(total, x):
        total = total + ops.matmul(x, layer.w)
        return total, ops.matmul(ops.tanh(total / 4000.0), layer.w)

    total, made = ops.scan(step, ops.zeros_like(x[:, 0]), ops.transpose(x, (1, 0, 2)))
    return ops.matmul(ops.add(total, made[-1]), layer.w)


def test_a_sum_over_the_steps_stays_float32():
    model = model_of(Weighted(summing, name="sums"), shape=(4000, 4))
    model.layers[-1].w.assign(np.eye(4))
    x = np.ones((1, 4000, 4), "float32")
    graph_rewrite.apply(model)
    total = numpy(model(x))
    np.testing.assert_allclose(total, 4000.0 + np.tanh(1.0), rtol=1e-3)
    (row,) = [r for r in graph_rewrite.report(model, x).rows if "adds to a state" in r.why]
    assert (row.op, row.dtype) == ("add", "float32")
    assert row.why == "it adds to a state step by step, and a sum in float16 stops growing"


def test_a_state_in_16_bits_stays_as_it_is():
    def loop(layer, x):
        def step(state, x):
            h, low = state
            h = ops.relu(ops.matmul(h, layer.w))
            return (h, low + 1), (h, low)

        state = x[:, 0], ops.zeros((2,), "float16")
        (h, low), (_, made) = ops.scan(step, state, ops.transpose(x, (1, 0, 2)))
        kinds.append({keras.backend.standardize_dtype(x.dtype) for x in (low, made)})
        return h + ops.cast(ops.sum(low), "float32") * 0.0

    kinds = []
    model = model_of(Weighted(loop))
    graph_rewrite.apply(model)
    model(example())
    assert kinds[-1] == {"float16"}


# -- counting --------------------------------------------------------------------------------------


def test_operations_count_for_each_step():
    model = model_of(layers.SimpleRNN(5, use_bias=False, name="rnn"))
    found = graph_rewrite.report(model, np.ones((1, STEPS, 4), "float32"), training=False)
    by_input, by_state = [row.flops for row in found.layer("rnn/simple_rnn_cell").rows][:2]
    assert (by_input, by_state) == (STEPS * 2 * 4 * 5, STEPS * 2 * 5 * 5)


def test_operations_of_a_loop_in_a_loop():
    model = model_of(Weighted(nested, name="nested"))
    found = graph_rewrite.report(model, np.ones((1, STEPS, 4), "float32"), training=False)
    (product,) = [row for row in found.rows if row.op == "matmul"]
    assert product.flops == STEPS * 2 * (2 * 4 * 4)


def test_the_share_is_one_number_on_every_backend():
    """Also where the batch, as on TensorFlow in `fit`, or the sequence has no known size."""
    inputs = keras.Input((None, 4))
    x = layers.Bidirectional(layers.GRU(6, return_sequences=True))(inputs)
    model = keras.Model(inputs, layers.Dense(1)(layers.Dense(3, activation="relu")(x)))
    optimizer = graph_rewrite.enable(keras.optimizers.SGD(0.1))
    model.compile(optimizer, "mse")
    model.fit(example(7), np.ones((7, STEPS, 1), "float32"), batch_size=4, verbose=0)
    assert graph_rewrite.report(model).low_flops_share == pytest.approx(0.99900892)


def test_a_sequence_of_unknown_length_is_counted_once():
    model = model_of(Compute(lambda x: ops.while_loop(lambda h: ops.sum(h) < 9.0, doubled, x)))
    found = graph_rewrite.report(model, np.ones((1, STEPS, 4), "float32"), training=False)
    assert [row.flops for row in found.rows if row.op == "multiply"] == [STEPS * 4]


def doubled(h):
    return h * 2.0


def test_what_follows_a_loop_in_one_layer_is_decided_apart():
    """The product after the loop is one more of the layer, however often the loop ran."""

    def loop(layer, x):
        h = counted(layer, x)
        return ops.exp(ops.matmul(ops.softmax(h), layer.w))

    model = model_of(Weighted(loop, name="both"), layers.Dense(1))
    x = example()
    plain = numpy(model(x))
    graph_rewrite.apply(model)
    for _ in range(3):
        np.testing.assert_allclose(numpy(model(x)), plain, rtol=1e-2)
    assert graph_rewrite.report(model, x).missed == {}


# -- steps that torch runs without Python ----------------------------------------------------------

of_torch = pytest.mark.skipif(BACKEND != "torch", reason="elsewhere the framework traces a step")


def calls_of(model, x, count, change=lambda i: None):
    """Returns how often the cell was called in each of some calls of the model."""
    cell, found = model.layers[1].cell, []
    original = cell.call

    def call(*args, **kwargs):
        found[-1] += 1
        return original(*args, **kwargs)

    cell.call = call
    for i in range(count):
        found.append(0)
        change(i)
        model(x, training=True)
    return found


@of_torch
def test_a_step_is_traced_once():
    model = model_of(layers.GRU(5))
    graph_rewrite.apply(model)
    # Once to record, once to trace.
    assert calls_of(model, example(), 3) == [2, 0, 0]
    assert calls_of(model, example(2), 1) == [1]


@of_torch
def test_a_traced_step_has_the_bits_of_one_that_is_not(monkeypatch):
    x = example()
    for name in ("LSTM", "GRU", "LSTM, masked", "Bidirectional", "stacked cells", "ConvLSTM1D"):
        model = around(name)
        graph_rewrite.apply(model)
        ours, slopes = numpy(model(x)), gradients(model, x, 1.0)
        with monkeypatch.context() as patched:
            patched.setattr(hooks, "runs_eagerly", lambda: False)
            np.testing.assert_array_equal(numpy(model(x)), ours, err_msg=name)
            theirs = gradients(model, x, 1.0)
        for path, gradient in theirs.items():
            # Those of a weight are summed over the steps before they are cast.
            largest = 1e-3 * np.max(np.abs(gradient))
            np.testing.assert_allclose(slopes[path], gradient, rtol=2e-3, atol=largest)


@of_torch
def test_the_gradient_of_a_weight_is_summed_over_the_steps_in_float32():
    """4096 steps of 16 are 65536: inf in float16."""
    model = model_of(Weighted(independent), shape=(4096, 4))
    graph_rewrite.apply(model)
    (found,) = gradients(model, np.ones((1, 4096, 4), "float32"), 16.0).values()
    np.testing.assert_array_equal(found, np.full((4, 4), 65536.0))


def independent(layer, x):
    """A product a step, which is returned."""

    def step(h, x):
        return h, ops.matmul(x, layer.w)

    _, made = ops.scan(step, ops.zeros_like(x[:, 0]), ops.transpose(x, (1, 0, 2)))
    return made


@of_torch
def test_a_setting_that_changed_is_traced_anew():
    class Scaled(Peephole):
        factor = 1.0

        def call(self, x, states):
            h, states = super().call(x, states)
            return h * self.factor, states

    model = model_of(layers.RNN(Scaled(5)))
    graph_rewrite.apply(model)
    cell, x = model.layers[1].cell, example()
    once = numpy(model(x))
    cell.factor = 2.0
    np.testing.assert_allclose(numpy(model(x)), 2 * once, rtol=2e-3)


@of_torch
def test_weights_that_were_replaced_are_traced_anew():
    model = model_of(layers.SimpleRNN(5))
    graph_rewrite.apply(model)
    x = example()
    model(x)
    for variable in model.variables:
        variable._value = type(variable._value)(variable._value.detach() * 0.0)
    assert np.all(numpy(model(x)) == 0.0)


@of_torch
@pytest.mark.parametrize("kind", ["dropout", "Python looks", "recurrent dropout"])
def test_what_cannot_be_traced_runs_as_it_is(kind):
    class Odd(Peephole):
        def build(self, shape):
            super().build(shape)
            self.dropped = layers.Dropout(0.5, seed=1)

        def call(self, x, states, training=False):
            h, states = super().call(x, states)
            if kind == "dropout":
                return self.dropped(h, training=training), states
            return (h if numpy(ops.stop_gradient(h))[0, 0] > 0 else h * 0.5), states

    layer = layers.GRU(5, recurrent_dropout=0.5, seed=1, return_sequences=True)
    if kind != "recurrent dropout":
        layer = layers.RNN(Odd(5), return_sequences=True)
    model = model_of(layer)
    x = example()

    def run():
        for generator in model._flatten_layers():
            for seeds in vars(generator).values():
                if isinstance(seeds, keras.random.SeedGenerator):
                    seeds.state.assign(ops.convert_to_tensor([1, 2], seeds.state.dtype))
        return [numpy(model(x, training=True)) for _ in range(3)]

    plain = run()
    graph_rewrite.apply(model)
    ours = run()
    for mine, theirs in zip(ours, plain, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-2, atol=5e-3)
    if kind != "Python looks":
        assert not np.array_equal(ours[0], ours[1])


@of_torch
def test_what_a_step_changes_in_place_is_seen():
    class InPlace(Peephole):
        def build(self, shape):
            super().build(shape)
            self.b = self.add_weight(shape=(self.units,), initializer="ones", name="b")

        def call(self, x, states):
            h = ops.matmul(x, self.w)
            h += ops.matmul(states[0], self.u)
            h += self.b
            h.mul_(0.5)
            h[:, 0].zero_()
            return ops.tanh(h), [ops.tanh(h)]

    model = model_of(layers.RNN(InPlace(5)), layers.Dense(2))
    x = example()
    plain, slopes = numpy(model(x)), gradients(model, x, 1.0)
    graph_rewrite.apply(model)
    np.testing.assert_allclose(numpy(model(x)), plain, rtol=1e-2, atol=5e-3)
    for path, gradient in gradients(model, x, 1.0).items():
        np.testing.assert_allclose(gradient, slopes[path], rtol=1e-2, atol=5e-3)
    assert calls_of(model, x, 1) == [0]


@of_torch
def test_a_tensor_of_the_layer_is_changed_once_a_step():
    class Counting(Peephole):
        def build(self, shape):
            super().build(shape)
            self.count = ops.zeros(()) + 0.0

        def call(self, x, states):
            self.count.add_(1.0)
            return super().call(x, states)

    model = model_of(layers.RNN(Counting(5)))
    x = example()
    model(x)
    cell = model.layers[1].cell
    cell.count.zero_()
    model(x)
    plain = float(cell.count)
    graph_rewrite.apply(model)
    model(x)
    cell.count.zero_()
    model(x)
    assert plain - 1 <= float(cell.count) <= plain + 1


@of_torch
def test_a_model_with_traced_steps_can_be_collected():
    model = model_of(layers.GRU(5))
    graph_rewrite.apply(model)
    model(example())
    held = weakref.ref(model)
    del model
    gc.collect()
    assert held() is None
