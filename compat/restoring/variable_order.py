"""The order in which Keras 2 listed the variables of a model and the slots of its optimizers.

Files without names (`.keras`, `.weights.h5`) and lists in HDF5 files identify them by it alone.
"""

import functools
import weakref
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

import keras

from keras_mp.backends import keras_hooks
from keras_mp.compat.configs import layer_tables
from keras_mp.compat.configs.serialized import allowed_name
from keras_mp.compat.keras2 import slots

# New class (TF 2.10 and later) -> [attributes of its slots that follow one another variable by
# variable], in the order in which `build` made them. Source: keras/src/optimizers of Keras 2.13.
NEW: dict[str, tuple[tuple[str, ...], ...]] = {
    "SGD": (("momentums",),),
    "Adam": (("_momentums", "_velocities"), ("_velocity_hats",)),
    "AdamW": (("_momentums", "_velocities"), ("_velocity_hats",)),
    "Nadam": (("_momentums", "_velocities"),),
    "Adamax": (("_m", "_u"),),
    "Adagrad": (("_accumulators",),),
    "Adadelta": (("_accumulated_grads", "_accumulated_delta_vars"),),
    "RMSprop": (("_velocities",), ("_momentums",), ("_average_gradients",)),
    "Ftrl": (("_accumulators", "_linears"),),
    "Lion": (("_momentums",),),
    "Adafactor": (("_r", "_c", "_v"),),
}
_OF_MATRICES = ("_r", "_c")  # slots that variables with fewer axes lack
OF_TENSORFLOW = "_self_"  # what it tracks of an object: in a dict, too, by names of attributes
_AVERAGE = "_model_variables_moving_average"
# Model -> the places of its layers in its old config, where there were operations.
_PLACES: weakref.WeakKeyDictionary[Any, dict[str, int]] = weakref.WeakKeyDictionary()
# Model -> the classes of its layers in its old config, where they are others today.
_CLASSES: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()


def remember(model: Any, config: Mapping[str, Any]) -> None:
    """Notes the order of layers that a file goes by, which may be another than today's.

    Keras orders layers by their depth, and operations have another one today: those that compute
    shapes are inside of others, and an added loss stands between two layers.

    Args:
        model: The model that is built.
        config: What it is built of, with the layers in the order of the old config, or that one.
            Of another model, with layers of other names, nothing is noted.
    """
    inside = config.get("config")
    rows = inside.get("layers") if isinstance(inside, Mapping) else None
    if not isinstance(rows, list) or not isinstance(model, keras.Model):
        return
    names = [allowed_name(str(row.get("config", {}).get("name", row.get("name")))) for row in rows]
    if {layer.name for layer in model.layers if layer.weights} <= set(names):
        _PLACES[model] = {name: place for place, name in enumerate(names)}
    classes = {
        name: row["class_name"]
        for name, row in zip(names, rows, strict=True)
        if row.get("class_name") in layer_tables.CLASSES
    }
    if classes:
        _CLASSES[model] = classes
    known = {layer.name: layer for layer in model.layers}
    for name, row in zip(names, rows, strict=True):
        if name in known:
            remember(known[name], row)


def _in_order(model: Any, found: list[Any]) -> list[Any]:
    places = _PLACES.get(model, {})
    found = _with_sorted_dicts(model, found)
    return sorted(found, key=lambda layer: places.get(layer.name, len(places)))


def _with_sorted_dicts(owner: Any, found: list[Any]) -> list[Any]:
    """Returns layers in an order in which those of each dict are sorted by their keys.

    Keras 3 has them as they came.
    """
    place = {id(layer): i for i, layer in enumerate(found)}
    ordered = list(found)
    for name, value in vars(owner).items():
        if isinstance(value, _kept_dict()) and not name.startswith(OF_TENSORFLOW):
            inside = [one for one in _by_key(value) if id(one) in place]
            inside = list({id(one): one for one in inside}.values())
            for i, one in zip(sorted(place[id(one)] for one in inside), inside, strict=True):
                ordered[i] = one
    return ordered


def _by_key(value: Any) -> Iterator[Any]:
    """Yields what is in dicts and lists, dicts in the order of their keys."""
    if isinstance(value, dict):
        # Others are of Keras, by layer, say.
        keys = sorted(value) if all(isinstance(key, str) for key in value) else []
        value = [value[key] for key in keys]
    if isinstance(value, list | tuple):
        for one in value:
            yield from _by_key(one)
    else:
        yield value


@functools.cache
def _kept_dict() -> type:
    """Returns the class in which a layer keeps a dict of its user's; others are of frameworks."""
    layer = keras.layers.Layer()
    layer.given = {}
    return type(layer.given)


