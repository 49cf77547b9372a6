"""A run on the disk: a folder with `run.json`, `trace.jsonl` and, where taken, `ranges.json`."""

import contextlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from keras_mp.atomic_writing import write_atomically
from keras_mp.monitor.trace import FILE as TRACE, Trace

RUN, RANGES = "run.json", "ranges.json"
RUN_FORMAT, RANGES_FORMAT = "keras_mp.run", "keras_mp.ranges"
VERSION = 1
FRACTIONS = ("zero", "subnormal", "overflow")


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
        trace = Trace.read(path) if (path / TRACE).exists() else Trace.from_rows(())
        trace = _with_end(trace, run)
        ranges = read_ranges(path) if (path / RANGES).exists() else None
        return cls(path, run, trace, ranges)


def read_trace(path: str | Path) -> Trace:
    """Returns `Trace.read(path)`; of a folder with its `end`, where `run.json` tells it.

    Raises:
        ValueError: It is no trace.
        OSError: It cannot be read.
    """
    trace = Trace.read(path)
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
    file = _inside(path, RUN)
    found = _read(file, RUN_FORMAT)
    _check_rows(file, found, "layers", {"path": _is_text})
    _check_rows(file, found, "overflows", {"count": _is_whole, "first_step": _is_whole_or_null})
    if not isinstance(found.get("optimizer", {}), dict):
        raise _wrong(file, "optimizer", found["optimizer"], "an object")
    return found


def write_run(folder: str | Path, run: Mapping[str, Any]) -> None:
    """Writes `run.json` into a folder, whole or not at all; the folder is made.

    "format" and "version" are added. What JSON lacks (inf, nan) becomes text.
    """
    _write(Path(folder) / RUN, RUN_FORMAT, run)


def read_ranges(path: str | Path) -> dict[str, Any]:
    """Returns what a `ranges.json` says, given it or its folder.

    Raises:
        ValueError: It is none, or of a later version.
        OSError: It cannot be read.
    """
    file = _inside(path, RANGES)
    found = _read(file, RANGES_FORMAT)
    check_ranges(found, str(file))
    return found


def check_ranges(ranges: Mapping[str, Any], name: str = "ranges") -> None:
    """Checks what the pictures rely on.

    Raises:
        ValueError: It is otherwise; says where, and what was found.
    """
    ends = ranges.get("exponents")
    if not (isinstance(ends, list | tuple) and len(ends) == 2 and all(map(_is_whole, ends))):
        raise _wrong(name, "exponents", ends, "two whole numbers")
    bins = ends[1] - ends[0] + 1

    def is_histogram(value: object) -> bool:
        return isinstance(value, list) and len(value) == bins and all(map(_is_whole, value))

    if "rows" not in ranges:
        raise _wrong(name, "rows", None, "a list")
    beside = dict.fromkeys(("infs", "nans"), _is_whole_or_null)
    _check_rows(name, ranges, "rows", {"path": _is_text, "kind": _is_text, **beside})
    for i, row in enumerate(ranges["rows"]):
        if not is_histogram(row.get("histogram")):
            wanted = f"a list of {bins} counts, as of the exponents {list(ends)}"
            raise _wrong(name, f"rows[{i}].histogram", row.get("histogram"), wanted)


def check_measured(ranges: Mapping[str, Any], name: str = "ranges") -> None:
    """Checks what the table relies on, beyond `check_ranges`.

    Raises:
        ValueError: It is otherwise; says where, and what was found.
    """
    counts = dict.fromkeys(("count", "zeros", "infs", "nans"), _is_whole)
    _check_rows(name, ranges, "rows", {"dtype": _is_text, **counts})
    for i, row in enumerate(ranges["rows"]):
        half = row.get("float16")
        parts = [half.get(key) for key in FRACTIONS] if isinstance(half, dict) else [None]
        if not all(isinstance(part, int | float) for part in parts):
            wanted = f"the fractions {', '.join(FRACTIONS)}"
            raise _wrong(name, f"rows[{i}].float16", half, wanted)
    if not isinstance(ranges.get("loss_scale"), int | float):
        raise _wrong(name, "loss_scale", ranges.get("loss_scale"), "a number")
    if not isinstance(ranges.get("advice", {}), dict):
        raise _wrong(name, "advice", ranges["advice"], "an object")


def write_ranges(path: str | Path, ranges: Mapping[str, Any]) -> None:
    """Writes a `ranges.json`, given it or its folder, as `write_run` does."""
    _write(_inside(path, RANGES), RANGES_FORMAT, ranges)


def as_json(value: object) -> object:
    """Returns a value as JSON has it: what it lacks becomes the text "inf", "-inf" or "nan".

    >>> as_json({"scale": float("inf"), "steps": (1, 2)})
    {'scale': 'inf', 'steps': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    return value


def _inside(path: str | Path, name: str) -> Path:
    file = Path(path)
    return file if file.suffix == ".json" and not file.is_dir() else file / name


def _write(path: Path, form: str, value: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = as_json({"format": form, "version": VERSION, **value})
    write_atomically(path, json.dumps(whole, indent=1, allow_nan=False, default=_plain) + "\n")


def _plain(value: Any) -> object:
    # Numbers and arrays of NumPy.
    if hasattr(value, "tolist"):
        return as_json(value.tolist())
    raise TypeError(f"{value!r} of type {type(value).__name__} is nothing that JSON knows")


def _read(path: Path, form: str) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes(), parse_int=_number)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise _wrong(path, "the file", found, "an object")
    if found.get("format") != form:
        raise _wrong(path, "format", found.get("format"), f'"{form}"')
    version = found.get("version")
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise _wrong(path, "version", version, f"{VERSION}; later ones need a later keras_mp")
    return found


def _check_rows(
    name: object, found: Mapping[str, Any], key: str, checks: dict[str, Callable[[object], bool]]
) -> None:
    rows = found.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _wrong(name, key, rows, "a list of objects")
    for i, row in enumerate(rows):
        for inner, is_right in checks.items():
            if not is_right(row.get(inner)):
                raise _wrong(name, f"{key}[{i}].{inner}", row.get(inner), _WANTED[is_right])


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_whole_or_null(value: object) -> bool:
    return value is None or _is_whole(value)


_WANTED: dict[Callable[[object], bool], str] = {
    _is_text: "a text",
    _is_whole: "a whole number",
    _is_whole_or_null: "a whole number, or null",
}


def _number(text: str) -> int | float:
    # Pictures calculate in floats, which end at 309 digits.
    return int(text) if len(text) < 300 else float(text)


def _wrong(name: object, where: str, value: object, wanted: str) -> ValueError:
    shown = json.dumps(value, default=repr)
    shown = shown if len(shown) < 60 else f"{shown[:60]}..."
    return ValueError(f"{name}: {where} is {shown}: expected {wanted}")
