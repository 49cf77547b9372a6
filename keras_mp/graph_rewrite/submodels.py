"""The models inside a model with its own `train_step`, and their names in code.

Such a model, a GAN or a VAE, may never be called itself: its `train_step` calls those inside it.
Only reads what models hold.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import keras

from keras_mp.backends import keras_hooks


def has_own_step(model: Any) -> bool:
    """Returns whether `model` has another `train_step` than Keras' own.

    >>> has_own_step(keras.Sequential())
    False
    """
    step = getattr(model, "train_step", None)
    return step is not None and getattr(step, "__func__", step) is not keras.Model.train_step


def inside(model: Any) -> list[Any]:
    """Returns the models in `model` that its own `train_step` may call.

    Only the outermost: the others run in these. Empty if `train_step` is Keras' own.
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
    """Returns the optimizers in the attributes of `model`, by their code.

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
        model: Called `model` in the code.
        variables: Of layers in it.
        known: Layers that are not named.
        inner: Whether to name layers inside `known` ones.
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
    """Returns whether `layer` has kernels among `variables`: matrices, but not lookup tables."""
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
    """Yields the contents of `layer` as (code after the dot, value), also in lists and dicts."""
    # torch stores sublayers separately.
    for name, value in {**vars(layer), **vars(layer).get("_modules", {})}.items():
        if name.startswith("_"):
            continue
        yield name, value
        if isinstance(value, Mapping):
            yield from [(f"{name}[{key!r}]", item) for key, item in value.items()]
        elif isinstance(value, (list, tuple)):
            yield from [(f"{name}[{index}]", item) for index, item in enumerate(value)]
