"""The one function that writes a file: readers see the old text or the new, never a part."""

import os
import shutil
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Writes beside `path`, syncs, then renames; what a symbolic link points to is replaced.

    Raises:
        OSError: Nothing was written, and `path` is as it was.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        # A rename would replace a device or a pipe by a file.
        raise OSError(f"{path} is not a regular file")
    beside = target.with_name(f".keras-mp-{os.urandom(6).hex()}.tmp")
    try:
        with beside.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Makes renames in a folder reach the disk."""
    # Windows cannot open a folder, and needs no such step.
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
