"""The models in another one whose `train_step` is its own, and how a program names them.

Such a model, as a GAN or a VAE, may never be called itself: its `train_step` calls those in it.
Reads what models hold, and changes nothing.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import keras

from keras_mp.backends import keras_hooks


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


def optimizers(model: Any) -> dict[str, Any]:
    """Returns the optimizers that `model` holds in attributes of its own, by their code.

    >>> model = keras.Sequential()
    >>> model.several = [keras.optimizers.SGD()]
    >>> list(optimizers(model))
    ['model.several[0]']
    """
    return {
        f"model.{name}": value
        for name, value in _attributes(model)
        if isinstance(value, keras.optimizers.Optimizer)
    }


def names(model: Any, variables: Collection[Any], known: Collection[Any], inner: bool) -> list[str]:
    """Returns the layers in `model` that multiply by some of `variables`, as code: `model.encoder`.

    Args:
        model: Called `model` there.
        variables: Of layers in it.
        known: Layers that are not named.
        inner: Whether layers in these are.
    """
    known = {id(each) for each in known}
    return list(_names(model, "model", {id(each) for each in variables}, known, inner))


def _names(
    layer: Any, code: str, variables: set[int], known: Collection[int], inner: bool
) -> Iterator[str]:
    attributes = {
        id(value): name for name, value in _attributes(layer) if isinstance(value, keras.Layer)
    }
    for each in _children(layer):
        if not _multiplies(each, variables):
            continue
        name = f"{code}.{attributes.get(id(each), f'get_layer({each.name!r})')}"
        if id(each) not in known:
            yield name
        elif inner:
            yield from _names(each, name, variables, known, inner)


def _multiplies(layer: Any, variables: set[int]) -> bool:
    """Returns whether `layer` has kernels among `variables`: matrices, and none to look up in."""
    tables = [
        each for each in keras_hooks.all_layers(layer) if isinstance(each, keras.layers.Embedding)
    ]
    looked_up = {id(variable) for table in tables for variable in table.variables}
    return any(
        id(variable) in variables - looked_up and len(variable.shape) > 1
        for variable in layer.trainable_variables
    )


def _children(layer: Any) -> list[Any]:
    return list(keras_hooks.child_layers(layer))


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
