"""What was written, loaded again and compared with what was meant: bit for bit."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_mp.compat.restoring.plan import Array, Restored, digest


class Mismatch(Exception):
    """What comes out of the written file is not what went in; its text names the first."""


def reload_and_compare(
    path: Path,
    model: Any,
    rows: Iterable[Restored],
    *,
    custom_objects: Mapping[str, type],
) -> dict[str, int]:
    """Loads a `.keras` file anew and compares weights and the optimizer with the model.

    Args:
        path: The file.
        model: What was saved.
        rows: What the artefact held, by checksum; each is looked for in the file, too.
        custom_objects: For `load_model`.

    Returns:
        How many arrays of each were equal: {"weights": ..., "optimizer": ...}.

    Raises:
        Mismatch: Something differs, or it cannot be loaded.
    """
    import keras

    try:
        again = keras.saving.load_model(path, custom_objects=dict(custom_objects))
    except Exception as error:  # whatever Keras or a class of the user's raises
        raise Mismatch(f"what was written cannot be loaded again: {error}") from error
    pairs = [
        *_pairs("weight", model.weights, again.weights),
        *_pairs("optimizer variable", *(_state(_optimizer(m)) for m in (model, again))),
    ]
    for path_of, before, after in pairs:
        if not _same(before, after):
            raise Mismatch(f"{path_of} is not as it was, when loaded again")
    if _config(_optimizer(model)) != _config(_optimizer(again)):
        raise Mismatch("the optimizer's config is not as it was, when loaded again")
    _compare_with_rows(rows, pairs)
    return {"weights": len(model.weights), "optimizer": len(_state(_optimizer(model)))}


def _optimizer(model: Any) -> Any:
    return getattr(model, "optimizer", None)  # there is none before compile()


def _state(optimizer: Any) -> list[Any]:
    return [] if optimizer is None else list(optimizer.variables)


def _config(optimizer: Any) -> object:
    import keras

    return None if optimizer is None else keras.saving.serialize_keras_object(optimizer)


def _pairs(what: str, ours: list[Any], theirs: list[Any]) -> list[tuple[str, Array, Array]]:
    if len(ours) != len(theirs):
        raise Mismatch(f"it has {len(theirs)} {what}s when loaded again, not {len(ours)}")
    return [(a.path, _array(a), _array(b)) for a, b in zip(ours, theirs, strict=True)]


def _array(variable: Any) -> Array:
    import keras

    return np.asarray(keras.ops.convert_to_numpy(variable))


def _same(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _compare_with_rows(rows: Iterable[Restored], pairs: list[tuple[str, Array, Array]]) -> None:
    found: defaultdict[str, list[Array]] = defaultdict(list)
    for path, _, after in pairs:
        found[path].append(after)
    for row in rows:
        arrays = [array for array in found[row.target] if str(array.dtype) == row.dtype]
        if arrays and row.sha256 not in map(digest, arrays):
            raise Mismatch(f"{row.target} is not what {row.source} was, when loaded again")
