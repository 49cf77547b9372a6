"""Flags of layers that no config holds, and the functions of a SavedModel do.

tf.keras left `causal` of Attention out of configs from TF 2.11 on, and `invert` of Normalization up
to TF 2.12. Keras named operations after the layer, so its functions show what it does.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_mp.compat.configs import Change
from keras_mp.compat.configs.checks import objects_in
from keras_mp.compat.file_formats import saved_objects

WHAT = "{}: this TensorFlow did not write it into configs; the functions of the SavedModel show it"
INVERT_2_10 = (
    "TF 2.10 computed (x + mean) * std for invert=True, which was a fault; Keras 3 computes "
    "mean + x * std, as TF 2.11 and later: predictions are others"
)
# Class -> the flag, an operation that the layer has by it, and one that it has without.
_FLAGS: dict[str, tuple[str, str, str | None]] = {
    "Attention": ("causal", "Cumsum", None),
    "AdditiveAttention": ("causal", "Cumsum", None),
    "Normalization": ("invert", "Mul", "Sub"),
}


def with_graph_flags(
    config: Mapping[str, Any], folder: str | Path, tf_version: str | None
) -> tuple[dict[str, Any], list[Change]]:
    """Returns the config of a model with the flags that its functions show, and what was added.

    Args:
        config: Of the model, as Keras wrote it.
        folder: The SavedModel.
        tf_version: The TensorFlow that wrote it.

    Raises:
        Unreadable: The SavedModel is damaged.
    """
    if not any(map(_flag, objects_in(config))):
        return dict(config), []
    found: dict[str, set[str]] = {}
    for scope, kind in saved_objects.operations(folder):
        found.setdefault(scope.rpartition("/")[2], set()).add(kind)
    changes: list[Change] = []
    with_flags: dict[str, Any] = _with_flags(config, "$", found, changes)
    if tf_version is not None and tf_version.startswith("2.10"):
        changes += [
            Change(change.path, "differs", INVERT_2_10, matters=True)
            for change in changes
            if change.path.endswith(".invert")
        ]
    return with_flags, changes


def _flag(value: Mapping[str, Any]) -> tuple[str, str, str | None] | None:
    inside, flag = value.get("config"), _FLAGS.get(str(value.get("class_name")))
    is_lacking = flag is not None and isinstance(inside, Mapping) and flag[0] not in inside
    return flag if is_lacking else None


def _with_flags(value: Any, path: str, found: Mapping[str, set[str]], changes: list[Change]) -> Any:
    if isinstance(value, list):
        return [_with_flags(v, f"{path}[{i}]", found, changes) for i, v in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    value = {k: _with_flags(v, f"{path}.{k}", found, changes) for k, v in value.items()}
    flag = _flag(value)
    if flag is not None:
        name, by, without = flag
        kinds = found.get(str(value["config"].get("name")), set())
        if by in kinds and without not in kinds:
            value["config"] = {**value["config"], name: True}
            what = WHAT.format(f"{name}=True")
            changes.append(Change(f"{path}.config.{name}", "defaulted", what, matters=True))
    return value
