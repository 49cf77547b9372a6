"""The progress of a folder: a bar on a terminal, lines elsewhere, JSON for programs."""

import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from keras_mp.files.json_files import json_values
from keras_mp.migration.console import put_exact, say
from keras_mp.migration.ledger import Row
from keras_mp.migration.walking import Walk
from keras_mp.rendering.text import size as shown_size

EVERY = 10.0  # seconds between two lines where nothing else is said


class Shown:
    """Shows the progress of a folder; this one shows nothing."""

    def start(self, walked: Walk, size: int) -> None:
        """Is told what there is to do, and its bytes."""

    def row(self, row: Row) -> None:
        """Is told of an artefact that is done with."""

    def tick(self) -> None:
        """Is called now and then while nothing is done with."""


@contextlib.contextmanager
def show_rows(*, lines: bool, quiet: bool) -> Iterator[Shown]:
    """Yields what shows it.

    Args:
        lines: Whether each row is printed as JSON, on stdout.
        quiet: Whether no artefact is named where stderr is no terminal: a line now and then says
            how many are done with.
    """
    if lines:
        yield _Json()
    elif sys.stderr.isatty():
        with _bar() as bar:
            yield bar
    else:
        yield _Counts() if quiet else _Lines()


class _Json(Shown):
    def row(self, row: Row) -> None:
        put_exact(json.dumps(json_values(row), allow_nan=False) + "\n")
        sys.stdout.flush()


class _Counts(Shown):
    """Says every few seconds how many are done with, however long one takes."""

    def __init__(self) -> None:
        self._all = 0
        self._counts: Counter[str] = Counter()
        self._said = time.monotonic()

    def start(self, walked: Walk, size: int) -> None:
        self._all = len(walked.found)

    def row(self, row: Row) -> None:
        self._counts[row["result"]] += 1
        self.tick()

    def tick(self) -> None:
        if time.monotonic() - self._said >= EVERY:
            self._say(f"{self._counts.total()}/{self._all}{_bad(self._counts)}")

    def _say(self, text: str) -> None:
        say(text)
        self._said = time.monotonic()


class _Lines(_Counts):
    """Names each artefact as well."""

    def row(self, row: Row) -> None:
        self._counts[row["result"]] += 1
        if row["result"] == "done before":
            return
        why = "" if row["why"] is None else ": " + " ".join(row["why"].splitlines()[:1])
        self._say(f"{self._counts.total()}/{self._all} {row['name']}: {row['result']}{why}")


def _bad(counts: Counter[str]) -> str:
    return "".join(f", {counts[one]} {one}" for one in ("failed", "refused") if counts[one])


@contextlib.contextmanager
def _bar() -> Iterator[Shown]:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ModuleNotFoundError:
        yield _Lines()
        return
    columns = (
        TextColumn("{task.fields[done]}/{task.fields[all]}"),
        BarColumn(),
        TextColumn("{task.fields[bad]}{task.fields[size]}, {task.fields[rate]}/s", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(progress)


class _Bar(Shown):
    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._task: Any = None
        self._counts: Counter[str] = Counter()
        self._bytes = self._worked = 0
        self._began = time.monotonic()

    def start(self, walked: Walk, size: int) -> None:
        self._task = self._progress.add_task(
            "",
            total=len(walked.found),
            done=0,
            all=len(walked.found),
            bad="",
            size="0 B",
            rate="0 B",
        )

    def row(self, row: Row) -> None:
        self._counts[row["result"]] += 1
        size = row["bytes"] or 0
        self._bytes += size
        if row["result"] != "done before":
            self._worked += size
        self._progress.update(
            self._task,
            advance=1,
            done=self._counts.total(),
            bad=f"{_bad(self._counts)}, ".removeprefix(", "),
            size=shown_size(self._bytes),
            rate=shown_size(self._worked / max(1e-3, time.monotonic() - self._began)),
        )
