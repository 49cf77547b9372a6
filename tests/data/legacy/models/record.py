"""Records what a TensorFlow of then serializes and predicts: run as `python record.py OUT.json`.

Written for TF 1.15.0 (Python 3.7, numpy below 1.19), 2.3.4 (3.8) and 2.15.1 (3.10). Weights and
inputs are multiples of 1/64, which every dtype holds exactly.
"""

import inspect
import json
import os
import pathlib
import sys
import tempfile
import warnings
import zipfile

os.environ.update(
    TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", TF_ENABLE_ONEDNN_OPTS="0", PYTHONHASHSEED="0"
)
warnings.filterwarnings("ignore")

import h5py  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

if tf.__version__.startswith("1."):
    tf.compat.v1.enable_v2_behavior()
K, L = tf.keras, tf.keras.layers
random = np.random.RandomState(3)


def i(*shape, **more):
    return K.Input(shape, **more)


def policy(name):
    own = getattr(K.mixed_precision, "Policy", None)
    return (own or K.mixed_precision.experimental.Policy)(name)


def shared():
    a, b = i(4, name="a"), i(4, name="b")
    dense = L.Dense(3, name="shared")
    x, y = dense(a), dense(b)
    return K.Model([a, b], [L.Add()([x, y]), L.Dense(2)(y)])


def named_inputs():
    a, b = i(4, name="a"), i(3, name="b")
    return K.Model({"a": a, "b": b}, {"o": L.Concatenate()([a, b]), "p": L.Dense(2)(b)})


def nested():
    encoder = K.Sequential(
        [L.Dense(3, activation="relu", input_shape=(4,)), L.Dense(4)], name="encoder"
    )
    x = i(4)
    two = K.Model(x, [L.Dense(4)(x), L.Dense(2)(x)], name="two")
    x = i(4)
    p, q = two(encoder(encoder(x)))
    p, r = two(p)
    return K.Model(x, [L.Concatenate()([q, r]), encoder(p), r])


def deferred_inside():
    inner = K.Sequential([L.Dense(3), L.Dense(4)], name="inner")
    x = i(4)
    return K.Model(x, inner(inner(x)))


def sequential_inside():
    return K.Sequential([K.Sequential([L.Dense(3, input_shape=(4,))]), L.Dense(2)])


def initial_state():
    x, h, c = i(5, 3), i(4), i(4)
    y, *states = L.LSTM(4, return_sequences=True, return_state=True)(x, initial_state=[h, c])
    return K.Model([x, h, c], [L.LSTM(3)(y), *states])


def initial_state_gru():
    x, h = i(5, 3), i(4)
    return K.Model([x, h], L.GRU(4)(x, initial_state=h))


def bidirectional():
    x = i(5, 3)
    y = L.Bidirectional(L.LSTM(4, return_sequences=True))(x)
    return K.Model(x, L.Bidirectional(L.GRU(3), merge_mode="sum")(y))


def cells():
    x = i(5, 3)
    y = L.RNN(L.LSTMCell(4), return_sequences=True)(x)
    return K.Model(x, L.RNN([L.GRUCell(3), L.SimpleRNNCell(2)])(y))


def recurrent():
    x = i(5, 3)
    y = L.GRU(4, reset_after=False, return_sequences=True)(x)
    y = L.GRU(3, reset_after=True, return_sequences=True, go_backwards=True)(y)
    return K.Model(x, L.SimpleRNN(2)(y))


def hard_sigmoid():
    x = i(5, 3)
    y = L.LSTM(4, recurrent_activation="hard_sigmoid")(x)
    y = L.Activation("hard_sigmoid")(y)
    return K.Model(x, L.Dense(2, activation="hard_sigmoid")(y))


def masking():
    x = i(5, 3)
    y = L.LSTM(4, return_sequences=True)(L.Masking()(x))
    return K.Model(x, L.TimeDistributed(L.Dense(2))(y))


def embedding():
    x = i(4)
    y = L.Embedding(7, 3, mask_zero=True, input_length=4)(x)
    return K.Model(x, L.GlobalAveragePooling1D()(y))


def embedding_first():
    return K.Sequential([L.Embedding(7, 3, input_length=4), L.Flatten(), L.Dense(2)])


