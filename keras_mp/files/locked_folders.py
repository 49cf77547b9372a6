"""Temporary files and folders, each locked while its process lives.

A lock ends with its process, however that ends. So the next process can tell what is in use from
what a killed process left, and removes the latter.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

START, END = ".keras-mp-", ".tmp"
_LOCK = "lock"
_SECONDS = 60.0


def new_name() -> str:
    """Returns an unused name, by which leftovers are recognized."""
    return f"{START}{os.urandom(6).hex()}{END}"


@contextlib.contextmanager
def made(parent: Path) -> Iterator[Path]:
    """Yields a new folder, which is removed at the end with its content.

    Raises:
        OSError: It could not be created.
    """
    folder = parent / new_name()
    folder.mkdir(mode=0o700)
    try:
        with _lock_inside(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_stale(parent: Path) -> None:
    """Removes the folders and files that killed processes left in a folder."""
    for leftover in parent.glob(f"{START}*{END}"):
        if leftover.is_symlink():
            continue
        if leftover.is_dir():
            if _is_stale(leftover):
                shutil.rmtree(leftover, ignore_errors=True)
        elif _is_stale_file(leftover):
            with contextlib.suppress(OSError):
                leftover.unlink()


@contextlib.contextmanager
def _lock_inside(folder: Path) -> Iterator[None]:
    # Locked before it is renamed: under its final name it is always locked while we live.
    unnamed = folder / "unnamed"
    with unnamed.open("x") as file:
        lock(file)
        unnamed.rename(folder / _LOCK)
        yield


def lock(file: IO[Any]) -> bool:
    """Returns whether the lock was acquired. Windows has no such locks: never."""
    try:
        import fcntl
    except ModuleNotFoundError:
        return False
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_stale_file(path: Path) -> bool:
    try:
        with path.open("r+b") as file:
            return lock(file)
    except OSError:
        return False


def _is_stale(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("r+") as file:
            return lock(file)
    except FileNotFoundError:
        # Killed before it was locked, or about to be.
        with contextlib.suppress(OSError):
            return time.time() - folder.stat().st_mtime > _SECONDS
    except OSError:
        pass
    return False
