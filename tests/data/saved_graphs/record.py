"""Makes SavedModels of classes that nobody else has, and records what TensorFlow computes of them.

    python record.py FOLDER [NAME...]

Ran with TensorFlow 2.15.1 (all but those below), and 2.10.1 (mixed, rnn_cell). FOLDER gets
NAME.zip, the SavedModel, and NAME.npz: `x0`, `x1` (inputs, two batches), `y0`, `y1` (predictions),
and where it is trained `target` and `losses`, of 50 steps of SGD on x0 by `tf.saved_model.load`,
`trained`, the prediction afterwards, and `training`, the output of the training function before.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np
import tensorflow as tf

keras = tf.keras
STEPS = 50
RATES = {"crf": 0.01, "module": 0.01, "resnet": 0.0001}  # of 0.05 otherwise


class SelfAttention(keras.layers.Layer):
    def build(self, shape):
        width = int(shape[-1])
        self.query, self.key, self.value = [
            self.add_weight(name=n, shape=(width, width)) for n in ("query", "key", "value")
        ]

    def call(self, x):
        q, k, v = [tf.matmul(x, w) for w in (self.query, self.key, self.value)]
        scores = tf.matmul(q, k, transpose_b=True) / tf.sqrt(tf.cast(tf.shape(q)[-1], tf.float32))
        there = tf.reduce_any(tf.not_equal(x, 0.0), axis=-1)
        scores += (1.0 - tf.cast(there[:, tf.newaxis, :], tf.float32)) * -1e9
        return tf.einsum("bqk,bkd->bqd", tf.nn.softmax(scores), v)


class Encoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.attention, self.dense = SelfAttention(), keras.layers.Dense(2, activation="tanh")

    def call(self, x, training=False):
        return self.dense(self.attention(x) + x)


class Crf(keras.layers.Layer):
    """The logarithm of the sum over all paths, of the steps that are there."""

    def build(self, shape):
        self.transitions = self.add_weight(name="transitions", shape=(int(shape[-1]),) * 2)

    def call(self, x):
        there = tf.reduce_any(tf.not_equal(x, 0.0), axis=-1)
        alpha, steps = x[:, 0], tf.shape(x)[1]

        def turn(step, alpha):
            paths = alpha[:, :, None] + self.transitions[None] + x[:, step][:, None, :]
            return step + 1, tf.where(
                there[:, step][:, None], tf.reduce_logsumexp(paths, axis=1), alpha
            )

        _, alpha = tf.while_loop(lambda step, _: step < steps, turn, [tf.constant(1), alpha])
        return tf.reduce_logsumexp(alpha, axis=-1, keepdims=True)


class Tagger(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense, self.crf = keras.layers.Dense(3), Crf()

    def call(self, x, training=False):
        return self.crf(self.dense(x))


class LeakyCell(keras.layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.units = self.state_size = units

    def build(self, shape):
        self.kernel = self.add_weight(name="kernel", shape=(int(shape[-1]), self.units))
        self.recurrent = self.add_weight(name="recurrent", shape=(self.units, self.units))

    def call(self, x, states):
        h = states[0]
        h = 0.7 * h + 0.3 * tf.tanh(tf.matmul(x, self.kernel) + tf.matmul(h, self.recurrent))
        return h, [h]


class Recurrent(keras.Model):
    def __init__(self):
        super().__init__()
        self.rnn = keras.layers.RNN(LeakyCell(4), return_sequences=True)
        self.dense = keras.layers.Dense(1)

    def call(self, x, training=False):
        return self.dense(self.rnn(x))


class Generator(keras.Model):
    def __init__(self):
        super().__init__()
        layers = keras.layers
        self.parts = [
            layers.Dense(3 * 3 * 4, use_bias=False),
            layers.BatchNormalization(),
            layers.LeakyReLU(),
            layers.Reshape((3, 3, 4)),
            layers.Conv2DTranspose(3, 5, strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.LeakyReLU(),
            layers.Conv2DTranspose(1, 3, strides=2, padding="same", activation="tanh"),
        ]

    def call(self, x, training=False):
        for part in self.parts:
            if isinstance(part, keras.layers.BatchNormalization):
                x = part(x, training=training)
            else:
                x = part(x)
        return x


class Mlp(tf.Module):
    def __init__(self):
        super().__init__()
        rng = np.random.RandomState(3)
        self.w = [tf.Variable(rng.normal(size=s).astype("f")) for s in ((3, 5), (5, 2))]
        self.b = tf.Variable(tf.zeros([5]))
        self.scale = tf.Variable(2.0, trainable=False)
        self.shift = tf.constant(rng.normal(size=(80,)).astype("f"))

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def __call__(self, x):
        h = tf.nn.gelu(tf.matmul(x, self.w[0]) + self.b)
        return tf.matmul(h, self.w[1]) * self.scale + self.shift[7:9]


class Coder(tf.Module):
    def __init__(self):
        super().__init__()
        rng = np.random.RandomState(4)
        self.w = tf.Variable(rng.normal(size=(4, 2)).astype("f"))

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def encode(self, x):
        return {"code": tf.matmul(x, self.w), "norm": tf.norm(x, axis=-1)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2], tf.float32, name="code"),
            tf.TensorSpec([], tf.float32, name="gain"),
        ]
    )
    def decode(self, code, gain):
        return gain * tf.matmul(code, self.w, transpose_b=True)


class Pictures(keras.Model):
    """Preprocessing in the graph."""

    def __init__(self):
        super().__init__()
        self.conv = keras.layers.Conv2D(3, 3, strides=2, padding="same", activation="relu")
        self.dense = keras.layers.Dense(2)

    def call(self, x, training=False):
        x = tf.image.convert_image_dtype(tf.cast(x, tf.uint8), tf.float32)
        x = tf.image.resize(x, (8, 8))[:, 1:7, 1:7, ::-1]
        x = (x - tf.constant([0.4, 0.5, 0.6])) / tf.constant([0.2, 0.2, 0.3])
        x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")
        return self.dense(tf.reduce_mean(self.conv(x), axis=[1, 2]))


class Gated(keras.layers.Layer):
    def build(self, shape):
        self.gate = self.add_weight(name="gate", shape=(int(shape[-1]),), initializer="ones")

    def call(self, x):
        return x * tf.sigmoid(self.gate) + tf.cast(0.25, x.dtype)


class Mixed(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.gated = keras.layers.Dense(6, activation="relu"), Gated()
        self.last = keras.layers.Dense(2, dtype="float32")

    def call(self, x, training=False):
        return self.last(self.gated(self.first(x)))


class Normalized(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = keras.layers.Conv2D(4, 3, padding="same")
        self.norms = [keras.layers.BatchNormalization(momentum=m) for m in (0.9, 0.8)]
        self.dense = keras.layers.Dense(2)

    def call(self, x, training=False):
        x = tf.nn.relu(self.norms[0](self.first(x), training=training))
        x = tf.reduce_max(x, axis=[1, 2])
        return self.dense(self.norms[1](x, training=training))


class Block(keras.layers.Layer):
    def __init__(self, width):
        super().__init__()
        self.convs = [keras.layers.Conv2D(width, 3, padding="same", use_bias=False) for _ in "ab"]
        self.norms = [keras.layers.BatchNormalization(momentum=0.9) for _ in "ab"]

    def call(self, x, training=False):
        h = tf.nn.relu(self.norms[0](self.convs[0](x), training=training))
        return tf.nn.relu(x + 0.3 * self.norms[1](self.convs[1](h), training=training))


class ResNet(keras.Model):
    def __init__(self, depth=30):
        super().__init__()
        self.first = keras.layers.Conv2D(3, 3, padding="same")
        self.blocks = [Block(3) for _ in range(depth)]
        self.dense = keras.layers.Dense(2)

    def call(self, x, training=False):
        x = self.first(x)
        for block in self.blocks:
            x = block(x, training=training)
        return self.dense(tf.reduce_mean(x, axis=[1, 2]))


class Branches(tf.Module):
    """Conditions and loops on numbers that only computing tells."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable([[1.0, -2.0], [0.5, 1.5]])
        self.calls = tf.Variable(0, trainable=False)

    @tf.function
    def halved(self, x):
        return tf.while_loop(lambda x: tf.reduce_max(x) > 1.0, lambda x: [x / 2.0], [x])[0]

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def __call__(self, x):
        self.calls.assign_add(1)
        y = self.halved(tf.abs(tf.matmul(x, self.w)) + 1.0)
        y = tf.cond(tf.reduce_sum(x) > 0.0, lambda: y + 10.0, lambda: y - self.w[0])
        rows = tf.TensorArray(tf.float32, size=3, element_shape=[2])
        for i in tf.range(3):
            rows = rows.write(i, y[0] * tf.cast(i, tf.float32))
        place = tf.cast(tf.reduce_sum(x) > 0.0, tf.int32)
        last = tf.switch_case(tf.constant(1), [lambda: y, lambda: y * 3.0])
        return y + tf.reduce_sum(rows.stack(), axis=0) + last + tf.cast(place, tf.float32)