def activations():
    x = i(4)
    y = L.LeakyReLU(alpha=0.25)(x)
    y = L.ELU(0.75)(y)
    y = L.ReLU(6.0, negative_slope=0.125, threshold=0.25)(y)
    y = L.PReLU()(L.ThresholdedReLU(0.25)(y))
    outs = [L.Softmax()(y)]
    names = ["softplus", "softsign", "selu", "exponential", "swish", "gelu", "elu", "tanh"]
    for name in names:
        if hasattr(K.activations, name):
            outs.append(L.Dense(2, activation=name, name=name + "_")(y))
    return K.Model(x, outs)


def activation_layer():
    x = i(4)
    return K.Model(x, L.Dense(3, activation=L.LeakyReLU(0.25))(x))


def attention():
    q, v = i(5, 3), i(6, 3)
    return K.Model([q, v], [L.Attention(use_scale=True)([q, v]), L.AdditiveAttention()([q, v])])


def multi_head_attention():
    q, v = i(5, 3), i(6, 3)
    y, scores = L.MultiHeadAttention(2, 4)(q, v, return_attention_scores=True)
    return K.Model([q, v], [L.MultiHeadAttention(1, 2)(y, value=v, key=v), scores])


def convolutions():
    x = i(8, 8, 3)
    y = L.SeparableConv2D(4, 3, padding="same", activation="relu")(x)
    y = L.DepthwiseConv2D(3)(y)
    y = L.UpSampling2D(2, interpolation="bilinear")(y)
    y = L.Conv2DTranspose(2, 3, strides=2, padding="same")(y)
    y = L.ZeroPadding2D(1)(L.Cropping2D(1)(y))
    y = L.AveragePooling2D(3, padding="same")(y)
    y = L.LayerNormalization()(L.BatchNormalization()(y))
    return K.Model(x, L.GlobalMaxPooling2D()(y))


def convolutions_1d():
    x = i(9, 3)
    y = L.Conv1D(4, 3, padding="causal", dilation_rate=2)(x)
    y = L.SeparableConv1D(3, 2)(L.MaxPooling1D(2)(y))
    y = L.Permute((2, 1))(L.UpSampling1D(2)(y))
    return K.Model(x, L.RepeatVector(2)(L.Reshape((-1,))(y)))


def conv_lstm():
    x = i(3, 5, 5, 2)
    return K.Model(x, L.ConvLSTM2D(2, 2)(x))


def training_argument():
    x = i(4)
    y = L.Dropout(0.5)(x, training=False)
    return K.Model(x, L.BatchNormalization()(y, training=False))


def frozen():
    x = i(4)
    dense = L.Dense(3, name="frozen")
    dense.trainable = False
    return K.Model(x, L.Dense(2)(dense(x)))


def slashes():
    x = i(4)
    return K.Model(x, L.Dense(2, name="b/c")(L.Dense(3, name="a/b")(x)))


def mixed():
    x = i(4)
    y = L.Dense(3, dtype=policy("mixed_float16"), name="mixed")(x)
    return K.Model(x, L.Dense(2, dtype="float32")(y))


def merges():
    a, b = i(4), i(4)
    kinds = [L.Dot(1), L.Multiply(), L.Subtract(), L.Average(), L.Maximum(), L.Minimum()]
    return K.Model([a, b], [kind([a, b]) for kind in kinds])


def operation():
    x = i(4)
    return K.Model(x, L.Dense(2)(x * 2.0 + 1.0))


def function():
    x = i(4)
    return K.Model(x, L.Lambda(lambda t: t + 1.0)(x))


def input_is_output():
    x = i(4)
    return K.Model(x, [x, L.Dense(2)(x)])


def parts():
    x = i(4)
    return K.Model(
        x,
        L.Dense(
            3,
            kernel_regularizer=K.regularizers.l1_l2(0.1, 0.2),
            bias_regularizer=K.regularizers.l1(0.1),
            activity_regularizer=K.regularizers.l2(0.1),
            kernel_constraint=K.constraints.MaxNorm(2.0),
            bias_constraint=K.constraints.NonNeg(),
            kernel_initializer=K.initializers.VarianceScaling(2.0, "fan_out", "uniform"),
            bias_initializer=K.initializers.Constant(0.1),
        )(x),
    )


def rescaling():
    kind = getattr(L, "Rescaling", None) or L.experimental.preprocessing.Rescaling
    x = i(4, 4, 3)
    return K.Model(x, L.Flatten()(kind(1 / 256, offset=-1.0)(x)))


