"""A lock: one run at a time writes into a folder. The lock of a dead process blocks nobody."""

import contextlib
import errno
import json
import os
import platform
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from keras_mp.files.stores import objects, owners
from keras_mp.files.stores.errors import StoreError
from keras_mp.files.stores.urls import is_url, join, redacted
from keras_mp.migration import ledger
from keras_mp.migration.publishing import Refused

NAME = ".keras-mp-migration.lock"
_SETTLED = 1.0
_TAKEN = (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN)


@contextlib.contextmanager
def hold_lock(folder: str, run: str) -> Iterator[None]:
    """Holds the lock of a folder, local or of a store, which is made if need be.

    Windows has no such locks, nor have some disks: then it is free. In a store it is an object with
    the time of its owner, who writes it again every minute; after an hour without it is nobody's.

    Raises:
        Refused: Another run holds it; says which.
        OSError: The folder cannot be written to.
    """
    if is_url(folder):
        with _held_on_store(folder):
            yield
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder, NAME)
    file = _opened(path)
    with file:
        file.seek(0)
        file.truncate()
        said = {"pid": os.getpid(), "host": platform.node(), "since": ledger.now(), "run": run}
        file.write(json.dumps(said))
        file.flush()
        try:
            yield
        finally:
            # Before it is free: whoever waits for this one sees that it has no name any more.
            with contextlib.suppress(OSError):
                path.unlink()


@contextlib.contextmanager
def _held_on_store(folder: str) -> Iterator[None]:
    url = join(folder, NAME)
    while not objects.create_text(url, mine := owners.me()):
        there = objects.read_text(url)
        if there is None:
            continue
        if not owners.is_dead(there):
            raise Refused(f"{redacted(folder)}: locked by another run{_explain_holder(there)}")
        objects.delete(url)
        time.sleep(_SETTLED)  # whoever else found it dead removes it now, and not what comes
    if objects.read_text(url) != mine:
        raise Refused(f"{redacted(folder)}: locked by another run, which started at the same time")
    over = threading.Event()
    beat = threading.Thread(target=_beat, args=(url, over), daemon=True)
    beat.start()
    try:
        yield
    finally:
        over.set()
        beat.join()
        with contextlib.suppress(StoreError):
            objects.delete(url)


def _beat(url: str, over: threading.Event) -> None:
    while not over.wait(owners.BEAT):
        with contextlib.suppress(StoreError):
            objects.write_text(url, owners.me())


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
                raise Refused(f"{path.parent}: locked by another run{_who(file)}", "options")


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
        return _explain_holder(file.read(4096))
    except OSError:
        return _explain_holder("")


def _explain_holder(text: str) -> str:
    try:
        said = json.loads(text)
        host = said["host"] if isinstance(said["host"], str) else said["host"][0]
        who = f", process {said['pid']} on {host}"
        who += f", since {said['since']}" if "since" in said else ""
    except (ValueError, KeyError, TypeError, IndexError):
        who = ""
    return f"{who}: wait for it, or stop it"
