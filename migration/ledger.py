"""The ledger of a folder of outputs: one line of JSON for each artefact, and what became of it.

A row, of schema 1:

| key | what |
|---|---|
| schema, run, when, host | 1; the run; the time (ISO, UTC); the machine that did it |
| source, name | the artefact as it was given, and its path in the folder |
| kind, files, bytes, state, sha256 | h5, keras, saved_model or checkpoint; how many files, their \
bytes, a text that is another where they were changed, and `sources.checksum` |
| written_by, model, policies, optimizer, loss_scale | what it was, as `keras-mp inspect` says |
| result | "done", "done before", "refused" or "failed" |
| reason, why, where | why not: one of `REASONS`, a sentence, and the place as a JSON path |
| changes, notes | what is not as it was: path, kind, what, matters; and what else to know |
| out, out_bytes, out_sha256 | the output, relative to the ledger, its size and checksum |
| verified | how many weights, and variables of the optimizer, were read back and found equal |
| seconds, peak_memory | of the work; bytes, where they are known |
| versions, options | keras_mp, keras, backend, python; and what was asked for |

Lines are only ever appended, each in one write. Of several lines with a name the last one counts.

A store has no appending: a local copy is put there as a whole when it has grown by a fifth, at most
every few seconds, and at the end. What is sent is a few times the ledger, however many its lines.
Rows that a killed run did not put there are not lost: the outputs have them.
"""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from keras_mp.files import regular_files
from keras_mp.files.json_files import json_values
from keras_mp.files.stores import objects
from keras_mp.files.stores.urls import is_url, join

NAME = "migration.jsonl"
SCHEMA = 1
MADE = ("done", "done before")
RESULTS = (*MADE, "refused", "failed")
REASONS = (
    "needs --model",
    "needs --optimizer",
    "needs --model-path",
    "needs --optimizer-path",
    "no counterpart",
    "does not fit",
    "damaged",
    "no artefact",
    "output exists",
    "differs",  # when it is loaded again
    "predicts otherwise",  # than the graph in the file
    "too large",  # for the memory of the workers, or for --limit-memory
    "too long",  # for --limit-seconds
    "killed",
    "own code",  # of the user's, which ended or failed
    "not installed",
    "options",
    "storage",  # it could not be read or written
    "worker",  # it is broken, and not the artefact
    "unexpected",
)
# The longest line of a ledger that is read.
_MOST = 1 << 26
_PAUSE, _GROWTH = 5.0, 1.2  # seconds between two uploads, and by how much it has grown

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Known:
    """What a run must know of an artefact that an earlier one had in hand; a row is much larger.

    Attributes:
        kept: Keys of the row: result, reason, why, sha256, files, bytes, state, out, out_bytes,
            options and kind.
        keras_mp: The version that did it.
        start: Where the row begins in the ledger, in bytes.
    """

    kept: Row
    keras_mp: object
    start: int


_KEPT = (
    *("result", "reason", "why", "where", "sha256", "files", "bytes", "state"),
    *("out", "out_bytes", "options", "kind", "source"),
)


@dataclass(slots=True)
class Contents:
    """What a ledger says.

    Attributes:
        known: Of each name, its last row in short.
        torn: How many lines are none: the last one, where the disk was full or the machine died.
    """

    known: dict[str, Known]
    torn: int = 0


def rows(path: Path) -> Iterator[tuple[int, Row | None]]:
    """Yields (where it begins, row) of each line of a ledger; None for a line that is no row.

    Raises:
        OSError: It cannot be read; but one that does not exist is empty.
    """
    try:
        file = regular_files.opened(path)
    except FileNotFoundError:
        return
    with file:
        start = 0
        while line := file.readline(_MOST):
            if line.strip():
                yield start, _row(line)
            start += len(line)