# Model -> shapes of its inputs; those of whole numbers go up to 6.
MODELS = {
    shared: [(4,), (4,)],
    named_inputs: [(4,), (3,)],
    nested: [(4,)],
    deferred_inside: [(4,)],
    sequential_inside: [(4,)],
    initial_state: [(5, 3), (4,), (4,)],
    initial_state_gru: [(5, 3), (4,)],
    bidirectional: [(5, 3)],
    cells: [(5, 3)],
    recurrent: [(5, 3)],
    hard_sigmoid: [(5, 3)],
    masking: [(5, 3)],
    embedding: [(4,)],
    embedding_first: [(4,)],
    activations: [(4,)],
    activation_layer: [(4,)],
    attention: [(5, 3), (6, 3)],
    multi_head_attention: [(5, 3), (6, 3)],
    convolutions: [(8, 8, 3)],
    convolutions_1d: [(9, 3)],
    conv_lstm: [(3, 5, 5, 2)],
    training_argument: [(4,)],
    frozen: [(4,)],
    slashes: [(4,)],
    mixed: [(4,)],
    merges: [(4,), (4,)],
    operation: [(4,)],
    function: [(4,)],
    input_is_output: [(4,)],
    parts: [(4,)],
    rescaling: [(4, 4, 3)],
}
WHOLE = (embedding, embedding_first)


def sixtyfourths(low, high, shape):
    return (random.randint(int(low * 64), int(high * 64), shape) / 64).astype("float32")


def by_layer(model, prefix=""):
    """[path of the layer, its weights], depth first."""
    rows = []
    for layer in model.layers:
        if hasattr(layer, "layers"):
            rows += by_layer(layer, prefix + layer.name + ":")
        elif layer.weights:
            rows.append([prefix + layer.name, [w.tolist() for w in layer.get_weights()]])
    return rows


def recorded(make, shapes):
    K.backend.clear_session()
    model = make()
    xs = [
        random.randint(0, 7, (2, *s)).astype("float32")
        if make in WHOLE
        else sixtyfourths(-2, 2, (2, *s))
        for s in shapes
    ]
    values = []
    for variable in model.weights:
        low = 0.25 if "variance" in variable.name else -0.4
        values.append(sixtyfourths(low, 0.6, variable.shape))
    model.set_weights(values)
    given = xs if len(xs) > 1 else xs[0]
    if make is named_inputs:
        given = {"a": xs[0], "b": xs[1]}
    predicted = tf.nest.flatten(model(given, training=False))
    return {
        "json": json.loads(model.to_json()),
        "x": [x.tolist() for x in xs],
        "y": [np.asarray(y).astype("float32").tolist() for y in predicted],
        "weights": by_layer(model),
        "frozen": [layer.name for layer in model.layers if not layer.trainable],
    }


def double():
    x = i(4)
    return K.Model(x, [L.Dense(3, name="one")(x), L.Dense(1, name="two")(x)])


def single():
    x = i(4)
    return K.Model(x, L.Dense(3, activation="softmax", name="one")(x))


def own_loss(true, predicted):
    return tf.reduce_mean(tf.square(true - predicted), -1)


# name -> (model, arguments of compile, targets)
def trainings():
    three, ones = np.eye(3, dtype="float32")[[0, 2]], np.ones((2, 1), "float32")
    sgd = K.optimizers.SGD
    losses, metrics = K.losses, K.metrics
    return {
        "names": (
            single,
            {"optimizer": sgd(0.1), "loss": "mse", "metrics": ["accuracy", "mae"]},
            three,
        ),
        "objects": (
            single,
            {
                "optimizer": sgd(0.1),
                "loss": losses.CategoricalCrossentropy(label_smoothing=0.125),
                "metrics": [metrics.Precision(thresholds=0.25), metrics.CategoricalAccuracy("a")],
            },
            three,
        ),
        "sparse": (
            single,
            {
                "optimizer": sgd(0.1),
                "loss": "sparse_categorical_crossentropy",
                "metrics": ["accuracy"],
            },
            np.array([0, 2]),
        ),
        "by_output": (
            double,
            {
                "optimizer": sgd(0.1),
                "loss": {"one": "mae", "two": losses.Huber(delta=2.0)},
                "metrics": {"one": ["mse"], "two": [metrics.RootMeanSquaredError()]},
                "loss_weights": {"one": 0.25, "two": 2.0},
            },
            [three, ones],
        ),
        "by_position": (
            double,
            {"optimizer": sgd(0.1), "loss": ["mse", "logcosh"], "metrics": [["mae"], ["mse"]]},
            [three, ones],
        ),
        "weighted": (
            single,
            {"optimizer": sgd(0.1), "loss": losses.KLDivergence(), "weighted_metrics": ["mse"]},
            three,
        ),
        "own_function": (single, {"optimizer": sgd(0.1), "loss": own_loss}, three),
    }


