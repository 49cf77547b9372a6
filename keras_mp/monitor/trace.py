"""The loss scale of a run by step: read, written, summed up.

A trace is JSON lines, one object a step, or CSV with the same columns:

| column     | what it is                                                             |
| ---------- | ---------------------------------------------------------------------- |
| step       | optimizer step, from 1                                                 |
| epoch      | from 0                                                                 |
| loss_scale | before the step                                                        |
| kind       | 0: finite; 1: an inf, the step was skipped; 2: a nan, likewise         |
| variable   | path of the first variable whose gradient was not finite, or null      |

The table that Keras' CSVLogger writes is a trace, too, one row an epoch, where it has a column
`loss_scale`; `skipped_steps`, if it is there, is how many were skipped in each.
"""

import csv
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO, TypeVar

import numpy as np

from keras_mp.files import regular_files
from keras_mp.files.atomic_writing import replacing
from keras_mp.files.json_files import json_values, short_json
from keras_mp.monitor import drawing
from keras_mp.monitor.drawing import FINITE, INF, KINDS, NAN
from keras_mp.rendering import pictures
from keras_mp.rendering.model import Part, Renderable

COLUMNS = ("step", "epoch", "loss_scale", "kind", "variable")
FILE = "trace.jsonl"

T = TypeVar("T")
Array = np.ndarray[Any, Any]
Row = tuple[int, int, float, int, str | None]

_LINE = '{{"step": {}, "epoch": {}, "loss_scale": {}, "kind": {}, "variable": {}}}\n'
_ABSENT = ("", "NA")  # what CSVLogger writes of an epoch that was stopped
_SIGNS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


