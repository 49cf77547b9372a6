"""What a ledger amounts to: counts, what was refused and why, the largest and the slowest."""

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from keras_mp.migration.ledger import NAME, RESULTS
from keras_mp.migration.ledger_reading import Ledger, Row, Run, find_ledger, read_ledger
from keras_mp.rendering.model import Column, Part, Renderable, Table, Text, facts_table
from keras_mp.rendering.text import duration, number, pluralized, size

UNKNOWN = "unknown"
_EXAMPLES = 3
_TOP = 10
_FEW = 5  # of these, in a text
_SHOWN = ("name", "where", "why")  # of an example
NUMBERS = tuple(Column(result, "number") for result in RESULTS)
# Of LedgerSummary, and of a row; then what heads their columns, and how a value is said.
_TOPS: tuple[tuple[str, str, str, str, Callable[[float], str]], ...] = (
    ("largest", "bytes", "largest", "size", size),
    ("slowest", "seconds", "slowest", "time", duration),
    ("most_memory", "peak_memory", "most memory", "at most", size),
)

Counts = dict[str, dict[str, int]]  # by a name, then by result


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was refused, or failed, for one reason.

    Attributes:
        result: "refused" or "failed".
        reason: The reason.
        count: How many artefacts.
        bytes: Of them.
        kinds: How many of each kind.
        examples: Some of them, that differ in what is said, and not in names and numbers alone.
    """

    result: str
    reason: str
    count: int
    bytes: int
    kinds: dict[str, int]
    examples: tuple[Row, ...]


@dataclass(frozen=True, slots=True, repr=False)
class LedgerSummary(Renderable):
    """A summary of a migration's ledger, the most frequent first.

    Attributes:
        artefacts: How many.
        results: Of them, by result; all results are there.
        kinds, writers, policies: How many artefacts of each, by result.
        refusals: What was refused or failed, by reason.
        matters: How many are done and have changes that a person should read.
        bytes: Of all artefacts; None is taken as 0.
        bytes_done: Of those that are done.
        bytes_out: That were written.
        seconds: That all took, one after the other.
        bytes_per_second: Of those that are done, in each process; None where no time is known.
        largest, slowest, most_memory: The ten first.
        versions: Of what they were migrated with: how many artefacts, by name and version.
        runs: The calls that wrote the ledger.
        lines: Of the ledger.
        torn: How many lines besides are none, as killed runs leave them.
    """

    artefacts: int
    results: dict[str, int]
    kinds: Counts
    writers: Counts
    policies: Counts
    refusals: tuple[Refusal, ...]
    matters: int
    bytes: int
    bytes_done: int
    bytes_out: int
    seconds: float
    bytes_per_second: float | None
    largest: tuple[Row, ...]
    slowest: tuple[Row, ...]
    most_memory: tuple[Row, ...]
    versions: Counts
    runs: tuple[Run, ...]
    lines: int
    torn: int

    @classmethod
    def load(cls, path: str | Path) -> "LedgerSummary":
        """Returns the summary of the ledger that `keras-mp migrate FOLDER -o OUT` wrote.

        Args:
            path: OUT, or the ledger in it.

        Raises:
            ValueError: There is no ledger, or it is of a later version.
            OSError: It cannot be read.
        """
        file = find_ledger(str(path))
        if file is None:
            raise ValueError(f"{path}: there is no {NAME} here: name a folder that was migrated")
        return summary(read_ledger(file))

    def to_dict(self) -> dict[str, Any]:
        """Returns it as plain JSON; rows by what their tables show."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        found["refusals"] = [
            {name: getattr(each, name) for name in each.__slots__}
            | {"examples": [{key: getattr(row, key) for key in _SHOWN} for row in each.examples]}
            for each in self.refusals
        ]
        for name, key, *_ in _TOPS:
            found[name] = [
                {"name": row.name, "result": row.result, key: getattr(row, key)}
                for row in found[name]
            ]
        found["runs"] = [
            {
                "run": run.name,
                "rows": run.rows,
                "first": run.first,
                "last": run.last,
                "seconds": seconds_of_run(run),
                "hosts": run.hosts,
                "folders": run.roots,
            }
            for run in self.runs
        ]
        return found

    def _parts(self) -> Iterator[Part]:
        yield Text(f"{pluralized(self.artefacts, 'artefact')} in {lines_of(self)}", "title")
        yield facts(self)
        yield from refusals(self)
        yield from counts(self)
        yield from largest(self, _FEW)


