"""Typical trainings that diverge in float16, each with the place and the remedy."""

from collections.abc import Callable
from dataclasses import dataclass, field

import keras
import numpy as np
from keras import layers, ops


@dataclass
class Remedied:
    """The change that the report should suggest, as in the program.

    Attributes:
        by_hand: Names of layers to create with dtype="float32".
        loss_dtype, epsilon, cast: As in the code, or as in the remedy.
    """

    by_hand: tuple[str, ...] = ()
    loss_dtype: str | None = "float16"
    epsilon: float = 1e-8
    cast: str = "float16"

    def named(self, name):
        return {"name": name, **({"dtype": "float32"} if name in self.by_hand else {})}


@dataclass(frozen=True)
class Sick:
    """A training that diverges.

    Attributes:
        make: Returns the model, the loss, x and y.
        layer, op: The place; any of several ops.
        code: A part of the source line.
        where: The part of the step.
        kinds: The remedies, one of which must be given: "layers" or a kind of `Remedy`.
        scale: The loss scale of the training.
    """

    make: Callable
    layer: str
    op: tuple[str | None, ...]
    code: str
    where: str = "forward"
    kinds: tuple[str, ...] = field(default=("layers",))
    scale: float = 4.0


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def head():
    return layers.Dense(1, dtype="float32", name="head")


def mean_of(x):
    return x.reshape(len(x), -1).mean(1, keepdims=True)


class Attention(layers.Layer):
    """Without 1/sqrt(d)."""

    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.q, self.k, self.v = (layers.Dense(width, name=name) for name in "qkv")

    def build(self, shape):
        for layer in (self.q, self.k, self.v):
            layer.build(shape)

    def call(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        scores = ops.matmul(q, ops.transpose(k, (0, 2, 1)))
        return ops.matmul(ops.softmax(scores, -1), v)


def attention(to):
    x = normal(8, 6, 8) * 200
    inputs = keras.Input((6, 8))
    h = layers.Dense(16, **to.named("embed"))(inputs)
    h = layers.GlobalAveragePooling1D(name="pool")(Attention(16, **to.named("attention"))(h))
    return keras.Model(inputs, head()(h)), "mse", x, mean_of(x) / 200


def library_attention(to):
    x = normal(4, 6, 8) * 600
    inputs = keras.Input((6, 8))
    # With dropout it has a softmax that no key of a map reaches.
    attend = layers.MultiHeadAttention(1, 8, dropout=0.1, **to.named("attend"))
    h = layers.GlobalAveragePooling1D(name="pool", dtype="float32")(attend(inputs, inputs))
    return keras.Model(inputs, head()(h)), "mse", x, mean_of(x)


class LogLoss(keras.losses.Loss):
    def __init__(self, epsilon, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def call(self, y, p):
        e = self.epsilon
        return -ops.mean(y * ops.log(p + e) + (1 - y) * ops.log(1 - p + e), -1)


def log_of_zero(to):
    x = normal(16, 8) * 3
    y = (x.sum(1, keepdims=True) > 0).astype("float32")
    inputs = keras.Input((8,))
    stretch = keras.initializers.Constant(0.5)
    p = layers.Dense(1, activation="sigmoid", kernel_initializer=stretch, **to.named("prob"))(
        inputs
    )
    return keras.Model(inputs, p), LogLoss(to.epsilon, dtype=to.loss_dtype, name="log"), x, y


class SmoothedLog(keras.losses.Loss):
    def call(self, y, p):
        y = y * 0.9 + 0.05
        return -ops.mean(y * ops.log(p) + (1 - y) * ops.log(1 - p), -1)


def label_smoothing(to):
    x = np.ones((8, 4), "float32")
    inputs = keras.Input((4,))
    large = keras.initializers.Constant(2.5)
    p = layers.Dense(1, activation="sigmoid", kernel_initializer=large, **to.named("prob"))
    return (
        keras.Model(inputs, p(inputs)),
        SmoothedLog(dtype=to.loss_dtype, name="smoothed"),
        x,
        np.ones((8, 1), "float32"),
    )


class L2Norm(layers.Layer):
    def __init__(self, epsilon, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def call(self, x):
        return x / ops.sqrt(ops.sum(x * x, -1, keepdims=True) + self.epsilon)


def norm(to):
    x = normal(16, 8)
    x[::7] = 0
    inputs = keras.Input((8,))
    h = layers.Dense(8, use_bias=False, activation="relu", **to.named("h1"))(inputs)
    h = L2Norm(to.epsilon, **to.named("l2norm"))(h)
    return keras.Model(inputs, head()(h)), "mse", x, x.sum(1, keepdims=True)


class Cosine(layers.Layer):
    def __init__(self, epsilon, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def call(self, pair):
        a, b = (
            x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), -1, keepdims=True), self.epsilon))
            for x in pair
        )
        return ops.sum(a * b, -1, keepdims=True)


