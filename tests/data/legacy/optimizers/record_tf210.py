"""Records what RMSprop of `tf.keras.optimizers.experimental` does in TF 2.10.1.

Python 3.8, `pip install tensorflow-cpu==2.10.1 'protobuf<3.20' 'numpy<1.24'`, then
`python record_tf210.py > recorded_tf210.json`, beside recorded_tf23.json: the variables and
gradients are those of that file. What is recorded has the same form.
"""

import json
import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

RMSprop = tf.keras.optimizers.experimental.RMSprop
GIVEN = json.loads(Path("recorded_tf23.json").read_text())

CASES = {
    "rmsprop": {},
    "rmsprop_momentum": {"momentum": 0.7},
    "rmsprop_centered": {"centered": True},
    "rmsprop_centered_momentum": {"centered": True, "momentum": 0.7},
}


def trained(optimizer):
    """Yields [table, dense] after each step."""
    table = tf.Variable(np.array(GIVEN["table"], "float32"), name="table")
    dense = tf.Variable(np.array(GIVEN["dense"], "float32"), name="dense")
    optimizer.build([table, dense])
    for step in GIVEN["steps"]:
        # Of one size: the rule of centered, which roots a difference, ends in NaN otherwise.
        values = np.array(step["values"], "float32")
        values = 0.1 * np.sign(values).astype("float32")
        sparse = tf.IndexedSlices(tf.constant(values), tf.constant(step["rows"]), (5, 3))
        gradient = 0.1 * np.sign(np.array(step["dense"], "float32"))
        optimizer.apply_gradients([(sparse, table), (tf.constant(gradient), dense)])
        yield [table.numpy(), dense.numpy()]


def main():
    recorded = {}
    for name, arguments in CASES.items():
        optimizer = RMSprop(0.1, rho=0.8, jit_compile=False, **arguments)
        after = list(trained(optimizer))
        assert all(np.isfinite(weights).all() for weights in after[-1])
        config = tf.keras.optimizers.serialize(optimizer)
        recorded[name] = {"after": after, "config": config}

    def plain(value):
        return value.tolist() if hasattr(value, "tolist") else value.numpy().tolist()

    document = {"tf_version": tf.__version__, "cases": recorded}
    text = json.dumps(document, default=plain, sort_keys=True)
    sys.stdout.write(text.replace('}, "', '},\n"') + "\n")


main()