def class_name(model: Any, layer: Any) -> str:
    """Returns the class that a layer of a model, or in a list of another layer, had in Keras 2."""
    classes = _CLASSES.get(model, {}) if isinstance(model, keras.Model) else {}
    return classes.get(layer.name, type(layer).__name__)


def layers(model: Any) -> list[Any]:
    """Returns `model.layers` of Keras 2."""
    return _in_order(model, model.layers)


def children(layer: Any) -> list[Any]:
    """Returns the layers right inside a layer, also those in lists and dicts of it."""
    return _in_order(layer, list(keras_hooks.child_layers(layer)))


def own_weights(layer: Any) -> list[Any]:
    """Returns the weights of a layer that are of none inside, trainable ones first."""
    return [*keras_hooks.own_weights(layer), *_not_trained(layer)]


def _not_trained(layer: Any) -> list[Any]:
    # What a layer counts (AddMetric) is no weight of it.
    weights = {id(weight) for weight in layer.weights}
    return [variable for variable in keras_hooks.own_state(layer) if id(variable) in weights]


def trainable(layer: Any) -> list[Any]:
    """Returns `layer.trainable_weights` of Keras 2.

    A model had its own after those of its layers, any other layer before.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> [variable.name for variable in trainable(model)]
    ['kernel', 'bias']
    """
    if not layer.trainable:
        return []
    inside = [weight for child in children(layer) for weight in trainable(child)]
    mine = [weight for weight in keras_hooks.own_weights(layer) if weight.trainable]
    return _once([*inside, *mine] if isinstance(layer, keras.Model) else [*mine, *inside])


def weights(layer: Any) -> list[Any]:
    """Returns `trainable_weights + non_trainable_weights` of Keras 2: the order of HDF5 files.

    >>> layer = keras.layers.BatchNormalization()
    >>> layer.build((None, 2))
    >>> [variable.name for variable in weights(layer)]
    ['gamma', 'beta', 'moving_mean', 'moving_variance']
    """
    return _once([*trainable(layer), *_frozen(layer)])


def _frozen(layer: Any) -> list[Any]:
    inside = children(layer)
    if layer.trainable:
        theirs = [weight for child in inside for weight in _frozen(child)]
        mine = _not_trained(layer)
    else:
        theirs = [weight for child in inside for weight in weights(child)]
        mine = own_weights(layer)
    return [*theirs, *mine] if isinstance(layer, keras.Model) else [*mine, *theirs]


def _once(variables: Iterable[Any]) -> list[Any]:
    return list({id(variable): variable for variable in variables}.values())


def longest_end(name: str, known: Container[str]) -> str | None:
    """Returns the longest end of a name, at a slash, that is known; None where there is none.

    What comes before it in the name of a slot is the name of the optimizer, which may be any.

    >>> longest_end("training/Adam/dense/kernel", {"kernel", "dense/kernel"})
    'dense/kernel'
    """
    parts = name.split("/")
    ends = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((end for end in ends if end in known), None)


def new_slots(inner: Any, variables: list[Any]) -> list[tuple[str, Any]] | None:
    """Returns (attribute, variable of the model) of each slot, as a new optimizer listed them.

    Args:
        inner: The optimizer of today, built.
        variables: What was trained, in Keras 2's order.

    Returns:
        Without the step count, which comes first. None for a class that is not known.
    """
    groups = slots.of_class(inner, NEW)
    if groups is None:
        return None
    found = [(_AVERAGE, variable) for variable in variables] if inner.use_ema else []
    for group in groups:
        # SGD had slots without momentum, too.
        there = [name for name in group if getattr(inner, name, None) or name == "momentums"]
        found += [
            (name, variable)
            for variable in variables
            for name in there
            if len(variable.shape) > 1 or name not in _OF_MATRICES
        ]
    return found


def old_slots(inner: Any, variables: list[Any], count: int) -> list[tuple[str, Any]] | None:
    """Returns (slot, variable of the model) of each slot, as optimizers before TF 2.11 listed them.

    Args:
        inner: The optimizer of today.
        variables: What was trained, in Keras 2's order.
        count: How many slots there are; tells which of the optional ones.

    Returns:
        None for a class that is not known, or a count that it cannot have.
    """
    names = slots.of_class(inner, slots.SLOTS)
    if names is None or not variables or count % len(variables):
        return None
    there = list(names)[: count // len(variables)]
    if len(there) * len(variables) != count:
        return None
    if slots.of_class(inner, {"RMSprop": True}):
        has = {"rms": True, "momentum": inner.momentum > 0, "mg": inner.centered}
        there = [name for name in names if has[name]]
        if len(there) * len(variables) != count:
            return None
    return slots.in_order(inner, there, variables)
