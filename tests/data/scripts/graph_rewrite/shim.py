"""tf.keras of TensorFlow 1.15 or 2.4, or Keras 3, for models that are written once."""

import functools

BATCH = 8


class Shim:
    """`keras` and its ops. Operators in a model's code (`x * y`) are the framework's own."""

    def __init__(self, keras, tensorflow=None):
        self.keras = keras
        if tensorflow is None:
            o = keras.ops
            self.matmul, self.softmax = o.matmul, o.softmax
            self.exp, self.log, self.erf, self.tanh, self.sigmoid = (
                o.exp, o.log, o.erf, o.tanh, o.sigmoid,
            )  # fmt: skip
            self.sqrt, self.abs, self.maximum = o.sqrt, o.abs, o.maximum
            self.sum, self.mean, self.transpose = o.sum, o.mean, o.transpose
            self.expand_dims, self.squeeze = o.expand_dims, o.squeeze
            self.reshape, self.square, self.softplus = o.reshape, o.square, o.softplus
            self.clip = o.clip
        else:
            tf = tensorflow
            self.matmul, self.softmax = tf.matmul, tf.nn.softmax
            self.exp, self.log, self.erf, self.tanh, self.sigmoid = (
                tf.exp, tf.math.log, tf.math.erf, tf.tanh, tf.sigmoid,
            )  # fmt: skip
            self.sqrt, self.abs, self.maximum = tf.sqrt, tf.abs, tf.maximum
            self.sum, self.mean, self.transpose = tf.reduce_sum, tf.reduce_mean, tf.transpose
            self.expand_dims, self.squeeze = tf.expand_dims, tf.squeeze
            self.reshape, self.square = tf.reshape, tf.square
            self.softplus, self.clip = tf.math.softplus, tf.clip_by_value

        # What both compute alike: one product for all gates, as in CuDNNLSTM.
        alike = {"recurrent_activation": "sigmoid"}
        fused = {**alike, "implementation": 2}
        if tensorflow is not None and tensorflow.__version__.startswith("2."):
            # In a function tf.keras of 2.4 hides the loop of LSTM and GRU in another function, for
            # which a GPU has one op; but not with an activation that it does not know.
            @keras.utils.register_keras_serializable()
            def some_activation(x):
                return tensorflow.tanh(x)

            fused["activation"] = some_activation
        layers = keras.layers
        self.lstm = functools.partial(layers.LSTM, **fused)
        self.lstm_cell = functools.partial(layers.LSTMCell, **fused)
        self.gru = functools.partial(layers.GRU, reset_after=True, **fused)
        self.conv_lstm = functools.partial(layers.ConvLSTM2D, **alike)

    def input(self, *shape, name="inp", dtype="float32"):
        return self.keras.Input(shape=shape, batch_size=BATCH, name=name, dtype=dtype)


def floats(*shape):
    """Returns the spec of an array of float32 in [0, 1)."""
    return ("float32", None, (BATCH, *shape))


def integers(below, *shape):
    """Returns the spec of an array of int32 in [0, below)."""
    return ("int32", below, (BATCH, *shape))


def bits(*shape):
    """Returns the spec of an array of float32 that are 0 or 1."""
    return ("float32", 2, (BATCH, *shape))


def one_hot(classes):
    """Returns the spec of an array of float32, a 1 in each row."""
    return ("one_hot", classes, (BATCH,))


def example(spec, random):
    """Returns an array of the spec, drawn from a numpy.random.RandomState."""
    dtype, below, shape = spec
    if below is None:
        return random.rand(*shape).astype(dtype)
    drawn = random.randint(0, below, size=shape)
    if dtype == "one_hot":
        return (drawn[:, None] == range(below)).astype("float32")
    return drawn.astype(dtype)


def recipe(models):
    """Returns a decorator that puts a function in the dict `models` under its name."""

    def add(function):
        models[function.__name__] = function
        return function

    return add