def training(model, arguments, target):
    K.backend.clear_session()
    model = model()
    model.compile(**arguments)
    x = sixtyfourths(-2, 2, (2, 4))
    model.train_on_batch(x, target)
    values = model.test_on_batch(x, target)
    result = {
        "weights": by_layer(model),
        "x": x.tolist(),
        "targets": [np.asarray(t).tolist() for t in tf.nest.flatten(target)],
        "loss": float(values[0] if isinstance(values, list) else values),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder, "model.h5"))
        model.save(path)
        with h5py.File(path, "r") as file:
            result["model_config"] = json.loads(file.attrs["model_config"])
            result["training_config"] = json.loads(file.attrs["training_config"])
        if tf.__version__.startswith("2.15"):
            path = str(pathlib.Path(folder, "model.keras"))
            model.save(path)
            result["keras"] = json.loads(zipfile.ZipFile(path).read("config.json"))
    return result


ARGUMENTS = {
    "activation": "relu",
    "units": 3,
    "filters": 2,
    "kernel_size": 2,
    "rate": 0.5,
    "input_dim": 5,
    "output_dim": 3,
    "dims": [1],
    "target_shape": [2],
    "n": 2,
    "stddev": 0.1,
    "factor": 0.2,
    "height_factor": 0.2,
    "width_factor": 0.2,
    "height": 4,
    "width": 4,
    "scale": 2.0,
    "num_bins": 4,
    "num_tokens": 5,
    "num_heads": 2,
    "key_dim": 3,
    "axes": 1,
    "equation": "ab,bc->ac",
    "output_shape": [3],
    "size": 2,
    "cropping": 1,
    "bin_boundaries": [0.0, 1.0],
    "bins": [0.0, 1.0],
}


def built(kind):
    """A layer of each class, with the least arguments."""
    inside = {
        "Bidirectional": lambda: L.LSTM(3),
        "RNN": lambda: L.LSTMCell(3),
        "StackedRNNCells": lambda: [L.LSTMCell(3)],
    }
    wrapped = ("TimeDistributed", "Wrapper", "SpectralNormalization")
    if kind.__name__ in inside or kind.__name__ in wrapped:
        return kind(inside.get(kind.__name__, lambda: L.Dense(3))())
    if kind.__name__ == "InputLayer":
        return kind((3,))
    needed = {}
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if name in ARGUMENTS and (
            parameter.default is parameter.empty or name in ("bins", "bin_boundaries")
        ):
            needed[name] = ARGUMENTS[name]
    if kind.__name__ == "Discretization" and len(needed) > 1:
        del needed["bins"]
    return kind(**needed)


def layer_configs():
    spaces = [L, getattr(L, "experimental", None)]
    spaces.append(getattr(spaces[1], "preprocessing", None))
    result = {}
    for space in filter(None, spaces):
        for name in sorted(dir(space)):
            kind = getattr(space, name)
            if not (inspect.isclass(kind) and issubclass(kind, tf.Module)):
                continue
            try:
                result[kind.__name__] = K.layers.serialize(built(kind))
            except Exception as error:  # noqa: BLE001
                result.setdefault(kind.__name__, {"error": str(error)[:100]})
    return result


def plain(value):
    if hasattr(value, "as_list"):
        return value.as_list()
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, (tuple, set)):
        return list(value)
    return getattr(value, "name", None) or list(value)


def attempt(make, *arguments):
    try:
        return make(*arguments)
    except Exception as error:  # noqa: BLE001
        return {"error": str(error)[:100]}


def main():
    """Writes the recording."""
    document = {
        "tf_version": tf.__version__,
        "models": {
            make.__name__: attempt(recorded, make, shapes) for make, shapes in MODELS.items()
        },
        "trainings": {name: attempt(training, *given) for name, given in trainings().items()},
        "layers": layer_configs(),
    }
    with pathlib.Path(sys.argv[1]).open("w") as file:
        json.dump(document, file, default=plain, sort_keys=True, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