def cosine_of_zero(to):
    x = normal(8, 4)
    x[::3] = 0
    inputs = keras.Input((4,))
    sides = [layers.Dense(4, use_bias=False, **to.named(name))(inputs) for name in ("a", "b")]
    h = Cosine(to.epsilon, **to.named("cosine"))(sides)
    return keras.Model(inputs, head()(h)), "mse", x, mean_of(x)


def relu_rnn(to):
    x = np.abs(normal(4, 8, 4)) + 1
    inputs = keras.Input((8, 4))
    grows = keras.initializers.Identity(5.0)
    h = layers.SimpleRNN(
        4, activation="relu", recurrent_initializer=grows, kernel_initializer="ones",
        return_sequences=True, **to.named("rnn1"),
    )(inputs)  # fmt: skip
    h = layers.SimpleRNN(2, kernel_initializer="zeros", **to.named("rnn2"))(h)
    return keras.Model(inputs, head()(h)), "mse", x, mean_of(x)


def exploding_gradients(to):
    """Small numbers forward, whose gradients grow in each time step back."""
    x = normal(4, 9, 4) * 1e-3
    inputs = keras.Input((9, 4))
    grows = keras.initializers.Identity(2.5)
    h = layers.SimpleRNN(
        4, activation="relu", recurrent_initializer=grows, bias_initializer="zeros",
        **to.named("rnn"),
    )(inputs)  # fmt: skip
    return keras.Model(inputs, head()(h)), "mse", x, mean_of(x) + 1


def loss_in_float16(to):
    x = normal(16, 8)
    y = x.sum(1, keepdims=True) * 200
    inputs = keras.Input((8,))
    outputs = layers.Dense(1, **to.named("out"))(inputs)

    def squared(y, p):
        return ops.mean(ops.square(ops.cast(y, to.cast) - ops.cast(p, to.cast)))

    return keras.Model(inputs, outputs), squared, x, y


class Masked(layers.Layer):
    def call(self, x):
        mask = ops.cast(ops.any(x > 100, -1, keepdims=True), x.dtype)  # none: all is padding
        return ops.softmax(x + (1 - mask) * -1e9, -1)


def mask(to):
    x = normal(8, 4)
    inputs = keras.Input((4,))
    h = Masked(**to.named("masked"))(layers.Dense(4, **to.named("scores"))(inputs))
    return keras.Model(inputs, head()(h)), "mse", x, mean_of(x)


class Statistics(layers.Layer):
    def call(self, x):
        mean = ops.mean(x, -1, keepdims=True)
        variance = ops.mean(ops.square(x - mean), -1, keepdims=True)
        return ops.concatenate([mean, ops.sqrt(variance)], -1)


def variance(to):
    x = normal(8, 8) * 2000
    inputs = keras.Input((8,))
    h = layers.Dense(8, kernel_initializer="identity", **to.named("first"))(inputs)
    h = Statistics(**to.named("statistics"))(h)
    return keras.Model(inputs, head()(h)), "mse", x, mean_of(x) / 2000


class SumPooling(layers.Layer):
    def call(self, x):
        return ops.sum(x, axis=(1, 2))


