"""Every kind of model that is rewritten, and every way to run, save, copy and restore it."""

import copy
import functools
import gc
import json
import pickle
import threading
import warnings
import weakref
import zipfile

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_mp import graph_rewrite
from keras_mp.graph_rewrite import hooks, rewritten
from tests.gradients import gradients

BACKEND = keras.backend.backend()
ROWS, BATCH = 20, 8  # the last batch has 4 rows


def floats(*shape):
    return np.random.RandomState(0).randn(ROWS, *shape).astype("float32")


def integers(below, *shape):
    return np.random.RandomState(0).randint(0, below, (ROWS, *shape)).astype("int32")


def dense(units=8, activation="tanh", **options):
    return layers.Dense(units, activation=activation, **options)


# -- kinds of models: each function returns a model and its inputs; targets are made to fit --------


def functional():
    x = inputs = keras.Input((4,))
    x = layers.Dropout(0.0)(layers.BatchNormalization()(dense()(x)))
    return keras.Model(inputs, layers.Dense(2)(x)), floats(4)


def sequential():
    return keras.Sequential([keras.Input((4,)), dense(), layers.Dense(2)]), floats(4)


def sequential_unbuilt():
    return keras.Sequential([dense(), layers.LayerNormalization(), layers.Dense(2)]), floats(4)


class Subclassed(keras.Model):
    def __init__(self, **options):
        super().__init__(**options)
        self.first, self.norm, self.last = dense(), layers.BatchNormalization(), layers.Dense(2)

    def call(self, x, training=False):
        return self.last(self.norm(self.first(x), training=training))


class WithoutTraining(keras.Model):
    """Makes its layers when it is built."""

    def build(self, shape):
        self.first, self.last = dense(name="first"), layers.Dense(2, name="last")
        self.first.build(shape)
        self.last.build((*shape[:-1], 8))

    def call(self, x):
        return self.last(ops.relu(self.first(x)))


class KerasOps(layers.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 6), name="w")
        self.b = self.add_weight(shape=(6,), name="b")

    def call(self, x):
        return ops.tanh(ops.matmul(x, self.w) + self.b)


class Operators(KerasOps):
    def call(self, x):
        h = x @ self.w + self.b
        return h * 2.0 - 1.0 / (h**2 + 1.0)


class Raw(KerasOps):
    """Calls the framework: not seen, and so in float32."""

    def call(self, x):
        if BACKEND == "jax":
            import jax.numpy as jnp

            return jnp.tanh(jnp.matmul(x, self.w.value) + self.b.value)
        if BACKEND == "tensorflow":
            import tensorflow as tf

            return tf.tanh(tf.linalg.matmul(x, self.w.value) + self.b.value)
        import torch

        return torch.tanh(torch.nn.functional.linear(x, self.w.value.T, self.b.value))


def with_layer(layer, *shape):
    x = inputs = keras.Input(shape)
    return keras.Model(inputs, layers.Dense(2)(layer(dense()(x)))), floats(*shape)


def nested():
    inner = keras.Sequential([keras.Input((8,)), dense(), layers.Dense(3)], name="inner")
    deeper = Subclassed(name="deeper")
    x = inputs = keras.Input((4,))
    return keras.Model(inputs, deeper(inner(dense()(x)))), floats(4)


def shared():
    twice = dense(4, name="twice")
    x = inputs = keras.Input((4,))
    return keras.Model(inputs, layers.Dense(2)(twice(twice(x)))), floats(4)


def masked():
    x = inputs = keras.Input((5,), dtype="int32")
    x = layers.Embedding(9, 4, mask_zero=True)(x)
    x = layers.LSTM(4, return_sequences=True)(dense(4)(x))
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, layers.Dense(2)(x)), integers(9, 5)


def recurrent(layer):
    def make():
        x = inputs = keras.Input((3, 4))
        x = layer()(dense(4)(x))
        return keras.Model(inputs, layers.Dense(2)(x)), floats(3, 4)

    return make


