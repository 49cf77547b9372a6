"""The ledger of a migration, read: lines to rows, of which the last of each artefact counts."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, get_args, get_type_hints

from keras_mp.files import regular_files
from keras_mp.files.json_files import bad_value
from keras_mp.migration.ledger import NAME, RESULTS, SCHEMA

DONE, BEFORE, REFUSED, FAILED = RESULTS
_WRITER = "keras-mp migrate"
_NOTHING: tuple[Any, ...] = (None, "", 0, (), {}, "unknown")
_MOST_LINE = 64 << 20  # bytes
_MOST_ROOTS = 4  # folders that a run tells of


class Change(NamedTuple):
    """One thing that is not as it was, as `compat.configs.Change`; equal ones are one object."""

    path: str
    kind: str
    what: str
    matters: bool


@dataclass(frozen=True, slots=True)
class Row:
    """What became of an artefact: what a reader is shown. What was not written is None, or empty.

    Attributes:
        name: Its path, in the folder that was migrated.
        result: One of `ledger.RESULTS`.
        reason: Why it was refused or failed, in a word or two, the same for all of a kind.
        why: The same, in full.
        where: The JSON path of that.
        written_by: Such as "TensorFlow 2.3".
        policies: How many layers have which.
        bytes, out_bytes, peak_memory: In bytes.
        when: ISO 8601, in UTC.
    """

    name: str
    result: str
    run: str | None = None
    when: str | None = None
    host: str | None = None
    source: str | None = None
    kind: str | None = None
    files: int | None = None
    bytes: int | None = None
    sha256: str | None = None
    written_by: str | None = None
    model: dict[str, Any] | None = None
    policies: dict[str, int] | None = None
    optimizer: str | None = None
    loss_scale: float | None = None
    reason: str | None = None
    why: str | None = None
    where: str | None = None
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    out: str | None = None
    out_bytes: int | None = None
    verified: dict[str, int] | None = None
    seconds: float | None = None
    peak_memory: int | None = None
    versions: dict[str, Any] | None = None
    options: dict[str, Any] | None = None

    @property
    def is_done(self) -> bool:
        """Whether it is migrated, now or before."""
        return self.result in (DONE, BEFORE)

    @property
    def said(self) -> str | None:
        """Why it was refused or failed, and where, without its own name before it."""
        if self.why is None:
            return self.where
        why = self.why.removeprefix(f"{self.name}: ")
        return why if self.where is None or self.where in why else f"{self.where}: {why}"

    @property
    def matters(self) -> int:
        """How many of the changes a person should read."""
        return sum(change.matters for change in self.changes)


@dataclass(slots=True)
class Run:
    """The lines of one call of the command.

    Attributes:
        rows: How many there are, of each result.
        first, last: When the first and the last of them were written; ISO 8601.
        hosts: That wrote them.
        roots: Folders that were migrated; the first few.
    """

    name: str
    rows: dict[str, int] = field(default_factory=dict)
    first: str | None = None
    last: str | None = None
    hosts: list[str] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Counts a row."""
        self.rows[row.result] = self.rows.get(row.result, 0) + 1
        if row.when is not None:
            self.first = row.when if self.first is None else min(self.first, row.when)
            self.last = row.when if self.last is None else max(self.last, row.when)
        if row.host is not None and row.host not in self.hosts:
            self.hosts.append(row.host)
        root = _root(row)
        if root is not None and root not in self.roots and len(self.roots) < _MOST_ROOTS:
            self.roots.append(root)


@dataclass(frozen=True)
class Ledger:
    """What a ledger says.

    Attributes:
        rows: One for each artefact, the last; in the order in which they were first met.
        runs: All lines, by the call that wrote them.
        lines: How many were read.
        torn: How many lines besides are none, as a run that was killed leaves its last one.
    """

    rows: tuple[Row, ...]
    runs: tuple[Run, ...] = ()
    lines: int = 0
    torn: int = 0

    @classmethod
    def of(cls, lines: Iterable[bytes], name: str = NAME) -> "Ledger":
        """Returns the ledger that lines make.

        Args:
            lines: Each with its line end; of the last, it may be missing.
            name: Of the file, for messages.

        Raises:
            ValueError: A line, other than a torn one, is none of a ledger; says which.

        >>> line = b'{"schema": 1, "name": "a.h5", "result": "done", "bytes": 8}'
        >>> ledger = Ledger.of([line + b"\\n", line[:20]])
        >>> ledger.rows[0].bytes, ledger.lines, ledger.torn
        (8, 1, 1)
        """
        last: dict[str, Row] = {}
        runs: dict[str, Run] = {}
        shared: dict[Any, Any] = {}
        count = torn = 0
        for number, line in enumerate(lines, 1):
            try:
                found = json.loads(line, parse_constant=_refuse)
            except (ValueError, RecursionError) as error:
                if _is_torn(line, error):
                    torn += 1
                    continue
                raise ValueError(
                    f"{name}, line {number} is not valid JSON ({error}): it is damaged. Remove the "
                    f"line, and `{_WRITER}` looks at its artefact again"
                ) from None
            row = _row(found, f"{name}, line {number}", shared)
            last[row.name] = _after(last.get(row.name), row)
            run = row.run or "unknown"
            runs.setdefault(run, Run(run)).add(row)
            count += 1
        return cls(tuple(last.values()), tuple(runs.values()), count, torn)


