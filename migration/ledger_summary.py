"""What a ledger amounts to: counts, what was refused and why, the largest and the slowest."""

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from keras_mp.compat.results import columns, html
from keras_mp.migration.ledger import NAME, RESULTS
from keras_mp.migration.ledger_reading import Ledger, Row, Run, find_ledger, read_ledger
from keras_mp.rendering.text import duration, pluralized, printable, shortened, size

UNKNOWN = "unknown"
_EXAMPLES = 3
_TOP = 10
_FEW = 5  # of these, in a text
_ROOM = 60  # characters of a name

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


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """What the ledger of a migrated folder amounts to; the most frequent comes first.

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
            {
                "result": each.result,
                "reason": each.reason,
                "count": each.count,
                "bytes": each.bytes,
                "kinds": each.kinds,
                "examples": [
                    {"name": row.name, "where": row.where, "why": row.why} for row in each.examples
                ],
            }
            for each in self.refusals
        ]
        for name, key in (
            ("largest", "bytes"),
            ("slowest", "seconds"),
            ("most_memory", "peak_memory"),
        ):
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

    def __str__(self) -> str:
        return "\n".join(map(printable, lines(self)))

    def _repr_html_(self) -> str:
        """Returns two tables for a notebook: the facts, and what was refused or failed, and why."""
        heads = [(head, "") for head in ("result", "reason", "artefacts", "for example", "why")]
        refusals = (
            (each.result, each.reason, f"{each.count:,}", row.name, row.said or "")
            for each in self.refusals
            for row in each.examples
        )
        return html("migration", ([("", ""), ("", "")], _facts(self)), (heads, refusals))


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


def lines(found: LedgerSummary) -> Iterator[str]:
    """Yields it as text, line by line."""
    yield from columns(_facts(found))
    for each in found.refusals:
        yield ""
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in each.kinds.items())
        yield f"{each.result}, {each.reason}: {each.count:,} ({kinds}), {size(each.bytes)}"
        for row in each.examples:
            yield f"  {row.name}: {row.said or 'it does not say why'}"
    for caption, counts in (
        ("kind", found.kinds),
        ("written by", found.writers),
        ("policy", found.policies),
    ):
        yield from _count_lines(caption, counts)
    for caption, shown in (
        ("largest", [(row, size(row.bytes or 0)) for row in found.largest]),
        ("slowest", [(row, duration(row.seconds or 0)) for row in found.slowest]),
        ("most memory", [(row, size(row.peak_memory or 0)) for row in found.most_memory]),
    ):
        yield from _top_lines(caption, shown)


def _facts(found: LedgerSummary) -> list[tuple[str, str]]:
    rate = found.bytes_per_second
    speed = "" if rate is None else f", {size(rate)}/s"
    return [
        ("artefacts", f"{found.artefacts:,}"),
        *((f"  {result}", f"{count:,}") for result, count in found.results.items()),
        ("size", size(found.bytes)),
        ("written", size(found.bytes_out)),
        ("time, of all processes", duration(found.seconds) + speed),
        ("done, with changes to read", f"{found.matters:,}"),
        ("ledger", _of_ledger(found)),
    ]


def _of_ledger(found: LedgerSummary) -> str:
    torn = f"; {pluralized(found.torn, 'torn line')}, as a killed run leaves" if found.torn else ""
    return f"{pluralized(found.lines, 'line')} of {pluralized(len(found.runs), 'run')}{torn}"


def _count_lines(caption: str, counts: Counts) -> Iterator[str]:
    if not counts:
        return
    shown = [result for result in RESULTS if any(result in each for each in counts.values())]
    yield ""
    yield from columns(
        [(caption, *shown), *(_count(name, each, shown) for name, each in counts.items())]
    )


def _count(name: str, counts: Mapping[str, int], shown: Sequence[str]) -> tuple[str, ...]:
    return (name, *(f"{counts.get(result, 0):,}" for result in shown))


def _top_lines(caption: str, shown: Sequence[tuple[Row, str]]) -> Iterator[str]:
    if not shown:
        return
    yield ""
    rows = [(shortened(printable(row.name), _ROOM), value) for row, value in shown[:_FEW]]
    yield from columns([(caption, ""), *rows])
