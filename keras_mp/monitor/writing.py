"""A file that is replaced as a whole: readers see the old bytes or the new, never a part."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yields a path beside `path` to write to; at the end, what is there becomes `path`.

    What a symbolic link points to is replaced, and the mode of a file that is there is kept.

    Raises:
        OSError: Nothing was written, and `path` is as it was.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        # A rename would replace a device or a pipe by a file.
        raise OSError(f"{path} is not a regular file")
    beside = target.with_name(f".keras-mp-{os.urandom(6).hex()}.tmp")
    try:
        yield beside
        if target.exists():
            shutil.copymode(target, beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Writes a text in UTF-8, see `replacing`."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8", newline="")