@dataclass(frozen=True, eq=False, repr=False)
class Trace(Renderable):
    """The loss scale of a run, step by step.

    Where steps were taken back, because a run was killed and resumed from a backup, only what
    replaced them is kept.

    Args:
        steps: int64, shape (n,). Grow by the row.
        epochs: int64, shape (n,).
        scales: float64, shape (n,). The loss scale before the step.
        kinds: int8, shape (n,). Index in `KINDS`; a step that is not finite was skipped.
        variables: object, shape (n,). Path of the first variable whose gradient was not finite,
            or None.
        unit: What a row is: a "step", or an "epoch" as CSVLogger writes them.
        has_kinds: Whether `kinds` was recorded. Where not, it is all 0, and says nothing.
        skips: int64, shape (n,), or None. Where a row is an epoch: how many of its steps were
            skipped.
        end: The loss scale after the last step; None where it is not known. Of a trace by epoch it
            is in `scales`, which are of the ends of epochs there.

    Raises:
        ValueError: The columns are not of one length.

    >>> trace = Trace([1, 2, 3], [0, 0, 0], [4.0, 4.0, 2.0], [0, 1, 0], [None, "out/bias", None])
    >>> trace.skipped
    1
    >>> trace.summary()["lowest_scale"]
    2.0
    """

    steps: Array
    epochs: Array
    scales: Array
    kinds: Array
    variables: Array
    unit: Literal["step", "epoch"] = "step"
    has_kinds: bool = True
    skips: Array | None = None
    end: float | None = None

    def __post_init__(self) -> None:
        columns: dict[str, Array] = {
            "steps": np.asarray(self.steps, np.int64),
            "epochs": np.asarray(self.epochs, np.int64),
            "scales": np.asarray(self.scales, np.float64),
            "kinds": np.asarray(self.kinds, np.int8),
            "variables": _objects(self.variables),
        }
        if self.skips is not None:
            columns["skips"] = np.asarray(self.skips, np.int64)
        shapes = {name: column.shape for name, column in columns.items()}
        if len(set(shapes.values())) > 1 or columns["steps"].ndim != 1:
            raise ValueError(f"the columns of a trace must be of one length, but got {shapes}")
        kept = _is_kept(columns["steps"])
        for name, column in columns.items():
            object.__setattr__(self, name, column if kept.all() else column[kept])

    def __len__(self) -> int:
        return len(self.steps)

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Returns the trace in a file, JSON lines or CSV by its content, or in a run's folder.

        Half a last line, as a killed run may leave, is dropped; in CSV, a last number that lacks
        digits cannot be told from a whole one.

        Raises:
            ValueError: It is no trace; names the file, the line and what was found there.
            OSError: It cannot be read.
        """
        file = Path(path)
        if file.is_dir():
            file = file / FILE
        with regular_files.opened(file) as opened:
            start = opened.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
        if not start:
            return cls.from_rows(())
        return _read_jsonl(file) if start.startswith(b"{") else _read_csv(file)

    @classmethod
    def from_rows(cls, rows: Iterable[Row]) -> "Trace":
        """Returns the trace of rows, each in the order of `COLUMNS`."""
        columns: Any = tuple(zip(*rows, strict=True)) or ((),) * len(COLUMNS)
        return cls(*columns)

    def rows(self) -> Iterator[Row]:
        """Yields the rows, each in the order of `COLUMNS`, as Python's own numbers."""
        columns = (self.steps, self.epochs, self.scales, self.kinds, self.variables)
        return zip(*(column.tolist() for column in columns), strict=True)

    def save(self, path: str | Path) -> None:
        """Writes all of it, or, on an OSError, nothing.

        Args:
            path: A file whose name ends in .csv, for CSV; of any other name, for JSON lines.

        Raises:
            ValueError: It is a trace by epoch, or without kinds, which JSON lines have no form for.
            OSError: It cannot be written; what was there is as it was.
        """
        if Path(path).suffix.lower() == ".csv":
            self._save_csv(path)
            return
        if self.unit != "step" or not self.has_kinds:
            raise ValueError(
                "JSON lines hold steps and their kinds, which were not recorded: save it as .csv"
            )
        with (
            replacing(path) as beside,
            beside.open("w", encoding="utf-8", newline="") as file,
        ):
            append_jsonl(file, self.rows())

    def _columns(self) -> dict[str, list[Any]]:
        """Returns the columns by name; what was not recorded has none."""
        by_step = self.unit == "step"
        columns = {
            "step": self.steps if by_step else None,
            "epoch": self.epochs,
            "loss_scale": self.scales,
            "kind": self.kinds if self.has_kinds else None,
            "variable": self.variables if by_step or self.has_kinds else None,
            "skipped_steps": self.skips,
        }
        return {name: each.tolist() for name, each in columns.items() if each is not None}

    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as plain JSON: its columns, "unit" and "end"; inf and nan as text."""
        return dict(json_values({"unit": self.unit, **self._columns(), "end": self.end}))

    def _save_csv(self, path: str | Path) -> None:
        recorded = self._columns()
        with (
            replacing(path) as beside,
            beside.open("w", encoding="utf-8", newline="") as file,
        ):
            # Left to itself, csv does not quote a carriage return.
            returns = any("\r" in variable for variable in {*self.variables} if variable)
            dialect = "unix" if returns else "excel"  # the first quotes everything
            table = csv.writer(file, dialect, lineterminator="\n")
            table.writerow(recorded)
            table.writerows(zip(*recorded.values(), strict=True))

    def plot(self, path: str | Path | None = None, *, dark: bool = False) -> Any:
        """Returns the loss scale by step as a `matplotlib.figure.Figure`.

        Args:
            path: Where to write it as well: PNG, SVG or PDF by its suffix.
            dark: Whether for a dark ground.

        Raises:
            ImportError: matplotlib is not installed.
            ValueError: matplotlib writes no format of this suffix.
            OSError: It could not be written; what was there is as it was.
        """
        return pictures.draw(drawing.chart(self), path, dark=dark)

    def _parts(self) -> Iterable[Part]:
        return drawing.parts(self)

    @property
    def is_skipped(self) -> Array:
        """bool, shape (n,). Which steps were skipped."""
        return np.asarray(self.kinds != FINITE)

    @property
    def skipped(self) -> int:
        """How many steps were skipped."""
        if self.skips is not None:
            return int(self.skips.sum())
        return int(np.count_nonzero(self.kinds))

    def overflows(self) -> list[dict[str, Any]]:
        """Returns variable, count, first_step and kind of overflows, the most frequent first.

        The kind is that of the first time.
        """
        found: dict[str | None, dict[str, Any]] = {}
        for i in np.flatnonzero(self.is_skipped).tolist():
            variable = self.variables[i]
            if variable not in found:
                found[variable] = {
                    "variable": variable,
                    "count": 0,
                    "first_step": int(self.steps[i]),
                    "kind": int(self.kinds[i]),
                }
            found[variable]["count"] += 1
        return sorted(found.values(), key=lambda each: (-each["count"], each["first_step"]))

    def summary(self) -> dict[str, Any]:
        """Returns counts and scales; None for what was not recorded.

        `longest_skips` is how many steps were skipped one after the other, at most. `lowest_scale`
        and `highest_scale` are of the finite ones, `end_scale` among them. `last_scale` is that of
        the last row: of steps, before the last one.
        """
        scales = self.scales if self.end is None else np.append(self.scales, self.end)
        finite = scales[np.isfinite(scales)]
        known = self.has_kinds
        return {
            "unit": self.unit,
            "steps": len(self),
            # Each fit numbers its epochs from 0.
            "epochs": len(self) if self.unit == "epoch" else _count_runs(self.epochs),
            "skipped": self.skipped if known or self.skips is not None else None,
            "overflows": int(np.count_nonzero(self.kinds == INF)) if known else None,
            "nans": int(np.count_nonzero(self.kinds == NAN)) if known else None,
            "longest_skips": _longest_run(self.is_skipped) if known else None,
            "first_scale": float(self.scales[0]) if len(self) else None,
            "lowest_scale": float(finite.min()) if len(finite) else None,
            "highest_scale": float(finite.max()) if len(finite) else None,
            "last_scale": float(self.scales[-1]) if len(self) else None,
            "end_scale": self.end,
        }


def open_jsonl(path: str | Path) -> TextIO:
    """Opens a trace to append to; half a last line, as a killed run may leave, is cut off."""
    file = Path(path)
    if file.exists():
        with file.open("r+b") as opened:
            opened.truncate(_end_of_last_line(opened))
    return file.open("a", encoding="utf-8", newline="")


def append_jsonl(file: TextIO, rows: Iterable[Row]) -> None:
    """Writes rows, each in the order of `COLUMNS`, and flushes once."""
    file.writelines(
        _LINE.format(int(step), int(epoch), _number(float(scale)), int(kind), json.dumps(variable))
        for step, epoch, scale, kind, variable in rows
    )
    file.flush()


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else f'"{value}"'


def _end_of_last_line(file: Any, size: int = 1 << 16) -> int:
    end: int = file.seek(0, 2)
    while end > 0:
        start = max(0, end - size)
        file.seek(start)
        at = file.read(end - start).rfind(b"\n")
        if at >= 0:
            return start + int(at) + 1
        end = start
    return 0


def _objects(values: Sequence[str | None] | Array) -> Array:
    if isinstance(values, np.ndarray) and values.dtype == object:
        return values
    result = np.empty(len(values), object)
    result[:] = values
    return result


def _is_kept(steps: Array) -> Array:
    """bool, shape (n,). A step that a later row goes back to, or before, was taken back."""
    if len(steps) < 2:
        return np.ones(len(steps), bool)
    lowest_after = np.minimum.accumulate(steps[::-1])[::-1][1:]
    return np.append(steps[:-1] < lowest_after, True)


def _count_runs(values: Array) -> int:
    return int(np.count_nonzero(np.diff(values))) + 1 if len(values) else 0


def _longest_run(flags: Array) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return int((edges[1::2] - edges[::2]).max(initial=0))


class _Columns:
    """Rows on their way to arrays; knows the line of each, for errors."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[int] = []
        self.values: tuple[list[Any], ...] = tuple([] for _ in COLUMNS)

    def trace(self, **how: Any) -> Trace:
        steps, epochs, scales, kinds, variables = self.values
        self._check(0, {int}, _is_count, "a whole number of 0 or more")
        self._check(1, {int}, _is_count, "a whole number of 0 or more")
        self._check(2, {float, int}, _is_scale, "a number of 0 or more that a float holds")
        self._check(3, {int}, lambda value: 0 <= value < len(KINDS), "0, 1 or 2")
        self._check(4, {str, type(None)}, lambda _: True, "a path, or null")
        columns: Any = (steps, epochs, scales, kinds, variables)
        return Trace(*columns, **how)

    def _check(self, column: int, types: set[type], fits: Any, expected: str) -> None:
        values = self.values[column]
        if {*map(type, values)} <= types and all(map(fits, {*values})):
            return
        for line, value in zip(self.lines, values, strict=True):
            if type(value) not in types or not fits(value):
                found = f'"{COLUMNS[column]}" is {short_json(value)}'
                raise _bad(self.path, line, found, f"expected {expected}")


