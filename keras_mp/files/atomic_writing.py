"""Files replaced as a whole: readers see the old bytes or the new, never a part."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from keras_mp.files.locked_folders import lock, new_name

# Errors of opening and syncing a folder that may not be read, or whose file system cannot do it.
_NO_FOLDERS = (errno.EACCES, errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOTSUP)


def write_atomically(path: str | Path, data: str | bytes) -> None:
    """Writes bytes, or a text as UTF-8 with unchanged line ends; see `replacing`."""
    with replacing(path) as new:
        new.write_bytes(data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yields a path beside `path` to write to; at the end that file replaces `path`.

    It is synced to disk first. If `path` is a symbolic link, its target is replaced. The mode of an
    existing file is kept; its owner, group and extended attributes are kept where permitted. Its
    other hard links keep the old content.

    Raises:
        OSError: Nothing was written and `path` is unchanged; or only its folder was not synced.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        # A rename would replace a device or a pipe with a file.
        raise OSError(f"{path} is not a regular file")
    # A private file is private from the beginning.
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
    shutil.copymode(target, new)  # last, because a change of owner clears mode bits


def _keep_attributes(target: Path, new: Path) -> None:
    if not hasattr(os, "listxattr"):
        return
    with contextlib.suppress(OSError):  # the file system may not support them
        for name in os.listxattr(target):
            # The system clears a program's capabilities when it is written to.
            if name != "security.capability":
                with contextlib.suppress(OSError):
                    os.setxattr(new, name, os.getxattr(target, name))


@contextlib.contextmanager
def beside(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """Yields a new file in the folder of `path`; removes it at the end unless it was renamed.

    The file is in use while its process lives: `locked_folders.remove_stale` removes others.

    Args:
        path: The file is created in its folder.
        mode: Of the file, before the umask.
    """
    new = path.with_name(new_name())
    with contextlib.ExitStack() as stack:
        file = os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode), "r+b")
        stack.callback(new.unlink, missing_ok=True)
        stack.enter_context(file)
        if not lock(file):
            file.close()  # Windows cannot rename an open file
        yield new


def sync_file(path: Path) -> None:
    """Syncs a file's content to disk."""
    with path.open("r+b") as file:  # Windows syncs only files opened for writing
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Syncs renames in a folder to disk, where folders can be synced."""
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
