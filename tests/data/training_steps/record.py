"""Records training steps of single layers: run as `python record.py OUT.npz`.

Written for TF 2.3.4 and 2.10.1 (Python 3.8). A step is a forward pass with training=True, the
gradients of sum(output * weighting) + regularization, and what the layer keeps. Weights stay.
"""

import json
import os
import sys

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", TF_ENABLE_ONEDNN_OPTS="0")

import numpy as np
import tensorflow as tf

K, L = tf.keras, tf.keras.layers
V2_10 = tf.__version__.startswith("2.10")
Policy = K.mixed_precision.Policy if V2_10 else K.mixed_precision.experimental.Policy
random = np.random.RandomState(7)
X, IMAGE, ROWS = (8, 5), (4, 6, 5, 3), (3, 6, 4)

CASES = {
    "bn_2d": (X, lambda: L.BatchNormalization(momentum=0.5)),
    "bn_3d": (ROWS, lambda: L.BatchNormalization()),
    "bn_4d": (IMAGE, lambda: L.BatchNormalization()),
    "bn_4d_momentum": (IMAGE, lambda: L.BatchNormalization(momentum=0.5, epsilon=0.1)),
    "bn_4d_one": ((1, 1, 1, 3), lambda: L.BatchNormalization(momentum=0.5)),
    "bn_4d_two": ((2, 1, 1, 3), lambda: L.BatchNormalization(momentum=0.5)),
    "bn_4d_channels_first": (IMAGE, lambda: L.BatchNormalization(axis=1, momentum=0.5)),
    "bn_4d_other_axis": (IMAGE, lambda: L.BatchNormalization(axis=2, momentum=0.5)),
    "bn_4d_float64": (IMAGE, lambda: L.BatchNormalization(momentum=0.5, dtype="float64")),
    "bn_4d_no_affine": (IMAGE, lambda: L.BatchNormalization(center=False, scale=False)),
    "bn_4d_tiny_epsilon": (
        (4, 1, 1, 3, 1e-3),
        lambda: L.BatchNormalization(epsilon=1e-7, momentum=0.5),
    ),
    "bn_2d_tiny_epsilon": (
        (4, 3, 1e-3),
        lambda: L.BatchNormalization(epsilon=1e-7, momentum=0.5),
    ),
    "bn_4d_float16": (
        IMAGE,
        lambda: L.BatchNormalization(momentum=0.5, dtype=Policy("mixed_float16")),
    ),
    "bn_2d_float16": (
        X,
        lambda: L.BatchNormalization(momentum=0.5, dtype=Policy("mixed_float16")),
    ),
    "bn_4d_all_float16": (IMAGE, lambda: L.BatchNormalization(momentum=0.5, dtype="float16")),
    "bn_5d": ((2, 3, 2, 2, 3), lambda: L.BatchNormalization(momentum=0.5)),
    "bn_5d_channels_first": (
        (2, 3, 2, 2, 3),
        lambda: L.BatchNormalization(axis=1, momentum=0.5),
    ),
    "bn_3d_mask": (
        ROWS,
        lambda: K.Sequential([L.Masking(0.0), L.BatchNormalization(momentum=0.5)]),
    ),
    "dense": (
        X,
        lambda: L.Dense(
            4,
            activation="relu",
            kernel_regularizer="l2",
            activity_regularizer=K.regularizers.l2(0.1),
        ),
    ),
    "activity": (X, lambda: L.ActivityRegularization(l1=0.1, l2=0.2)),
    "conv": (IMAGE, lambda: L.Conv2D(4, 3, strides=2, padding="same", activation="elu")),
    "conv_1d_causal": (ROWS, lambda: L.Conv1D(3, 2, padding="causal", dilation_rate=2)),
    "depthwise": (IMAGE, lambda: L.DepthwiseConv2D(3, depth_multiplier=2, padding="same")),
    "separable": (IMAGE, lambda: L.SeparableConv2D(4, 3, padding="same")),
    "transposed": (IMAGE, lambda: L.Conv2DTranspose(2, 3, strides=2, padding="same")),
    "embedding": ((4, 6, "int"), lambda: L.Embedding(5, 3)),
    "embedding_lstm": (
        (4, 6, "int"),
        lambda: K.Sequential([L.Embedding(5, 3, mask_zero=True), L.LSTM(4)]),
    ),
    "lstm": (ROWS, lambda: L.LSTM(3, return_sequences=True)),
    "lstm_no_forget_bias": (ROWS, lambda: L.LSTM(3, unit_forget_bias=False)),
    "lstm_implementation_1": (ROWS, lambda: L.LSTM(3, implementation=1)),
    "lstm_hard_sigmoid": (ROWS, lambda: L.LSTM(3, recurrent_activation="hard_sigmoid")),
    "gru": (ROWS, lambda: L.GRU(3, return_sequences=True)),
    "gru_reset_before": (ROWS, lambda: L.GRU(3, reset_after=False)),
    "gru_backwards": (ROWS, lambda: L.GRU(3, go_backwards=True, implementation=1)),
    "simple_rnn": (ROWS, lambda: L.SimpleRNN(3)),
    "bidirectional": (ROWS, lambda: L.Bidirectional(L.LSTM(2))),
    "conv_lstm": ((2, 3, 5, 4, 2), lambda: L.ConvLSTM2D(2, 3, padding="same")),
    "layer_norm": (ROWS, lambda: L.LayerNormalization()),
    "layer_norm_tiny_epsilon": ((4, 3, 1e-3), lambda: L.LayerNormalization(epsilon=1e-7)),
    "prelu": (X, lambda: L.PReLU(alpha_initializer="ones")),
    "leaky_relu": (X, lambda: L.LeakyReLU(0.2)),
    "elu": (X, lambda: L.ELU(0.5)),
    "selu": (X, lambda: L.Activation("selu")),
    "softplus": (X, lambda: L.Activation("softplus")),
    "swish": (X, lambda: L.Activation("swish")),
    "softmax": (X, lambda: L.Softmax()),
    "relu_max": (X, lambda: L.ReLU(max_value=1.0, negative_slope=0.1, threshold=0.2)),
    "max_pool": (IMAGE, lambda: L.MaxPooling2D(2, padding="same")),
    "average_pool": (IMAGE, lambda: L.AveragePooling2D(2, padding="same")),
    "masked_mean": (
        ROWS,
        lambda: K.Sequential([L.Masking(0.0), L.GlobalAveragePooling1D()]),
    ),
    "upsampling": (IMAGE, lambda: L.UpSampling2D(2, interpolation="bilinear")),
    "time_distributed": (ROWS, lambda: L.TimeDistributed(L.BatchNormalization(momentum=0.5))),
    "bn_far_mean": ((16, 3, 0.1, 100.0), lambda: L.BatchNormalization(momentum=0.5)),
    "layer_norm_far_mean": ((4, 8, 0.1, 100.0), lambda: L.LayerNormalization()),
    "bn_4d_far_mean": ((4, 3, 3, 2, 0.1, 100.0), lambda: L.BatchNormalization(momentum=0.5)),
}
STEPS = 2


