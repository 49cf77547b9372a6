"""Records what optimizers of TF 2.3.4 and TensorFlow Addons 0.11.2 do with known gradients.

Python 3.8, `pip install tensorflow-cpu==2.3.4 'protobuf<3.20' tensorflow-addons==0.11.2`, then
`python record_tf23.py > recorded_tf23.json`.

Two variables, a table of 5 rows whose gradients are sparse and name rows twice, and a dense one.
Each case: the config as serialized after the last step, and both variables after each step.
"""

import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf
import tensorflow_addons as tfa

K, A = tf.keras.optimizers, tfa.optimizers
random = np.random.RandomState(7)
TABLE = random.randn(5, 3).astype("float32")
DENSE = random.randn(4).astype("float32")
SIZES = [1.0, 1e-2, 1e-4, 1.0, 1e-6]
ROWS = [[0, 2, 2], [1, 0, 1], [3, 3, 0], [2, 2, 1], [0, 1, 3]]  # row 4 never; 2 and 3 rest
STEPS = [
    {
        "rows": rows,
        "values": (size * random.randn(3, 3)).astype("float32"),
        "dense": (size * random.randn(4)).astype("float32"),
    }
    for size, rows in zip(SIZES, ROWS)
]


def schedule():
    return tf.keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)


def wrapped(**arguments):
    inner = A.AdamW(weight_decay=0.01, learning_rate=0.1)
    return tf.keras.mixed_precision.experimental.LossScaleOptimizer(inner, **arguments)


CASES = {
    "sgd": lambda: K.SGD(0.1),
    "sgd_momentum": lambda: K.SGD(0.1, momentum=0.9),
    "sgd_nesterov_decay": lambda: K.SGD(0.1, momentum=0.9, nesterov=True, decay=0.5),
    "sgd_schedule_decay": lambda: K.SGD(schedule(), decay=0.5),
    "rmsprop": lambda: K.RMSprop(0.1, rho=0.8),
    "rmsprop_decay": lambda: K.RMSprop(0.1, decay=0.5),
    "rmsprop_centered": lambda: K.RMSprop(0.1, rho=0.8, centered=True),
    "rmsprop_momentum": lambda: K.RMSprop(0.1, rho=0.8, momentum=0.7),
    "rmsprop_centered_momentum": lambda: K.RMSprop(0.1, rho=0.8, momentum=0.7, centered=True),
    "adam_decay": lambda: K.Adam(0.1, decay=0.5),
    "adam_amsgrad": lambda: K.Adam(0.1, amsgrad=True),
    "adamax": lambda: K.Adamax(0.1),
    "adamax_decay": lambda: K.Adamax(0.1, decay=0.5),
    "nadam": lambda: K.Nadam(0.1),
    "nadam_schedule_decay": lambda: K.Nadam(0.1, schedule_decay=0.3),
    "adagrad": lambda: K.Adagrad(0.1, initial_accumulator_value=0.0),
    "adagrad_decay": lambda: K.Adagrad(0.1, decay=0.5),
    "adadelta": lambda: K.Adadelta(1.0, epsilon=1e-6),
    "adadelta_decay": lambda: K.Adadelta(1.0, rho=0.9, decay=0.5),
    "ftrl": lambda: K.Ftrl(0.1),
    "ftrl_decay": lambda: K.Ftrl(
        0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.02, decay=0.5
    ),
    "addons_adamw": lambda: A.AdamW(weight_decay=0.01, learning_rate=0.1),
    "addons_adamw_schedule": lambda: A.AdamW(weight_decay=0.01, learning_rate=schedule()),
    "addons_adamw_decay": lambda: A.AdamW(weight_decay=0.01, learning_rate=0.1, decay=0.5),
    "addons_adamw_decay_schedule": lambda: A.AdamW(weight_decay=schedule(), learning_rate=0.1),
    "addons_sgdw": lambda: A.SGDW(weight_decay=0.01, learning_rate=0.1),
    "addons_sgdw_nesterov": lambda: A.SGDW(
        weight_decay=0.01, learning_rate=0.1, momentum=0.9, nesterov=True
    ),
    "addons_lazyadam": lambda: A.LazyAdam(0.1),
    "addons_lamb": lambda: A.LAMB(0.1),
    "addons_lamb_weight_decay": lambda: A.LAMB(0.1, weight_decay_rate=0.01),
    "addons_lamb_decay": lambda: A.LAMB(0.1, decay=0.5),
    "addons_radam": lambda: A.RectifiedAdam(0.1),
    "addons_novograd": lambda: A.NovoGrad(0.1),
    "addons_yogi": lambda: A.Yogi(0.1),
    "addons_conditional_gradient": lambda: A.ConditionalGradient(0.1, lambda_=0.1),
    "addons_proximal_adagrad": lambda: A.ProximalAdagrad(0.1),
    "addons_lookahead": lambda: A.Lookahead(K.Adam(0.1), sync_period=2),
    "addons_moving_average": lambda: A.MovingAverage(K.SGD(0.1), average_decay=0.9),
    "addons_swa": lambda: A.SWA(K.SGD(0.1), start_averaging=0, average_period=2),
    "loss_scale_addons_adamw": lambda: wrapped(loss_scale="dynamic"),
}


def trained(optimizer):
    """Yields [table, dense] after each step."""
    table, dense = tf.Variable(TABLE, name="table"), tf.Variable(DENSE, name="dense")
    for step in STEPS:
        sparse = tf.IndexedSlices(tf.constant(step["values"]), tf.constant(step["rows"]), (5, 3))
        optimizer.apply_gradients([(sparse, table), (tf.constant(step["dense"]), dense)])
        yield [table.numpy(), dense.numpy()]


def main():
    recorded = {}
    for name, make in CASES.items():
        optimizer = make()
        entry = recorded[name] = {}
        if not name.startswith("loss_scale"):  # which wants gradients from a tape
            entry["after"] = list(trained(optimizer))
        entry["config"] = tf.keras.optimizers.serialize(optimizer)
    document = {
        "tf_version": tf.__version__,
        "addons_version": tfa.__version__,
        "table": TABLE,
        "dense": DENSE,
        "steps": STEPS,
        "cases": recorded,
    }

    def plain(value):
        if isinstance(value, np.generic):
            return value.item()
        return value.tolist() if hasattr(value, "tolist") else value.numpy().tolist()

    # One case a line, float32 as its shortest decimal.
    text = json.dumps(document, default=plain, indent=None, sort_keys=True)
    sys.stdout.write(text.replace('}, "', '},\n"') + "\n")


main()
