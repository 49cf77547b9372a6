"""Models in which operations meet masks, shapes that are not known, and files without names.

    PYTHON generate.py OUT      for TF 1.15 (Python 3.7), 2.4 (3.8), 2.10 (3.10), 2.15 (3.11)

Each is compiled with Adam, trained two steps and saved: NAME.h5, and from 2.13 on NAME.keras.
NAME.npz holds inputs (x0, ...), targets (y0, ...), predictions (p0, ...), what `evaluate` gave, and
what it gave after one more step. Run it so that the byte code has no path of a machine: see
../operations/README.md.
"""

import os
import sys
from pathlib import Path

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import numpy as np
import tensorflow as tf

V = tuple(map(int, tf.__version__.split(".")[:2]))
L, K = tf.keras.layers, tf.keras.backend
MODELS = {}


def model(*shapes, since=(1, 15), words=False, loss="mse"):
    def added(build):
        MODELS[build.__name__] = (build, shapes, since, words, loss)
        return build

    return added


def embedded(tokens):
    return L.Embedding(5, 3, mask_zero=True)(tokens)


@model((4,), words=True)
def mask_ends_at_product(tokens):
    return L.Dense(2)(L.LSTM(3)(embedded(tokens) * 2.0))


@model((4,), words=True)
def mask_ends_at_joining(tokens):
    e = embedded(tokens)
    return L.Dense(2)(L.LSTM(3)(tf.concat([e, e * 3.0], -1)))


@model((4,), words=True)
def mask_ends_at_mean(tokens):
    return L.Dense(2)(tf.reduce_mean(L.LSTM(3, return_sequences=True)(embedded(tokens)), 1))


@model((4,), words=True)
def mask_ends_at_lambda(tokens):
    return L.Dense(2)(L.LSTM(3)(L.Lambda(lambda e: e / 255)(embedded(tokens))))


@model((6, 8))
def heads(x):
    q, k, v = (L.Dense(8)(x) for _ in range(3))

    def split(h):
        return tf.transpose(tf.reshape(h, (tf.shape(h)[0], -1, 2, 4)), (0, 2, 1, 3))

    scores = tf.matmul(split(q), split(k), transpose_b=True) / 2.0
    h = tf.matmul(tf.nn.softmax(scores), split(v))
    h = tf.reshape(tf.transpose(h, (0, 2, 1, 3)), (tf.shape(x)[0], -1, 8))
    return L.Dense(2)(tf.reduce_mean(h, 1))


@model((6,), (2,))
def added_losses(x, noise):
    mean, log_variance = L.Dense(2)(x), L.Dense(2)(x)
    z = mean + tf.exp(0.5 * log_variance) * noise
    y = L.Dense(3)(z)
    kl = 0.5 * tf.reduce_mean(tf.exp(log_variance) + mean**2 - 1.0 - log_variance)

    def add(made):
        made.add_loss(kl)
        made.add_loss(0.1 * tf.reduce_mean(tf.abs(y)))
        made.add_metric(tf.reduce_mean(z), name="mean_z", aggregation="mean")

    return y, add


@model((3,), loss={"a": "mse", "b": "mae"})
def losses_by_output(x):
    h = L.Dense(4)(x)
    a, b = L.Dense(2, name="a")(h), L.Dense(1, name="b")(h)

    def add(made):
        made.add_loss(0.1 * tf.reduce_mean(tf.abs(a)))
        made.add_loss(0.2 * tf.reduce_mean(b**2))

    return [a, b], add


@model((4,), (4,), since=(2, 4))
def inner_with_loss(x, y):
    given = tf.keras.Input((4,))
    h = L.Dense(3)(given)
    inner = tf.keras.Model(given, h, name="inner")
    inner.add_loss(0.1 * tf.reduce_mean(tf.square(h)))
    inner.add_metric(tf.reduce_mean(h), name="mean_h", aggregation="mean")
    return L.Dense(2)(inner(x) + inner(y))


@model((3, 4))
def in_time(x):
    return L.Dense(2)(L.Flatten()(L.TimeDistributed(L.Lambda(lambda t: t[:, ::2] * 2.0))(x)))


@model((8, 8, 3))
def windows(x):
    h = tf.reshape(x, (-1, 4, 2, 4, 2, 3))
    h = tf.reshape(tf.transpose(h, (0, 1, 3, 2, 4, 5)), (-1, 4, 3))
    h = L.Dense(4)(h)
    return L.Dense(2)(tf.reduce_mean(tf.reshape(h, (-1, 64, 4)), 1))


