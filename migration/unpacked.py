"""A model on the disk before it is one file, so that no copy of its weights is in memory.

Keras makes the weights of a `.keras` file in memory, and reads them all at once, where half of what
is free is enough for that. A folder it writes and reads one tensor after another. So a model is
saved as a folder, loaded again from there, and packed as it is.
"""

import errno
import math
import os
import re
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keras_mp.compat.file_formats.zip_archives import CONFIG, METADATA, WEIGHTS

_PIECE = 1 << 20
_ROW = 4096  # what HDF5 says of a variable, and a little
# HDF5 tells what the system said in the middle of its own text, and not always as an OSError.
_ERRNO = re.compile(r"\berrno = (\d+)")


def check_room(model: Any, beside: Path, *, times: int) -> None:
    """Refuses a disk with too little room, before anything is written.

    Where HDF5 meets a full disk, it may end the process: it fails to close its file.

    Args:
        model: What is to be saved.
        beside: A path on that disk, in a folder that is there.
        times: How often its variables will be there.

    Raises:
        OSError: There is too little.
    """
    needed = times * sum(bytes_of(variable) + _ROW for variable in variables_of(model)) + _PIECE
    free = shutil.disk_usage(beside.parent).free
    if free < needed:
        why = f"{os.strerror(errno.ENOSPC)}: it needs {needed:,} bytes, and {free:,} are free"
        raise OSError(errno.ENOSPC, why, str(beside.parent))


def variables_of(model: Any) -> list[Any]:
    """Returns all variables of a model that are saved, those of its optimizer with them."""
    optimizer = getattr(model, "optimizer", None)  # there is none before compile()
    return [*model.variables, *([] if optimizer is None else optimizer.variables)]


def bytes_of(variable: Any) -> int:
    """Returns how many bytes the value of a variable takes."""
    import ml_dtypes  # noqa: F401 - of Keras' own requirements; adds bfloat16 to NumPy
    import numpy as np

    return int(math.prod(variable.shape) * np.dtype(str(variable.dtype)).itemsize)


def save(model: Any, folder: Path) -> None:
    """Saves a model as the folder that `keras.saving.load_model` reads.

    Args:
        model: A Keras model.
        folder: Does not exist yet.

    Raises:
        OSError: It cannot be written.
    """
    with named_errors(folder):
        # From where it stands: of a relative path Keras loses the assets.
        model.save(folder.absolute(), zipped=False)


def pack(folder: Path, path: Path) -> None:
    """Makes a `.keras` file of such a folder, not compressed, and reads it once.

    Raises:
        OSError: It cannot be written, or does not read as it was written.
    """
    first = [folder / name for name in (METADATA, CONFIG, WEIGHTS)]
    rest = sorted(file for file in folder.rglob("*") if file.is_file() and file not in first)
    with zipfile.ZipFile(path, "x") as archive:
        for file in (*first, *rest):
            info = zipfile.ZipInfo.from_file(file, file.relative_to(folder).as_posix())
            with file.open("rb") as source, archive.open(info, "w") as target:
                shutil.copyfileobj(source, target, _PIECE)
    with zipfile.ZipFile(path) as archive:
        if (damaged := archive.testzip()) is not None:
            raise OSError(errno.EIO, f"{damaged} does not read as it was written", str(path))


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turns what HDF5 says of a full disk into an OSError that says only that."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        found = _ERRNO.search(str(error))
        if found is None:
            raise
        number = int(found[1])
        raise OSError(number, os.strerror(number), str(path)) from error
