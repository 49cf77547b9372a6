"""Records every architecture of `tf.keras.applications`, with weights made by rule.

    python record.py FOLDER                  records what FOLDER lacks, a file each
    python record.py FOLDER tf23.jsonl.xz    then packs them

Written for TF 2.3.4 and 2.4.4 (Python 3.8), 2.10.1 (Python 3.10) and 2.15.1 (Python 3.11). It
takes five to forty minutes for a version on one core. What cannot be recorded is printed.
"""

import base64
import codecs
import json
import lzma
import marshal
import math
import os
import sys
import time
from pathlib import Path

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", TF_ENABLE_ONEDNN_OPTS="0")

import numpy as np
import tensorflow as tf
from weights import images, uniform, weights

K = tf.keras
SMALLEST = {"InceptionResNetV2": 75, "InceptionV3": 75, "Xception": 71}  # others are given 64
MIXED = ("ConvNeXtTiny", "EfficientNetB0", "EfficientNetV2B0", "MobileNetV3Small", "ResNet50")
WITHOUT_TOP = (  # one of each kind
    *("ConvNeXtTiny", "DenseNet121", "EfficientNetB0", "EfficientNetV2B0", "InceptionResNetV2"),
    *("InceptionV3", "MobileNet", "MobileNetV2", "MobileNetV3Small", "NASNetMobile"),
    *("RegNetX002", "RegNetY002", "ResNet50", "ResNet50V2", "ResNetRS50", "VGG16", "Xception"),
)
STEP = {"float32": 1e-6, "mixed_float16": 1e-3}  # what float16 tells apart is coarser


def cases():
    """Yields (name, function, arguments, policy) of all that is recorded."""
    functions = [n for n in dir(K.applications) if callable(getattr(K.applications, n))]
    for function in functions:
        size = SMALLEST.get(function, 64)
        with_top = {"weights": None, "classes": 10, "input_shape": [size, size, 3]}
        yield function, function, with_top, "float32"
        if function.startswith("MobileNetV3"):
            arguments = dict(with_top, minimalistic=True)
            yield f"{function}-minimalistic", function, arguments, "float32"
        if function in WITHOUT_TOP:
            arguments = {"weights": None, "include_top": False, "pooling": "avg"}
            nasnet = function.startswith("NASNet")  # it compares its sizes while it is built
            arguments["input_shape"] = [64, 96, 3] if nasnet else [None, None, 3]
            yield f"{function}-without_top", function, arguments, "float32"
        if function in MIXED:
            yield f"{function}-mixed_float16", function, with_top, "mixed_float16"


def build(function, arguments, policy):
    K.backend.clear_session()
    if hasattr(K.mixed_precision, "set_global_policy"):
        set_policy = K.mixed_precision.set_global_policy
    else:
        set_policy = K.mixed_precision.experimental.set_policy
    set_policy(policy)
    arguments = dict(arguments, input_shape=tuple(arguments["input_shape"]))
    try:
        return getattr(K.applications, function)(**arguments)
    finally:
        set_policy("float32")


def pixels(function):
    """Returns the range of the numbers that `preprocess_input` makes of pixels."""
    if function.startswith("MobileNetV3"):  # its module does not have it
        return [0.0, 255.0]
    modules = [getattr(K.applications, name) for name in dir(K.applications)]
    module = next(m for m in modules if hasattr(m, "preprocess_input") and hasattr(m, function))
    black, white = (module.preprocess_input(np.full((1, 1, 1, 3), v, "f4")) for v in (0, 255))
    return [float(round(float(np.min(black)))), float(round(float(np.max(white))))]


def without_path(function):
    """Returns a function of a Lambda layer, as a config has it, without the path of its module."""
    code = marshal.loads(codecs.decode(function[0].encode("ascii"), "base64"))
    name = Path(code.co_filename).name
    if any(hasattr(constant, "co_filename") for constant in code.co_consts):
        raise ValueError("a function in a function has a path, too")
    code = marshal.dumps(code.replace(co_filename=name))
    return [codecs.encode(code, "base64").decode("ascii"), *function[1:]]


def config_of(model):
    config = json.loads(model.to_json())
    del config["keras_version"], config["backend"]  # which HDF5 files have beside it
    for layer in config["config"]["layers"]:
        if layer["class_name"] == "Lambda":
            layer["config"]["function"] = without_path(layer["config"]["function"])
    names = [layer["config"]["name"] for layer in config["config"]["layers"]]
    if names != [layer.name for layer in model.layers]:
        raise ValueError("the layers of the config are in another order")
    return config


def configs_of(model):
    """Returns the config as HDF5 files have it and, where `to_json` has another, that one."""
    of_json = config_of(model)
    model.use_legacy_config = True  # so does `model.save`, from TF 2.13 on
    config = config_of(model)
    del model.use_legacy_config
    return {"config": config, **({} if of_json == config else {"json_config": of_json})}


def variables_of(layer):
    """Returns the variables of a layer in the order of HDF5 files."""
    return layer.trainable_weights + layer.non_trainable_weights


def describe(variable):
    dtype = variable.dtype.base_dtype.name
    described = [variable.name, variable.shape.as_list()]
    return described if dtype == "float32" else [*described, dtype]


