"""Gives a converted model layers of Keras in place of operations that are exactly these."""

from collections.abc import Iterator, Mapping
from typing import Any

import keras

from keras_mp.compat.configs.serialized import of_keras
from keras_mp.compat.layers import Operation
from keras_mp.compat.operations.keras_layers import Spec, layer_of

Json = dict[str, Any]
_OURS = "keras_mp>Operation"


def has_operations(config: object) -> bool:
    """Returns whether there are operations in a config."""
    waiting = [config]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            if value.get("registered_name") == _OURS:
                return True
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return False


def found(model: Any) -> dict[tuple[str, ...], tuple[str, Json]]:
    """Returns the layers of Keras that operations of a model are, by the names that lead to them.

    Args:
        model: Built; its variables may have no values.
    """
    return dict(_found(model, ()))


def _found(model: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], tuple[str, Json]]]:
    for layer in getattr(model, "layers", []):
        here = (*path, layer.name)
        if isinstance(layer, keras.Model):
            yield from _found(layer, here)
        elif isinstance(layer, Operation) and not layer.steps and len(layer._inbound_nodes) == 1:
            tensors = layer._inbound_nodes[0].input_tensors
            specs = [Spec(tuple(one.shape), str(one.dtype)) for one in tensors]
            # Keras' layer casts its inputs to its own dtype, and uses masks or passes them on.
            fits = all(one.dtype == layer.compute_dtype for one in specs)
            if specs and fits and not layer.masked:
                made = layer_of(layer.operation, specs)
                if made is not None:
                    yield here, made


def replaced(
    config: Json, layers: Mapping[tuple[str, ...], tuple[str, Json]], path: tuple[str, ...] = ()
) -> Json:
    """Returns the config of a model with these layers in it."""
    inside = config.get("config")
    if not isinstance(inside, Mapping) or not isinstance(inside.get("layers"), list):
        return config
    rows = []
    for layer in inside["layers"]:
        here = (*path, layer["config"].get("name", layer.get("name")))
        if here in layers:
            kind, options = layers[here]
            own = layer["config"]
            kept = {key: own[key] for key in ("name", "trainable", "dtype") if key in own}
            made = of_keras("keras.layers", kind, kept | options)
            kept_around = {key: layer[key] for key in ("name", "inbound_nodes") if key in layer}
            rows.append(made | kept_around)
        else:
            rows.append(replaced(layer, layers, here))
    return {**config, "config": {**inside, "layers": rows}}
