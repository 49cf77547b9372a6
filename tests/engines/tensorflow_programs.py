"""Programs for two replicas on CPUs, one after the other in a process that takes seconds to start.

Logical devices must exist before TensorFlow starts, so that of the tests does not do.
"""

import keras
import numpy as np

import keras_mp

NAMES = {}


def begin():
    """Makes two devices, and what programs find there."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    NAMES.update(keras=keras, np=np, tf=tf, strategy=strategy)
    NAMES["LossScaleOptimizer"] = keras_mp.LossScaleOptimizer


def run(program):
    """Runs a program, the text of one, which raises what is wrong."""
    exec(compile(program, "a program", "exec"), dict(NAMES))