class Lists(tf.Module):
    """Each op on lists of tensors, of which `tf.TensorArray` uses some."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def __call__(self, x):
        ops = tf.raw_ops
        row, none = tf.constant([2]), tf.constant(-1)
        grown = ops.EmptyTensorList(
            element_shape=row, max_num_elements=none, element_dtype=tf.float32
        )
        for factor in (1.0, 2.0, 3.0):
            grown = ops.TensorListPushBack(input_handle=grown, tensor=x[0] * factor)
        grown, last = ops.TensorListPopBack(
            input_handle=grown, element_shape=row, element_dtype=tf.float32
        )
        length = ops.TensorListLength(input_handle=grown)
        width = ops.TensorListElementShape(input_handle=grown, shape_type=tf.int32)
        rows = ops.TensorListFromTensor(tensor=x, element_shape=row)
        fewer, end = ops.TensorListPopBack(
            input_handle=rows, element_shape=row, element_dtype=tf.float32
        )
        rows = ops.TensorListSetItem(input_handle=rows, index=0, item=last)
        place = tf.argmax(x[:, 0], output_type=tf.int32)
        rows = ops.TensorListSetItem(input_handle=rows, index=place, item=last + 1.0)
        found = ops.TensorListGetItem(
            input_handle=rows, index=place, element_shape=row, element_dtype=tf.float32
        )
        some = ops.TensorListGather(
            input_handle=rows, indices=[1, 0], element_shape=row, element_dtype=tf.float32
        )
        parts = ops.EmptyTensorList(
            element_shape=tf.constant([-1, 2]), max_num_elements=none, element_dtype=tf.float32
        )
        for part in (x, x[:1]):
            parts = ops.TensorListPushBack(input_handle=parts, tensor=part)
        joined, lengths = ops.TensorListConcatV2(
            input_handle=parts,
            element_shape=tf.constant([-1, 2]),
            leading_dims=tf.constant([], tf.int64),
            element_dtype=tf.float32,
        )
        stacked = [
            ops.TensorListStack(input_handle=one, element_shape=row, element_dtype=tf.float32)
            for one in (grown, fewer)
        ]
        sizes = tf.concat([[length], width, tf.cast(lengths, tf.int32)], 0)
        results = [last, end, found, some, joined, *stacked, tf.cast(sizes, tf.float32)]
        return tf.concat([tf.reshape(one, [-1]) for one in results], 0)


def numbers(*shape):
    return np.random.RandomState(sum(shape)).normal(size=shape).astype("float32")


def steps(*shape):
    """Sequences whose last steps are zero."""
    x = numbers(*shape)
    for row in range(len(x)):
        x[row, shape[1] - row % 3 :] = 0.0
    return x


# Name -> (what makes it, its inputs, whether it is trained).
MODELS = {
    "attention": (Encoder, [steps(3, 4, 2), steps(5, 4, 2)], True),
    "crf": (Tagger, [steps(3, 5, 2), steps(4, 5, 2)], True),
    "rnn_cell": (Recurrent, [numbers(3, 5, 2), numbers(4, 7, 2)], True),
    "generator": (Generator, [numbers(4, 3), numbers(2, 3)], True),
    "module": (Mlp, [numbers(4, 3), numbers(7, 3)], True),
    "coder": (Coder, [numbers(3, 4), numbers(6, 4)], False),
    "pictures": (
        Pictures,
        [np.abs(numbers(n, 11, 9, 3) * 90).clip(0, 255).round() for n in (2, 3)],
        True,
    ),
    "mixed": (Mixed, [numbers(4, 3), numbers(6, 3)], True),
    "normalized": (Normalized, [numbers(4, 5, 5, 2), numbers(3, 5, 5, 2)], True),
    "resnet": (ResNet, [numbers(4, 4, 4, 1), numbers(3, 4, 4, 1)], True),
    "lists": (Lists, [numbers(3, 2), numbers(4, 2)], False),
    "branches": (Branches, [numbers(3, 2) * 5, -abs(numbers(4, 2))], False),
}


def made(name, folder):
    make, inputs, _ = MODELS[name]
    if name == "mixed":
        keras.mixed_precision.set_global_policy("mixed_float16")
    model = make()
    if name == "coder":
        signatures = {"encode": model.encode, "decode": model.decode}
        tf.saved_model.save(model, folder, signatures=signatures)
    elif isinstance(model, keras.Model):
        shape = [None, *inputs[0].shape[1:]]
        if name == "rnn_cell":
            shape[1] = None
        model(inputs[0])
        model.call(keras.Input(shape[1:]), training=False)
        for i, variable in enumerate(model.variables):  # no number is what it was made with
            variable.assign_add(0.1 * np.abs(numbers(*[*variable.shape, i + 1])[..., 0]))
        model._set_save_spec(tf.TensorSpec(shape, tf.float32))
        model.save(folder, save_format="tf")
    else:
        tf.saved_model.save(model, folder, signatures={"serving_default": model.__call__})
    keras.backend.clear_session()


def record(name, out):
    tf.random.set_seed(7)
    folder = str(Path(tempfile.mkdtemp(), name))
    made(name, folder)
    shutil.rmtree(Path(folder, "assets"), ignore_errors=True)
    _, inputs, trained = MODELS[name]
    loaded = tf.saved_model.load(folder)
    kept = {f"x{i}": x for i, x in enumerate(inputs)}
    dtype = tf.float16 if name == "mixed" else tf.float32
    for i, x in enumerate(inputs):
        x = tf.constant(x, dtype)
        if name == "coder":
            code = loaded.signatures["encode"](x=x)
            kept[f"y{i}"] = code["code"].numpy()
            kept[f"norm{i}"] = code["norm"].numpy()
            decode = loaded.signatures["decode"]
            kept[f"decoded{i}"] = next(
                iter(decode(code=code["code"], gain=tf.constant(0.5)).values())
            ).numpy()
        else:
            kept[f"y{i}"] = next(iter(loaded.signatures["serving_default"](x).values())).numpy()
    if trained:
        is_keras = hasattr(loaded, "trainable_variables") and name != "module"
        variables = list(loaded.trainable_variables) if is_keras else [*loaded.w, loaded.b]
        x = tf.constant(inputs[0], dtype)

        def call():
            return loaded(x, training=True) if is_keras else loaded(x)

        kept["target"] = np.abs(numbers(*kept["y0"].shape))
        losses = []
        for step in range(STEPS):
            with tf.GradientTape() as tape:
                y = call()
                loss = tf.reduce_mean(tf.square(tf.cast(y, tf.float32) - kept["target"]))
            if step == 0:
                kept["training"] = y.numpy()
            for variable, gradient in zip(variables, tape.gradient(loss, variables)):
                if gradient is None:
                    print(name, variable.name, "has no gradient")
                else:
                    variable.assign_sub(RATES.get(name, 0.05) * gradient)
            losses.append(loss.numpy())
        kept["losses"] = np.array(losses)
        kept["trained"] = next(iter(loaded.signatures["serving_default"](x).values())).numpy()
    shutil.make_archive(str(Path(out, name)), "zip", folder)
    np.savez_compressed(Path(out, name + ".npz"), **kept)
    nodes = sum(len(f.node_def) for f in _library(folder))
    print(name, tf.__version__, nodes, kept.get("losses", [])[:2], kept.get("losses", [])[-1:])


def _library(folder):
    from tensorflow.core.protobuf import saved_model_pb2

    message = saved_model_pb2.SavedModel()
    message.ParseFromString(Path(folder, "saved_model.pb").read_bytes())
    return message.meta_graphs[0].graph_def.library.function


if __name__ == "__main__":
    for each in sys.argv[2:] or MODELS:
        record(each, sys.argv[1])
