"""The engines of JAX: `keras.distribution`, on devices of one process or of several."""

import os
from contextlib import nullcontext

from tests import faults

TESTED = [
    ("data parallel", 8),
    ("model parallel", 8),
    ("data parallel processes", 2),
    ("model parallel processes", 2),
]
CUT = {  # variables of which devices hold different parts
    "model parallel": 2,
    "model parallel processes": 2,
}


def _data_parallel(replicas, out):
    """DataParallel over devices of the host, `fit`."""
    data_parallel(replicas)
    faults.all_cases(replicas, out, nullcontext, faults.fit)


def _model_parallel(replicas, out):
    """ModelParallel over devices of the host, the hidden layer cut in two, `fit`."""
    model_parallel(replicas)
    faults.all_cases(replicas, out, nullcontext, faults.fit)


def _data_parallel_processes(replicas, out):
    """DataParallel over processes of a device each, `fit`; each feeds its own rows."""
    if "KERAS_DISTRIBUTION_PROCESS_ID" not in os.environ:
        faults.processes("data parallel processes", replicas, out, environment)
        return
    rank = data_parallel_processes(replicas)

    def fit(model, optimizer, x, y):
        size = faults.ROWS // replicas
        own = (slice(None), slice(rank * size, (rank + 1) * size))
        x, y = (a.reshape(-1, faults.ROWS, a.shape[1])[own].reshape(-1, a.shape[1]) for a in (x, y))
        model.fit(x, y, batch_size=size, shuffle=False, verbose=0)

    faults.all_cases(replicas, out, nullcontext, fit)


def _model_parallel_processes(replicas, out):
    """ModelParallel, the hidden layer cut between two processes, `fit`; both feed the rows."""
    if "KERAS_DISTRIBUTION_PROCESS_ID" not in os.environ:
        faults.processes("model parallel processes", replicas, out, environment)
        return
    model_parallel_processes(replicas)
    faults.all_cases(replicas, out, nullcontext, faults.fit)


def data_parallel(replicas):
    """Has Keras train on `replicas` devices of the host; before JAX is imported."""
    host_devices(replicas)
    import keras

    keras.distribution.set_distribution(keras.distribution.DataParallel())


def model_parallel(replicas):
    """Has Keras cut the layer "hidden" in two, on `replicas` devices; before JAX is imported."""
    host_devices(replicas)
    _cut(replicas)


def data_parallel_processes(replicas):
    """As `data_parallel`, of this process and the others; returns the number of this one."""
    rank = join(replicas)
    import keras

    # Arrays, other than a tf.data.Dataset, are cut by who hands them over.
    parallel = keras.distribution.DataParallel(auto_shard_dataset=False)
    keras.distribution.set_distribution(parallel)
    return rank


def model_parallel_processes(replicas):
    """As `model_parallel`, each half in a process of its own."""
    join(replicas)
    _cut(replicas, auto_shard_dataset=False)


def _cut(replicas, **options):
    import keras

    mesh = keras.distribution.DeviceMesh((replicas // 2, 2), ["batch", "model"])
    layout = keras.distribution.LayoutMap(mesh)
    layout[".*hidden/kernel"], layout[".*hidden/bias"] = (None, "model"), ("model",)
    parallel = keras.distribution.ModelParallel(
        layout_map=layout, batch_dim_name="batch", **options
    )
    keras.distribution.set_distribution(parallel)


def host_devices(count):
    """Gives JAX `count` devices of the host; before it is imported."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"


def join(processes):
    """Joins the other processes, with a device each; returns the number of this one.

    Two devices each, and the collectives of JAX 0.10 on CPUs may wait for each other for ever.
    """
    host_devices(1)
    import jax
    import keras

    import keras_mp  # noqa: F401 - before initialize: importing it must leave devices alone

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    keras.distribution.initialize()
    assert jax.process_count() == len(jax.devices()) == processes
    return jax.process_index()


def environment(i, addresses):
    """What process `i` needs in its environment to join the others."""
    return {
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": ",".join(addresses),
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(len(addresses)),
        "KERAS_DISTRIBUTION_PROCESS_ID": str(i),
    }


ENGINES = {
    "data parallel": _data_parallel,
    "model parallel": _model_parallel,
    "data parallel processes": _data_parallel_processes,
    "model parallel processes": _model_parallel_processes,
}
