"""The old names of mixed precision, whichever way a program spells them.

Knows names, no syntax. The names themselves are those of `keras_mp.compat.names`.
"""

import functools
from dataclasses import dataclass

from keras_mp.compat.names import NAMES

STABLE = "tf.keras.mixed_precision"
EXPERIMENTAL = "tf.keras.mixed_precision.experimental"
CONTRIB = "tf.contrib.mixed_precision"
_TRAIN = "tf.train.experimental"
_V1 = "tf.compat.v1.mixed_precision"

# Namespace of TensorFlow -> the module that stands for it.
MODULES: dict[str, str] = {
    STABLE: "keras_mp.compat.mixed_precision",
    EXPERIMENTAL: "keras_mp.compat.mixed_precision.experimental",
    "tf.mixed_precision": "keras_mp.compat.mixed_precision",
    "tf.mixed_precision.experimental": "keras_mp.compat.mixed_precision.experimental",
    _TRAIN: "keras_mp.compat.train.experimental",
    _V1: "keras_mp.compat.v1.mixed_precision",
    "tf.compat.v1.mixed_precision.experimental": "keras_mp.compat.v1.mixed_precision.experimental",
    "tf.compat.v1.train.experimental": "keras_mp.compat.v1.train.experimental",
}
_MOSTLY_OTHERS = (_TRAIN, "tf.compat.v1.train.experimental")

# Modules that were private, or became so, and the namespace that they filled.
_PRIVATE = {
    "keras.mixed_precision.experimental": EXPERIMENTAL,
    "keras.mixed_precision": STABLE,
    "training.experimental": _V1,
    "training.experimental.mixed_precision": _V1,
    "training.experimental.loss_scale": _V1,
    "training.experimental.loss_scale_optimizer": _V1,
}
_PRIVATE_MODULES = (
    "loss_scale_optimizer", "policy", "loss_scale", "device_compatibility_check",
    "get_layer_policy", "autocast_variable", "mixed_precision", "test_util",
)  # fmt: skip
_RENAMED = {
    "LossScaleOptimizerV1": (EXPERIMENTAL, "LossScaleOptimizer"),
    "LossScaleOptimizerV3": (STABLE, "LossScaleOptimizer"),
    "PolicyV1": (EXPERIMENTAL, "Policy"),
    "enable_mixed_precision_graph_rewrite_v1": (_TRAIN, "enable_mixed_precision_graph_rewrite"),
    "disable_mixed_precision_graph_rewrite_v1": (_TRAIN, "disable_mixed_precision_graph_rewrite"),
}
# Private, and here all the same.
_PRIVATE_NAMES = {"policy_scope": "keras_mp.policy_scope"}
_KERAS_IN = tuple(
    f"{module}.api._v{version}.keras."
    for module in ("tensorflow.python.keras", "tensorflow.keras", "keras", "tf_keras")
    for version in (1, 2)
)
_API = ("_api.v2.", "_api.v1.", "compat.v2.", "api._v2.", "api._v1.", "src.", "engine.")


@dataclass(frozen=True, slots=True)
class Old:
    """An old name.

    Attributes:
        space: The namespace, such as "tf.keras.mixed_precision".
        name: What of it, such as "Policy"; None for the namespace itself.
        length: How many components of the name that was given spell it.
        root: The package it was spelled with: "tensorflow", "tf_keras", "keras" (2 or 3), or
            "keras3" for what only Keras 3 has.
    """

    space: str
    name: str | None
    length: int
    root: str

    @property
    def known(self) -> bool:
        """Returns whether there is a counterpart under the old name."""
        return self.name is None or str(self) in NAMES or self.name in _PRIVATE_NAMES

    @property
    def home(self) -> str:
        """Returns what it is here, as the table of names says it; empty where it is not known."""
        return NAMES.get(f"{self.space}.{self.name}", "")

    @property
    def compat(self) -> str:
        """Returns the name that means the same, dotted from keras_mp."""
        if self.name in _PRIVATE_NAMES:
            return _PRIVATE_NAMES[self.name]
        module = MODULES.get(self.space, MODULES[STABLE])
        return module if self.name is None else f"{module}.{self.name}"

    @property
    def now(self) -> str:
        """Returns in words what it is here."""
        return f"{self} is {self.compat} here" if self.known else f"{self} has no counterpart"

    def __str__(self) -> str:
        return self.space if self.name is None else f"{self.space}.{self.name}"


