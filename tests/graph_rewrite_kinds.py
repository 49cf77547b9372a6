"""A small model of every kind, and a way to train it with and without the graph rewrite.

Each function of `KINDS` returns a model and its inputs; targets are made to fit.
"""

import keras
import numpy as np
from keras import layers, ops

from keras_mp import graph_rewrite
from keras_mp.graph_rewrite import rewritten

BACKEND = keras.backend.backend()
ROWS, BATCH = 16, 8


def floats(*shape):
    return np.random.RandomState(0).randn(ROWS, *shape).astype("float32")


def integers(below, *shape):
    return np.random.RandomState(0).randint(0, below, (ROWS, *shape)).astype("int32")


def dense(units=8, activation="tanh", **options):
    return layers.Dense(units, activation=activation, **options)


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
    """Creates its layers in `build`."""

    def build(self, shape):
        self.first, self.last = dense(name="first"), layers.Dense(2, name="last")
        self.first.build(shape)
        self.last.build((*shape[:-1], 8))

    def call(self, x):
        return self.last(ops.relu(self.first(x)))


class Compute(layers.Layer):
    """Computes a function."""

    def __init__(self, function, **options):
        super().__init__(**options)
        self.function = function

    def call(self, *inputs):
        return self.function(*inputs)


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
    """Calls the framework directly: recorded on PyTorch, and on JAX in a compiled function."""

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


def attention(masked=False, **options):
    def make():
        x = inputs = keras.Input((5, 4))
        mask = keras.Input((5, 5), dtype="bool") if masked else None
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
        layer = KerasOps()
    return with_layer(layer, 4)


def lora():
    model, x = sequential()
    model.layers[0].enable_lora(2)
    return model, x


class Twice(layers.Layer):
    def __init__(self):
        super().__init__()
        self.inside = dense()

    def build(self, shape):
        self.inside.build(shape)

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
    """Returns a model after two epochs, the results of fit and evaluate, and its predictions."""
    keras.utils.set_random_seed(0)
    model, x = make()
    symbols = keras.tree.map_structure(lambda x: keras.KerasTensor(x.shape, x.dtype.name), x)
    y = targets(model(symbols))
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


def rows(model, inputs=None, training=False):
    return graph_rewrite.report(model, inputs, training=training).rows


def low_ops(model):
    """Returns the ops of all calls so far that computed in float16."""
    found = set()
    for plan in rewritten.state_of(model).plans.values():
        pairs = zip(plan.graph.ops, plan.decisions, strict=True)
        found |= {op.name for op, decision in pairs if decision.low}
    return found


def differs(model, x):
    """Returns whether the rewritten model computes differently from the restored one."""
    ours = numpy(model(x))
    before = rewritten.state_of(model)
    rewritten.restore(model)
    theirs = numpy(model(x))
    rewritten.rewrite(model, before.options, before.by_compile)
    return not all(map(np.array_equal, *map(keras.tree.flatten, (ours, theirs))))