def layers_of(model):
    found = {layer.name: [describe(v) for v in variables_of(layer)] for layer in model.layers}
    return {name: described for name, described in found.items() if described}


def fill(model, layers, levels):
    """Assigns the weights of the rule."""
    variables = [v for layer in model.layers for v in variables_of(layer)]
    for variable, (_, _, array) in zip(variables, weights(layers, levels)):
        variable.assign(array)
    for layer in model.layers:
        if hasattr(layer, "finalize_state"):  # what `load_weights` calls, from TF 2.6 on
            layer.finalize_state()


def level_of(array):
    return round(math.log2(max(float(np.sqrt(np.mean(np.square(array)))), 1e-30)))


def calibrate(model, x):
    """Returns the levels, by the name of the layer, and scales the weights by them.

    With moving averages that fit, the signal neither dies nor explodes, as in trained models.
    What is before the last softmax comes to be about one large.
    """
    last, levels = model.layers[-1], {}
    normalization, dense = K.layers.BatchNormalization, K.layers.Dense
    calls = normalization.call, dense.call

    def normalize(layer, inputs, training=None):
        levels[layer.name] = level = level_of(inputs.numpy())
        layer.moving_mean.assign(layer.moving_mean * 2.0**level)
        layer.moving_variance.assign(layer.moving_variance * 4.0**level)
        return calls[0](layer, inputs, training=False)

    def multiply(layer, inputs):
        if layer is last:
            levels[layer.name] = level_of(inputs.numpy() @ layer.kernel.numpy())
        return calls[1](layer, inputs)

    normalization.call, dense.call = normalize, multiply
    try:
        model(x, training=False)
    finally:
        normalization.call, dense.call = calls
    inner = [v.name for layer in model.layers for v in variables_of(layer)]
    expected = sum("moving_mean" in name for name in inner) + isinstance(last, dense)
    if len(levels) != expected:
        raise ValueError("a batch normalization was not measured, or not once")
    return {layer.name: levels[layer.name] for layer in model.layers if layer.name in levels}


def record(function, arguments, policy):
    shape = arguments["input_shape"]
    if None in shape:
        shape = [79, 90, 3]
    low, high = pixels(function)
    x = images(shape, low, high)
    model = build(function, arguments, "float32")
    layers = layers_of(model)
    fill(model, layers, {})
    levels = calibrate(model, tf.constant(x))
    if policy != "float32":
        model = build(function, arguments, policy)
        layers = layers_of(model)  # TF 2.10 gives Normalization float16 weights
    fill(model, layers, levels)
    predicted = model(tf.constant(x), training=False).numpy()
    step = STEP[policy]
    beside = x * (1 + np.float32(step) * uniform(3, x.shape))
    moved = model(tf.constant(beside), training=False).numpy().astype("f4")
    dtype, predicted = predicted.dtype.name, predicted.astype("<f4")
    condition = np.max(np.abs(moved - predicted)) / np.max(np.abs(predicted)) / step
    return {
        "function": function,
        "arguments": arguments,
        "policy": policy,
        "keras_version": json.loads(model.to_json())["keras_version"],
        **configs_of(model),
        "layers": layers,
        "levels": levels,
        "input": {"shape": shape, "low": low, "high": high},
        "predictions": base64.b64encode(predicted.tobytes()).decode("ascii"),
        "dtype": dtype,
        "condition": float(f"{condition:.2g}"),
    }


def summary(recorded):
    """Returns what tells whether the predictions say much, as a line."""
    predicted = np.frombuffer(base64.b64decode(recorded["predictions"]), "<f4").reshape(2, -1)
    apart = np.max(np.abs(predicted[0] - predicted[1])) / np.max(np.abs(predicted))
    return (
        f"{recorded['dtype']} from {predicted.min():.3g} to {predicted.max():.3g},"
        f" images apart {apart:.2g}, condition {recorded['condition']}"
    )


def record_all(folder):
    for name, function, arguments, policy in cases():
        path, start = folder / f"{name}.json", time.time()
        if path.exists():
            continue
        try:
            recorded = record(function, arguments, policy)
        except Exception as error:  # noqa: BLE001 - what a version cannot do
            print(name, "FAILED", type(error).__name__, str(error)[:300], flush=True)
            continue
        path.write_text(json.dumps(recorded), encoding="utf-8")
        print(f"{name} {time.time() - start:.0f} s, {summary(recorded)}", flush=True)


def pack(folder, packed):
    """Writes a line of names, and a line for each recording."""
    names = [name for name, *_ in cases() if (folder / f"{name}.json").exists()]
    lines = [json.dumps({"tensorflow": tf.__version__, "names": names})]
    lines += [(folder / f"{name}.json").read_text(encoding="utf-8") for name in names]
    text = "".join(line + "\n" for line in lines).encode("ascii")
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
    packed.write_bytes(lzma.compress(text, filters=filters))
    print(f"{len(names)} recordings, {len(text)} bytes, packed {packed.stat().st_size}")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) > 2:
        pack(folder, Path(sys.argv[2]))
    else:
        record_all(folder)
