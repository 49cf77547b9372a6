"""Trainings with several faults in float16, as small as their kinds go: (model, loss, x, y).

JAX has no attention in float16 on a CPU but that with dropout.
"""

import keras
import numpy as np
from keras import layers, ops

from tests.sick_models import (
    Cosine,
    Exponential,
    L2Norm,
    LogLoss,
    Masked,
    Rate,
    SmoothedLog,
    Statistics,
    SumPooling,
    head,
    mean_of,
    normal,
)


def large(value):
    return keras.initializers.Constant(value)


def spread(size):
    """Returns an initializer: numbers from half a size to one and a half."""

    def start(shape, dtype=None):
        numbers = np.linspace(0.5, 1.5, int(np.prod(shape))).reshape(shape)
        return ops.convert_to_tensor(size * numbers, dtype)

    return start


def norm_and_log():
    """An epsilon that is 0 in a norm, and another in a loss."""
    x = normal(16, 8)
    x[::7] = 0
    inputs = keras.Input((8,))
    h = L2Norm(1e-8, name="l2norm")(layers.Dense(8, use_bias=False, name="h1")(inputs))
    p = layers.Dense(1, activation="sigmoid", kernel_initializer=large(4.5), name="prob")(h)
    y = (x.sum(1, keepdims=True) > 0).astype("float32")
    return keras.Model(inputs, p, name="net"), LogLoss(1e-8, dtype="float16", name="log"), x, y


def pooled_images():
    """A sum over a picture, then statistics of large values."""
    x = np.abs(normal(4, 16, 16, 2)) * 600
    inputs = keras.Input((16, 16, 2))
    h = layers.Conv2D(4, 1, kernel_initializer=spread(1.0), name="conv")(inputs)
    h = SumPooling(name="pool")(h)
    h = Statistics(name="statistics")(h)
    out = layers.Dense(1, kernel_initializer=large(1e-6), dtype="float32", name="head")
    return keras.Model(inputs, out(h), name="net"), "mae", x, np.ones((4, 1), "float32")


def masked_attention():
    """A mask of -1e9, and scores of attention beyond float16."""
    x = normal(4, 6, 8) * 600
    inputs = keras.Input((6, 8))
    h = layers.MultiHeadAttention(1, 8, dropout=0.1, name="attend")(inputs, inputs)
    h = layers.LayerNormalization(name="norm")(h)
    h = Masked(name="masked")(layers.Dense(4, name="scores")(h))
    h = layers.GlobalAveragePooling1D(name="pool")(h)
    return keras.Model(inputs, head()(h), name="net"), "mse", x, mean_of(x)