def attention(**options):
    def make():
        x = inputs = keras.Input((5, 4))
        mask = keras.Input((5, 5), dtype="bool") if options.pop("masked", False) else None
        mha = layers.MultiHeadAttention(2, 4, flash_attention=False, dropout=0.0)
        x = mha(x, x, attention_mask=mask, **options)
        x = layers.Dense(2)(layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x)))
        if mask is None:
            return keras.Model(inputs, x), floats(5, 4)
        allowed = floats(5, 5) > -0.5
        return keras.Model([inputs, mask], x), [floats(5, 4), allowed]

    return make


def multi_output():
    x = inputs = keras.Input((4,))
    x = dense()(x)
    return keras.Model(inputs, [layers.Dense(2)(x), layers.Dense(3)(x)]), floats(4)


def dicts():
    a, b = keras.Input((4,), name="a"), keras.Input((3,), name="b")
    x = dense()(layers.Concatenate()([a, b]))
    outputs = {"c": layers.Dense(2, name="c")(x), "d": layers.Dense(1, name="d")(x)}
    return keras.Model({"a": a, "b": b}, outputs), {"a": floats(4), "b": floats(3)}


def convolutions():
    x = inputs = keras.Input((6, 6, 2))
    x = layers.Conv2D(4, 3, activation="relu", padding="same")(x)
    x = layers.MaxPooling2D()(layers.BatchNormalization()(x))
    x = layers.Flatten()(layers.SeparableConv2D(4, 2)(x))
    return keras.Model(inputs, layers.Dense(2)(x)), floats(6, 6, 2)


def remat():
    with keras.RematScope(mode="full"):
        model, x = sequential()
    return model, x


def lora():
    model, x = sequential()
    model.layers[0].enable_lora(2)
    return model, x


class Twice(layers.Layer):
    def __init__(self):
        super().__init__()
        self.inside = dense(4)

    def call(self, x):
        for _ in range(3):
            x = self.inside(x)
        return x


KINDS = {
    "functional": functional,
    "sequential": sequential,
    "sequential, unbuilt": sequential_unbuilt,
    "subclassed": lambda: (Subclassed(), floats(4)),
    "subclassed, layers made in build": lambda: (WithoutTraining(), floats(4)),
    "keras.ops": lambda: with_layer(KerasOps(), 4),
    "operators": lambda: with_layer(Operators(), 4),
    "a call of the framework": lambda: with_layer(Raw(), 4),
    "a loop over a layer": lambda: with_layer(Twice(), 4),
    "nested": nested,
    "shared": shared,
    "masked": masked,
    "LSTM": recurrent(lambda: layers.LSTM(4)),
    "GRU": recurrent(lambda: layers.GRU(4)),
    "GRU, unrolled": recurrent(lambda: layers.GRU(4, unroll=True)),
    "LSTM, both ways": recurrent(lambda: layers.Bidirectional(layers.LSTM(4))),
    "RNN of cells": recurrent(
        lambda: layers.RNN([layers.SimpleRNNCell(4), layers.LSTMCell(4)], unroll=True)
    ),
    "TimeDistributed": recurrent(
        lambda: keras.Sequential([layers.TimeDistributed(dense(3)), layers.Flatten()])
    ),
    "attention": attention(),
    "causal attention": attention(use_causal_mask=True),
    "masked attention": attention(masked=True),
    "convolutions": convolutions,
    "several outputs": multi_output,
    "dicts": dicts,
    "rematerialized": remat,
    "LoRA": lora,
}


def numpy(x):
    return keras.tree.map_structure(ops.convert_to_numpy, x)


def targets(y):
    random = np.random.RandomState(1)
    return keras.tree.map_structure(lambda x: random.rand(*x.shape).astype("float32"), y)


def losses(y):
    return keras.tree.map_structure(lambda _: "mse", y)


def trained(make, rewrite, **compile):
    """Returns a model after an epoch, what fit and evaluate said, and what it predicts."""
    keras.utils.set_random_seed(0)
    model, x = make()
    first = numpy(model(keras.tree.map_structure(lambda x: x[:1], x)))
    y = targets(keras.tree.map_structure(lambda y: np.zeros((ROWS, *y.shape[1:])), first))
    optimizer = keras.optimizers.SGD(0.05)
    if rewrite:
        optimizer = graph_rewrite.enable(optimizer, loss_scale=64.0)
    model.compile(optimizer, losses(y), **compile)
    history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history
    said = [history["loss"], model.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True)]
    return model, said, model.predict(x, batch_size=BATCH, verbose=0)


