"""Files that are replaced as a whole: readers see the old bytes or the new, never a part."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from keras_mp.files.locked_folders import lock, new_name

# What opening and syncing a folder fails with where it may not be read, or a file system cannot.
_NO_FOLDERS = (errno.EACCES, errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOTSUP)


def write_atomically(path: str | Path, data: str | bytes) -> None:
    """Writes bytes, or a text in UTF-8 with line ends as they are, see `replacing`."""
    with replacing(path) as new:
        new.write_bytes(data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yields a path beside `path` to write to; at the end, what is there becomes `path`.

    It is on the disk by then. What a symbolic link points to is replaced; of a file that is there,
    the mode is kept, and owner, group and extended attributes where that is allowed. Its other hard
    links stay as they were.

    Raises:
        OSError: Nothing was written, and `path` is as it was; or its folder alone is not synced.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        # A rename would replace a device or a pipe by a file.
        raise OSError(f"{path} is not a regular file")
    # What is private is so from the beginning.
    with beside(target, 0o600 if target.exists() else 0o666) as new:
        yield new
        sync_file(new)
        if target.exists():
            _keep_rights(target, new)
        new.replace(target)
    sync_folder(target.parent)


def _keep_rights(target: Path, new: Path) -> None:
    if os.name == "posix":
        there = target.stat()
        for owner, group in ((-1, there.st_gid), (there.st_uid, -1)):
            with contextlib.suppress(OSError):
                os.chown(new, owner, group)
    _keep_attributes(target, new)
    shutil.copymode(target, new)  # last, as a change of owner takes rights away


def _keep_attributes(target: Path, new: Path) -> None:
    if not hasattr(os, "listxattr"):
        return
    with contextlib.suppress(OSError):  # a file system may have none
        for name in os.listxattr(target):
            # The system takes its capabilities from a program that is written to.
            if name != "security.capability":
                with contextlib.suppress(OSError):
                    os.setxattr(new, name, os.getxattr(target, name))


@contextlib.contextmanager
def beside(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """Yields a new file in the folder of `path`; if it still has its name at the end it is removed.

    It is in use as long as its process lives: `locked_folders.remove_stale` removes others.

    Args:
        path: Beside what.
        mode: Of the file, before the umask.
    """
    new = path.with_name(new_name())
    with contextlib.ExitStack() as stack:
        file = os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode), "r+b")
        stack.callback(new.unlink, missing_ok=True)
        stack.enter_context(file)
        if not lock(file):
            file.close()  # Windows gives no other name to an open file
        yield new


def sync_file(path: Path) -> None:
    """Makes what was written to a file reach the disk."""
    with path.open("r+b") as file:  # Windows syncs only what may be written to
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Makes renames in a folder reach the disk, where folders can be synced."""
    # Windows cannot open a folder, and needs no such step.
    if os.name != "posix":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDERS:
            raise
