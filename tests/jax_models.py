"""Models whose layers call jax.numpy, jax.nn and jax.lax, and the same models in keras.ops."""

import jax
import jax.numpy as jnp
import keras
from jax import lax
from keras import layers, ops

CLASSES = 3


class Own(layers.Layer):
    """Has two weights; `compute(x, w, v)` is its call."""

    def __init__(self, compute, width=16, out=8, **kwargs):
        super().__init__(**kwargs)
        self.compute, self.width, self.out = compute, width, out

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], self.width), name="w")
        self.v = self.add_weight(shape=(self.width, self.out), name="v")

    def call(self, x):
        return self.compute(x, self.w.value, self.v.value)


class Conv(Own):
    def build(self, shape):
        self.w = self.add_weight(shape=(3, 3, shape[-1], self.width), name="w")
        self.v = self.add_weight(shape=(3, 3, self.width, self.out), name="v")


IMAGES = ("NHWC", "HWIO", "NHWC")


def perceptron(x, w, v):
    return jnp.matmul(jnp.tanh(jnp.matmul(x, w)), v)


def perceptron_twin(x, w, v):
    return ops.matmul(ops.tanh(ops.matmul(x, w)), v)


def activations(x, w, v):
    return jnp.dot(jax.nn.relu6(jax.nn.relu(jnp.dot(x, w))), v)


def activations_twin(x, w, v):
    return ops.dot(ops.relu6(ops.relu(ops.dot(x, w))), v)


def normalized(x, w, v):
    x = jnp.matmul(x, w)
    x = jnp.subtract(x, jnp.mean(x, -1, keepdims=True))
    return jnp.matmul(jax.nn.sigmoid(x), v)


def normalized_twin(x, w, v):
    x = ops.matmul(x, w)
    x = ops.subtract(x, ops.mean(x, -1, keepdims=True))
    return ops.matmul(ops.sigmoid(x), v)


def exponential(x, w, v):
    x = jnp.exp(jnp.negative(jnp.abs(jnp.matmul(x, w))))
    return jnp.matmul(jnp.sqrt(x), v)


def exponential_twin(x, w, v):
    x = ops.exp(ops.negative(ops.abs(ops.matmul(x, w))))
    return ops.matmul(ops.sqrt(x), v)


def convolution(x, w, v):
    x = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=IMAGES))
    return lax.conv_general_dilated(x, v, (1, 1), "VALID", dimension_numbers=IMAGES)


def convolution_twin(x, w, v):
    return ops.conv(ops.relu(ops.conv(x, w, 1, "same")), v, 1, "valid")


def jitted(x, w, v):
    return jax.jit(perceptron)(x, w, v)


def mapped(x, w, v):
    return jax.vmap(perceptron, in_axes=(0, None, None))(x, w, v)


def recomputed(x, w, v):
    return jax.checkpoint(perceptron)(x, w, v)


# Layer -> (what JAX computes, what keras.ops do); the last three have the twin of what is inside.
PAIRS = {
    "perceptron": (perceptron, perceptron_twin),
    "activations": (activations, activations_twin),
    "normalized": (normalized, normalized_twin),
    "exponential": (exponential, exponential_twin),
    "convolution": (convolution, convolution_twin),
    "jit": (jitted, perceptron_twin),
    "vmap": (mapped, perceptron_twin),
    "checkpoint": (recomputed, perceptron_twin),
}


def model(name, twin=False):
    """Returns a model of images (8, 8, 1) with `CLASSES` logits."""
    keras.utils.set_random_seed(0)
    compute = PAIRS[name][twin]
    parts = [layers.Flatten(), layers.Dense(16, activation="relu", name="first")]
    parts.append(Own(compute, name="own"))
    if name == "convolution":
        parts = [Conv(compute, name="own"), layers.GlobalAveragePooling2D(name="pool")]
    parts.append(layers.Dense(CLASSES, name="last"))
    return keras.Sequential([keras.Input((8, 8, 1)), *parts], name="model")


def scanned(x, w, v):
    def step(state, each):
        return jnp.tanh(jnp.matmul(state, v) + each), state

    rows = jnp.moveaxis(jnp.matmul(x, w), 1, 0)
    return lax.scan(step, jnp.zeros(rows.shape[1:]), rows)[0]


def recurrent():
    """Returns a model with a `jax.lax.scan`."""
    keras.utils.set_random_seed(0)
    parts = [layers.Reshape((8, 8)), Own(scanned, 16, 16, name="own")]
    parts.append(layers.Dense(CLASSES, name="last"))
    return keras.Sequential([keras.Input((8, 8, 1)), *parts], name="model")