def assert_close(ours, theirs, **tolerance):
    tolerance = tolerance or {"rtol": 2e-2, "atol": 5e-3}
    for a, b in zip(*map(keras.tree.flatten, (ours, theirs)), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


def rows(model, inputs=None, training=None):
    return graph_rewrite.report(model, inputs, training=training).rows


def low_ops(model, inputs=None):
    return {row.op for row in rows(model, inputs) if row.dtype == "float16"}


def differs(model, x):
    """Returns whether the model computes something else than when it is restored."""
    ours = numpy(model(x))
    before = rewritten.state_of(model)
    rewritten.restore(model)
    theirs = numpy(model(x))
    rewritten.rewrite(model, before.options, before.by_compile)
    return not all(map(np.array_equal, *map(keras.tree.flatten, (ours, theirs))))


@pytest.fixture
def quick_compile(monkeypatch):
    """Has torch.compile trace, but make no machine code: that takes minutes."""
    if BACKEND == "torch":
        import torch

        monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))


@pytest.fixture(autouse=True)
def _disabled():
    yield
    assert not hooks.is_dispatching()
    graph_rewrite.disable()
    assert not hooks.is_installed()


# -- kinds of models -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_trains_as_in_float32(kind):
    _, plain_said, plain_predictions = trained(KINDS[kind], rewrite=False)
    model, said, predictions = trained(KINDS[kind], rewrite=True)
    assert_close(said, plain_said)
    assert_close(predictions, plain_predictions)
    assert {p.dtype for p in keras.tree.flatten(predictions)} == {np.dtype("float32")}
    assert {v.dtype for v in model.trainable_variables} == {"float32"}
    assert {"matmul", "einsum", "conv"} & low_ops(model)
    _, x = KINDS[kind]()
    assert differs(model, x)


def test_a_call_of_the_framework_is_a_wall():
    model, _, _ = trained(KINDS["a call of the framework"], rewrite=True)
    raw = next(layer for layer in model.layers if isinstance(layer, Raw))
    assert [row for row in rows(model) if row.layer == raw.name] == []
    low = [(row.layer, row.op) for row in rows(model) if row.dtype == "float16"]
    assert {op for _, op in low} == {"matmul", "add"} or {op for _, op in low} == {"matmul"}
    assert len({layer for layer, op in low if op == "matmul"}) == 2


def test_a_model_that_only_calls_the_framework_is_warned_of_once():
    model = keras.Sequential([keras.Input((4,)), Raw()])
    graph_rewrite.apply(model)
    with pytest.warns(UserWarning, match=r"no op of the allow list in model 'sequential.*'"):
        model(floats(4))
    model(floats(4)[:3], training=True)


@pytest.mark.parametrize("kind", ["functional", "subclassed", "LSTM"])
def test_stateful_calls_in_a_row(kind):
    keras.utils.set_random_seed(0)
    model, x = KINDS[kind]()
    model(x)
    plain = numpy([model(x[:n]) for n in (1, 7, ROWS)])
    graph_rewrite.apply(model)
    assert_close(numpy([model(x[:n]) for n in (1, 7, ROWS)]), plain)
    assert len(rewritten.state_of(model).plans) == 1


def test_a_stateful_rnn_keeps_its_state():
    def make():
        keras.utils.set_random_seed(0)
        x = inputs = keras.Input((3, 4), batch_size=4)
        x = layers.LSTM(4, stateful=True)(dense(4)(x))
        return keras.Model(inputs, layers.Dense(2)(x))

    x = floats(3, 4)[:4]
    plain, model = make(), make()
    graph_rewrite.apply(model)
    for _ in range(3):
        assert_close(numpy(model(x)), numpy(plain(x)))
    states = [v for v in model.non_trainable_variables if len(v.shape) == 2]
    assert len(states) == 2
    assert {v.dtype for v in states} == {"float32"}
    assert all(np.any(numpy(v.value)) for v in states)


