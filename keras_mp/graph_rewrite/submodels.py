"""The models in another one whose `train_step` is its own, and how a program names them.

Such a model, as a GAN or a VAE, may never be called itself: its `train_step` calls the models in it.
Reads what models hold, and changes nothing.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import keras


def has_own_step(model: Any) -> bool:
    """Returns whether `model` trains by another `train_step` than Keras' own.

    >>> has_own_step(keras.Sequential())
    False
    """
    step = getattr(model, "train_step", None)
    return step is not None and getattr(step, "__func__", step) is not keras.Model.train_step


def inside(model: Any) -> list[Any]:
    """Returns the models in `model` that its own `train_step` may call.

    Only the outermost: the others run in these. None where `train_step` is that of Keras.
    """
    return list(_outermost(model, set())) if has_own_step(model) else []


def _outermost(layer: Any, seen: set[int]) -> Iterator[Any]:
    for each in _children(layer):
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, keras.Model):
            yield each
        else:
            yield from _outermost(each, seen)


def optimizers(model: Any) -> list[Any]:
    """Returns the optimizers that `model` holds, Keras' first: others are in its own attributes."""
    values = [value for _, value in _attributes(model)]
    found = [each for each in values if isinstance(each, keras.optimizers.Optimizer)]
    return list({id(each): each for each in (*_keras_own(model), *found)}.values())


def _keras_own(model: Any) -> list[Any]:
    optimizer = getattr(model, "optimizer", None)
    return [] if optimizer is None else [optimizer]


def names(model: Any, variables: Collection[Any], skip: Collection[Any]) -> list[str]:
    """Returns the layers in `model` that multiply by some of `variables`, as code: `model.encoder`.

    Args:
        model: Called `model` there.
        variables: Of layers in it.
        skip: Layers that are not named; those in them are.
    """
    found = _names(model, "model", {id(each) for each in variables}, {id(each) for each in skip})
    return list(found)


def _names(layer: Any, code: str, variables: set[int], skip: set[int]) -> Iterator[str]:
    attributes = {
        id(value): name for name, value in _attributes(layer) if isinstance(value, keras.Layer)
    }
    for each in _children(layer):
        if not _multiplies(each, variables):
            continue
        if id(each) in attributes:
            name = f"{code}.{attributes[id(each)]}"
        elif isinstance(layer, keras.Model):
            name = f"{code}.get_layer({each.name!r})"
        else:
            continue
        if id(each) in skip:
            yield from _names(each, name, variables, skip)
        else:
            yield name


def _multiplies(layer: Any, variables: set[int]) -> bool:
    """Returns whether `layer` has kernels among `variables`: matrices, and none to look up in."""
    tables = [each for each in layer._flatten_layers() if isinstance(each, keras.layers.Embedding)]
    looked_up = {id(variable) for table in tables for variable in table.variables}
    return any(
        id(variable) in variables - looked_up and len(variable.shape) > 1
        for variable in layer.trainable_variables
    )


def _children(layer: Any) -> list[Any]:
    return list(layer._flatten_layers(include_self=False, recursive=False))


def _attributes(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yields what `layer` has as (code behind the dot, value), also in its lists and dicts."""
    # torch keeps the layers of a layer apart.
    for name, value in {**vars(layer), **vars(layer).get("_modules", {})}.items():
        if name.startswith("_"):
            continue
        yield name, value
        if isinstance(value, Mapping):
            yield from [(f"{name}[{key!r}]", item) for key, item in value.items()]
        elif isinstance(value, (list, tuple)):
            yield from [(f"{name}[{index}]", item) for index, item in enumerate(value)]
