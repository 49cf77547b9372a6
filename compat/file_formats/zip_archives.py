"""Zip archives of Keras: the names of their members, and how to read one without unpacking it."""

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast
from zipfile import BadZipFile

try:
    from lzma import LZMAError
except ImportError:  # Python can be built without
    LZMAError = BadZipFile  # type: ignore[assignment, misc]

# What zipfile raises on damaged files; NotImplementedError stands for an unknown compression.
ZIP_FAILURES = (
    *(BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError, EOFError),
    *(zlib.error, LZMAError),
)
# The members of a `.keras` archive.
CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"

_LOCAL_HEADER = struct.Struct("<26xHH")  # of a zip: how long the name is, and what follows it


@contextmanager
def stored_member(path: str | Path, info: zipfile.ZipInfo) -> Iterator[BinaryIO]:
    """Opens a member of an archive that is not compressed, whose checksum was verified.

    To go back in a member takes zipfile from its start, once for each time.
    """
    with Path(path).open("rb") as file:
        file.seek(info.header_offset)
        name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        yield part_of(file, file.tell() + name + extra, info.file_size)


def part_of(file: io.BufferedIOBase, start: int, size: int) -> BinaryIO:
    """Returns a part of a file, to be read as long as the file is open.

    Args:
        file: The whole, opened for reading. Its position is no longer its own.
        start: The first byte of the part.
        size: How many bytes it has.

    >>> part = part_of(io.BytesIO(b"[hello]"), 1, 5)
    >>> part.read(), part.seek(-2, io.SEEK_END), part.read(9)
    (b'hello', 3, b'lo')
    """
    return cast("BinaryIO", io.BufferedReader(_Part(file, start, size)))


class _Part(io.RawIOBase):
    def __init__(self, file: io.BufferedIOBase, start: int, size: int) -> None:
        self._file = file
        self._start = start
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = max(0, min(len(buffer), self._size - self._at))
        self._file.seek(self._start + self._at)
        count = self._file.readinto(memoryview(buffer)[:length])
        self._at += count
        return count


def zip_reason(error: Exception) -> str:
    """Returns the message of one of `ZIP_FAILURES`, which is empty where a member is cut off."""
    if isinstance(error, RuntimeError) and "encrypted" in str(error):
        return "is encrypted: unpack it with its password, and pack it again without one"
    if isinstance(error, BadZipFile) and str(error) == "File is not a zip file":
        return "cut off, or damaged: the table at its end is missing"
    return str(error) or "ends too early"