def read_contents(path: Path) -> Contents:
    """Returns what a ledger says, in short.

    Raises:
        OSError: It cannot be read; but one that does not exist is empty.
    """
    contents = Contents({})
    for start, row in rows(path):
        if row is None:
            contents.torn += 1
            continue
        kept = {key: row.get(key) for key in _KEPT}
        versions = row.get("versions")
        version = versions.get("keras_mp") if isinstance(versions, dict) else None
        contents.known[row["name"]] = Known(kept, version, start)
    return contents


def says_less(row: Row, known: Known | None) -> bool:
    """Returns whether a row would hide that an artefact is done, and its output there.

    It does if it tells why the artefact could not be looked at this time: a disk that does not
    answer, a process that was killed. That the artefact is another now hides nothing.

    Args:
        row: What became of it now.
        known: What the ledger says of it, where its output is there.
    """
    if known is None or row["result"] in MADE:
        return False
    return row["sha256"] is None or row["sha256"] == known.kept["sha256"]


def row_at(path: Path, start: int) -> Row:
    """Returns the row that begins there.

    Raises:
        OSError: It cannot be read.
        ValueError: There is none.
    """
    with path.open("rb") as file:
        file.seek(start)
        row = _row(file.readline(_MOST))
    if row is None:
        raise ValueError(f"{path}: there is no row at byte {start}")
    return row


def _row(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("name"), str) else None


class Writer:
    """Appends to a ledger, each row by one write: whoever reads meanwhile finds whole lines.

    Args:
        path: Of the ledger, which is made if need be.

    Raises:
        OSError: It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        self._file = os.open(path, flags, 0o666)
        size = os.fstat(self._file).st_size
        if size and _last_byte(path, size) != b"\n":
            os.write(self._file, b"\n")  # a torn line stays alone

    def append(self, row: Row) -> None:
        """Appends a row.

        Raises:
            OSError: It is not there as a whole: the disk is full.
        """
        data = json.dumps(json_values(row), allow_nan=False).encode() + b"\n"
        written = os.write(self._file, data)
        if written != len(data):
            raise OSError(28, "No space left on device", str(self._path))

    def close(self) -> None:
        """Makes it reach the disk, and closes it."""
        try:
            os.fsync(self._file)
        finally:
            os.close(self._file)


def _last_byte(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(size - 1)
        return file.read(1)


class Place:
    """A ledger.

    Args:
        path: The local file.
        url: Where else it is to be.
    """

    def __init__(self, path: Path, url: str | None = None) -> None:
        self.path = path
        self._url = url
        self._sent = path.stat().st_size if url is not None and path.exists() else 0
        self._pause_until = time.monotonic() + _PAUSE

    def saved(self, *, now: bool = False) -> None:
        """Uploads it, if the last upload is long enough ago.

        Raises:
            StoreError: It could not be put there.
        """
        if self._url is None:
            return
        size = self.path.stat().st_size
        is_time = time.monotonic() > self._pause_until and size >= self._sent * _GROWTH
        if size == self._sent or not (now or is_time):
            return
        began = time.monotonic()
        objects.write_text(self._url, self.path.read_text(encoding="utf-8", errors="replace"))
        self._sent = size
        # Of the time, a tenth at most is for this.
        self._pause_until = time.monotonic() + max(_PAUSE, 10 * (time.monotonic() - began))


@contextlib.contextmanager
def open_ledger(folder: str) -> Iterator[Place]:
    """Yields the ledger of a folder of outputs, local or of a store.

    Raises:
        OSError: It cannot be had, or put there.
    """
    if not is_url(folder):
        yield Place(Path(folder, NAME))
        return
    url = join(folder, NAME)
    with tempfile.TemporaryDirectory(prefix="keras-mp-ledger-") as scratch:
        path = Path(scratch, NAME)
        text = objects.read_text(url)
        if text is not None:
            path.write_text(text, encoding="utf-8")
        place = Place(path, url)
        try:
            yield place
        finally:
            if path.exists():
                place.saved(now=True)


def now() -> str:
    """Returns the time, as a row has it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
