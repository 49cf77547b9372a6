"""Writes a new file, and never over another."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from keras_mp.files.atomic_writing import beside, sync_file, sync_folder

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


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
        OSError: Nothing was written; or its folder alone is not synced.
    """
    with beside(path) as new:
        new.write_bytes(data.encode() if isinstance(data, str) else data)
        if sync:
            sync_file(new)
        if like is not None:
            shutil.copymode(like, new)
        link_new(new, path)
    if sync:
        sync_folder(path.parent)


@contextlib.contextmanager
def folders_made(folder: Path) -> Iterator[None]:
    """Makes a folder and those above it; where the work fails, those that it made are removed.

    Raises:
        OSError: One cannot be made.
    """
    if not can_be_folder(folder):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for each in missing:
            with contextlib.suppress(OSError):  # something came into it
                each.rmdir()
        raise
    for each in missing:
        sync_folder(each.parent)


def can_be_folder(folder: Path) -> bool:
    """Returns whether a folder is there, or could be made: nothing above it is a file."""
    above = next((each for each in (folder, *folder.parents) if os.path.lexists(each)), folder)
    return above.is_dir()


def link_new(new: Path, path: Path) -> None:
    """Gives a file another name, in place of its own where the disk has no links.

    Raises:
        FileExistsError: There is something by that name.
    """
    try:
        os.link(new, path)  # unlike a rename, it fails where something came in between
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "File exists", str(path)) from None
        new.rename(path)
