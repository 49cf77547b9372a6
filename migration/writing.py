"""The functions that write a file: readers see the old bytes or the new, never a part."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


def write_atomically(path: Path, data: str | bytes) -> None:
    """Writes beside `path`, syncs, then renames; what a symbolic link points to is replaced.

    The mode of a file that is there is kept. A text is written in UTF-8.

    Raises:
        OSError: Nothing was written, and `path` is as it was.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        # A rename would replace a device or a pipe by a file.
        raise OSError(f"{path} is not a regular file")
    with _beside(target, data, sync=True) as beside:
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)
    sync_folder(target.parent)


def write_new(path: Path, data: str | bytes, *, like: Path | None = None, sync: bool) -> None:
    """Writes a file where there is none, whole or not at all.

    Args:
        path: Where.
        data: What; a text in UTF-8.
        like: A file with the mode that it gets.
        sync: Whether it is on the disk at the end; it is not worth its time for what can be had
            again.

    Raises:
        FileExistsError: There is something by that name.
        OSError: Nothing was written.
    """
    with _beside(path, data, sync=sync) as beside:
        if like is not None:
            shutil.copymode(like, beside)
        try:
            os.link(beside, path)  # unlike a rename, it fails where something came in between
        except FileExistsError:
            raise
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, "File exists", str(path)) from None
            beside.rename(path)
    if sync:
        sync_folder(path.parent)


@contextlib.contextmanager
def _beside(target: Path, data: str | bytes, *, sync: bool) -> Iterator[Path]:
    """Yields a file with the data in the folder of `target`; it is gone at the end."""
    beside = target.with_name(f".keras-mp-{os.urandom(6).hex()}.tmp")
    try:
        with beside.open("xb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        yield beside
    finally:
        beside.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Makes renames in a folder reach the disk."""
    # Windows cannot open a folder, and needs no such step.
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
