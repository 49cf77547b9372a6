"""MirroredStrategy: one process, so all replicas are repaired at once."""

import multiprocessing

import keras
import pytest

from tests.engines import tensorflow_programs

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        keras.backend.backend() != "tensorflow", reason="MirroredStrategy is TensorFlow's"
    ),
]


def test_all_replicas_are_repaired():
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(1, tensorflow_programs.begin) as pool:
        pool.apply_async(tensorflow_programs.run, (PROGRAM,)).get(200)


PROGRAM = """
import keras_mp
keras_mp.set_global_policy("mixed_float16")
x = np.full((32, 4), 1.0, "float32")
x[2::4] = 30000.0  # of each batch of 4 the second replica has these
with strategy.scope():
    layers = [
        keras.layers.Dense(1, kernel_initializer="ones", name="large"),
        keras.layers.Dense(1, kernel_initializer="ones", dtype="float32"),
    ]
    model = keras.Sequential([keras.Input((4,)), *layers])
    opt = LossScaleOptimizer(keras.optimizers.SGD(1e-9))
    model.compile(opt, "mae", jit_compile=False)
before = [w.copy() for w in model.get_weights()]
repair = keras_mp.PrecisionRepair(skips=3)
model.fit(x, x[:, :1], batch_size=4, shuffle=False, verbose=0, callbacks=[repair])
keras_mp.set_global_policy(None)
assert repair.repairs.layers == ("large",), str(repair.repairs)
assert int(opt.skipped_steps) == 3
assert int(opt.iterations.numpy()) == 8
assert not all((a == b).all() for a, b in zip(before, model.get_weights()))
"""
