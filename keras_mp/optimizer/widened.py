"""Which layers and losses were given the policy float32 while they trained, kept with the state.

Weights files know no policies. So the optimizer's state says which layers were repaired, and a
training that goes on from such a file repairs its model before the first step.
"""

import contextlib
import functools
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mp.array_types import Model
from keras_mp.backends import keras_hooks
from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer

_NOTE = "float32_paths"
_FLOAT32 = keras.DTypePolicy("float32")


def widened_paths(optimizer: Any) -> list[str]:
    """Returns the paths of layers, and names of losses, that were repaired.

    >>> optimizer = LossScaleOptimizer(keras.optimizers.SGD())
    >>> note_widened(optimizer, ["block/attention"])
    >>> widened_paths(optimizer)
    ['block/attention']
    """
    if not isinstance(optimizer, LossScaleOptimizer):
        return []
    bits = optimizer.extra_state.notes.get(_NOTE)
    try:
        found = [] if bits is None else json.loads(bytes(np.asarray(bits, "uint8")).decode())
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(path, str) for path in found):
        warnings.warn(
            "What the file says of layers that were repaired cannot be read, and is left out.",
            stacklevel=2,
        )
        del optimizer.extra_state.notes[_NOTE]
        return []
    return found


def note_widened(optimizer: LossScaleOptimizer, paths: Iterable[str]) -> None:
    """Adds paths to those that files of the optimizer keep."""
    known = list(dict.fromkeys([*widened_paths(optimizer), *paths]))
    bits = np.frombuffer(json.dumps(known).encode(), "uint8")
    optimizer.extra_state.notes[_NOTE] = bits


def is_narrow(layer: Any) -> bool:
    """Returns whether a layer computes in float16 with float32 variables.

    Of a layer with float16 variables no policy makes float32 of what these have lost already.
    """
    return bool(layer.compute_dtype == "float16" and layer.variable_dtype == "float32")


def float16_losses(model: Model) -> Iterator[Any]:
    """Yields the losses of `compile` that compute in float16."""
    for loss in keras.tree.flatten(getattr(model, "loss", None)):
        if isinstance(loss, keras.losses.Loss) and loss.dtype == "float16":
            yield loss


def narrow_inside(layer: Any) -> list[Any]:
    """Returns a layer and all in it, as far as they compute in float16."""
    return [each for each in keras_hooks.all_layers(layer) if is_narrow(each)]


def widen(objects: Iterable[Any]) -> None:
    """Gives layers and losses the policy float32 for good."""
    _change(objects)


@contextlib.contextmanager
def in_float32(objects: Iterable[Any]) -> Iterator[None]:
    """A scope in which layers, losses and metrics have the policy float32."""
    before = _change(objects)
    try:
        yield
    finally:
        for each, attributes in reversed(before):
            _set(each, attributes)


def _change(objects: Iterable[Any]) -> list[tuple[Any, dict[str, Any]]]:
    """Sets the policy, and returns what was there before."""
    before = []
    for each in objects:
        new = {"_dtype_policy": _FLOAT32}
        if not isinstance(each, keras.layers.Layer):
            new["_dtype"] = "float32"
        elif isinstance(each, keras.layers.Normalization) and each.built:
            new |= _constants(each)
        before.append((each, {name: getattr(each, name) for name in new}))
        _set(each, new)
    return before


def _constants(layer: Any) -> dict[str, Any]:
    """Returns mean and variance in float32; the layer has them in the dtype of its build."""
    if layer.input_mean is None:
        mean, variance = layer.adapt_mean, layer.adapt_variance
    else:
        given = {"mean": layer.input_mean, "variance": layer.input_variance}
        twin = keras.layers.Normalization(layer.axis, **given, dtype="float32")
        twin.build(layer.get_build_config()["input_shape"])
        mean, variance = twin.mean, twin.variance
    shape = layer.mean.shape
    return {"mean": ops.reshape(mean, shape), "variance": ops.reshape(variance, shape)}


def _set(each: Any, attributes: Mapping[str, Any]) -> None:
    for name, value in attributes.items():
        # Not by the setter of a layer, which would write into the map that other layers have, too.
        object.__setattr__(each, name, value)


def widen_as_noted(model: Model) -> tuple[str, ...]:
    """Repairs a model as the restored state of its optimizer says that it was.

    Functions that were compiled are to be compiled anew.

    Returns:
        The paths of what was changed.
    """
    wanted = set(widened_paths(model.optimizer))
    if not wanted:
        return ()
    found = {
        path: narrow_inside(layer) for path, layer in keras_hooks.layers_of(model) if path in wanted
    }
    found |= {loss.name: [loss] for loss in float16_losses(model) if loss.name in wanted}
    found = {path: objects for path, objects in found.items() if objects}
    widen(each for objects in found.values() for each in objects)
    return tuple(found)


def compile_anew(model: Model) -> None:
    """Has the functions of a model, as far as there are any, compiled with the policies of now.

    In the middle of `fit`, too, which looks its function up at each step.
    """
    for kind in ("train", "test", "predict"):
        if getattr(model, f"{kind}_function") is None:
            continue
        name = f"{kind}_step"
        # JAX compiles an object once, and a bound method is equal to the one of before, as long as
        # that one is held.
        had, step = name in vars(model), getattr(model, name)
        object.__setattr__(model, name, functools.partial(step))
        try:
            getattr(model, f"make_{kind}_function")(force=True)
        finally:
            if had:
                object.__setattr__(model, name, step)
            else:
                object.__delattr__(model, name)
