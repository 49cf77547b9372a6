"""Records what layers of tf.keras predict, with many of their options: one file a TensorFlow.

python record.py, in this folder, with TF 2.4.4, 2.10.1 and 2.15.1. Writes tf2.4.4.npz and so on.
For each case NAME: NAME/config is the JSON of a functional model around the layer, NAME/w0, w1, ...
its weights, NAME/x the input and NAME/y what `predict` made of it. A case that this TensorFlow does
not know is left out.
"""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

L = tf.keras.layers
P = tf.keras.layers
if not hasattr(L, "Resizing"):  # TF up to 2.5
    P = tf.keras.layers.experimental.preprocessing

IMAGE, SEQUENCE, VECTOR, VOLUME = (8, 10, 3), (6, 4), (5,), (4, 5, 6, 2)
SAME = ("valid", "same")


def options(**lists):
    """Yields keyword arguments: the first of each list, and each other one alone."""
    first = {name: values[0] for name, values in lists.items()}
    yield first
    for name, values in lists.items():
        for value in values[1:]:
            yield {**first, name: value}


def cases():
    """Yields the name of a class, its positional and keyword arguments, and the input's shape."""
    scaled = (
        "nearest",
        "bilinear",
        "bicubic",
        "area",
        "lanczos3",
        "lanczos5",
        "gaussian",
        "mitchellcubic",
    )
    for interpolation in scaled:
        for size in ((5, 7), (12, 9)):
            yield "Resizing", size, {"interpolation": interpolation}, IMAGE
        yield "UpSampling2D", ((2, 3),), {"interpolation": interpolation}, IMAGE
    yield "Resizing", (5, 7), {"crop_to_aspect_ratio": True}, IMAGE
    for size in ((6, 6), (8, 10), (3, 9), (4, 5), (12, 12), (7, 12)):
        yield "CenterCrop", size, {}, IMAGE
        yield "RandomCrop", size, {}, IMAGE
    for mode in ("horizontal", "vertical", "horizontal_and_vertical"):
        yield "RandomFlip", (mode,), {}, IMAGE
    for name, factor in (
        ("RandomRotation", 0.2),
        ("RandomZoom", 0.3),
        ("RandomContrast", 0.4),
        ("RandomBrightness", 0.4),
        ("RandomHeight", 0.3),
        ("RandomWidth", 0.3),
    ):
        yield name, (factor,), {}, IMAGE
    yield "RandomTranslation", (0.2, 0.3), {}, IMAGE
    yield "Rescaling", (0.5,), {"offset": -1.0}, IMAGE
    yield "Rescaling", (1.0 / 127.5,), {"offset": -1}, IMAGE
    yield "Normalization", (), {"mean": 2.0, "variance": 4.0}, VECTOR
    yield "Normalization", (), {"axis": None, "mean": 2.0, "variance": 4.0}, VECTOR
    yield "Normalization", (), {"mean": [1.0, 2, 3, 4, 5], "variance": [1.0, 4, 9, 2, 0]}, VECTOR
    yield "Normalization", (), {"mean": 2.0, "variance": 4.0, "invert": True}, VECTOR
    for mode in ("int", "one_hot", "multi_hot", "count"):
        yield "Discretization", ([-0.5, 0.0, 0.7],), {"output_mode": mode}, (1,)
    for mode in ("one_hot", "multi_hot", "count"):
        yield "CategoryEncoding", (), {"num_tokens": 7, "output_mode": mode}, "integers"
    for kwargs in ({}, {"salt": 3}, {"salt": [3, 4]}, {"mask_value": 0}):
        yield "Hashing", (9,), kwargs, "integers"

    for padding in SAME:
        for name in ("Average", "Max"):
            for rank, shape in ((1, SEQUENCE), (2, IMAGE), (3, VOLUME)):
                for pool, strides in ((2, None), (3, 2), (3, 1)):
                    kwargs = {"strides": strides, "padding": padding}
                    yield f"{name}Pooling{rank}D", (pool,), kwargs, shape
    for name in ("Average", "Max"):
        for rank, shape in ((1, SEQUENCE), (2, IMAGE), (3, VOLUME)):
            yield f"Global{name}Pooling{rank}D", (), {}, shape
            yield f"Global{name}Pooling{rank}D", (), {"keepdims": True}, shape
    for rank, shape in ((1, SEQUENCE), (2, IMAGE), (3, VOLUME)):
        for kwargs in options(
            padding=("valid", "same"),
            strides=(1, 2),
            use_bias=(True, False),
            dilation_rate=(1, 2),
            activation=(None, "relu", "tanh"),
        ):
            yield f"Conv{rank}D", (4, 3), kwargs, shape
            if kwargs["dilation_rate"] == 1:
                yield f"Conv{rank}DTranspose", (4, 3), kwargs, shape
    yield "Conv1D", (4, 3), {"padding": "causal"}, SEQUENCE
    yield "Conv1D", (4, 3), {"groups": 2}, SEQUENCE
    yield "Conv2D", (6, 3), {"groups": 3}, IMAGE
    yield "Conv2D", (6, (1, 4)), {"padding": "same", "strides": (1, 3)}, IMAGE
    for kwargs in options(
        padding=("valid", "same"), strides=(1, 2), depth_multiplier=(1, 2), use_bias=(True, False)
    ):
        yield "DepthwiseConv2D", (3,), kwargs, IMAGE
        yield "DepthwiseConv1D", (3,), kwargs, SEQUENCE
        yield "SeparableConv2D", (4, 3), kwargs, IMAGE
        yield "SeparableConv1D", (4, 3), kwargs, SEQUENCE
    for axis in (-1, 1, [1, 2], [1, 2, 3]):
        for kwargs in ({}, {"center": False}, {"scale": False}, {"epsilon": 0.1}):
            yield "LayerNormalization", (), {"axis": axis, **kwargs}, IMAGE
    for axis in (-1, 1):
        for kwargs in ({}, {"center": False}, {"scale": False}, {"epsilon": 0.1}):
            yield "BatchNormalization", (), {"axis": axis, **kwargs}, IMAGE
    yield "BatchNormalization", (), {}, VECTOR
    for groups in (1, 3, -1):
        yield "GroupNormalization", (groups,), {}, IMAGE
    yield "UnitNormalization", (), {}, IMAGE
    yield "UnitNormalization", (), {"axis": [1, 2]}, IMAGE
    for kwargs in options(
        use_bias=(True, False),
        activation=(
            None,
            "relu",
            "elu",
            "selu",
            "gelu",
            "swish",
            "sigmoid",
            "hard_sigmoid",
            "softmax",
            "softplus",
            "softsign",
            "exponential",
            "linear",
            "tanh",
            "mish",
            "relu6",
            "leaky_relu",
        ),
    ):
        yield "Dense", (4,), kwargs, VECTOR
    yield "Dense", (4,), {}, IMAGE
    yield "EinsumDense", ("abc,cd->abd",), {"output_shape": (None, 5), "bias_axes": "d"}, SEQUENCE
    yield "Embedding", (9, 3), {}, "integers"
    yield "Embedding", (9, 3), {"mask_zero": True}, "integers"
    for name in ("LSTM", "GRU", "SimpleRNN"):
        for kwargs in options(
            return_sequences=(False, True),
            go_backwards=(False, True),
            use_bias=(True, False),
            unroll=(False, True),
            activation=("tanh", "relu"),
            dropout=(0.0, 0.3),
        ):
            yield name, (3,), kwargs, SEQUENCE
    for kwargs in ({"reset_after": False}, {"recurrent_activation": "hard_sigmoid"}):
        yield "GRU", (3,), kwargs, SEQUENCE
    yield (
        "LSTM",
        (3,),
        {"recurrent_activation": "hard_sigmoid", "unit_forget_bias": False},
        SEQUENCE,
    )
    for merge in ("concat", "sum", "mul", "ave"):
        yield "Bidirectional", (L.LSTM(3, return_sequences=True),), {"merge_mode": merge}, SEQUENCE
    yield "Bidirectional", (L.GRU(3, go_backwards=True),), {}, SEQUENCE
    yield "TimeDistributed", (L.Dense(3),), {}, SEQUENCE
    yield "ConvLSTM2D", (2, 3), {"padding": "same"}, (3, 6, 6, 2)
    yield "ConvLSTM1D", (2, 3), {"return_sequences": True}, (3, 6, 2)
    for name, kwargs in (
        ("ELU", {"alpha": 0.7}),
        ("LeakyReLU", {"alpha": 0.2}),
        ("PReLU", {}),
        ("PReLU", {"shared_axes": [1, 2]}),
        ("ReLU", {}),
        ("ReLU", {"max_value": 1.0, "negative_slope": 0.1, "threshold": 0.2}),
        ("Softmax", {}),
        ("Softmax", {"axis": 1}),
        ("ThresholdedReLU", {"theta": 0.5}),
    ):
        yield name, (), kwargs, IMAGE
    for name in ("Dropout", "SpatialDropout2D", "GaussianDropout", "GaussianNoise", "AlphaDropout"):
        yield name, (0.3,), {}, IMAGE
    yield "ActivityRegularization", (0.1,), {}, VECTOR
    yield "Flatten", (), {}, IMAGE
    yield "Permute", ((2, 3, 1),), {}, IMAGE
    yield "Reshape", ((5, -1),), {}, IMAGE
    yield "RepeatVector", (3,), {}, VECTOR
    yield "Masking", (0.0,), {}, SEQUENCE
    yield "Cropping1D", ((1, 2),), {}, SEQUENCE
    yield "Cropping2D", (((1, 2), (0, 3)),), {}, IMAGE
    yield "Cropping3D", (1,), {}, VOLUME
    yield "ZeroPadding1D", ((1, 2),), {}, SEQUENCE
    yield "ZeroPadding2D", (((1, 2), (0, 3)),), {}, IMAGE
    yield "ZeroPadding3D", (1,), {}, VOLUME
    yield "UpSampling1D", (2,), {}, SEQUENCE
    yield "UpSampling3D", (2,), {}, VOLUME
    yield "LocallyConnected1D", (3, 2), {}, SEQUENCE
    yield "LocallyConnected2D", (3, 2), {}, IMAGE