def sum_pooling(to):
    x = np.abs(normal(4, 32, 32, 2)) * 300
    inputs = keras.Input((32, 32, 2))
    h = layers.Conv2D(2, 1, kernel_initializer="ones", **to.named("conv"))(inputs)
    h = SumPooling(**to.named("pool"))(h)
    out = layers.Dense(1, kernel_initializer="zeros", dtype="float32", name="head")
    return keras.Model(inputs, out(h)), "mse", x, np.ones((4, 1), "float32")


class BagOfWords(layers.Layer):
    def call(self, x):
        return ops.sum(x, axis=1)


def embeddings(to):
    x = np.random.default_rng(0).integers(0, 5, (4, 40))
    inputs = keras.Input((40,), dtype="int32")
    large = keras.initializers.Constant(2000.0)
    h = layers.Embedding(5, 4, embeddings_initializer=large, **to.named("table"))(inputs)
    h = BagOfWords(**to.named("bag"))(h)
    out = layers.Dense(1, kernel_initializer="zeros", dtype="float32", name="head")
    return keras.Model(inputs, out(h)), "mse", x, np.ones((4, 1), "float32")


class Rate(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = layers.Dense(4, kernel_initializer="zeros", name="first")

    def build(self, shape):
        self.first.build(shape)

    def call(self, x):
        return ops.relu(self.first(x))


def inputs_beyond(to):
    x = np.abs(normal(8, 4)) * 1e5 + 1e5
    inputs = keras.Input((4,))
    h = Rate(**to.named("rate"))(inputs)
    return keras.Model(inputs, head()(h)), "mse", x, np.ones((8, 1), "float32")


class Exponential(layers.Layer):
    def call(self, x):
        return ops.exp(x) + ops.softplus(x)


def exponential_head(to):
    x = np.ones((8, 4), "float32")
    inputs = keras.Input((4,))
    rate = keras.initializers.Constant(3.0)
    h = layers.Dense(1, kernel_initializer=rate, **to.named("rate"))(inputs)
    h = Exponential(**to.named("exponential"))(h)
    return keras.Model(inputs, h), "mae", x, np.full((8, 1), 160000.0, "float32")


RNN = ("matmul", "add", None)
SICK = {
    "attention": Sick(attention, "attention", ("matmul",), "scores = ops.matmul(q"),
    "MultiHeadAttention": Sick(
        library_attention, "attend", ("matmul", "einsum", "cast", "true_divide", "multiply"), ""
    ),
    "log of 0": Sick(
        log_of_zero, "log", ("log",), "ops.log(p + e)", "loss", ("dtype", "epsilon")
    ),
    "label smoothing": Sick(
        label_smoothing, "smoothed", ("log",), "ops.log(1 - p)", "loss", ("dtype",)
    ),
    "norm": Sick(
        norm, "l2norm", ("true_divide", "divide"), "self.epsilon)", kinds=("layers", "epsilon")
    ),
    "cosine of zero vectors": Sick(
        cosine_of_zero, "cosine", ("rsqrt",), "x * ops.rsqrt(", kinds=("epsilon", "layers")
    ),
    "relu in a loop": Sick(relu_rnn, "rnn1/simple_rnn_cell", RNN, ""),
    "exploding gradients": Sick(
        exploding_gradients, "rnn/simple_rnn_cell", ("matmul", "add", "cast", None), "", "backward",
        ("loss scale",), 2.0**15,
    ),
    "loss in float16": Sick(
        loss_in_float16, "squared", ("square",), "ops.square(ops.cast(y", "loss", ("source line",)
    ),
    "mask of -1e9": Sick(mask, "masked", ("multiply",), "* -1e9"),
    "variance": Sick(variance, "statistics", ("square",), "ops.square(x - mean)"),
    "sum pooling": Sick(sum_pooling, "pool", ("sum",), "ops.sum(x, axis=(1, 2))"),
    "embeddings": Sick(embeddings, "bag", ("sum",), "ops.sum(x, axis=1)"),
    "inputs beyond 65504": Sick(inputs_beyond, "rate", ("cast",), "def call(self, x):"),
    "exponential": Sick(exponential_head, "exponential", ("exp",), "ops.exp(x)"),
}  # fmt: skip
