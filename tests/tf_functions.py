"""What a layer may compute by TensorFlow's own functions: `compute(x, w, v)` of two weights."""

import keras
import tensorflow as tf
from keras import layers

WIDTH = 16


class Own(layers.Layer):
    """Has two matrices; `compute(x, w, v)` is its call."""

    def __init__(self, compute, **kwargs):
        super().__init__(**kwargs)
        self.compute = compute

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], WIDTH), name="w")
        self.v = self.add_weight(shape=(WIDTH, WIDTH), name="v")

    def call(self, x):
        return self.compute(x, self.w.value, self.v.value)


def perceptron(x, w, v):
    return tf.matmul(tf.tanh(tf.nn.bias_add(tf.matmul(x, w), v[0])), v)


def broadcast(x, w, v):
    return tf.matmul(tf.nn.relu(tf.add(tf.matmul(x, w), v[0])) * 0.5, v)


def normalized(x, w, v):
    x = tf.math.l2_normalize(tf.matmul(x, w), -1)
    return tf.gather(tf.matmul(x, v), list(range(WIDTH)), axis=1)


def batch_normalized(x, w, v):
    h = tf.reshape(tf.matmul(x, w), [-1, 4, 4, 1])
    h, mean, _ = tf.compat.v1.nn.fused_batch_norm(h, tf.ones(1), tf.zeros(1), epsilon=1e-3)
    return tf.matmul(tf.reshape(h, [-1, WIDTH]), v) + mean


def silu(x, w, v):
    return tf.matmul(tf.nn.silu(tf.matmul(x, w)), v)


@tf.function
def _chosen_and_repeated(x, w):
    if tf.reduce_sum(x) > 0.0:  # noqa: SIM108 - autograph makes a tf.cond of it
        x = tf.tanh(tf.matmul(x, w))
    else:
        x = tf.matmul(x, w)
    for _ in tf.range(3):
        tf.autograph.experimental.set_loop_options(maximum_iterations=3)
        x = tf.tanh(tf.matmul(x, w)) + 0.1 * x
    return x


def function(x, w, v):
    return tf.matmul(_chosen_and_repeated(x, tf.convert_to_tensor(w)), v)


def cond(x, w, v):
    return tf.cond(
        tf.reduce_sum(x) < 0.0,
        lambda: tf.exp(tf.matmul(x, v)),
        lambda: tf.tanh(tf.matmul(tf.matmul(x, w), v)),
    )


def switch_case(x, w, v):
    index = tf.cast(tf.reduce_sum(x) > 0.0, "int32")
    return tf.switch_case(index, [lambda: tf.exp(x), lambda: tf.matmul(tf.matmul(x, w), v)])


def while_loop(x, w, v):
    def step(i, x, total):
        return i + 1, tf.tanh(tf.matmul(x, w)), total + x

    state = 0, x, tf.zeros_like(x)
    _, x, total = tf.while_loop(lambda i, *_: i < 4, step, state, maximum_iterations=4)
    return tf.matmul(x, v) + total


def map_fn(x, w, v):
    return tf.matmul(tf.map_fn(lambda row: tf.matmul(row[None], w)[0], x), v)


def scan(x, w, v):
    def step(state, row):
        return tf.tanh(tf.matmul(state, w) + row)

    return tf.matmul(tf.scan(step, x[:, None], initializer=tf.zeros((1, WIDTH)))[:, 0], v)


@tf.custom_gradient
def _own_gradient(x):
    y = tf.tanh(x)
    return y, lambda dy: dy * (1.0 - y * y)


def custom_gradient(x, w, v):
    return tf.matmul(_own_gradient(tf.matmul(x, w)), v)


def vectorized_map(x, w, v):
    return tf.matmul(tf.vectorized_map(lambda row: tf.tanh(tf.linalg.matvec(w, row)), x), v)


def gradient(x, w, v):
    h = tf.matmul(x, w)
    with tf.GradientTape() as tape:
        tape.watch(h)
        y = tf.tanh(tf.matmul(h, v))
    return tf.matmul(tape.gradient(y, h), v)


def batch(x, w, v):
    x = tf.tanh(tf.matmul(tf.reshape(tf.tile(x, [1, 2]), [-1, 2, WIDTH]), w))
    return tf.matmul(tf.reduce_mean(x, 1), v)


_FUNCTION = tf.function(lambda x: tf.tanh(tf.matmul(x, tf.eye(WIDTH))))


def graph(x, w, v):
    concrete = _FUNCTION.get_concrete_function(tf.TensorSpec((None, WIDTH)))
    return tf.matmul(concrete(x), tf.matmul(w, v))


ALL = {
    each.__name__: each
    for each in (
        *(perceptron, broadcast, normalized, batch_normalized, silu, function, cond, switch_case),
        *(while_loop, map_fn, scan, custom_gradient, vectorized_map, graph, gradient, batch),
    )
}


def model(compute):
    """Returns a model of vectors with the layer "own" between two dense ones."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((WIDTH,))
    x = layers.Dense(WIDTH, activation="relu", name="first")(inputs)
    x = layers.Dense(3, name="last")(Own(compute, name="own")(x))
    return keras.Model(inputs, x, name="model")
