"""Names of outputs in training configs, which are others where an AddLoss stands behind one."""

from collections.abc import Mapping
from typing import Any

from keras_mp.compat.layers import AddLoss, AddMetric

Json = dict[str, Any]
_BY_OUTPUT = ("loss", "loss_weights", "metrics", "weighted_metrics")


def with_names_of_today(training: Json, made: Any, renamed: Mapping[str, str]) -> Json:
    """Returns a converted training config with the names that the outputs of a model have.

    Args:
        training: The config, with dicts by output.
        made: The model.
        renamed: Its layers that have another name than in the config: old -> new.
    """
    behind = _names(made)

    def name_of(old: str) -> str:
        new = renamed.get(old, old)
        return behind.get(new, new)

    return {
        key: {name_of(name): one for name, one in value.items()}
        if key in _BY_OUTPUT and isinstance(value, Mapping) and "class_name" not in value
        else value
        for key, value in training.items()
    }


def _names(made: Any) -> dict[str, str]:
    """Returns the output that each layer is which only AddLoss and AddMetric follow."""
    found: dict[str, str] = {}
    for tensor in getattr(made, "outputs", None) or ():
        layer = last = tensor._keras_history.operation
        while isinstance(layer, AddLoss | AddMetric):
            first = layer._inbound_nodes[0].input_tensors[0]
            layer = first._keras_history.operation
        if layer is not last:
            found[layer.name] = last.name
    return found
