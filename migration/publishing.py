"""A file, or a folder of files, that appears whole or not at all, and never over another.

It is made in a folder beside its place, synced, and then linked to its name; a folder is renamed.
Whoever dies on the way leaves that folder, which the next run removes: its lock is held as long as
its maker lives.
"""

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from keras_mp.atomic_writing import sync_file, sync_folder
from keras_mp.migration.writing import link_new

_START, _END, _LOCK = ".keras-mp-", ".tmp", "lock"
_SECONDS = 60.0
_CAME = "{} is there already: it came while this was at work"


class Refused(Exception):
    """An output is not written; its text says why."""


def check(out: Path, *, folder: bool = False) -> None:
    """Refuses a place where a new `.keras` file, or a new folder, cannot be.

    Raises:
        Refused: There is something already, no folder, or the name is another.
    """
    if os.path.lexists(out):
        what = "folder" if folder else "file"
        raise Refused(f"{out} is there already: name another {what}, or remove it")
    if folder and out.suffix == ".keras":
        raise Refused(f"{out}: it becomes a folder of shards: choose a name without .keras")
    if not folder and out.suffix != ".keras":
        raise Refused(f"{out}: the name must end in .keras")
    if not out.parent.is_dir():
        raise Refused(f"{out}: there is no folder {out.parent}")


@contextlib.contextmanager
def staged(out: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yields the path to write to; at the end, what is there becomes `out`.

    Args:
        out: What is to be there.
        folder: Whether it is a folder, which whoever writes makes, of files.

    Raises:
        Refused: See `check`.
        OSError: It could not be written: nothing is there; or its folder alone is not synced.
    """
    check(out, folder=folder)
    remove_stale(out.parent)
    work = out.with_name(f"{_START}{os.urandom(6).hex()}{_END}")
    work.mkdir()
    try:
        with _locked(work):
            beside = work / ("model" if folder else "model.keras")
            yield beside
            (_publish_folder if folder else _publish)(beside, out)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def remove_stale(folder: Path) -> None:
    """Removes what runs that were killed left in a folder."""
    for found in folder.glob(f"{_START}*{_END}"):
        if not found.is_symlink() and found.is_dir() and _is_stale(found):
            shutil.rmtree(found, ignore_errors=True)


def _publish(beside: Path, out: Path) -> None:
    sync_file(beside)
    try:
        link_new(beside, out)
    except FileExistsError:
        raise Refused(_CAME.format(out)) from None
    sync_folder(out.parent)


def _publish_folder(beside: Path, out: Path) -> None:
    for file in beside.iterdir():
        sync_file(file)
    sync_folder(beside)
    # A rename replaces an empty folder that came in this moment, and nothing else.
    if os.path.lexists(out):
        raise Refused(_CAME.format(out))
    try:
        beside.rename(out)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise Refused(_CAME.format(out)) from None
        raise
    sync_folder(out.parent)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    # Locked first and named then: under its name it is never seen unlocked while we live.
    unnamed = folder / "unnamed"
    with unnamed.open("x") as file:
        _lock(file)
        unnamed.rename(folder / _LOCK)
        yield


def _lock(file: IO[Any]) -> bool:
    """Returns whether the lock was to be had. Windows has no such locks: never."""
    try:
        import fcntl
    except ModuleNotFoundError:
        return False
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_stale(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("r+") as file:
            return _lock(file)
    except FileNotFoundError:
        # Killed before it was locked, or about to be.
        with contextlib.suppress(OSError):
            return time.time() - folder.stat().st_mtime > _SECONDS
    except OSError:
        pass
    return False
