"""Disk space: what a model needs, and what HDF5 says when the disk is full."""

import errno
import math
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
