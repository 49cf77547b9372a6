"""SavedModels of classes that nobody else has, from tests/data/saved_graphs, unpacked."""

import functools
import tempfile
import zipfile
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data" / "saved_graphs"
NAMES = sorted(path.stem for path in DATA.glob("*.zip"))
_KEPT = tempfile.TemporaryDirectory(prefix="saved_graphs")


@functools.cache
def folder(name):
    """Returns the folder of a SavedModel; nobody writes there."""
    to = Path(_KEPT.name, name)
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        archive.extractall(to)
    return to


@functools.cache
def recorded(name):
    """Returns what TensorFlow computed."""
    with np.load(DATA / f"{name}.npz") as arrays:
        return dict(arrays)