class Block(layers.Layer):
    """Of a transformer: attention and a feed-forward part, each with what it is given added."""

    def __init__(self, width, size=None, **kwargs):
        super().__init__(**kwargs)
        start = {} if size is None else {"kernel_initializer": spread(size)}
        self.attend = layers.MultiHeadAttention(2, width // 2, dropout=0.1, name="attend")
        self.norm = layers.LayerNormalization(name="norm")
        self.up = layers.Dense(2 * width, activation="relu", name="up")
        self.down = layers.Dense(width, name="down", **start)

    def build(self, shape):
        self.attend.build(shape, shape)
        self.norm.build(shape)
        self.up.build(shape)
        self.down.build((*shape[:-1], 2 * shape[-1]))

    def call(self, x):
        x = x + self.attend(x, x)
        return x + self.down(self.up(self.norm(x)))


def vision_transformer():
    """One of two blocks is scaled, so that its sum leaves float16."""
    x = normal(4, 8, 8, 1)
    inputs = keras.Input((8, 8, 1))
    h = layers.Conv2D(8, 4, strides=4, name="patches")(inputs)
    h = layers.Reshape((4, 8), name="tokens")(h)
    h = Block(8, size=4e4, name="block1")(h)
    h = layers.LayerNormalization(name="norm")(h)
    h = Block(8, name="block2")(h)
    h = layers.GlobalAveragePooling1D(name="pool")(h)
    return keras.Model(inputs, head()(h), name="vit"), "mse", x, mean_of(x)


def language_model():
    """Embeddings that add up beyond float16."""
    x = np.random.default_rng(0).integers(0, 9, (4, 6))
    inputs = keras.Input((6,), dtype="int32")
    h = layers.Embedding(9, 8, embeddings_initializer=large(3e4), name="words")(inputs)
    h = layers.Add(name="add")([h, h, h])
    h = layers.LayerNormalization(name="norm")(h)
    h = Block(8, name="block")(h)
    logits = layers.Dense(9, dtype="float32", name="logits")(h)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras.Model(inputs, logits, name="lm"), loss, x, np.roll(x, -1, 1)


def u_net():
    """One convolution is scaled; what is joined to it is not."""
    x = np.abs(normal(2, 8, 8, 1)) + 1
    inputs = keras.Input((8, 8, 1))
    down = layers.Conv2D(4, 3, padding="same", activation="relu", name="down")(inputs)
    h = layers.MaxPooling2D(name="half")(down)
    h = layers.Conv2D(4, 1, kernel_initializer=spread(4e4), name="scaled")(h)
    h = layers.LayerNormalization(name="norm")(h)
    h = layers.UpSampling2D(name="twice")(h)
    h = layers.Concatenate(name="join")([down, h])
    out = layers.Conv2D(1, 1, dtype="float32", name="out")(h)
    return keras.Model(inputs, out, name="unet"), "mse", x, x / 2


def discriminator():
    """A GAN's: statistics of a batch of large values, and exp in its head."""
    x = normal(8, 8) * 2000
    inputs = keras.Input((8,))
    h = layers.Dense(8, kernel_initializer="identity", name="first")(inputs)
    h = Statistics(name="statistics")(h)
    h = layers.Rescaling(1 / 500, name="smaller", dtype="float32")(h)
    h = layers.Dense(1, kernel_initializer="ones", bias_initializer=large(12.0), name="score")(h)
    h = layers.Activation("softplus", dtype="float32", name="positive")(h)
    return keras.Model(inputs, h, name="critic"), "mae", x, np.ones((8, 1), "float32")


def recurrent_encoder():
    """A recurrence that grows five times a step, then a mask of -1e9."""
    x = np.abs(normal(4, 8, 4)) + 1
    inputs = keras.Input((8, 4))
    h = layers.SimpleRNN(
        4, activation="relu", recurrent_initializer=keras.initializers.Identity(5.0),
        kernel_initializer="ones", name="rnn",
    )(inputs)  # fmt: skip
    h = layers.LayerNormalization(name="norm")(h)
    h = Masked(name="masked")(layers.Dense(4, name="scores")(h))
    return keras.Model(inputs, head()(h), name="net"), "mse", x, mean_of(x)


def counts():
    """Inputs beyond float16, and a head that predicts counts by exp."""
    x = np.abs(normal(8, 4)) * 1e5 + 1e5
    inputs = keras.Input((4,))
    h = Rate(name="rate")(inputs)
    h = layers.Dense(1, bias_initializer=large(12.0), name="logarithm")(h)
    h = Exponential(name="count")(h)
    return keras.Model(inputs, h, name="net"), "mae", x, np.full((8, 1), 1.7e5, "float32")


def pairs():
    """The cosine of vectors that may be 0, and a loss in float16 of what is nearly certain."""
    x = normal(8, 4)
    x[::3] = 0
    inputs = keras.Input((4,))
    sides = [layers.Dense(4, use_bias=False, name=name)(inputs) for name in ("a", "b")]
    h = Cosine(1e-8, name="cosine")(sides)
    start = {"kernel_initializer": "zeros", "bias_initializer": large(9.0)}
    p = layers.Dense(1, activation="sigmoid", **start, name="prob")(h)
    y = np.ones((8, 1), "float32")
    return keras.Model(inputs, p, name="net"), SmoothedLog(dtype="float16", name="smoothed"), x, y


# What it is -> how to make it.
FAULTY = {
    "norm and log": norm_and_log,
    "pooled images": pooled_images,
    "masked attention": masked_attention,
    "vision transformer": vision_transformer,
    "language model": language_model,
    "U-Net": u_net,
    "discriminator": discriminator,
    "recurrent encoder": recurrent_encoder,
    "counts": counts,
    "pairs": pairs,
}
