"""The engines of JAX: `keras.distribution`."""

import os
from contextlib import nullcontext

from tests import faults

TESTED = [
    ("data parallel", 2),
    ("data parallel", 8),
    ("model parallel", 4),
    ("model parallel", 8),
]
CUT = {"model parallel": 2}  # variables of which devices hold different parts


def _data_parallel(replicas, out):
    """DataParallel over devices of the host, `fit`."""
    data_parallel(replicas)
    faults.all_cases(replicas, out, nullcontext, faults.fit)


def _model_parallel(replicas, out):
    """ModelParallel over devices of the host, the hidden layer cut in two, `fit`."""
    model_parallel(replicas)
    faults.all_cases(replicas, out, nullcontext, faults.fit)


def data_parallel(replicas):
    """Has Keras train on `replicas` devices of the host; before JAX is imported."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={replicas}"
    import keras

    keras.distribution.set_distribution(keras.distribution.DataParallel())


def model_parallel(replicas):
    """Has Keras cut the layer "hidden" in two, on `replicas` devices; before JAX is imported."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={replicas}"
    import keras

    mesh = keras.distribution.DeviceMesh((replicas // 2, 2), ["batch", "model"])
    layout = keras.distribution.LayoutMap(mesh)
    layout[".*hidden/kernel"], layout[".*hidden/bias"] = (None, "model"), ("model",)
    parallel = keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")
    keras.distribution.set_distribution(parallel)


ENGINES = {"data parallel": _data_parallel, "model parallel": _model_parallel}
