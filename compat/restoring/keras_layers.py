"""Gives a converted model layers of Keras in place of operations that are exactly these."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import keras

from keras_mp.backends import keras_hooks
from keras_mp.compat.configs.checks import objects_in
from keras_mp.compat.configs.serialized import of_keras, of_ours
from keras_mp.compat.configs.versions import parse_version
from keras_mp.compat.layers import Operation, merging
from keras_mp.compat.layers.normalization import normalized_axes
from keras_mp.compat.operations.keras_layers import Spec, layer_of

Json = dict[str, Any]
_OURS = "keras_mp>Operation"
_MERGING = tuple(getattr(keras.layers, layer.__name__) for layer in merging.LAYERS)


def has_operations(config: object) -> bool:
    """Returns whether there are operations in a config."""
    return any(one.get("registered_name") == _OURS for one in objects_in(config))


def layers_of_operations(model: Any) -> dict[tuple[str, ...], tuple[str, Json]]:
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
        elif (
            isinstance(layer, Operation)
            and not layer.steps
            and len(keras_hooks.calls_of(layer)) == 1
        ):
            tensors = keras_hooks.calls_of(layer)[0].input_tensors
            specs = [Spec(tuple(one.shape), str(one.dtype)) for one in tensors]
            # Keras' layer casts its inputs to its own dtype, and uses masks or passes them on.
            fits = all(one.dtype == layer.compute_dtype for one in specs)
            if specs and fits and not layer.masked:
                made = layer_of(layer.operation, specs)
                if made is not None:
                    yield here, made


def built(config: Json, build: Callable[[Json], Any], tf_version: str | None) -> Any:
    """Returns the model of a config, with layers of ours where those of Keras compute otherwise.

    Which axes LayerNormalization has, and which masks reach a layer, shows only in what is built.

    Args:
        config: Of the model.
        build: Returns the model of a config, and leaves that as it is.
        tf_version: The TensorFlow that wrote it; None where nobody knows.
    """
    made = build(config)
    places = dict(_otherwise(made, tf_version is not None and parse_version(tf_version) < (2, 10)))
    return build(_with_ours(config, places)) if places else made


def _otherwise(
    model: Any, ignores_masks: bool, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields (names that lead to it, class) of each layer that is to be one of ours.

    Args:
        model: With Keras' layers.
        ignores_masks: Whether MultiHeadAttention ignored the masks of its inputs.
        path: The names that lead to the model.
    """
    for layer in getattr(model, "layers", []):
        here = (*path, layer.name)
        if isinstance(layer, keras.Model):
            yield from _otherwise(layer, ignores_masks, here)
        elif type(layer) is keras.layers.LayerNormalization and layer.built:
            shape = layer.get_build_config().get("input_shape")
            axes = normalized_axes(layer.axis, len(shape)) if shape else []
            if axes and axes != list(range(len(shape) - len(axes), len(shape))):
                yield here, "LayerNormalization"
        elif type(layer) in _MERGING and _merges_masks(layer):
            yield here, type(layer).__name__
        elif ignores_masks and type(layer) is keras.layers.MultiHeadAttention and is_masked(layer):
            yield here, "MultiHeadAttention"


def mask_of(tensor: Any) -> Any:
    """Returns the mask of a tensor of a model, or None."""
    return keras_hooks.mask_of(tensor)


def is_masked(layer: Any) -> bool:
    """Returns whether an input of a layer, in the model that it was built in, has a mask."""
    given = [tensor for node in keras_hooks.calls_of(layer) for tensor in node.input_tensors]
    return any(mask_of(tensor) is not None for tensor in given)


def _merges_masks(layer: Any) -> bool:
    """Whether a layer is given masks that are not all the same."""
    for node in keras_hooks.calls_of(layer):
        masks = [mask_of(tensor) for tensor in node.input_tensors]
        if any(mask is not masks[0] for mask in masks):
            return True
    return False


def with_keras_layers(config: Json, layers: Mapping[tuple[str, ...], tuple[str, Json]]) -> Json:
    """Returns the config of a model with these layers of Keras in place of operations."""

    def row_of(row: Json, kind: str, options: Json) -> Json:
        own = row["config"]
        kept = {key: own[key] for key in ("name", "trainable", "dtype") if key in own}
        around = {key: row[key] for key in ("name", "inbound_nodes") if key in row}
        return of_keras("keras.layers", kind, kept | options) | around

    made = {here: partial(row_of, kind=kind, options=o) for here, (kind, o) in layers.items()}
    return _with_rows(config, made)


def _with_ours(config: Json, layers: Mapping[tuple[str, ...], str]) -> Json:
    """Returns the config of a model with layers of ours, of these classes, at these places."""

    def row_of(row: Json, kind: str) -> Json:
        return {**row, **of_ours("keras_mp.compat.layers", kind, row["config"])}

    made = {place: partial(row_of, kind=kind) for place, kind in layers.items()}
    return _with_rows(config, made)


def _with_rows(
    config: Json,
    rows: Mapping[tuple[str, ...], Callable[[Json], Json]],
    path: tuple[str, ...] = (),
) -> Json:
    inside = config.get("config")
    if not isinstance(inside, Mapping) or not isinstance(inside.get("layers"), list):
        return config
    found = []
    for row in inside["layers"]:
        here = (*path, row["config"].get("name", row.get("name")))
        found.append(rows[here](row) if here in rows else _with_rows(row, rows, here))
    return {**config, "config": {**inside, "layers": found}}