def given(shape):
    """Returns a batch for each step; floats at the end of a shape are its scale and mean."""
    if shape[-1] == "int":
        return random.randint(0, 5, (STEPS, *shape[:-1])).astype("int32")
    sizes = [n for n in shape if isinstance(n, int)]
    scale, mean = ([n for n in shape if isinstance(n, float)] + [None, None])[:2]
    x = random.randn(STEPS, *sizes) * (1.0 if scale is None else scale) + (mean or 0.0)
    if sizes == list(ROWS):
        x[:, 1, 4:] = 0.0  # what Masking takes out
    return x.astype("float32")


def plain(value):
    return value.tolist() if hasattr(value, "tolist") else value.get_config()


def record(name, shape, make, arrays):
    x, layer = given(shape), make()
    layer(x[0])
    weights = [np.asarray(w) for w in layer.get_weights()]
    weights = [(w + 0.1 * random.rand(*w.shape)).astype(w.dtype) if w.size else w for w in weights]
    layer.set_weights(weights)
    arrays[f"{name}/x"] = x
    for i, weight in enumerate(weights):
        arrays[f"{name}/weight/{i}"] = weight
    kept = [w.name.rpartition("/")[2].partition(":")[0] for w in layer.trainable_weights]
    for step in range(STEPS):
        value = tf.constant(x[step])
        with tf.GradientTape() as tape:
            tape.watch(value)
            y = layer(value, training=True)
            if step == 0:
                arrays[f"{name}/weighting"] = random.rand(*y.shape).astype("float32")
            weighting = tf.cast(arrays[f"{name}/weighting"], y.dtype)
            loss = tf.reduce_sum(tf.cast(y * weighting, "float32"))
            extra = tf.add_n(layer.losses) if layer.losses else tf.constant(0.0)
            total = loss + tf.cast(extra, "float32")
        float_input = value.dtype.is_floating
        sources = [*layer.trainable_weights, *([value] if float_input else [])]
        found = tape.gradient(total, sources) if sources else []
        for i, gradient in enumerate(found):
            key = "input" if i == len(kept) else str(i)
            arrays[f"{name}/{step}/gradient/{key}"] = tf.convert_to_tensor(gradient).numpy()
        arrays[f"{name}/{step}/y"] = y.numpy()
        arrays[f"{name}/{step}/regularization"] = extra.numpy()
        for i, weight in enumerate(layer.non_trainable_weights):
            arrays[f"{name}/{step}/state/{i}"] = weight.numpy()
    arrays[f"{name}/predicted"] = layer(tf.constant(x[0]), training=False).numpy()
    config = {"class_name": type(layer).__name__, "config": layer.get_config()}
    arrays[f"{name}/config"] = np.array(json.dumps(config, default=plain))


arrays = {"tf_version": np.array(tf.__version__)}
for name, (shape, make) in CASES.items():
    if V2_10 and name not in ("bn_4d", "bn_5d", "bn_5d_channels_first", "bn_3d_mask"):
        continue
    K.backend.clear_session()
    try:
        record(name, shape, make, arrays)
    except Exception as error:  # noqa: BLE001 - e.g. a kernel that a CPU lacks
        print(name, type(error).__name__, str(error)[:150])
np.savez_compressed(sys.argv[1], **arrays)
