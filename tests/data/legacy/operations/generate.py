"""Models with TensorFlow operations on Keras tensors, and with Lambda layers, by an old TensorFlow.

    PYTHON generate.py OUT

For TF 1.15 (Python 3.7), 2.3 and 2.4 (3.8), 2.6 (3.9), 2.10 (3.10), 2.15 (3.11): see README.md.

A model is compiled with a dynamic loss scale where that TensorFlow has one, trained two steps, and
saved as NAME.h5 (from 2.13 on as NAME.keras, too). NAME.npz holds inputs (x0, x1, ...), targets y,
predictions p and the loss of `evaluate`.
"""

import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np
import tensorflow as tf

V = tuple(map(int, tf.__version__.split(".")[:2]))
L, K = tf.keras.layers, tf.keras.backend


def output(h, n=2):
    return L.Dense(n, name="o", dtype="float32")(h)


def affine(x):
    h = L.Dense(4, name="d")(x)
    return output((2.0 * h - 0.5) / 4.0 + 1.0)


def minus_and_compare(x):
    h = L.Dense(6, name="d")(x)
    return output(-h * tf.cast(h > 0.1, h.dtype) - tf.minimum(h, 0.2))


def head_of_sequence(x):
    return output(L.Dense(4, name="d")(x)[:, 0] + x[:, -1, :4])


def reshape_and_swap(x):
    h = tf.transpose(tf.reshape(L.Dense(8, name="d")(x), [-1, 2, 4]), [0, 2, 1])
    return output(L.Flatten()(tf.tile(h, [1, 1, 2])))


def hard_swish(x):  # as MobileNetV3 of tf.keras.applications
    h = L.Conv2D(3, 3, padding="same", name="c")(x)
    h = L.Multiply()([h, L.ReLU(6.0)(h + 3.0) * (1.0 / 6.0)])
    return output(tf.reduce_mean(h, axis=[1, 2]))


def scaled_products(x):
    q, k = L.Dense(4, name="q")(x), L.Dense(4, name="k")(x)
    weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * 0.5)
    return output(tf.reduce_sum(tf.matmul(weights, q), axis=1))


def join_two(x, y):
    a, b = L.Dense(3, name="a")(x), L.Dense(3, name="b")(y)
    return output(tf.concat([a * b, tf.math.subtract(a, b), tf.ones_like(a)], axis=-1))


def regularized(x):
    return output(L.Dense(4, name="d")(x))


MODELS = {
    f.__name__: (f, s)
    for f, *s in [
        (affine, (5,)),
        (minus_and_compare, (5,)),
        (head_of_sequence, (3, 6)),
        (reshape_and_swap, (5,)),
        (hard_swish, (6, 6, 3)),
        (scaled_products, (4, 5)),
        (join_two, (5,), (4,)),
        (regularized, (5,)),
    ]
}

# What Keras 2 wrote of a lambda is its byte code (marshal), of the Python that ran.
LAMBDAS = {
    "divide": ((5,), lambda: L.Lambda(lambda x: x / 255)),
    "expand": ((5,), lambda: L.Lambda(lambda x: tf.expand_dims(x, -1))),
    "sum_axis": ((4, 3), lambda: L.Lambda(lambda x: K.sum(x, axis=1))),
    "square_root": ((5,), lambda: L.Lambda(lambda z: K.sqrt(K.square(z) + 1e-6))),
    "every_other": ((6, 3), lambda: L.Lambda(lambda x: x[:, ::2, :])),
    "default": ((5,), lambda: L.Lambda(lambda x, by=2.0: x * by)),
    "two_names": ((5,), lambda: L.Lambda(lambda x: tf.math.tanh(x) + tf.nn.relu(x))),
}


def with_lambda(make):
    def build(x):
        return output(L.Flatten()(make()(x)))

    return build


def set_policy(name):
    if V >= (2, 4):
        tf.keras.mixed_precision.set_global_policy(name)
    elif V >= (2, 1):
        tf.keras.mixed_precision.experimental.set_policy(name)


def scaled(optimizer):
    if V >= (2, 4):
        return tf.keras.mixed_precision.LossScaleOptimizer(optimizer)
    if V >= (2, 1):
        return tf.keras.mixed_precision.experimental.LossScaleOptimizer(optimizer, "dynamic")
    return optimizer


def write(out, name, build, shapes):
    tf.keras.backend.clear_session()
    tf.random.set_seed(11) if V >= (2, 0) else tf.compat.v1.set_random_seed(11)
    random = np.random.RandomState(12)
    inputs = [L.Input(shape, name=f"in{i}") for i, shape in enumerate(shapes)]
    y = build(*inputs)
    model = tf.keras.Model(inputs if len(inputs) > 1 else inputs[0], y)
    if name.startswith("regularized"):
        model.add_loss(tf.reduce_mean(tf.abs(y)) * 0.01)
        if V >= (2, 0):
            model.add_metric(tf.reduce_mean(y), name="mean_output")
    model.compile(scaled(tf.keras.optimizers.Adam(0.01)), "mse")
    xs = [random.normal(size=(4, *shape)).astype("float32") for shape in shapes]
    x = xs if len(xs) > 1 else xs[0]
    target = random.normal(size=model.predict(x).shape).astype("float32")
    for _ in range(2):
        model.train_on_batch(x, target)
    p, loss = model.predict(x), model.evaluate(x, target, verbose=0, batch_size=4)
    base = f"{out}/{name}"
    model.save(base + ".h5")
    if V >= (2, 13):
        model.save(base + ".keras")
    np.savez_compressed(
        base + ".npz",
        y=target,
        p=p,
        loss=np.float64(np.ravel(loss)[0]),
        **{f"x{i}": a for i, a in enumerate(xs)},
    )
    print(
        tf.__version__,
        name,
        sorted({layer.__class__.__name__ for layer in model.layers} - {"Dense", "InputLayer"}),
        flush=True,
    )


def attempt(*arguments):
    try:
        write(*arguments)
    except Exception as error:  # noqa: BLE001 - what a version cannot do
        print(
            tf.__version__,
            arguments[1],
            "not written:",
            type(error).__name__,
            str(error)[:100],
            flush=True,
        )


if __name__ == "__main__":
    out = sys.argv[1]
    Path(out).mkdir(parents=True, exist_ok=True)
    for name, (build, shapes) in MODELS.items():
        for policy in ("float32", "mixed_float16") if V >= (2, 1) else ("float32",):
            set_policy(policy)
            attempt(out, name + ("" if policy == "float32" else ".mixed"), build, shapes)
    set_policy("float32")
    for name, (shape, make) in LAMBDAS.items():
        attempt(out, "lambda_" + name, with_lambda(make), [shape])
