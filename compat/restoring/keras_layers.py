"""Gives a converted model layers of Keras in place of operations that are exactly these."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import keras

from keras_mp.compat.configs import Change, parse_version
from keras_mp.compat.configs.layers import BATCH_NORM, RENAMED
from keras_mp.compat.configs.serialized import of_keras, of_ours
from keras_mp.compat.layers import Operation, merging
from keras_mp.compat.layers.normalization import LayerNormalization, normalized_axes
from keras_mp.compat.operations.keras_layers import Spec, layer_of

Json = dict[str, Any]
_OURS = "keras_mp>Operation"
OTHER_MASKS = (
    "keras_mp.compat.layers has the layer with its mask of tf.keras: a step is masked where an "
    "input masks it, in Keras 3 where all do: loading needs import keras_mp"
)
_MERGING = tuple(getattr(keras.layers, layer.__name__) for layer in merging.LAYERS)
MASKED = (
    "BatchNormalization of masked steps: up to TF 2.11 they counted in the statistics of a batch, "
    "Keras 3 leaves them out; predictions are the same; exact_training=True keeps the layer of "
    "tf.keras, keras_mp.compat.layers.BatchNormalization"
)
MASKED_RELU = (
    "a ReLU layer of TF 2.4 passed no mask on, that of Keras 3 does: layers behind it that use "
    "masks predict otherwise. Where that matters, put in a layer without masks, in code"
)
ATTENTION = (
    "MultiHeadAttention of masked steps: Keras 3 on PyTorch computes another gradient of its "
    "values than on JAX and TensorFlow; predictions are the same. Train on one of these"
)
MASKED_LOSS = (
    "the loss of masked outputs: up to TF 2.9 it was the sum over the unmasked steps divided by "
    "the number of all steps, Keras 3 divides by that of the unmasked ones: it is greater, and so "
    "are its gradients"
)
OTHER_AXES = (
    "keras_mp.compat.layers.LayerNormalization, which normalizes over any axes on every backend: "
    "loading needs import keras_mp"
)


def has_operations(config: object) -> bool:
    """Returns whether there are operations in a config."""
    waiting = [config]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            if value.get("registered_name") == _OURS:
                return True
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return False


def found(model: Any) -> dict[tuple[str, ...], tuple[str, Json]]:
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
        elif isinstance(layer, Operation) and not layer.steps and len(layer._inbound_nodes) == 1:
            tensors = layer._inbound_nodes[0].input_tensors
            specs = [Spec(tuple(one.shape), str(one.dtype)) for one in tensors]
            # Keras' layer casts its inputs to its own dtype, and uses masks or passes them on.
            fits = all(one.dtype == layer.compute_dtype for one in specs)
            if specs and fits and not layer.masked:
                made = layer_of(layer.operation, specs)
                if made is not None:
                    yield here, made


def built(config: Json, build: Callable[[Json], Any]) -> Any:
    """Returns the model of a config, with layers of ours where those of Keras compute otherwise.

    Which axes LayerNormalization has, and which masks reach a layer, shows only in what is built.

    Args:
        config: Of the model.
        build: Returns the model of a config, and leaves that as it is.
    """
    made = build(config)
    places = dict(_otherwise(made))
    return build(_with_ours(config, places)) if places else made


def changes(model: Any, told: Iterable[Change], tf_version: str | None) -> list[Change]:
    """Returns what shows only when the layers of a model have their shapes.

    That is what `built` has changed, and that images are normalized over an axis that its config
    does not tell from that of vectors.

    Args:
        model: What `built` returned.
        told: What its config has told.
        tf_version: The TensorFlow that wrote it; None where nobody knows.
    """
    layers = model._flatten_layers()
    found = [
        Change(f"$: {layer.path}", "rewritten", what, matters=True)
        for kinds, what in ((LayerNormalization, OTHER_AXES), (merging.LAYERS, OTHER_MASKS))
        for layer in layers
        if isinstance(layer, kinds)
    ]
    images = [layer.path for layer in layers if _was_fused(layer)]
    lines = [change.what for change in told]
    # Those that shared statistics among replicas had no such kernel.
    is_shared = any(RENAMED["SyncBatchNormalization"] in line for line in lines)
    if images and BATCH_NORM not in lines and not is_shared:
        found.append(Change(f"$: {images[0]}", "differs", BATCH_NORM, matters=True))
    if keras.backend.backend() == "torch":
        kind = keras.layers.MultiHeadAttention
        paths = [layer.path for layer in layers if _is_masked(layer, kind)]
        found += [Change(f"$: {path}", "differs", ATTENTION, matters=True) for path in paths]
    if tf_version is not None and _is_before((2, 5), tf_version):
        relus = [layer.path for layer in layers if _is_masked(layer, keras.layers.ReLU)]
        found += [Change(f"$: {path}", "differs", MASKED_RELU, matters=True) for path in relus]
    if _is_before((2, 12), tf_version):
        norm = keras.layers.BatchNormalization
        masked = [layer.path for layer in layers if _is_masked(layer, norm)]
        found += [Change(f"$: {path}", "differs", MASKED, matters=True) for path in masked[:1]]
    return found


def changes_of_losses(model: Any, tf_version: str | None) -> list[Change]:
    """Returns what a compiled model computes otherwise of masked outputs.

    Args are those of `changes`.
    """
    outputs = getattr(model, "outputs", None) or ()
    masked = any(getattr(tensor, "_keras_mask", None) is not None for tensor in outputs)
    if not masked or not _is_before((2, 10), tf_version):
        return []
    return [Change("$.loss", "differs", MASKED_LOSS, matters=True)]


def _is_before(version: tuple[int, int], tf_version: str | None) -> bool:
    return tf_version is None or parse_version(tf_version) < version


def _is_masked(layer: Any, kind: Any) -> bool:
    """Whether a layer is of just that class, and given a mask."""
    if type(layer) is not kind:
        return False
    given = [tensor for node in layer._inbound_nodes for tensor in node.input_tensors]
    return any(getattr(tensor, "_keras_mask", None) is not None for tensor in given)


def _was_fused(layer: Any) -> bool:
    """Whether TensorFlow had one kernel for a BatchNormalization: of 5 axes, from 2.6 on."""
    if type(layer) is not keras.layers.BatchNormalization or not layer.built:
        return False
    rank = len(layer.get_build_config().get("input_shape") or ())
    return rank in (4, 5) and layer.axis % rank in (1, rank - 1)


def _otherwise(model: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields (names that lead to it, class) of each layer that is to be one of ours."""
    for layer in getattr(model, "layers", []):
        here = (*path, layer.name)
        if isinstance(layer, keras.Model):
            yield from _otherwise(layer, here)
        elif type(layer) is keras.layers.LayerNormalization and layer.built:
            shape = layer.get_build_config().get("input_shape")
            axes = normalized_axes(layer.axis, len(shape)) if shape else []
            if axes and axes != list(range(len(shape) - len(axes), len(shape))):
                yield here, "LayerNormalization"
        elif type(layer) in _MERGING and _merges_masks(layer):
            yield here, type(layer).__name__


def _merges_masks(layer: Any) -> bool:
    """Whether a layer is given masks that are not all the same."""
    for node in layer._inbound_nodes:
        masks = [getattr(tensor, "_keras_mask", None) for tensor in node.input_tensors]
        if any(mask is not masks[0] for mask in masks):
            return True
    return False


def replaced(config: Json, layers: Mapping[tuple[str, ...], tuple[str, Json]]) -> Json:
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
