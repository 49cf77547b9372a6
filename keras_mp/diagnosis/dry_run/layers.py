"""The layers of a model, by path."""

from collections.abc import Iterator
from typing import Any

import keras

from keras_mp.backends import keras_hooks


def layers_of(model: Any) -> Iterator[tuple[str, Any]]:
    """Yields (path, layer) for the model and all layers in it, each once; containers first.

    >>> dense = keras.layers.Dense(1, name="out")
    >>> inner = keras.Sequential([keras.Input((2,)), dense], name="head")
    >>> model = keras.Sequential([keras.Input((2,)), inner], name="net")
    >>> [path for path, _ in layers_of(model)]
    ['net', 'head', 'head/out']
    """
    yield model.name, model
    yield from _below(model, "", {id(model)})


def _below(layer: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    for child in keras_hooks.child_layers(layer):
        if id(child) in seen or isinstance(child, keras.layers.InputLayer):
            continue
        seen.add(id(child))
        below = f"{path}/{child.name}" if path else child.name
        yield below, child
        yield from _below(child, below, seen)