@functools.lru_cache(maxsize=4096)  # a program has few names, each at many places
def legacy_name(full: str) -> Old | None:
    """Returns what a name of a program, resolved through its imports, is of mixed precision.

    >>> str(legacy_name("tensorflow.compat.v2.keras.mixed_precision.experimental.Policy"))
    'tf.keras.mixed_precision.experimental.Policy'
    >>> private = "tensorflow.python.keras.mixed_precision.experimental.policy"
    >>> found = legacy_name(f"{private}.Policy.name")
    >>> str(found), found.length
    ('tf.keras.mixed_precision.experimental.Policy', 7)
    >>> legacy_name("tensorflow.keras.layers.Dense") is None
    True
    """
    parts = full.split(".")
    if parts[0] not in ("tensorflow", "tensorflow_core", "keras", "tf_keras"):
        return None
    if not {"mixed_precision", "experimental", "optimizers"} & {*parts}:
        return None
    for spelled in _KERAS_IN:
        if full.startswith(spelled):
            keras = "tf.keras." + full.removeprefix(spelled)
            return _public(keras, spelled.count(".") - 2, parts[0])
    if parts[1:3] == ["contrib", "mixed_precision"]:
        return Old(CONTRIB, ".".join(parts[3:4]) or "*", min(len(parts), 4), "tensorflow")
    if parts[0] in ("tensorflow", "tensorflow_core") and "python" in parts[1:3]:
        return _private(parts)
    root = "tensorflow" if parts[0] == "tensorflow_core" else parts[0]
    if parts[-3:] == ["keras", "optimizers", "LossScaleOptimizer"]:
        return Old(STABLE, "LossScaleOptimizer", len(parts), "keras3")
    rest, dropped = ".".join(parts[1:]), 0
    while rest.startswith("compat.v1.compat."):
        rest, dropped = rest.removeprefix("compat.v1."), dropped + 2
    while prefix := next((p for p in _API if rest.startswith(p)), None):
        rest, dropped = rest[len(prefix) :], dropped + prefix.count(".")
    name = ("tf." if root == "tensorflow" else "tf.keras.") + rest
    for spelled in ("tf.compat.v1.keras.", "tf.keras.api.", "tf.keras.src."):
        if name.startswith(spelled):
            dropped += spelled.count(".") - 2
            name = "tf.keras." + name.removeprefix(spelled)
    extra = 1 if root != "tensorflow" else 0
    return _public(name, dropped - extra, root)


def _public(name: str, dropped: int, root: str) -> Old | None:
    for space in sorted(MODULES, key=len, reverse=True):
        if name != space and not name.startswith(f"{space}."):
            continue
        rest = name[len(space) :].split(".")[1:]
        length = len(space.split(".")) + dropped
        if not rest:
            return None if space in _MOSTLY_OTHERS else Old(space, None, length, root)
        if _is_module(rest):
            return _within(space, rest, length, root)
        found = Old(space, rest[0], length + 1, root)
        return found if found.known or space not in _MOSTLY_OTHERS else None
    return None


def _private(parts: list[str]) -> Old | None:
    at = parts.index("python") + 1
    for size in range(len(parts), at, -1):
        space = _PRIVATE.get(".".join(parts[at:size]))
        if space is not None:
            return _within(space, parts[size:], size, "tensorflow")
    return None


def _is_module(rest: list[str]) -> bool:
    # get_layer_policy is a module, and the function in it.
    if rest[:1] == ["get_layer_policy"]:
        return rest[1:2] == ["get_layer_policy"]
    return bool(rest) and rest[0] in _PRIVATE_MODULES


def _within(space: str, rest: list[str], length: int, root: str) -> Old | None:
    if _is_module(rest):
        rest, length = rest[1:], length + 1
    if not rest:
        return Old(space, None, length, root)
    space, name = _RENAMED.get(rest[0], (space, rest[0]))
    return Old(space, name, length + 1, root)
