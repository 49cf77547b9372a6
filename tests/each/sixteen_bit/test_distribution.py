"""16-bit weights on several devices: the same training as on one, and one master everywhere.

In processes of their own, because the devices must exist before the framework starts.
"""

import keras
import pytest

from tests import programs

pytestmark = pytest.mark.processes
BACKEND = keras.backend.backend()
KINDS = {
    "copies": "MasterWeights(adam())",
    "halves": "MasterWeights(adam(), 'split')",
    "scaled": "LossScaleOptimizer(MasterWeights(adam(), 'split'))",
    "rounded": "StochasticRounding(adam(), slots='bfloat16')",
}
MODEL = """
import keras, numpy as np
from keras import ops
from keras_mp import LossScaleOptimizer, MasterWeights, StochasticRounding

adam = lambda: keras.optimizers.Adam(0.05)
random = np.random.default_rng(0)
x = random.normal(size=(64, 4)).astype("float32")
y = x.sum(axis=1, keepdims=True)

def fitted(make, **options):
    keras.utils.set_random_seed(0)
    dense = keras.layers.Dense
    model = keras.Sequential([dense(8, activation="tanh", dtype="bfloat16"), dense(1)])
    model.build((None, 4))
    model.compile(make(), "mse", **options)
    history = model.fit(x, y, batch_size=16, epochs=3, shuffle=False, verbose=0)
    return model, history.history["loss"]

def near(found, expected):
    np.testing.assert_allclose(found, expected, rtol=2e-3)
"""
MIRRORED = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
one, expected = fitted(lambda: {optimizer})
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    two, found = fitted(lambda: {optimizer})
near(found, expected)
for variable in (*two.variables, *two.optimizer.variables):
    parts = [part.numpy() for part in getattr(variable.value, "values", ())]
    assert not parts or (parts[0] == parts[1]).all(), variable.path
    if variable is two.layers[0].kernel:
        assert len(parts) == 2
"""
SHARDED = """
import jax
devices = keras.distribution.list_devices()
assert len(devices) == 2
one, expected = fitted(lambda: {optimizer})
mesh = keras.distribution.DeviceMesh((1, 2), ["batch", "model"], devices)
layouts = keras.distribution.LayoutMap(mesh)
layouts[".*dense_2/kernel"] = (None, "model")
keras.distribution.set_distribution(
    keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")
)
two, found = fitted(lambda: {optimizer})
near(found, expected)
kernel = two.layers[0].kernel
size = lambda v: v.value.addressable_shards[0].data.shape
whole = kernel.shape
assert size(kernel) == (4, 4), size(kernel)
same = [v for v in two.optimizer.variables if tuple(v.shape) == tuple(whole)]
assert len(same) >= 2
for variable in same:
    assert size(variable) == (4, 4), (variable.path, size(variable))
"""


@pytest.mark.skipif(BACKEND != "tensorflow", reason="MirroredStrategy is TensorFlow's")
@pytest.mark.parametrize("kind", KINDS)
def test_two_replicas_train_as_one(kind):
    programs.run("-c", MODEL + MIRRORED.replace("{optimizer}", KINDS[kind]), imported=True)


@pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution is JAX's")
@pytest.mark.parametrize("kind", KINDS)
def test_copies_and_slots_are_cut_as_their_weights(kind):
    programs.run(
        "-c",
        MODEL + SHARDED.replace("{optimizer}", KINDS[kind]),
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
        imported=True,
    )
