"""Losses and metrics of each output in training configs, by the names that outputs have today.

tf.keras gave one loss, and metrics in one list, to each output of a model; wrote an empty place for
an output without metrics; and wrote the output's name into those of the metrics, as Keras 3 does
when it trains.
"""

import copy
from collections.abc import Mapping
from typing import Any

from keras_mp.backends import keras_hooks
from keras_mp.compat.layers import AddLoss, AddMetric

Json = dict[str, Any]
_METRICS = ("metrics", "weighted_metrics")
_BY_OUTPUT = ("loss", "loss_weights", *_METRICS)


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

    today = {
        key: {name_of(name): one for name, one in value.items()}
        if key in _BY_OUTPUT and isinstance(value, Mapping) and "class_name" not in value
        else value
        for key, value in training.items()
    }
    outputs = list(getattr(made, "output_names", None) or ())
    if len(outputs) < 2:
        return today
    if isinstance(made.output, Mapping):  # it goes by the keys
        outputs = sorted(made.output)
    then = {new: {new} for new in outputs}
    for old in (*renamed, *behind):
        then.get(name_of(old), set()).add(old)
    for name, tensor in zip(outputs, made.outputs, strict=True):
        then[name].add(keras_hooks.made_by(tensor).name)
    if today.get("loss") is not None and _is_one(today["loss"]):
        today["loss"] = {name: copy.deepcopy(today["loss"]) for name in outputs}
    for key in _METRICS:
        if today.get(key):
            today[key] = _of_each(today[key], outputs, then)
    return today


def _is_one(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and "class_name" in value)


def _of_each(value: Any, outputs: list[str], then: Mapping[str, set[str]]) -> Any:
    """Returns metrics by the names of outputs, for those that have any."""
    if isinstance(value, list) and not any(isinstance(one, list) for one in value):
        value = {name: copy.deepcopy(value) for name in outputs}
    if isinstance(value, list) and len(value) == len(outputs):
        value = dict(zip(outputs, value, strict=True))
    if not isinstance(value, Mapping):
        return value
    found = {}
    for name, given in value.items():
        several = given if isinstance(given, list) else [given]
        theirs = [_without(one, then.get(name, {name})) for one in several if one is not None]
        if theirs:
            found[name] = theirs
    return found or None


def _without(metric: Any, outputs: set[str]) -> Any:
    """Returns a metric without the name of its output in its own."""
    config = metric.get("config") if isinstance(metric, Mapping) else None
    name = config.get("name") if isinstance(config, Mapping) else None
    if not isinstance(name, str) or not isinstance(config, Mapping):
        return metric
    for output in sorted(outputs, key=len, reverse=True):
        if name.startswith(f"{output}_"):
            name = name.removeprefix(f"{output}_")
            function = config.get("fn")
            if isinstance(function, Mapping) and function.get("config") == name:
                return function  # whose name Keras takes for it
            return {**metric, "config": {**config, "name": name}}
    return metric


def _names(made: Any) -> dict[str, str]:
    """Returns the output that each layer is which only AddLoss and AddMetric follow."""
    found: dict[str, str] = {}
    for tensor in getattr(made, "outputs", None) or ():
        layer = last = keras_hooks.made_by(tensor)
        while isinstance(layer, AddLoss | AddMetric):
            first = keras_hooks.calls_of(layer)[0].input_tensors[0]
            layer = keras_hooks.made_by(first)
        if layer is not last:
            found[layer.name] = last.name
    return found
