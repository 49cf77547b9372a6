"""Matches the objects of a checkpoint with the variables of a Keras 3 model.

Walks both at once: from an object to its children by the names that TensorFlow gave them, and in
the model to what has that name today.
"""

from collections.abc import Sequence
from typing import Any

import keras

from keras_mp.compat.checkpoints.object_graph import ObjectGraph, place_of
from keras_mp.compat.restoring import variable_order

_LAYER_WITH_WEIGHTS = "layer_with_weights-"
# Of every Keras model in a SavedModel: lists of what is reached by attributes already.
_AGAIN = {"variables", "trainable_variables", "regularization_losses", "keras_api", "signatures"}
# Where a SavedModel has the states of stateful recurrent layers.
_STATES = ("keras_api", "states")
# Attributes that Keras 3 calls otherwise: of DepthwiseConv2D and Normalization.
_RENAMED = {"depthwise_kernel": "kernel", "mean": "adapt_mean", "variance": "adapt_variance"}


def match(graph: ObjectGraph, start: int, model: Any) -> dict[int, Any]:
    """Returns object number -> variable, for all variables of `model` that are found.

    Args:
        graph: The objects of the checkpoint.
        start: Number of the object that was the model.
        model: Any Keras object: a model, a layer, a list or dict of them.

    Raises:
        ValueError: What was one variable is several here.
    """
    found: dict[int, Any] = {}
    waiting: list[tuple[int, Any]] = [(start, model)]
    seen = set()
    while waiting:
        number, ours = waiting.pop()
        if (number, id(ours)) in seen:
            continue
        seen.add((number, id(ours)))
        if isinstance(ours, keras.Variable):
            if found.setdefault(number, ours) is not ours:
                raise ValueError(
                    f"one variable of the file is two in the model: {found[number].path} and "
                    f"{ours.path}; it is another model"
                )
            continue
        if getattr(ours, "stateful", False) and getattr(ours, "states", None) is not None:
            states = graph.find("/".join(_STATES), number)
            if states is not None:
                waiting.append((states, keras.tree.flatten(ours.states)))
        for name, child in graph.nodes[number].children.items():
            if name not in _AGAIN:
                theirs = _child(ours, name)
                if theirs is not None:
                    waiting.append((child, theirs))
    return found


def weights(model: Any) -> list[Any]:
    """Returns all weights of a Keras object, in its order, each once."""
    if isinstance(model, keras.Variable):
        return [model]
    if isinstance(model, keras.layers.Layer):
        return list(model.weights)
    parts = model.values() if isinstance(model, dict) else model
    return list({id(weight): weight for part in parts for weight in weights(part)}.values())


def _child(ours: Any, name: str) -> Any:
    if isinstance(ours, list | tuple):
        return _at(ours, name)
    if isinstance(ours, dict):
        return ours.get(name)
    if isinstance(ours, keras.Model) and name.startswith(_LAYER_WITH_WEIGHTS):
        # "layer-3", which stands beside, counts inputs too, of which today's Sequential has none.
        layers = [layer for layer in variable_order.layers(ours) if layer.weights]
        return _at(layers, name.removeprefix(_LAYER_WITH_WEIGHTS))
    value = getattr(ours, name, None)
    kinds = (keras.Variable, keras.layers.Layer, list, tuple, dict)
    if not isinstance(value, kinds) and name in _RENAMED:
        value = getattr(ours, _RENAMED[name], None)
    return value if isinstance(value, kinds) else None


def _at(items: Sequence[Any], name: str) -> Any:
    place = place_of(name)
    return items[place] if place is not None and place < len(items) else None
