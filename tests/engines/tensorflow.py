"""The engines of TensorFlow: `tf.distribute`."""

import json
import os

from tests import faults

TESTED = [
    ("one device", 1),
    ("mirrored", 3),
    ("central", 2),
    ("workers", 2),
]
COPIES = {"central": 1}  # of each variable, where it is not one a replica


def _mirrored(replicas, out):
    """MirroredStrategy over logical CPU devices, `fit`."""
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(devices(replicas))
    faults.all_cases(replicas, out, strategy.scope, faults.fit)


def _central(replicas, out):
    """CentralStorageStrategy, one copy of the variables, `fit`."""
    import tensorflow as tf

    compute = devices(replicas)
    strategy = tf.distribute.experimental.CentralStorageStrategy(compute, compute[0])
    faults.all_cases(replicas, out, strategy.scope, faults.fit)


def _one_device(replicas, out):
    """OneDeviceStrategy, `fit`."""
    import tensorflow as tf

    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    faults.all_cases(replicas, out, strategy.scope, faults.fit)


def devices(count):
    """Returns the names of so many logical CPU devices."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(cpu, logical)
    return [f"CPU:{i}" for i in range(count)]


def step_of(strategy, model, optimizer):
    """Returns a compiled step of a loop of one's own: each replica has rows x and targets y."""
    import tensorflow as tf

    @tf.function
    def step(x, y):
        def each(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - y) ** 2) / strategy.num_replicas_in_sync
                scaled = optimizer.scale_loss(loss)
            variables = model.trainable_variables
            gradients = tape.gradient(scaled, [v.value for v in variables])
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

        strategy.run(each, args=(x, y))

    return step


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
        step = step_of(strategy, model, optimizer)
        size = faults.ROWS // replicas
        for begin in range(rank * size, len(x), faults.ROWS):
            here = slice(begin, begin + size)
            step(tf.constant(x[here]), tf.constant(y[here]))

    faults.all_cases(replicas, out, strategy.scope, fit)


ENGINES = {
    "one device": _one_device,
    "central": _central,
    "mirrored": _mirrored,
    "workers": _workers,
}
