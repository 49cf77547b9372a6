"""Fast stand-ins for `migrate_task`, for fleets of empty artefacts, without Keras.

In their own module, because worker processes must be able to import them.
"""

import os
import signal
import time
import zipfile
from pathlib import Path

from keras_mp.files import locked_folders
from keras_mp.migration import ledger, publishing, requests, sources, tasks
from keras_mp.migration.publishing import Refused

LOG = "KERAS_MP_TESTS_LOG"  # a file that gets the name of each artefact when it is published
SECONDS = "KERAS_MP_TESTS_SECONDS"  # duration of each task


def cheap(task):
    """Copies the artefact into a marked archive, by the same steps as the real one."""
    row = tasks.new_row(task)
    source, out = Path(task.request.path), Path(task.request.out)
    sha256 = sources.checksum([source])
    row |= {"sha256": sha256, "result": "done", "reason": None, "files": 1}
    if source.name.startswith("bad"):
        return row | {"result": "refused", "reason": "no counterpart", "why": "it is bad"}
    if source.name.startswith("odd"):
        return row | {"result": "failed", "reason": "damaged", "why": "it is odd"}
    before = _before(row, out, sha256, task)
    if before is not None:
        return before
    out.parent.mkdir(parents=True, exist_ok=True)
    time.sleep(float(os.environ.get(SECONDS, "0")))
    try:
        with publishing.staged_output(out, tidy=False) as beside:
            with zipfile.ZipFile(beside, "w") as archive:
                archive.writestr(zipfile.ZipInfo("config.json"), source.read_bytes())
            sources.write_mark(beside, str(source), sha256, task.options)
    except Refused:
        return _before(row, out, sha256, task)
    if LOG in os.environ:
        log = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(log, f"{task.name}\n".encode())
        os.close(log)
    return row | _written(out)


def dies(task):
    """Is killed by the artefact named "killer"; by "unlucky" once."""
    source = Path(task.request.path)
    mark = source.with_name("was_there")
    if source.name.startswith("killer") or (
        source.name.startswith("unlucky") and not mark.exists()
    ):
        if source.name.startswith("unlucky"):
            mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return cheap(task)


def fails(task):
    """Raises what a task never should."""
    raise ZeroDivisionError("of the executor's own")


def pid():
    return os.getpid()


def value(what):
    print("on stdout")  # noqa: T201 - which must not be parsed as an answer
    return what


def unpicklable():
    return lambda: None


def exits(code):
    raise SystemExit(code)


def ends(code):
    os.write(2, b"first line\nno memory\n")
    os._exit(code)


def sleeps(seconds):
    time.sleep(seconds)
    return os.getpid()


def nothing():
    """Is ready at once."""


def takes(size):
    """Returns the result for an artefact that takes memory, as the command gets it."""
    try:
        bytearray(size)
    except MemoryError as error:
        return requests.Outcome("a.h5", "failed", why=f"MemoryError: {error}", reason="unexpected")
    return requests.Outcome("a.h5", "converted")


def aborts():
    """Fails as a framework does when it cannot allocate."""
    os.abort()


def folder_of(path, count, start=""):
    """Makes artefacts that look like HDF5 by their first bytes."""
    path.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        (path / f"{start}{i:05}.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + str(i).encode())
    return path


def all_are_dead(monkeypatch):
    """Removes at once, not after a minute, folders left by a process killed before locking them."""
    monkeypatch.setattr(locked_folders, "_SECONDS", 0.0)


def outputs(out):
    """Returns the bytes of all files but the ledger, by name."""
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != ledger.NAME
    }


def _before(row, out, sha256, task):
    if not out.exists():
        return None
    marked = sources.read_mark(out)
    if marked.get("sha256") != sha256:
        return row | {"result": "refused", "reason": "output exists", "why": "it is there"}
    return row | {"result": "done before", "options": marked["options"]} | _written(out)


def _written(out):
    return {"out_bytes": out.stat().st_size, "out_sha256": sources.checksum([out])}