def _is_count(value: int) -> bool:
    return 0 <= value < 2**63


def _is_scale(value: float) -> bool:
    return not value < 0 and (isinstance(value, float) or value <= sys.float_info.max)


def _bad(path: Path, line: int, found: str, expected: str) -> ValueError:
    return ValueError(f"{path}, line {line}: {found}: {expected}")


def _read_jsonl(path: Path) -> Trace:
    columns = _Columns(path)
    steps, epochs, scales, kinds, variables = columns.values
    with regular_files.opened(path) as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except (ValueError, RecursionError):
                if not line.strip():
                    continue
                if not line.endswith(b"\n"):
                    break
                raise _bad(path, number, _line_as_text(line), "expected a JSON object") from None
            try:
                steps.append(row["step"])
                epochs.append(row["epoch"])
                scale = row["loss_scale"]
                scales.append(_SIGNS.get(scale, scale) if type(scale) is str else scale)
                kinds.append(row["kind"])
                variables.append(row.get("variable"))
            except (KeyError, TypeError) as error:
                what = f"no {error}" if isinstance(error, KeyError) else "no object"
                wanted = f"a step has {', '.join(COLUMNS)}"
                raise _bad(path, number, f"{what} in {_line_as_text(line)}", wanted) from None
            columns.lines.append(number)
    return columns.trace()


