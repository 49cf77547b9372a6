"""What preprocessing layers have learned and keep in no variable: vocabularies, and bins.

In a `.keras` archive of TF 2.12 to 2.15 the words of an adapted lookup layer are in
`assets/.../vocabulary.txt`, and its `idf_weights`, under this name, with the weights. A
Discretization has a summary of the data there, of which its bins are made.

In a SavedModel the words are in tables: constants of its graph from TF 2.6 on, tensors of its
checkpoint before.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from keras_mp.backends import keras_hooks
from keras_mp.compat.checkpoints import Checkpoint, Unreadable
from keras_mp.compat.checkpoints.object_graph import ObjectGraph
from keras_mp.compat.file_formats.hdf5_groups import Group
from keras_mp.compat.file_formats.saved_objects import Table
from keras_mp.compat.file_formats.values import Array, Value, value_of
from keras_mp.compat.restoring.plan import Plan

ASSETS = "assets/"
_VOCABULARY, _IDF = "vocabulary.txt", "idf_weights"
_LOOKUPS = (keras.layers.StringLookup, keras.layers.IntegerLookup)
# What a lookup layer counted in `adapt`, which begins anew each time.
_COUNTS = ("token_counts", "token_document_counts", "num_documents")
_KEYS, _VALUES = "-keys", "-values"
_SUMMARY = "summary:0"  # of a Discretization in HDF5


def plan_own(plan: Plan, group: Group, layer: Any) -> bool:
    """Plans to give a layer what its group `vars` holds of such state.

    Returns:
        Whether the group holds such state, and no variables. That of lookup layers is restored
        with their words.
    """
    names = group.names()
    if isinstance(layer, keras.layers.Discretization) and names == ["0"]:
        _plan_summary(plan, group.value("0"), layer)
        return True
    return names == [_IDF] and hasattr(layer, "set_vocabulary")


def _plan_summary(plan: Plan, value: Value, layer: Any) -> None:
    """Plans to give a Discretization layer a summary of its data, of which it makes its bins."""
    summary = value.array

    def restore() -> None:
        layer.summary = summary
        layer.finalize_state()

    plan.call(value, f"{layer.path}/bin_boundaries", restore)


def adapts_bins(layer: Any) -> bool:
    """Returns whether a layer computes its bins from a summary of the data."""
    return isinstance(layer, keras.layers.Discretization) and layer.num_bins is not None


def plan_bins(plan: Plan, group: Group, names: list[str], layer: Any) -> list[str]:
    """Plans to give the Discretization layers of one, or this one, their bins.

    Args:
        plan: Gets it.
        group: Of the layer, in a classic HDF5 file.
        names: Of its weights.
        layer: The layer.

    Returns:
        The names of the other weights.
    """
    summaries = [name for name in names if name.rpartition("/")[2] == _SUMMARY]
    layers = [each for each in keras_hooks.all_layers(layer) if adapts_bins(each)]
    if len(summaries) != len(layers):
        return names
    for name, each in zip(summaries, layers, strict=True):
        _plan_summary(plan, group.value(name), each)
    return [name for name in names if name not in summaries]


def plan_vocabulary(plan: Plan, value: Value, layer: Any, idf_weights: Array | None) -> None:
    """Plans to give a lookup layer its words.

    Args:
        plan: The plan.
        value: Words, or integers, with the special ones.
        layer: StringLookup, IntegerLookup or TextVectorization.
        idf_weights: float32, one for each word; None where the layer has none.
    """
    words = value.array.tolist()

    def restore() -> None:
        try:
            layer.set_vocabulary(words, idf_weights=idf_weights)
        except (ValueError, RuntimeError) as error:
            raise Unreadable(plan.file, value.source, f"Keras refuses it: {error}") from None

    plan.call(value, f"{layer.path}/vocabulary", restore)


def members(names: Iterator[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields each vocabulary in an archive, and the attributes that lead to its layer.

    >>> list(members(iter(["config.json", "assets/layers/lookup/vocabulary.txt"])))
    [('assets/layers/lookup/vocabulary.txt', ['layers', 'lookup'])]
    """
    for name in names:
        if name.startswith(ASSETS) and not name.endswith("/"):
            *attributes, last = name.removeprefix(ASSETS).split("/")
            yield name, attributes if last == _VOCABULARY else [*attributes, last]