def build(name, args, kwargs, x):
    """Returns a model of one layer."""
    dtype = "int32" if x.dtype.kind == "i" else "float32"
    inputs = tf.keras.Input(x.shape[1:], dtype=dtype)
    kind = getattr(L, name, None) or getattr(P, name)
    return tf.keras.Model(inputs, kind(*args, **kwargs)(inputs))


def main():
    recorded, left_out = {}, []
    seen = {}
    for name, args, kwargs, shape in cases():
        number = seen[name] = seen.get(name, -1) + 1
        random = np.random.RandomState(len(recorded))
        x = random.standard_normal((2, *(shape if shape != "integers" else (4,))))
        x = (
            random.randint(0, 7, (2, 4)).astype("int32")
            if shape == "integers"
            else x.astype("float32")
        )
        tf.keras.backend.clear_session()
        try:
            model = build(name, args, kwargs, x)
            values = [
                random.uniform(0.1, 1, w.shape).astype("float32") - 0.3 * (w.trainable)
                for w in model.weights
            ]
            if name not in ("Normalization", "Discretization") and not name.startswith("Random"):
                model.set_weights(values)
            y = model.predict(x)
        except Exception as error:  # noqa: BLE001 - whatever this TensorFlow says
            left_out.append(f"{name} {args} {kwargs}: {type(error).__name__} {str(error)[:60]!r}")
            continue
        case = f"{name}_{number}"
        recorded[f"{case}/config"] = np.array(model.to_json())
        recorded[f"{case}/x"], recorded[f"{case}/y"] = x, y
        for i, value in enumerate(model.get_weights()):
            recorded[f"{case}/w{i}"] = value
    np.savez_compressed(f"tf{tf.__version__}.npz", **recorded)
    print(f"{len([k for k in recorded if k.endswith('/x')])} cases, {len(left_out)} left out")
    print(*left_out, sep="\n")


if __name__ == "__main__":
    main()
