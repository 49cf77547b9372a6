"""The layers of a model, by path."""

from collections.abc import Iterator
from typing import Any

import keras

from keras_mp.backends import keras_hooks
from keras_mp.backends.common.foreign_parts import named_variables


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


def variable_names(model: Any) -> dict[int, str]:
    """Returns a name of each variable of a model by its `id`: its path.

    Of a module of torch or flax it is the path of the layer and the module's own name:
    "encoder/layers.3.attn.in_proj_weight".
    """
    names = {id(variable): str(variable.path) for variable in model.variables}
    for path, layer in layers_of(model):
        names |= {key: f"{path}/{name}" for key, name in named_variables(layer).items()}
    return names


def _below(layer: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    for child in keras_hooks.child_layers(layer):
        if id(child) in seen or isinstance(child, keras.layers.InputLayer):
            continue
        seen.add(id(child))
        below = f"{path}/{child.name}" if path else child.name
        yield below, child
        yield from _below(child, below, seen)