def summary(ledger: Ledger) -> LedgerSummary:
    """Returns what a ledger amounts to.

    >>> from keras_mp.migration.ledger_reading import Row
    >>> rows = Row("a", "done", bytes=4, seconds=2.0), Row("b", "refused", reason="damaged")
    >>> found = summary(Ledger(rows))
    >>> found.results["refused"], found.refusals[0].reason, found.bytes_per_second
    (1, 'damaged', 2.0)
    """
    rows = ledger.rows
    done = [row for row in rows if row.is_done]
    timed = [row for row in done if row.seconds]
    seconds = sum(row.seconds or 0 for row in timed)
    results = Counter(row.result for row in rows)
    return LedgerSummary(
        artefacts=len(rows),
        results={result: results[result] for result in RESULTS},
        kinds=_counts(rows, lambda row: [row.kind or UNKNOWN]),
        writers=_counts(rows, lambda row: [row.written_by or UNKNOWN]),
        policies=_counts(rows, lambda row: row.policies or ()),
        refusals=_refusals(row for row in rows if not row.is_done),
        matters=sum(row.matters > 0 for row in done),
        bytes=sum(row.bytes or 0 for row in rows),
        bytes_done=sum(row.bytes or 0 for row in done),
        bytes_out=sum(row.out_bytes or 0 for row in done),
        seconds=sum(row.seconds or 0 for row in rows),
        bytes_per_second=sum(row.bytes or 0 for row in timed) / seconds if seconds else None,
        largest=_top(rows, lambda row: row.bytes),
        slowest=_top(rows, lambda row: row.seconds),
        most_memory=_top(rows, lambda row: row.peak_memory),
        versions=_versions(rows),
        runs=ledger.runs,
        lines=ledger.lines,
        torn=ledger.torn,
    )


def seconds_of_run(run: Run) -> float | None:
    """Returns the seconds from the first line of a run to its last; None where not known."""
    if run.first is None or run.last is None:
        return None
    return (_time(run.last) - _time(run.first)).total_seconds()


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _counts(rows: Iterable[Row], names: Callable[[Row], Iterable[str]]) -> Counts:
    found: dict[str, Counter[str]] = {}
    for row in rows:
        for name in names(row):
            found.setdefault(name, Counter())[row.result] += 1
    return _sorted(found)


def _sorted(found: Mapping[str, Counter[str]]) -> Counts:
    first = sorted(found.items(), key=lambda each: (-each[1].total(), each[0]))
    return {name: dict(counts.most_common()) for name, counts in first}


def _versions(rows: Iterable[Row]) -> Counts:
    found: dict[str, Counter[str]] = {}
    for row in rows:
        for name, version in (row.versions or {}).items():
            found.setdefault(name, Counter())[str(version)] += 1
    return _sorted(found)


def _refusals(rows: Iterable[Row]) -> tuple[Refusal, ...]:
    by_reason: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        by_reason.setdefault((row.result, row.reason or UNKNOWN), []).append(row)
    found = [
        Refusal(
            result,
            reason,
            len(each),
            sum(row.bytes or 0 for row in each),
            dict(Counter(row.kind or UNKNOWN for row in each).most_common()),
            _examples(each),
        )
        for (result, reason), each in by_reason.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.count, each.reason, each.result)))


def _examples(rows: list[Row]) -> tuple[Row, ...]:
    different: dict[str, Row] = {}
    for row in rows:
        # What is the same but for the name and numbers is the same.
        said = (row.said or "").replace(row.name, "")
        different.setdefault(re.sub(r"\d+", "0", said), row)
        if len(different) == _EXAMPLES:
            break
    return tuple(different.values())