def test_attention_with_dropout_trains():
    keras.utils.set_random_seed(0)
    x = inputs = keras.Input((5, 4))
    x = layers.MultiHeadAttention(2, 4, dropout=0.5, flash_attention=False, seed=1)(x, x)
    model = keras.Model(inputs, layers.Dense(2)(x))
    plain = [numpy(model(floats(5, 4), training=True)) for _ in range(2)]
    assert not np.allclose(*plain)
    keras.utils.set_random_seed(0)
    twin = keras.models.clone_model(model)
    twin.set_weights(model.get_weights())
    graph_rewrite.apply(twin)
    ours = [numpy(twin(floats(5, 4), training=True)) for _ in range(2)]
    assert all(np.all(np.isfinite(y)) for y in ours)
    assert not np.allclose(*ours)


# -- ways to run -----------------------------------------------------------------------------------

OPTIONS = {
    "run_eagerly": {"run_eagerly": True},
    "jit_compile": {"jit_compile": True},
    "steps_per_execution": {"steps_per_execution": 2},
}


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch.compile, of itself
@pytest.mark.parametrize("option", OPTIONS)
def test_options_of_compile(option, quick_compile):
    if option == "steps_per_execution" and BACKEND == "torch":
        pytest.skip("Keras refuses steps_per_execution > 1 on torch")
    _, plain_said, plain = trained(functional, rewrite=False, **OPTIONS[option])
    model, said, ours = trained(functional, rewrite=True, **OPTIONS[option])
    assert_close(said, plain_said)
    assert_close(ours, plain)
    assert {"matmul", "add", "tanh"} <= low_ops(model)


def test_batches_by_hand():
    found = []
    for rewrite in (False, True):
        model, said, _ = trained(sequential, rewrite)
        x, y = floats(4), targets(np.zeros((ROWS, 2)))
        said = [model.train_on_batch(x, y), model.train_on_batch(x[:3], y[:3])]
        said += [model.test_on_batch(x, y), *model.predict_on_batch(x[:2])]
        found.append(said)
    assert_close(found[1], found[0])


def test_accumulated_gradients():
    found = []
    for rewrite in (False, True):
        keras.utils.set_random_seed(0)
        model, x = sequential()
        optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
        if rewrite:
            optimizer = graph_rewrite.enable(optimizer, loss_scale=64.0)
        model.compile(optimizer, "mse")
        y = targets(np.zeros((ROWS, 2)))
        model.fit(x, y, batch_size=5, epochs=2, shuffle=False, verbose=0)
        found.append(model.get_weights())
    assert_close(found[1], found[0])


class OwnStep(keras.Model):
    """Trains with the targets doubled, in a train_step of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.last = dense(), layers.Dense(2)

    def call(self, x, training=None):
        return self.last(self.first(x))

    if BACKEND == "jax":

        def train_step(self, state, data):
            x, y = data
            return super().train_step(state, (x, 2.0 * y))

    else:

        def train_step(self, data):
            x, y = data[:2]
            return super().train_step((x, 2.0 * y))


def test_a_train_step_of_ones_own():
    _, plain_said, plain = trained(lambda: (OwnStep(), floats(4)), rewrite=False)
    _, said, ours = trained(lambda: (OwnStep(), floats(4)), rewrite=True)
    assert_close(said, plain_said)
    assert_close(ours, plain)


@pytest.mark.parametrize("kind", ["functional", "subclassed", "masked", "convolutions"])
def test_a_training_loop_of_ones_own(kind):
    """tf.GradientTape, jax.grad of stateless_call in jax.jit, or torch's backward."""
    keras.utils.set_random_seed(0)
    model, x = KINDS[kind]()
    model(x)
    plain = gradients(model, x, 1.0)
    graph_rewrite.apply(model)
    for path, gradient in gradients(model, x, 1.0).items():
        assert gradient.dtype == np.float32
        largest = np.max(np.abs(plain[path]))
        np.testing.assert_allclose(gradient, plain[path], rtol=2e-2, atol=1e-2 * largest + 1e-4)
    assert differs(model, x)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_function_of_the_frameworks_compiler(compiled, quick_compile):
    keras.utils.set_random_seed(0)
    model, x = functional()
    plain = numpy(model(x))
    graph_rewrite.apply(model)
    call = model
    if BACKEND == "jax":
        import jax

        call = jax.jit(lambda x: model(x)) if compiled else model
    elif BACKEND == "tensorflow":
        import tensorflow as tf

        call = tf.function(lambda x: model(x), jit_compile=compiled)
    elif compiled:
        import torch

        call = torch.compile(model)
    x = ops.convert_to_tensor(x)
    ours = numpy(call(x)), numpy(call(x[:5]))
    assert_close(ours[0], plain)
    assert_close(ours[1], plain[:5])
    assert not np.array_equal(ours[0], plain)


