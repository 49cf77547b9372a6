"""KMP020: Horovod and TensorFlow Addons around an optimizer of mixed precision. Never rewritten.

    opt = hvd.DistributedOptimizer(mixed_precision.LossScaleOptimizer(opt, "dynamic"))
    opt = tfa.optimizers.MovingAverage(mixed_precision.LossScaleOptimizer(opt, "dynamic"))

The last versions of both (Horovod 0.28.1, tensorflow_addons 0.23.0) know optimizers of Keras 2
only. Reported, with what takes their place in Keras 3.
"""

import re

from keras_mp.migration.code.sites import Decision

_PAGE = "see From Horovod to Keras 3 in the docs"
_REDUCED = (
    "Horovod 0.28 takes no optimizer of Keras 3, where tf.distribute, keras.distribution, or DDP "
    "and FSDP of PyTorch reduce the gradients of all devices"
)
_HOROVOD = {
    "DistributedOptimizer": f"{_REDUCED}: pass the optimizer unchanged, {_PAGE}",
    "DistributedGradientTape": f"{_REDUCED}: use a plain tf.GradientTape, {_PAGE}",
    "broadcast_variables": (
        "Horovod cannot broadcast an optimizer of Keras 3, and need not: all devices start from "
        f"the same values, {_PAGE}"
    ),
    "BroadcastGlobalVariablesCallback": (
        f"every strategy of Keras 3 starts all devices from the same values: remove it, {_PAGE}"
    ),
    "MetricAverageCallback": (
        "metrics are of all devices under tf.distribute and keras.distribution: remove it; with "
        f"DDP of PyTorch reduce the logs, {_PAGE}"
    ),
}
_NONE = "Keras 3 has no counterpart: derive a class from keras.optimizers.Optimizer"
ADDONS = {
    "AdamW": "write keras.optimizers.AdamW(weight_decay=...)",
    "SGDW": "write keras.optimizers.SGD(weight_decay=...)",
    "LAMB": "write keras.optimizers.Lamb, which divides by the norms as it did",
    "LazyAdam": "write keras.optimizers.Adam, which also moves rows without a gradient",
    "MovingAverage": (
        "write use_ema=True, ema_momentum=average_decay of the optimizer inside, and "
        "keras.callbacks.SwapEMAWeights where average weights are wanted"
    ),
    "SWA": (
        "Keras 3 averages exponentially only: use_ema=True of the optimizer inside, with "
        "ema_overwrite_frequency or keras.callbacks.SwapEMAWeights"
    ),
    "DecoupledWeightDecayExtension": "give weight_decay=... to the optimizer of Keras",
    "extend_with_decoupled_weight_decay": "give weight_decay=... to the optimizer of Keras",
    "CyclicalLearningRate": "derive a class from keras.optimizers.schedules.LearningRateSchedule",
}
WORDS = re.compile(r"\b(horovod|tensorflow_addons)\b")
_NAME = re.compile(r"(horovod\.[\w.]*|tensorflow_addons\.optimizers(?:\.[\w.]*)?)\.(\w+)")


def decide(full: str) -> Decision | None:
    """Returns what is said of a name of one of these packages, resolved; None of any other.

    >>> decide("horovod.tensorflow.DistributedOptimizer").verdict
    'manual'
    >>> decide("horovod.tensorflow.rank") is None
    True
    """
    found = _NAME.fullmatch(full)
    if found is None:
        return None
    package, name = found.groups()
    if package.startswith("horovod"):
        return Decision("manual", _HOROVOD[name]) if name in _HOROVOD else None
    what = ADDONS.get(name, _NONE)
    return Decision("manual", f"tensorflow_addons takes no optimizer of Keras 3: {what}")