def _top(rows: Iterable[Row], of: Callable[[Row], float | None]) -> tuple[Row, ...]:
    known = (row for row in rows if of(row))
    return tuple(heapq.nsmallest(_TOP, known, key=lambda row: (-(of(row) or 0), row.name)))


def lines_of(found: LedgerSummary) -> str:
    """Returns how many lines of how many runs there are."""
    torn = f"; {pluralized(found.torn, 'torn line')}, as a killed run leaves" if found.torn else ""
    return f"{pluralized(found.lines, 'line')} of {pluralized(len(found.runs), 'run')}{torn}"


def facts(found: LedgerSummary) -> Table:
    """Returns what it comes down to."""
    rate = found.bytes_per_second
    rows: list[tuple[str, str, Any, str]] = [
        ("count", "artefacts", found.artefacts, number(found.artefacts)),
        *(
            (result.replace(" ", "-"), result, count, number(count))
            for result, count in found.results.items()
        ),
        ("matters", "done, with changes to read", found.matters, number(found.matters)),
        ("size", "size", found.bytes, size(found.bytes)),
        ("size-out", "written", found.bytes_out, size(found.bytes_out)),
        ("time", "time, of all processes", found.seconds, duration(found.seconds)),
        ("rate", "speed of a process", rate, "unknown" if rate is None else f"{size(rate)}/s"),
    ]
    return facts_table(rows)


def refusals(found: LedgerSummary) -> Iterator[Table]:
    """Yields what was refused or failed by reason, and examples; nothing where nothing was."""
    if not found.refusals:
        return
    yield Table(
        (
            Column("reason", "sentence"),
            Column("result"),
            Column("artefacts", "number"),
            Column("size", "number"),
            Column("kinds", "sentence"),
        ),
        [
            (
                each.reason,
                each.result,
                number(each.count),
                size(each.bytes),
                ", ".join(f"{kind} {count:,}" for kind, count in each.kinds.items()),
            )
            for each in found.refusals
        ],
        name="refusals",
        values=[
            {"result": each.result, "reason": each.reason, "count": each.count}
            for each in found.refusals
        ],
    )
    examples = [(each, i, row) for each in found.refusals for i, row in enumerate(each.examples)]
    yield Table(
        (Column("reason", "sentence"), Column("artefact", "path"), Column("why", "sentence")),
        [
            ("" if i else each.reason, row.name, row.said or "no reason recorded")
            for each, i, row in examples
        ],
        name="examples",
        values=[{"name": row.name} for _, _, row in examples],
    )


def counts(found: LedgerSummary) -> Iterator[Table]:
    """Yields how many artefacts there are of each kind, writer and policy, by result."""
    for name, head, counted in (
        ("kinds", "kind", found.kinds),
        ("writers", "written by", found.writers),
        ("policies", "has layers of policy", found.policies),
    ):
        shown = [
            column for column in NUMBERS if any(column.head in each for each in counted.values())
        ]
        if counted:
            yield Table(
                (Column(head, "path"), *shown),
                [
                    (key, *(f"{each.get(column.head, 0):,}" for column in shown))
                    for key, each in counted.items()
                ],
                name=name,
                values=[
                    {
                        "name": key,
                        **{result.replace(" ", "_"): each.get(result) for result in RESULTS},
                    }
                    for key, each in counted.items()
                ],
            )


def largest(found: LedgerSummary, most: int | None = None) -> Iterator[Table]:
    """Yields the largest artefacts, the slowest, and those that took most memory."""
    for name, key, head, what, shown in _TOPS:
        if rows := getattr(found, name)[:most]:
            yield Table(
                (Column(head, "path"), Column(what, "number")),
                [(row.name, shown(getattr(row, key))) for row in rows],
                name=key,
                values=[{"name": row.name, "value": getattr(row, key)} for row in rows],
            )