# -- saving and copying ----------------------------------------------------------------------------


def saved(rewrite, path):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,), name="in"), dense(name="a")], name="m")
    if rewrite:
        model.compile(graph_rewrite.enable(keras.optimizers.SGD(0.1), loss_scale=8.0), "mse")
    else:
        model.compile(keras.optimizers.SGD(0.1), "mse")
    model.save(path)
    return model


def test_a_saved_model_is_that_of_float32(tmp_path):
    plain = saved(False, tmp_path / "plain.keras")
    model = saved(True, tmp_path / "ours.keras")
    configs, names = [], []
    for name in ("plain", "ours"):
        with zipfile.ZipFile(tmp_path / f"{name}.keras") as archive:
            names.append(sorted(archive.namelist()))
            config = json.loads(archive.read("config.json"))
            config["compile_config"].pop("optimizer")
            configs.append(config)
    assert names[0] == names[1]
    assert configs[0] == configs[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the optimizer of one of them
        loaded = keras.models.load_model(tmp_path / "ours.keras")
    for a, b, c in zip(loaded.weights, model.weights, plain.weights, strict=True):
        assert np.array_equal(a, b)
        assert np.array_equal(a, c)


def test_a_loaded_model_is_not_rewritten(tmp_path):
    model = saved(True, tmp_path / "ours.keras")
    loaded = keras.models.load_model(tmp_path / "ours.keras")
    x = floats(4)
    ours = numpy(model(x))
    assert rewritten.state_of(loaded) is None
    plain = numpy(loaded(x))
    assert not np.array_equal(ours, plain)
    graph_rewrite.apply(loaded)
    assert np.array_equal(numpy(loaded(x)), ours)


def test_weights_go_round(tmp_path):
    model = saved(True, tmp_path / "ours.keras")
    model.save_weights(tmp_path / "w.weights.h5")
    plain = saved(False, tmp_path / "plain.keras")
    plain.set_weights([np.zeros(w.shape) for w in plain.get_weights()])
    plain.load_weights(tmp_path / "w.weights.h5")
    for a, b in zip(plain.get_weights(), model.get_weights(), strict=True):
        assert np.array_equal(a, b)


def clone(model):
    copied = keras.models.clone_model(model)
    copied.set_weights(model.get_weights())
    return copied


@pytest.mark.parametrize(
    "duplicate",
    [
        clone,
        lambda model: type(model).from_config(model.get_config()),
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
    ],
    ids=["clone_model", "from_config", "deepcopy", "pickle"],
)
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "applied"])
def test_a_copy_is_a_model_of_its_own(duplicate, compiled):
    """It computes in float32, also after the original is gone, and does not disturb it."""
    keras.utils.set_random_seed(0)
    model, x = sequential()
    plain = numpy(model(x))
    if compiled:
        model.compile(graph_rewrite.enable(keras.optimizers.SGD(0.1)), "mse")
    else:
        graph_rewrite.apply(model)
    ours = numpy(model(x))
    copied = duplicate(model)
    copied.set_weights(model.get_weights())
    model.set_weights([np.zeros(w.shape) for w in model.get_weights()])
    assert np.array_equal(numpy(copied(x)), plain)
    graph_rewrite.apply(copied)
    assert np.array_equal(numpy(copied(x)), ours)
    assert not np.any(numpy(model(x)))
    graph_rewrite.disable()
    assert np.array_equal(numpy(copied(x)), plain)


# -- several models, threads, errors ---------------------------------------------------------------


