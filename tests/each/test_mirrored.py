"""MirroredStrategy: no replica takes a step that another one skips.

In a process of its own, because logical devices must exist before TensorFlow starts.
"""

import subprocess
import sys

import keras
import pytest

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        keras.backend.backend() != "tensorflow", reason="MirroredStrategy is TensorFlow's"
    ),
]

SETUP = """
import keras, numpy as np, tensorflow as tf
from keras_mp import LossScaleOptimizer
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
"""


def test_one_replica():
    """A machine with one GPU; `fit`, and an overflow."""
    run(
        """
strategy = tf.distribute.MirroredStrategy(["CPU:0"])
x = np.ones((8, 2), "float32")
weight = np.ones(8)
for bad in (False, True):
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        opt = LossScaleOptimizer(keras.optimizers.Adam(0.1), initial_scale=8.0)
        model.compile(opt, "mse")
    before = [w.copy() for w in model.get_weights()]
    weight[3] = np.inf if bad else 1.0
    model.fit(x, x[:, :1], sample_weight=weight, batch_size=8, verbose=0)
    same = all((a == b).all() for a, b in zip(before, model.get_weights()))
    assert (same, float(opt.loss_scale)) == ((True, 4.0) if bad else (False, 8.0))
"""
    )


def run(program):
    found = subprocess.run(
        [sys.executable, "-c", SETUP + program], capture_output=True, text=True, timeout=200
    )
    assert found.returncode == 0, found.stderr[-3000:]


@pytest.mark.parametrize("build", ["opt.build([variable])", "pass"], ids=["built", "unbuilt"])
def test_a_bad_replica_stops_them_all(build):
    """Each replica in turn has the nan; Keras' own class applies all but the first's.

    Unbuilt, it fails there: the optimizer is built while the function is traced.
    """
    run(
        """
with strategy.scope():
    variable = keras.Variable([1.0, 1.0])
    opt = LossScaleOptimizer(keras.optimizers.SGD(0.25, momentum=0.5), initial_scale=8.0)
    BUILD

@tf.function
def step(bad):
    def each():
        here = tf.distribute.get_replica_context().replica_id_in_sync_group
        factor = tf.where(tf.equal(here, bad), np.nan, 1.0)
        with tf.GradientTape() as tape:
            loss = opt.scale_loss(factor * tf.reduce_sum(variable.value))
        opt.apply_gradients([(tape.gradient(loss, variable.value), variable)])
    strategy.run(each)

def found():
    weights = [v.numpy().tolist() for v in strategy.experimental_local_results(variable.value)]
    assert weights[0] == weights[1], weights
    return weights[0][0], float(opt.loss_scale), int(tf.identity(opt.iterations.value))

seen = []
for bad in (-1, 0, 1, -1):
    step(tf.constant(bad))
    seen.append(found())
# The gradients of two replicas are summed: 0.25 * 2, then 0.5 * 0.5 + 0.25 * 2.
assert seen == [(0.5, 8.0, 1), (0.5, 4.0, 2), (0.5, 2.0, 3), (-0.25, 2.0, 4)], seen
""".replace("BUILD", build)
    )


def test_fit():
    run("""
x = np.random.RandomState(0).randn(64, 4).astype("float32")
y = x.sum(1, keepdims=True)
x[12] = np.nan  # of the second replica, in the second batch
with strategy.scope():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    optimizer = LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=256.0)
    model.compile(optimizer, keras.losses.MeanSquaredError())
start = [w.copy() for w in model.get_weights()]
model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
assert all(np.isfinite(w).all() for w in model.get_weights())
assert any(not np.array_equal(a, b) for a, b in zip(start, model.get_weights()))
assert (float(optimizer.loss_scale), int(tf.identity(optimizer.iterations.value))) == (128.0, 8)
""")
