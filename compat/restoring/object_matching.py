"""Matches the objects of a checkpoint with the variables of a Keras 3 model.

Walks both at once: from an object to its children by the names that TensorFlow gave them, and in
the model to what has that name today.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

from keras_mp.compat.checkpoints.object_graph import ObjectGraph, place_of
from keras_mp.compat.restoring import variable_order

_LAYER_WITH_WEIGHTS, _LAYER = "layer_with_weights-", "layer-"
# Of every Keras model in a SavedModel: lists of what is reached by attributes already.
_AGAIN = {"variables", "trainable_variables", "regularization_losses", "keras_api", "signatures"}
# Where a SavedModel has the states of stateful recurrent layers.
_STATES = ("keras_api", "states")
# Attributes that Keras 3 calls otherwise: of DepthwiseConv2D, Normalization and TextVectorization.
_RENAMED = {
    "depthwise_kernel": "kernel",
    "mean": "adapt_mean",
    "variance": "adapt_variance",
    "_index_lookup_layer": "_lookup_layer",
}


# Weights that CuDNN layers had themselves, and that the cells of today's have.
_OF_CUDNN = ("kernel", "recurrent_kernel", "bias")


def match(graph: ObjectGraph, start: int, model: Any) -> dict[int, list[Any]]:
    """Returns object number -> variables, for all variables of `model` that are found.

    An object has several where layers were shared then, and are layers of their own now.

    Args:
        graph: The objects of the checkpoint.
        start: Number of the object that was the model.
        model: Any Keras object: a model, a layer, a list or dict of them.
    """
    found: dict[int, list[Any]] = {}
    for number, ours in pairs(graph, start, model):
        if isinstance(ours, keras.Variable):
            known = found.setdefault(number, [])
            if all(one is not ours for one in known):
                known.append(ours)
    return found


def pairs(graph: ObjectGraph, start: int, model: Any) -> Iterator[tuple[int, Any]]:
    """Yields (object number, its counterpart) of the model and of what it holds, each once.

    Args are those of `match`.
    """
    waiting: list[tuple[int, Any]] = [(start, model)]
    seen = set()
    while waiting:
        number, ours = waiting.pop()
        if (number, id(ours)) in seen:
            continue
        seen.add((number, id(ours)))
        yield number, ours
        if isinstance(ours, keras.Variable):
            continue
        if getattr(ours, "stateful", False) and getattr(ours, "states", None) is not None:
            states = graph.find("/".join(_STATES), number)
            if states is not None:
                waiting.append((states, keras.tree.flatten(ours.states)))
        children = graph.nodes[number].children
        layers = _numbered(children, ours) if isinstance(ours, keras.Model) else {}
        for name, child in children.items():
            if name not in _AGAIN:
                theirs = layers[name] if name in layers else _child(ours, name)
                if theirs is not None:
                    waiting.append((child, theirs))


def _numbered(children: Mapping[str, int], model: Any) -> dict[str, Any]:
    """Returns the layers of a model by the names that count them.

    A lookup layer was counted among those with weights, and has none today. So where the numbers
    of these are others, the place among all layers counts, which is otherwise asked for layers
    without weights only: it counts inputs, too, of which today's Sequential has none.
    """
    layers = variable_order.layers(model)
    weighted = [layer for layer in layers if layer.weights]
    names = [name for name in children if name.startswith(_LAYER_WITH_WEIGHTS)]
    more = sum(name.startswith(_LAYER) for name in children) - len(layers)
    fits = more == 0 or (more == 1 and isinstance(model, keras.Sequential))
    all_of_them = {f"{_LAYER}{i + more}": layer for i, layer in enumerate(layers)} if fits else {}
    if fits and len(names) != len(weighted):
        return all_of_them
    return {
        **{f"{_LAYER_WITH_WEIGHTS}{i}": layer for i, layer in enumerate(weighted)},
        **{name: layer for name, layer in all_of_them.items() if not layer.weights},
    }


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
    value = getattr(ours, name, None)
    kinds = (keras.Variable, keras.layers.Layer, list, tuple, dict)
    if not isinstance(value, kinds) and name in _RENAMED:
        value = getattr(ours, _RENAMED[name], None)
    if not isinstance(value, kinds) and name in _OF_CUDNN:
        value = getattr(getattr(ours, "cell", None), name, None)
    return value if isinstance(value, kinds) else None


def _at(items: Sequence[Any], name: str) -> Any:
    place = place_of(name)
    return items[place] if place is not None and place < len(items) else None
