"""What preprocessing layers have learned and keep in no variable: vocabularies, and bins.

In a `.keras` archive of TF 2.12 to 2.15 the words of an adapted lookup layer are in
`assets/.../vocabulary.txt`, and its `idf_weights`, under this name, with the weights. A
Discretization has a summary of the data there, of which its bins are made.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import keras
import numpy as np

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.file_formats.hdf5_groups import Group
from keras_mp.compat.file_formats.values import Array, Value
from keras_mp.compat.restoring.plan import Plan

ASSETS = "assets/"
_VOCABULARY, _IDF = "vocabulary.txt", "idf_weights"


def plan_own(plan: Plan, group: Group, layer: Any) -> bool:
    """Plans to give a layer what its group `vars` holds of such state.

    Returns:
        Whether the group holds such state, and no variables. That of lookup layers is restored
        with their words.
    """
    names = group.names()
    if isinstance(layer, keras.layers.Discretization) and names == ["0"]:
        value = group.value("0")
        plan.call(value, f"{layer.path}/bin_boundaries", partial(_summarize, layer, value.array))
        return True
    return names == [_IDF] and hasattr(layer, "set_vocabulary")


def _summarize(layer: Any, summary: Array) -> None:
    layer.summary = summary
    layer.finalize_state()


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