def _line_as_text(line: bytes) -> str:
    text = line.decode("utf-8", "replace").strip().removeprefix("\ufeff")
    return repr(text if len(text) < 60 else f"{text[:60]}...")


def _read_csv(path: Path) -> Trace:
    try:
        with open(path, encoding="utf-8-sig", newline="", opener=regular_files.opener) as file:
            return _table(path, file)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}: expected CSV or JSON lines in UTF-8") from None


def _table(path: Path, file: TextIO) -> Trace:
    head = file.readline()
    separator = max(",;\t", key=head.count)
    names = [name.strip() for name in next(csv.reader([head], delimiter=separator))]
    if "loss_scale" not in names:
        found = f"the columns are {short_json(names)}"
        raise _bad(path, 1, found, "a trace has the column loss_scale")
    places = [names.index(name) if name in names else None for name in COLUMNS]
    is_by_step = "step" in names
    counts = None if is_by_step or "skipped_steps" not in names else names.index("skipped_steps")
    columns, skips = _Columns(path), []
    table = csv.reader(file, delimiter=separator)
    try:
        for row in table:
            if not row:
                continue
            line = table.line_num + 1
            if len(row) != len(names):
                if not file.read(1) and not _ends_with_newline(path):  # half a last line
                    break
                found = f"{len(row)} fields in {short_json(separator.join(row))}"
                raise _bad(path, line, found, f"expected {len(names)}")
            texts = [None if place is None else row[place] for place in places]
            if (texts[2] or "").strip() in _ABSENT and not is_by_step:
                continue
            columns.lines.append(line)
            _add(columns, texts)
            if counts is not None:
                skips.append(_count(row[counts], path, line))
    except csv.Error as error:
        raise _bad(path, table.line_num + 1, f"not CSV: {error}", "expected a row") from None
    unit: Literal["step", "epoch"] = "step" if is_by_step else "epoch"
    return columns.trace(
        unit=unit, has_kinds="kind" in names, skips=None if counts is None else skips
    )


def _add(columns: _Columns, texts: list[str | None]) -> None:
    values = columns.values
    step, epoch, scale, kind, variable = texts
    values[0].append(len(values[0]) + 1 if step is None else _parsed(int, step))
    values[1].append(len(values[1]) if epoch is None else _parsed(int, epoch))
    values[2].append(_parsed(float, scale or ""))
    values[3].append(FINITE if kind is None else _parsed(int, kind))
    values[4].append(variable or None)


def _count(text: str, path: Path, line: int) -> int:
    number = _parsed(float, text)
    if isinstance(number, str) or not (0 <= number < 2**53 and number == int(number)):
        raise _bad(path, line, f'"skipped_steps" is {short_json(text)}', "expected a whole number")
    return int(number)


def _parsed(number: Callable[[str], T], text: str) -> T | str:
    try:
        return number(text)
    except ValueError:
        return text


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read() == b"\n"
