"""A scratch folder: disk space for files of stores, up to a limit.

All processes that name the folder share the limit. A reservation waits until others are done; one
that exceeds the limit is refused at once.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from keras_mp.files import locked_folders
from keras_mp.files.stores.errors import NoRoom

_SIZE = "bytes"
_PAUSE = 0.2
_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")
PATIENCE = 6 * 3600.0
OPTIONS = "--scratch-size, or scratch_size="


@dataclass(frozen=True, slots=True)
class Scratch:
    """Where files of stores are kept while they are in use.

    Attributes:
        folder: An existing folder; None for the system's temporary folder.
        limit: Maximum bytes that all users hold at a time; None for the whole disk.
    """

    folder: Path | None = None
    limit: int | None = None

    @property
    def place(self) -> Path:
        """The folder itself."""
        if self.folder is not None:
            return self.folder
        import tempfile  # late: no command needs it for its help

        return Path(tempfile.gettempdir())

    @contextlib.contextmanager
    def reserved(self, size: int, of: str) -> Iterator[Path]:
        """Yields a new folder with `size` bytes of space; it is removed at the end.

        Args:
            size: In bytes.
            of: The address or path that needs it, for messages.

        Raises:
            NoRoom: The limit, or the disk, is too small; or others held it for hours.
            OSError: The folder cannot be written to.
        """
        self._check(size, of)
        locked_folders.remove_stale(self.place)
        with contextlib.ExitStack() as stack:
            yield self._wait(size, of, stack)

    def _check(self, size: int, of: str) -> None:
        if not self.place.is_dir():
            raise NoRoom.of(of, f"there is no folder {self.place} for scratch files (--scratch)")
        if self.limit is not None and size > self.limit:
            why = f"takes {shown(size)} of scratch, more than the limit of {shown(self.limit)}"
            raise NoRoom.of(of, f"{why} ({OPTIONS})")
        free = shutil.disk_usage(self.place).free
        if size > free:
            why = f"takes {shown(size)} of scratch, and {self.place} has {shown(free)} left"
            raise NoRoom.of(of, f"{why}: name another folder with --scratch")

    def _wait(self, size: int, of: str, stack: contextlib.ExitStack) -> Path:
        end = time.monotonic() + PATIENCE
        while True:
            with _alone(self.place):
                if self.limit is None or self._reserved_bytes() + size <= self.limit:
                    folder = stack.enter_context(locked_folders.made(self.place))
                    (folder / _SIZE).write_text(str(size))
                    inside = folder / "files"
                    inside.mkdir()
                    return inside
            if time.monotonic() > end:
                raise NoRoom.of(of, f"others hold the scratch folder {self.place} ({OPTIONS})")
            time.sleep(_PAUSE)
            locked_folders.remove_stale(self.place)

    def _reserved_bytes(self) -> int:
        held = 0
        for each in self.place.glob(f"{locked_folders.START}*{locked_folders.END}/{_SIZE}"):
            with contextlib.suppress(OSError, ValueError):
                held += int(each.read_text())
        return held


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lets one process and thread at a time sum up what is held. Windows has no such locks."""
    try:
        import fcntl
    except ModuleNotFoundError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def shown(size: int) -> str:
    """Returns a number of bytes for readers.

    >>> shown(512), shown(20_000_000_000), shown(1_234_567)
    ('512 bytes', '20 GB', '1.23 MB')
    """
    number, unit = float(size), 0
    while number >= 1000 and unit < len(_UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:.3g} {_UNITS[unit]}" if unit else f"{size} bytes"


def parsed_size(text: str) -> int:
    """Parses a number of bytes.

    Raises:
        ValueError: `text` is not a size.

    >>> parsed_size("20GB"), parsed_size("1.5 MB"), parsed_size("4GiB"), parsed_size("100")
    (20000000000, 1500000, 4294967296, 100)
    """
    number, unit = text.strip(), ""
    while number and not (number[-1].isdigit() or number[-1] == "."):
        number, unit = number[:-1], number[-1] + unit
    unit = unit.strip().upper().removesuffix("B")
    base = 1024 if unit.endswith("I") else 1000
    try:
        size = int(float(number) * base ** ("", "K", "M", "G", "T", "P").index(unit.rstrip("I")))
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a size: write one such as 20GB") from None
    if size <= 0:
        raise ValueError(f"{text!r} is not a size: write one such as 20GB")
    return size
