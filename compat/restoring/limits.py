"""Limits what a model from an untrusted file may allocate: no more than the file can fill."""

import contextlib
import functools
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras

from keras_mp.compat.checkpoints import Unreadable

# HDF5 files may be compressed; `hdf5_groups` refuses arrays that claim more than that.
MOST_RATIO, SMALL = 1000, 1 << 24

_patching = threading.Lock()
_here = threading.local()
_scopes = 0
_original: Any = None


@contextlib.contextmanager
def limit_weights(path: str) -> Iterator[None]:
    """Stops layers that this thread makes from asking for more numbers than the file has.

    A config of a few bytes may ask for a layer of a billion units, which the system would hand out
    long before anybody could compare it with the arrays of the file.

    Args:
        path: The file; of a SavedModel its folder, or the `.pb` file in it.

    Raises:
        Unreadable: They ask for more; names the layer and the shape.
    """
    before = getattr(_here, "left", None)
    _here.path, _here.left = path, max(SMALL, MOST_RATIO * _size(Path(path)))
    _patch(1)
    try:
        yield
    finally:
        _patch(-1)
        _here.left = before


def _size(path: Path) -> int:
    if path.suffix == ".pb":  # of a SavedModel: its variables lie beside
        path = path.parent
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size


def _patch(more: int) -> None:
    global _scopes, _original
    with _patching:
        if _scopes == 0:
            _original = keras.layers.Layer.add_weight
            keras.layers.Layer.add_weight = _checked(_original)
        _scopes += more
        if _scopes == 0:
            keras.layers.Layer.add_weight = _original


def _checked(add_weight: Any) -> Any:
    @functools.wraps(add_weight)
    def checked(self: Any, shape: Any = None, *args: Any, **kwargs: Any) -> Any:
        if getattr(_here, "left", None) is not None:
            _count(self, () if shape is None else shape)
        return add_weight(self, shape, *args, **kwargs)

    return checked


def _count(layer: Any, shape: Any) -> None:
    sizes = shape if isinstance(shape, tuple | list) else (shape,)
    if not all(isinstance(size, int) for size in sizes):
        return  # Keras says what is wrong with it
    _here.left -= math.prod(sizes)
    if _here.left < 0:
        why = f"asks for a weight of shape {tuple(sizes)}, but the file is too small to hold it"
        raise Unreadable(_here.path, f"layer {layer.name}", why)