def test_a_rewritten_model_inside_another():
    keras.utils.set_random_seed(0)
    inner = keras.Sequential([keras.Input((8,)), dense(), layers.Dense(3)], name="inner")
    x = inputs = keras.Input((4,))
    outer = keras.Model(inputs, layers.Dense(2)(inner(dense()(x))), name="outer")
    plain = numpy(outer(floats(4)))
    plain_inner = numpy(inner(floats(8)))
    graph_rewrite.apply(inner)
    assert_close(numpy(outer(floats(4))), plain)
    graph_rewrite.apply(outer)
    assert_close(numpy(outer(floats(4))), plain)
    assert_close(numpy(inner(floats(8))), plain_inner)
    low = [row.layer for row in rows(outer) if row.dtype == "float16" and row.op == "matmul"]
    assert len(low) == 4
    rewritten.restore(outer)
    assert not np.array_equal(numpy(outer(floats(4))), plain)
    graph_rewrite.disable()
    assert np.array_equal(numpy(outer(floats(4))), plain)


def test_other_models_are_left_alone():
    keras.utils.set_random_seed(0)
    (model, x), (other, _) = sequential(), functional()
    plain = numpy(other(x))
    graph_rewrite.apply(model)
    model(x)
    assert np.array_equal(numpy(other(x)), plain)

    class Spy(layers.Layer):
        def call(self, h):
            seen.append(numpy(other(x)))
            return h

    seen = []
    other.compile("sgd", "mse")
    trained_alone = other.train_on_batch(x, np.zeros((ROWS, 2)))
    assert np.isfinite(trained_alone)


def test_threads():
    """Each runs its own model, rewritten or not, and none meets another's casts."""
    keras.utils.set_random_seed(0)
    models = [sequential()[0] for _ in range(6)]
    x = floats(4)
    plain = [numpy(model(x)) for model in models]
    for model in models[::2]:
        graph_rewrite.apply(model)
    expected = [numpy(model(x)) for model in models]
    assert [np.array_equal(a, b) for a, b in zip(expected, plain, strict=True)] == [False, True] * 3
    wrong = []

    def run(model, expected):
        for _ in range(20):
            if not np.array_equal(numpy(model(x)), expected):
                wrong.append(model.name)

    threads = [
        threading.Thread(target=run, args=pair) for pair in zip(models, expected, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_threads_that_call_one_model_for_the_first_time():
    model, x = functional()
    graph_rewrite.apply(model)
    found, failed = [], []

    def run():
        try:
            found.append(numpy(model(x)))
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert all(np.array_equal(y, found[0]) for y in found)


class Fails(layers.Layer):
    fail = True

    def call(self, x):
        if self.fail:
            raise ArithmeticError("of the layer")
        return x


def test_an_error_inside_leaves_nothing_behind():
    keras.utils.set_random_seed(0)
    fails = Fails()
    fails.fail = False
    model = keras.Sequential([keras.Input((4,)), dense(), fails, layers.Dense(2)])
    x = floats(4)
    plain = numpy(model(x))
    graph_rewrite.apply(model)
    fails.fail = True
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="of the layer"):
            model(x)
        assert not hooks.is_dispatching()
        h = ops.matmul(ops.ones((1, 1)), ops.full((1, 1), 1.0001))
        assert float(h[0, 0]) == float(np.float32(1.0001))
    fails.fail = False
    first = numpy(model(x))
    assert_close(first, plain)
    fails.fail = True
    with pytest.raises(ArithmeticError, match="of the layer"):
        model(x)
    graph_rewrite.disable()
    fails.fail = False
    assert np.array_equal(numpy(model(x)), plain)


def test_disable_while_a_model_is_called():
    class Disables(layers.Layer):
        def call(self, x):
            if not isinstance(x, keras.KerasTensor):
                graph_rewrite.disable()
            return x

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), dense(), Disables(), layers.Dense(2)])
    plain = numpy(model(floats(4)))
    graph_rewrite.apply(model)
    assert_close(numpy(model(floats(4))), plain)
    assert np.array_equal(numpy(model(floats(4))), plain)


