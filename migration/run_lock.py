"""Only one run at a time writes into a folder. A lock of a process that is gone blocks nobody."""

import contextlib
import errno
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from keras_mp.migration import ledger
from keras_mp.migration.publishing import Refused

NAME = ".keras-mp-migration.lock"
_TAKEN = (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN)


@contextlib.contextmanager
def held(folder: Path, run: str) -> Iterator[None]:
    """Holds the lock of a folder. Windows has no such locks, nor have some disks: then it is free.

    Raises:
        Refused: Another run holds it; says which.
        OSError: The folder cannot be written to.
    """
    file = _opened(folder / NAME)
    with file:
        file.seek(0)
        file.truncate()
        said = {"pid": os.getpid(), "host": socket.gethostname(), "since": ledger.now(), "run": run}
        file.write(json.dumps(said))
        file.flush()
        try:
            yield
        finally:
            # Before it is free: whoever waits for this one sees that it has no name any more.
            with contextlib.suppress(OSError):
                (folder / NAME).unlink()


def _opened(path: Path) -> IO[Any]:
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            free = _lock(file)
            there = free and _is_named(file, path)
        except BaseException:
            file.close()
            raise
        if there:
            return file
        with file:
            if not free:
                raise Refused(f"{path.parent}: another run is at work there{_who(file)}", "options")


def _lock(file: IO[Any]) -> bool:
    try:
        import fcntl
    except ModuleNotFoundError:
        return True
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _TAKEN
    return True


def _is_named(file: IO[Any], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _who(file: IO[Any]) -> str:
    try:
        file.seek(0)
        said = json.loads(file.read(4096))
        who = f", process {said['pid']} on {said['host']}, since {said['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        who = ""
    return f"{who}: wait until it is done, or end it"