def words(data: bytes, file: str, name: str, layer: Any) -> Array | None:
    """Returns the lines of a vocabulary; None where there is none.

    Raises:
        Unreadable: They are no text, or no integers, which the layer looks up.
    """
    try:
        lines = data.decode().split("\n")
        if lines == [""]:
            return None
        if isinstance(layer, keras.layers.IntegerLookup):
            return np.array([int(line) for line in lines], "int64")
    except (ValueError, OverflowError) as error:
        raise Unreadable(file, name, f"holds no vocabulary: {error}") from None
    return np.array(lines)


def idf_weights(root: Group, attributes: list[str], layer: Any) -> Array | None:
    """Returns the weights of a lookup layer's words, by where its words are."""
    if layer.get_config().get("output_mode") != "tf_idf":
        return None
    group = root
    for name in (*attributes, "vars"):
        if name not in group or not group.is_group(name):
            return None
        group = group.group(name)
    return group.value(_IDF).array if _IDF in group else None


def plan_objects(
    plan: Plan,
    checkpoint: Checkpoint,
    graph: ObjectGraph,
    pairs: Iterable[tuple[int, Any]],
    tables: Iterable[Table],
) -> set[str]:
    """Plans to give preprocessing layers their words and bins.

    Args:
        plan: Gets it.
        checkpoint: Of the model, or of its SavedModel.
        graph: Its objects.
        pairs: Number of an object, and what it is here; what holds others before them.
        tables: Those of the SavedModel.

    Returns:
        The keys of such state.
    """
    static = {graph.find(table.owner): table for table in tables}
    weights: dict[int | None, int | None] = {}
    taken = set()
    for number, layer in pairs:
        children = graph.nodes[number].children
        if isinstance(layer, keras.layers.Discretization):
            key = graph.key(children.get("summary"))
            if key is not None and key in checkpoint:
                _plan_summary(plan, value_of(checkpoint, key), layer)
                taken.add(key)
        elif isinstance(layer, keras.layers.TextVectorization):  # of TF 2.4
            weights[children.get("_index_lookup_layer")] = graph.find(
                "_vectorize_layer/tf_idf_weights", number
            )
        elif isinstance(layer, _LOOKUPS):
            key = graph.key(children.get(_IDF, weights.get(number)))
            idf = checkpoint[key] if key is not None and key in checkpoint else None
            taken |= _keys(checkpoint, graph, children) | ({key} if key is not None else set())
            table = static.get(number) or _mutable(checkpoint, graph, children.get("_table"))
            if table is not None:
                _plan_table(plan, table, layer, idf)
    return taken


def _keys(checkpoint: Checkpoint, graph: ObjectGraph, children: dict[str, int]) -> set[str]:
    found = {
        attribute.key + suffix
        for name in (*_COUNTS, "_table")
        if name in children
        for attribute in graph.nodes[children[name]].attributes
        for suffix in ("", _KEYS, _VALUES)
    }
    return {key for key in found if key in checkpoint}


def _mutable(checkpoint: Checkpoint, graph: ObjectGraph, number: int | None) -> Table | None:
    """Returns the table of TF 2.3 to 2.5, which had the special words, too."""
    for attribute in graph.nodes[number].attributes if number is not None else ():
        if attribute.key + _KEYS in checkpoint and attribute.key + _VALUES in checkpoint:
            key = attribute.key
            return Table(key, checkpoint[key + _KEYS], checkpoint[key + _VALUES])
    return None


def _plan_table(plan: Plan, table: Table, layer: Any, weights: Array | None) -> None:
    config = layer.get_config()
    masks = config["mask_token"] is not None and config["output_mode"] == "int"
    special = [config["mask_token"]] * masks + [config["oov_token"]] * config["num_oov_indices"]
    of = int if isinstance(layer, keras.layers.IntegerLookup) else bytes.decode
    try:
        words = [of(word) for word in _words(table, len(special), inverted=config["invert"])]
    except (ValueError, TypeError) as error:
        raise Unreadable(plan.file, table.owner, f"holds no vocabulary: {error}") from None
    if not words:
        return
    if config["output_mode"] != "tf_idf":
        weights = None
    elif weights is not None:
        weights = weights[: len(special) + len(words)]
    value = Value.of(f"{table.owner}: lookup table", np.array([*special, *words]))
    plan_vocabulary(plan, value, layer, weights)


def _words(table: Table, first: int, *, inverted: bool) -> list[Any]:
    """Returns the words from the place `first` on, in the order of their places."""
    words = table.keys.reshape(-1).tolist()
    if table.values is None:
        return words
    places = table.values.reshape(-1).tolist()
    if inverted:
        places, words = words, places
    by_place = sorted(zip(places, words, strict=True), key=lambda pair: int(pair[0]))
    return [word for place, word in by_place if place >= first]