# -- and back --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch.compile, of itself
@pytest.mark.parametrize("jit", [False, True])
def test_disable_is_float32_to_the_bit(jit, quick_compile):
    """A model that was trained rewritten, and then disabled, goes on as one that never was."""
    keras.utils.set_random_seed(0)
    (model, x), (plain, _) = functional(), functional()
    y = targets(np.zeros((ROWS, 2)))
    optimizer = graph_rewrite.enable(keras.optimizers.SGD(0.05), loss_scale=1.0)
    model.compile(optimizer, "mse", jit_compile=jit)
    model.fit(x, y, batch_size=BATCH, verbose=0)
    model.evaluate(x, y, batch_size=BATCH, verbose=0)
    model.predict(x, batch_size=BATCH, verbose=0)
    graph_rewrite.disable()
    plain.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=jit)
    plain.set_weights(model.get_weights())
    for each in (model, plain):
        each.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    for ours, theirs in zip(model.get_weights(), plain.get_weights(), strict=True):
        assert np.array_equal(ours, theirs)
    said = [each.evaluate(x, y, batch_size=BATCH, verbose=0) for each in (model, plain)]
    assert said[0] == said[1]
    predicted = [each.predict(x, batch_size=BATCH, verbose=0) for each in (model, plain)]
    assert np.array_equal(*predicted)
    assert "call" not in vars(model)


def test_compiling_with_another_optimizer_undoes_it():
    model, x = functional()
    plain = numpy(model(x))
    model.compile(graph_rewrite.enable(keras.optimizers.SGD(0.05)), "mse")
    assert differs(model, x)
    model.compile("sgd", "mse")
    assert np.array_equal(numpy(model(x)), plain)
    model.predict(x, verbose=0)
    model.compile(graph_rewrite.enable(keras.optimizers.SGD(0.05)), "mse")
    assert differs(model, x)
    assert not np.array_equal(model.predict(x, verbose=0), plain)


def test_compiling_does_not_undo_apply():
    model, x = functional()
    graph_rewrite.apply(model)
    model.compile("sgd", "mse")
    assert differs(model, x)


def test_applying_twice_is_applying_once():
    model, x = functional()
    plain = numpy(model(x))
    graph_rewrite.apply(model)
    once = numpy(model(x))
    graph_rewrite.apply(model)
    assert np.array_equal(numpy(model(x)), once)
    graph_rewrite.disable()
    assert np.array_equal(numpy(model(x)), plain)


@pytest.mark.parametrize("way", ["apply", "compile", "report"])
def test_a_rewritten_model_can_be_collected(way):
    model, x = functional()
    if way == "compile":
        model.compile(graph_rewrite.enable(keras.optimizers.SGD(0.05)), "mse")
    elif way == "apply":
        graph_rewrite.apply(model)
    else:
        graph_rewrite.report(model)
    model(x)
    held = weakref.ref(model)
    del model
    gc.collect()
    assert held() is None


def test_results_can_be_collected():
    """Neither a plan nor a twin keeps the tensors of a call."""
    model, x = functional()
    graph_rewrite.apply(model)
    outputs = model(x)
    held = weakref.ref(outputs)
    del outputs
    gc.collect()
    assert held() is None
    before = len(gc.get_objects())
    for _ in range(20):
        model(x)
    gc.collect()
    assert len(gc.get_objects()) < before + 200


# -- ops that the plan does not know ---------------------------------------------------------------


class Branches(layers.Layer):
    """Takes another way from the second call on: ops that were not recorded."""

    def __init__(self):
        super().__init__()
        self.inside, self.other = dense(4, name="inside"), dense(4, name="other")
        self.way = 0

    def build(self, shape):
        self.inside.build(shape)
        self.other.build(shape)

    def call(self, x):
        x = self.inside(x)
        return x if self.way == 0 else ops.log(ops.exp(self.other(x) * 100.0))


def test_ops_that_were_not_recorded_are_counted():
    keras.utils.set_random_seed(0)
    branches = Branches()
    model = keras.Sequential([keras.Input((4,)), branches, layers.Dense(2)])
    x = floats(4)
    branches.way = 1
    plain = numpy(model(x))
    branches.way = 0
    graph_rewrite.apply(model)
    model(x)
    (plan,) = rewritten.state_of(model).plans.values()
    assert not plan.missed
    branches.way = 1
    assert_close(numpy(model(x)), plain)
    assert plan.missed == {("branches/other", "matmul"): 1}
    assert {row.op for row in rows(model) if row.layer.startswith("branches/other")} == set()
