"""Keeps what Keras writes of functions of TensorFlow in Lambda layers, in wrappers.json.

Run it with each TensorFlow from 1.15 to 2.15: `python record_wrappers.py`. A function that Keras
cannot write as JSON is kept as the error.
"""

import json
from pathlib import Path

import tensorflow as tf

PATH = Path(__file__).resolve().parent / "wrappers.json"
FUNCTIONS = {
    "tf.abs": tf.abs,
    "tf.nn.relu": tf.nn.relu,
    "tf.nn.softmax": tf.nn.softmax,
    "tf.tanh": tf.tanh,
    "K.square": tf.keras.backend.square,
    "K.mean": tf.keras.backend.mean,
    "activations.relu": tf.keras.activations.relu,
}


def written(function):
    """Returns [function, module] of the config of a layer, as in a file."""
    layers = tf.keras.Sequential([tf.keras.layers.Lambda(function, input_shape=(4,))])
    try:
        config = json.loads(layers.to_json())["config"]
    except Exception as error:  # noqa: BLE001, whatever it is, there is no such file
        return type(error).__name__
    last = (config["layers"] if isinstance(config, dict) else config)[-1]["config"]
    return [last["function"], last["module"]]


if __name__ == "__main__":
    kept = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}
    for name, function in FUNCTIONS.items():
        kept.setdefault(name, {})[".".join(tf.__version__.split(".")[:2])] = written(function)
    lines = [f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept)]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
