"""The engines of TensorFlow: `tf.distribute`."""

import json
import os

from tests import faults

TESTED = [("mirrored", 2), ("mirrored", 3), ("mirrored", 4), ("workers", 2), ("workers", 3)]


def _mirrored(replicas, out):
    """MirroredStrategy over logical CPU devices, `fit`."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * replicas
    tf.config.set_logical_device_configuration(cpu, devices)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    faults.all_cases(replicas, out, strategy.scope, faults.fit)


def _workers(replicas, out):
    """MultiWorkerMirroredStrategy, a process each, a loop of its own."""
    if "TF_CONFIG" in os.environ:
        _of_worker(replicas, out)
        return

    def environment(i, addresses):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}}
        return {"TF_CONFIG": json.dumps(task)}

    faults.processes("workers", replicas, out, environment)


def _of_worker(replicas, out):
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = strategy.cluster_resolver.task_id

    def fit(model, optimizer, x, y):
        @tf.function
        def step(x, y):
            def each(x, y):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((model(x) - y) ** 2) / replicas
                    scaled = optimizer.scale_loss(loss)
                variables = model.trainable_variables
                gradients = tape.gradient(scaled, [v.value for v in variables])
                optimizer.apply_gradients(zip(gradients, variables, strict=True))

            strategy.run(each, args=(x, y))

        size = faults.ROWS // replicas
        for begin in range(rank * size, len(x), faults.ROWS):
            here = slice(begin, begin + size)
            step(tf.constant(x[here]), tf.constant(y[here]))

    faults.all_cases(replicas, out, strategy.scope, fit)


ENGINES = {"mirrored": _mirrored, "workers": _workers}
