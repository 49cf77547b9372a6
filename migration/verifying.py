"""Loads what was written, and compares it with what was saved, bit for bit.

By checksums, so that the model that was saved need not be in memory beside the one that is loaded.
"""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_mp.compat import recursion
from keras_mp.compat.restoring.plan import SHOWN, Restored, checksum

_OF_KERAS = ("keras.", "keras_mp.")


class Mismatch(Exception):
    """What comes out of the written file is not what went in; its text names the first."""


@dataclass(frozen=True, slots=True)
class Array:
    """A variable: its path, and what it was.

    Attributes:
        path: Of the variable.
        dtype: Of its value.
        shape: Of its value.
        sha256: Of the bytes of its value.
        nbytes: How many these are.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Saved:
    """What a model was when it was saved.

    Attributes:
        weights: Its weights.
        state: The variables of its optimizer.
        optimizer: The config of that; None without one.
        layers: How many layers it has.
        is_of_keras: Whether none of these is of a class of the user's own.
    """

    weights: tuple[Array, ...]
    state: tuple[Array, ...]
    optimizer: object
    layers: int = 0
    is_of_keras: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """How many arrays of each kind there are."""
        return {"weights": len(self.weights), "optimizer": len(self.state)}

    @property
    def nbytes(self) -> int:
        """How many bytes its arrays have."""
        return sum(array.nbytes for array in (*self.weights, *self.state))

    @classmethod
    def of(cls, model: Any) -> "Saved":
        """Returns that of a model, which is read one variable after another."""
        from keras_mp.backends import keras_hooks  # late: it imports Keras

        optimizer = getattr(model, "optimizer", None)  # there is none before compile()
        state = [] if optimizer is None else optimizer.variables
        layers = [*keras_hooks.all_layers(model)]
        is_of_keras = all(type(one).__module__.startswith(_OF_KERAS) for one in layers)
        return cls(
            *(_arrays(model.weights), _arrays(state), _config(optimizer)),
            *(len(layers), is_of_keras),
        )


def reload_and_compare(
    path: Path,
    saved: Any,
    rows: Iterable[Restored],
    *,
    custom_objects: Mapping[str, Any],
) -> dict[str, int]:
    """Loads what was written anew and compares weights and the optimizer with what was saved.

    Args:
        path: A `.keras` file, the same unpacked, or a folder of shards.
        saved: The model that was saved, or `Saved.of` it, beside which it need not live any more.
        rows: What the artefact held, by checksum; each is looked for in the file, too.
        custom_objects: For `load_model`.

    Returns:
        How many arrays of each were equal: {"weights": ..., "optimizer": ...}.

    Raises:
        Mismatch: Something differs, or it cannot be loaded.
    """
    import keras

    from keras_mp.backends.common.late_values import late_values
    from keras_mp.compat.restoring import shards

    before = saved if isinstance(saved, Saved) else Saved.of(saved)
    try:
        late = late_values() if before.is_of_keras else contextlib.nullcontext()
        with recursion.enough_for(before.layers), late:
            if shards.is_sharded(path):
                again = shards.load(path, custom_objects)
            else:
                again = keras.saving.load_model(path, custom_objects=dict(custom_objects))
    except Exception as error:  # whatever Keras or a class of the user's raises
        raise Mismatch(f"the written file cannot be loaded: {error}") from error
    after = Saved.of(again)
    _compare("weight", before.weights, after.weights)
    _compare("optimizer variable", before.state, after.state)
    if before.optimizer != after.optimizer:
        raise Mismatch("the optimizer's config differs after reloading")
    _compare_with_rows(rows, before, after)
    return after.counts


def _config(optimizer: Any) -> object:
    import keras

    return None if optimizer is None else keras.saving.serialize_keras_object(optimizer)


def _arrays(variables: Iterable[Any]) -> tuple[Array, ...]:
    import keras

    def one(variable: Any) -> Array:
        # Of its value there is one copy, and of the variable itself, on PyTorch, two.
        value = np.asarray(keras.ops.convert_to_numpy(variable.value))
        return Array(variable.path, str(value.dtype), value.shape, checksum(value), value.nbytes)

    return tuple(map(one, variables))


def _compare(what: str, before: tuple[Array, ...], after: tuple[Array, ...]) -> None:
    if len(before) != len(after):
        raise Mismatch(f"it has {len(after)} {what}s after reloading, not {len(before)}")
    for a, b in zip(before, after, strict=True):
        if (a.dtype, a.shape, a.sha256) != (b.dtype, b.shape, b.sha256):
            raise Mismatch(f"{a.path} differs after reloading")


def _compare_with_rows(rows: Iterable[Restored], before: Saved, after: Saved) -> None:
    found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for old, new in zip(
        (*before.weights, *before.state), (*after.weights, *after.state), strict=True
    ):
        found[old.path, new.dtype].add(new.sha256[:SHOWN])
    for row in rows:
        digests = found.get((row.target, row.dtype))
        if digests and row.sha256 not in digests:
            raise Mismatch(f"{row.target} differs from {row.source} after reloading")
