"""Reads regular files only: reading a pipe waits for its writer, and a device may never end."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

NOT_REGULAR = "it is a pipe or a device: a regular file is needed"


def opened(path: str | Path) -> BinaryIO:
    """Opens a regular file for reading bytes.

    Raises:
        OSError: It cannot be opened, or is not a regular file; says so in its `strerror`.

    >>> opened(os.devnull)
    Traceback (most recent call last):
    OSError: [Errno 22] it is a pipe or a device: a regular file is needed: '/dev/null'
    """
    return open(path, "rb", opener=opener)


def opener(path: str, flags: int) -> int:
    """Returns the descriptor of a regular file or a folder, for `open(..., opener=opener)`.

    Raises:
        OSError: As for `opened`.
    """
    # Without the flag, opening a pipe waits for its writer.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, NOT_REGULAR, path)


def read_bytes(path: str | Path, most: int | None = None) -> bytes:
    """Returns the content of a regular file.

    Args:
        path: The file.
        most: Maximum number of bytes.

    Raises:
        OSError: As for `opened`; or the file is larger.
    """
    with opened(path) as file:
        data = file.read() if most is None else file.read(most + 1)
    if most is not None and len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return data
