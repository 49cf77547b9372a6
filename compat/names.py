"""The public names of TF 1.14 to 2.15 for mixed precision, and what each of them is here.

`NAMES` is the one table; the modules that stand for the old namespaces look their names up in it.
"""

import importlib
import warnings
from collections.abc import Callable, Mapping

_SCALES = "keras_mp.compat.legacy_classes.loss_scales:"
_OPTIMIZERS = "keras_mp.compat.legacy_classes.loss_scale_optimizers:"
_POLICIES = "keras_mp.compat.legacy_classes.policies:"
_REWRITE = "keras_mp.compat.legacy_classes.graph_rewriting:"

_LOSS_SCALES = {
    name: _SCALES + name for name in ("LossScale", "FixedLossScale", "DynamicLossScale")
}
_GRAPH_REWRITE = {
    "enable_mixed_precision_graph_rewrite": _REWRITE + "enable_mixed_precision_graph_rewrite",
    "disable_mixed_precision_graph_rewrite": _REWRITE + "disable_mixed_precision_graph_rewrite",
}
_OF_V1 = {
    **_LOSS_SCALES,
    **_GRAPH_REWRITE,
    "MixedPrecisionLossScaleOptimizer": _OPTIMIZERS + "ExperimentalLossScaleOptimizer",
}
_KERAS = {
    "LossScaleOptimizer": _OPTIMIZERS + "LossScaleOptimizer",
    "Policy": _POLICIES + "Policy",
    "set_global_policy": _POLICIES + "set_global_policy",
    "global_policy": "keras_mp.policies.policy:global_policy",
}
_KERAS_EXPERIMENTAL = {
    "LossScaleOptimizer": _OPTIMIZERS + "ExperimentalLossScaleOptimizer",
    "Policy": _POLICIES + "ExperimentalPolicy",
    "set_policy": _POLICIES + "set_experimental_policy",
    "global_policy": _POLICIES + "global_experimental_policy",
    "get_layer_policy": _POLICIES + "get_layer_policy",
}

# Namespace of TensorFlow -> what was public in it in some version: name -> module:name of ours.
_PUBLIC = {
    "tf.keras.mixed_precision": _KERAS,
    "tf.keras.mixed_precision.experimental": _KERAS_EXPERIMENTAL,
    "tf.mixed_precision.experimental": _LOSS_SCALES,
    "tf.train.experimental": _LOSS_SCALES | _GRAPH_REWRITE,
    "tf.compat.v1.keras.mixed_precision": _KERAS,
    "tf.compat.v1.keras.mixed_precision.experimental": _KERAS_EXPERIMENTAL,
    "tf.compat.v1.mixed_precision": _OF_V1,
    "tf.compat.v1.mixed_precision.experimental": _LOSS_SCALES,
    "tf.compat.v1.train.experimental": _OF_V1,
}
NAMES: dict[str, str] = {
    f"{space}.{name}": ours for space, names in _PUBLIC.items() for name, ours in names.items()
}

# What to write instead, for every name that is deprecated here, too.
INSTEAD: dict[str, str] = {
    _SCALES + "LossScale": "the arguments of keras_mp.LossScaleOptimizer",
    _SCALES + "FixedLossScale": (
        "keras_mp.LossScaleOptimizer(optimizer, dynamic=False, initial_scale=...)"
    ),
    _SCALES + "DynamicLossScale": (
        "keras_mp.LossScaleOptimizer(optimizer, initial_scale=..., dynamic_growth_steps=...)"
    ),
    _OPTIMIZERS + "ExperimentalLossScaleOptimizer": (
        "keras_mp.LossScaleOptimizer(optimizer), and dynamic=False, initial_scale=... for a fixed "
        "loss scale"
    ),
    _POLICIES + "ExperimentalPolicy": (
        "keras_mp.Policy, and keras_mp.LossScaleOptimizer for the loss scale"
    ),
    _POLICIES + "set_experimental_policy": "keras_mp.set_global_policy",
    _POLICIES + "global_experimental_policy": "keras_mp.global_policy",
    _POLICIES + "get_layer_policy": "layer.dtype_policy",
    _REWRITE + "enable_mixed_precision_graph_rewrite": "keras_mp.graph_rewrite.enable",
    _REWRITE + "disable_mixed_precision_graph_rewrite": "keras_mp.graph_rewrite.disable",
}

_warned: set[str] = set()


def namespace(module: str, *spaces: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of the module that stands for namespaces of TensorFlow.

    The first use of each name in the process gives a DeprecationWarning, for the line of the
    caller.

    Args:
        module: Its name, for messages.
        spaces: Namespaces of the table, such as "tf.train.experimental".

    Raises:
        AttributeError: From the first function returned, for a name that is not in the table.
    """
    ours = {name: home for space in spaces for name, home in _PUBLIC[space].items()}

    def get(name: str) -> object:
        if name not in ours:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        full = f"{module}.{name}"
        if full not in _warned and ours[name] in INSTEAD:
            _warned.add(full)
            message = f"{full} is deprecated: use {INSTEAD[ours[name]]}."
            warnings.warn(message, DeprecationWarning, stacklevel=2)
        return find(ours[name])

    return get, lambda: sorted(ours)


def submodules(
    package: str, modules: list[str], functions: Mapping[str, str] | None = None
) -> Callable[[str], object]:
    """Returns the `__getattr__` of a package whose parts load on first use.

    Args:
        package: Its name.
        modules: Of its modules.
        functions: Name -> module:name, of what else is public in it.

    Raises:
        AttributeError: From the function returned, for any other name.
    """

    def get(name: str) -> object:
        if functions and name in functions:
            return find(functions[name])
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(f"{package}.{name}")

    return get


def find(home: str) -> object:
    """Returns what a value of `NAMES` names.

    >>> find(NAMES["tf.train.experimental.FixedLossScale"]).__name__
    'FixedLossScale'
    """
    module, name = home.split(":")
    return getattr(importlib.import_module(module), name)
