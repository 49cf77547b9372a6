"""A run on the disk: a folder with `run.json`, `trace.jsonl` and, where taken, `ranges.json`."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from keras_mp.diagnosis.ranges.file import FILE as RANGES, read_ranges
from keras_mp.files.json_files import (
    bad_value,
    check_rows,
    file_in,
    is_text,
    is_whole,
    is_whole_or_null,
    read,
    write,
)
from keras_mp.monitor.trace import FILE as TRACE, Trace

RUN = "run.json"
FORMAT, VERSION = "keras_mp.run", 1
WRITER = "LossScaleMonitor"


@dataclass(frozen=True, eq=False)
class RunFolder:
    """What a run's folder holds.

    Args:
        path: The folder.
        run: What `run.json` says: versions, settings, layers, overflows.
        trace: The loss scale by step; empty where no step was recorded. Its `end` is that of
            `run.json`, unless there are steps after it.
        ranges: What `ranges.json` says, or None where there is none.
    """

    path: Path
    run: dict[str, Any]
    trace: Trace
    ranges: dict[str, Any] | None

    @classmethod
    def read(cls, folder: str | Path) -> "RunFolder":
        """Reads a folder.

        Raises:
            ValueError: A file is not what its name says; names it, and what was found.
            OSError: There is no `run.json`, or something cannot be read.
        """
        path = Path(folder)
        run = read_run(path)
        trace = Trace.load(path) if (path / TRACE).exists() else Trace.from_rows(())
        trace = _with_end(trace, run)
        ranges = read_ranges(path) if (path / RANGES).exists() else None
        return cls(path, run, trace, ranges)


def read_trace(path: str | Path) -> Trace:
    """Returns `Trace.load(path)`; of a folder with its `end`, where `run.json` tells it.

    Raises:
        ValueError: It is no trace.
        OSError: It cannot be read.
    """
    trace = Trace.load(path)
    if Path(path).is_dir():
        with contextlib.suppress(OSError, ValueError):  # the trace is whole without
            trace = _with_end(trace, read_run(path))
    return trace


def _with_end(trace: Trace, run: Mapping[str, Any]) -> Trace:
    """Returns `trace` with the loss scale of `run`, which is written at the end of an epoch."""
    scale = run.get("loss_scale")
    if not len(trace) or run.get("steps", trace.steps[-1]) != trace.steps[-1]:
        return trace  # the run went on, and was killed before the end of an epoch
    if scale in ("inf", "-inf", "nan") or (isinstance(scale, int | float) and scale is not True):
        return replace(trace, end=float(scale))
    return trace


def read_run(path: str | Path) -> dict[str, Any]:
    """Returns what a `run.json` says, given it or its folder.

    Raises:
        ValueError: It is none, or of a later version.
        OSError: It cannot be read.
    """
    file = file_in(path, RUN)
    found = read(file, FORMAT, VERSION, WRITER)
    check_rows(file, found, "layers", {"path": is_text})
    check_rows(file, found, "overflows", {"count": is_whole, "first_step": is_whole_or_null})
    if not isinstance(found.get("optimizer", {}), dict):
        raise bad_value(file, "optimizer", found["optimizer"], "an object")
    return found


def write_run(folder: str | Path, run: Mapping[str, Any]) -> None:
    """Writes `run.json` into a folder, whole or not at all; the folder is made.

    "format" and "version" are added. What JSON lacks (inf, nan) becomes text.
    """
    write(Path(folder) / RUN, FORMAT, VERSION, run)