def _is_torn(line: bytes, error: Exception) -> bool:
    """Returns whether a line is the first part of a row, or room that was never written to.

    The run that goes on begins a new line after it.
    """
    text = line.rstrip(b"\r\n")
    if not text.strip(b"\0"):
        return True
    if not text.startswith(b"{"):
        return False
    at_end = isinstance(error, json.JSONDecodeError) and error.pos >= len(error.doc.rstrip("\r\n"))
    return at_end or not text.endswith(b"}") or not line.endswith(b"\n")


def find_ledger(path: str) -> Path | None:
    """Returns the ledger in a folder, or `path` if it is the file; None where there is none."""
    given = Path(path)
    if given.is_dir():
        return given / NAME if (given / NAME).exists() else None
    return given if given.suffix == Path(NAME).suffix else None


def read_ledger(path: Path) -> Ledger:
    """Reads a ledger.

    Raises:
        ValueError: It is none; names the line, and what was found there.
        OSError: It cannot be read.
    """
    with regular_files.opened(path) as file:
        return Ledger.of(_lines(file, str(path)), str(path))


def _lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    number = 0
    while line := file.readline(_MOST_LINE + 1):
        number += 1
        if len(line) > _MOST_LINE:
            raise ValueError(
                f"{name}, line {number} is larger than 64 MiB, so this is not a ledger"
            )
        yield line


def _after(before: Row | None, row: Row) -> Row:
    """Returns the row that counts; one that says "done before" leaves much to the one before."""
    if before is None or row.result != BEFORE or not before.is_done:
        return row
    kept = {
        each.name: getattr(before, each.name)
        for each in fields(Row)
        if getattr(row, each.name) in _NOTHING and each.name not in ("reason", "why", "where")
    }
    return replace(row, **kept)


def _root(row: Row) -> str | None:
    if row.source is None:
        return None
    return row.source.removesuffix(row.name).rstrip("/\\") or row.source[:1]


def _row(found: object, where: str, shared: dict[Any, Any]) -> Row:
    if not isinstance(found, dict):
        raise bad_value(where, "it", found, f"an object, as `{_WRITER}` writes it")
    schema = found.get("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        is_later = isinstance(schema, int) and schema > SCHEMA
        what = "a later keras_mp wrote it: read it with that one" if is_later else "the only one"
        raise bad_value(where, "schema", schema, f"{SCHEMA}; {what}")
    for key, (is_right, wanted) in _CHECKS.items():
        value = found.get(key)
        if not ((value is None and key not in _NEEDED) or is_right(value)):
            raise bad_value(where, key, value, wanted)
    values: dict[str, Any] = {key: found.get(key) for key in _CHECKS}
    if isinstance(values["loss_scale"], str):
        values["loss_scale"] = float(values["loss_scale"])  # JSON has no such numbers
    for key in _SHARED:
        values[key] = _one(shared, values[key])
    values["notes"] = _one(shared, tuple(values["notes"] or ()))
    changes = (
        _one(shared, Change(*(each[name] for name in Change._fields)))
        for each in values["changes"] or ()
    )
    values["changes"] = _one(shared, tuple(changes))
    return Row(**values)


def _one(shared: dict[Any, Any], value: Any) -> Any:
    """Returns the first value that was equal: thousands of rows say the same."""
    key = json.dumps(value) if isinstance(value, dict) else value
    return shared.setdefault(key, value)


def _refuse(text: str) -> object:
    raise ValueError(f"{text} is not a number of JSON")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -(1 << 63) <= value < 1 << 63 if isinstance(value, int) else math.isfinite(value)


def _is_scale(value: object) -> bool:
    return _is_number(value) or value in ("inf", "-inf", "nan")


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


def _is_counts(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_count, value.values()))


def _is_changes(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, dict)
        and all(isinstance(each.get(key), str) for key in ("path", "kind", "what"))
        and isinstance(each.get("matters"), bool)
        for each in value
    )


_NEEDED = ("name", "result")
_SHARED = (
    "run",
    "host",
    "kind",
    "written_by",
    "model",
    "policies",
    "optimizer",
    "reason",
    "where",
    "verified",
    "versions",
    "options",
)
_Check = tuple[Callable[[Any], bool], str]  # whether a value is right, and what is wanted
_TEXT: _Check = (_is_text, "a string")
_OF_TYPES: dict[object, _Check] = {
    str: _TEXT,
    int: (_is_count, "a whole number, 0 or more"),
    float: (lambda value: _is_number(value) and value >= 0, "a number, 0 or more"),
    dict[str, int]: (_is_counts, "an object of whole numbers"),
    dict[str, Any]: (lambda value: isinstance(value, dict), "an object"),
}
_OTHERS: dict[str, _Check] = {
    "result": (lambda value: value in RESULTS, f"one of {', '.join(RESULTS)}"),
    "when": (_is_time, "a time, such as 2030-01-31T12:00:00Z"),
    "loss_scale": (_is_scale, 'a number, "inf", "-inf" or "nan"'),
    "changes": (_is_changes, "a list of objects with path, kind, what and matters"),
    "notes": (
        lambda value: isinstance(value, list) and all(map(_is_text, value)),
        "a list of strings",
    ),
}
# `None` may stand for whatever is not needed.
_CHECKS = {
    name: _OTHERS.get(name) or _OF_TYPES[kind if name in _NEEDED else get_args(kind)[0]]
    for name, kind in get_type_hints(Row).items()
}