@model((None, 4))
def any_length(x):
    batch, length = tf.shape(x)[0], tf.shape(x)[1]
    h = L.Dense(3)(tf.reshape(x, [batch * length, 4]))
    return L.Dense(2)(tf.reduce_mean(tf.reshape(h, [batch, length, 3]), 1))


@model((8, 6))
def positions(x):
    place = tf.cast(tf.range(tf.shape(x)[1]), tf.float32)[:, tf.newaxis]
    angles = place / tf.pow(10000.0, 2 * tf.range(3, dtype=tf.float32)[tf.newaxis, :] / 6.0)
    waves = tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1)[tf.newaxis, ...]
    return L.Dense(2)(L.Flatten()(x + waves))


@model((5,))
def lists_beside_tensors(x):
    h = L.Dense(2)(x)
    a = L.Lambda(lambda t: (t * [2.0, 3.0]) + [-1.0, 1.0])(h)
    return L.Dense(2)(L.Lambda(lambda t: [1.0, 2.0] + t - [0.5, 0.5])(a))  # noqa: RUF005


@model((5,))
def floors(x):
    h = L.Dense(4)(x)
    return L.Dense(2)(h // 0.5 + h)


@model((5,), since=(2, 4))
def without_bounds(x):
    h = L.Dense(4)(x)
    return L.Dense(2)(tf.where(h > 0.0, tf.maximum(h, -np.inf), h))


@model((6, 6, 2))
def convolved(x):
    kernel = tf.constant(np.linspace(-1, 1, 36).reshape(3, 3, 2, 2).astype("float32"))
    h = L.Lambda(lambda t: tf.nn.relu(t))(L.Conv2D(2, 1)(x))
    return L.Dense(2)(L.Flatten()(tf.nn.conv2d(h, kernel, strides=1, padding="SAME")))


def write(out, name):
    build, shapes, _, words, loss = MODELS[name]
    K.clear_session()
    tf.random.set_seed(11) if V >= (2, 0) else tf.compat.v1.set_random_seed(11)
    random = np.random.RandomState(12)
    inputs = [
        L.Input(shape, name=f"in{i}", dtype="int32" if words else "float32")
        for i, shape in enumerate(shapes)
    ]
    made = build(*inputs)
    outputs, add = made if isinstance(made, tuple) else (made, None)
    net = tf.keras.Model(inputs if len(inputs) > 1 else inputs[0], outputs)
    if add is not None:
        add(net)
    net.compile(tf.keras.optimizers.Adam(0.01), loss)
    xs = [
        np.array([[1, 2, 0, 0], [3, 0, 0, 0], [1, 1, 1, 1], [2, 3, 1, 0]], "int32")
        if words
        else random.normal(size=(4, *(size or 3 for size in shape))).astype("float32")
        for shape in shapes
    ]
    x = xs if len(xs) > 1 else xs[0]
    listed = isinstance(outputs, list)
    shapes = [one.shape for one in (net.predict(x) if listed else [net.predict(x)])]
    ys = [random.normal(size=shape).astype("float32") for shape in shapes]
    y = ys if listed else ys[0]
    for _ in range(2):
        net.train_on_batch(x, y)
    predicted = net.predict(x)
    found = {f"p{i}": one for i, one in enumerate(predicted if listed else [predicted])}
    found["evaluated"] = np.ravel(net.evaluate(x, y, verbose=0, batch_size=4))
    net.save(f"{out}/{name}.h5")
    if V >= (2, 13):
        net.save(f"{out}/{name}.keras")
    net.train_on_batch(x, y)
    found["later"] = np.ravel(net.evaluate(x, y, verbose=0, batch_size=4))
    found.update({f"x{i}": one for i, one in enumerate(xs)})
    found.update({f"y{i}": one for i, one in enumerate(ys)})
    np.savez_compressed(f"{out}/{name}.npz", **found)


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    for name, (_, _, since, _, _) in MODELS.items():
        if since <= V:
            try:
                write(sys.argv[1], name)
            except Exception as error:  # noqa: BLE001 - what a version cannot do
                print(tf.__version__, name, "not written:", type(error).__name__, str(error)[:200])
