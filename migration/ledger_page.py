"""The ledger of a migration as one HTML page that needs nothing else.

The summary is plain HTML. The rows are JSON in the page, and its one script, `ledger_page.js`,
shows a hundred at a time: all of them as HTML would take a browser seconds, and ten times the room.
"""

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_mp.files.atomic_writing import write_atomically
from keras_mp.migration.ledger import RESULTS
from keras_mp.migration.ledger_reading import Change, Ledger, Row
from keras_mp.migration.ledger_summary import (
    NUMBERS,
    UNKNOWN,
    LedgerSummary,
    counts,
    facts,
    largest,
    lines_of,
    refusals,
    seconds_of_run,
    summary,
)
from keras_mp.rendering import html
from keras_mp.rendering.html import escaped
from keras_mp.rendering.model import Column, Fold, Part, Table, Text
from keras_mp.rendering.text import duration, number, percent, size

_SCRIPT = Path(__file__).with_name("ledger_page.js")
_STYLE = Path(__file__).with_name("ledger_page.css")
_HOSTS = 4  # that a run shows
_AS_THEY_ARE = (
    *("name", "result", "bytes", "files", "seconds", "optimizer"),
    *("sha256", "out", "when", "run"),
)


def ledger_page(ledger: Ledger, name: str) -> str:
    """Returns the page.

    Numbers can be read from it: `data-` attributes hold them unrounded, in the elements with the
    ids `facts`, `refusals`, `kinds`, `writers`, `policies`, `bytes`, `seconds`, `peak_memory`,
    `runs` and `versions`. What is left out of a row is in the ledger: its host, the folder that it
    was in, and the checksum of what was written.

    Args:
        ledger: What it shows.
        name: What was written, for the title.
    """
    parts = _parts(summary(ledger), ledger.rows)
    style, script = (file.read_text("utf-8") for file in (_STYLE, _SCRIPT))
    return html.page(f"Migration to {name}", parts, f"\n{style}", script)


def write_ledger_page(ledger: Ledger, name: str, path: str | Path) -> None:
    """Writes the page, whole or, on an OSError, not at all."""
    write_atomically(path, ledger_page(ledger, name))


def _parts(found: LedgerSummary, rows: Sequence[Row]) -> Iterator[Part | str]:
    yield Text(f"{lines_of(found)}; of each artefact, the last one counts.")
    yield _share(found.results)
    yield facts(found)
    yield Text("What was refused, and why", "heading")
    if not found.refusals:
        yield Text("Nothing." if found.artefacts else "The ledger has no artefact.")
    for table in refusals(found):
        yield Fold("Examples", [table], is_open=True) if table.name == "examples" else table
    for title, style, tables in (
        ("What there is", "counts", counts(found)),
        ("The largest and the slowest", "tops", largest(found)),
    ):
        yield Text(title, "heading")
        yield f'<div class="{style}">'
        for table in tables:
            yield "<div>"
            yield table
            yield "</div>"
        yield "</div>"
    yield from _artefacts(rows)
    yield Text("Runs and versions", "heading")
    yield from _runs(found)


def _share(results: Mapping[str, int]) -> str:
    """Returns a bar of the results."""
    total = sum(results.values())
    if not total:
        return ""
    said = ", ".join(f"{result} {percent(n / total)}" for result, n in results.items() if n)
    bars = "".join(
        f'<span class="{result.replace(" ", "-")}" style="flex: {count}"></span>'
        for result, count in results.items()
    )
    return f'<div class="share" role="img" aria-label="{escaped(said)}">{bars}</div>'


def _artefacts(rows: Sequence[Row]) -> Iterator[str]:
    reasons, kinds = {_reason(row) for row in rows}, {row.kind or UNKNOWN for row in rows}
    yield "<h2>All artefacts</h2>"
    yield "<noscript><p>The table of all artefacts needs a script, which this browser does not run."
    yield "The ledger itself, migration.jsonl, has them all.</p></noscript>"
    yield '<div id="all" hidden>'
    yield '<form class="filter" role="search">'
    yield '<input type="search" id="search" aria-label="search" placeholder="name, why, layer ...">'
    yield from _choice("result", RESULTS)
    yield from _choice("reason", sorted(filter(None, reasons)))
    yield from _choice("kind", sorted(kinds))
    yield "</form>"
    yield '<p class="pager"><button type="button" id="before">before</button>'
    yield '<span id="shown" aria-live="polite"></span>'
    yield '<button type="button" id="after">after</button></p>'
    yield '<div class="scroll"><table id="artefacts"><thead><tr>'
    for key, label, kind in (
        ("name", "artefact", "path"),
        ("result", "result", "result"),
        ("kind", "kind", "besides-small"),
        ("bytes", "size", "number"),
        ("seconds", "time", "number"),
        ("memory", "memory", "number besides-small"),
        ("matters", "to read", "number besides-small"),
    ):
        button = f'<button type="button">{label}</button>' if key != "kind" else label
        yield f'<th scope="col" class="{kind}" data-key="{key}">{button}</th>'
    yield "</tr></thead><tbody></tbody></table></div></div>"
    yield f'<script type="application/json" id="rows">{_for_script(_columns(rows))}</script>'


def _reason(row: Row) -> str | None:
    return row.reason or (None if row.is_done else UNKNOWN)


def _choice(key: str, options: Iterable[str]) -> Iterator[str]:
    yield f'<select id="{key}" aria-label="{key}"><option value="">any {key}</option>'
    yield from (f'<option value="{escaped(each)}">{escaped(each)}</option>' for each in options)
    yield "</select>"


def _columns(rows: Sequence[Row]) -> dict[str, Any]:
    """Returns rows as the script takes them: by column, and each text once."""
    changes: dict[Change, int] = {}

    def numbers(row: Row) -> list[int]:
        return [changes.setdefault(change, len(changes)) for change in row.changes]

    of: dict[str, Callable[[Row], Any]] = {
        **{key: operator.attrgetter(key) for key in _AS_THEY_ARE},
        "kind": lambda row: row.kind or UNKNOWN,
        "memory": lambda row: row.peak_memory,
        "reason": _reason,
        "why": lambda row: row.said,
        "changes": numbers,
        "notes": lambda row: list(row.notes),
        "model": lambda row: _listed(row.model),
        "policies": lambda row: _listed(row.policies),
        "loss scale": lambda row: _shown(number, row.loss_scale),
        "written by": lambda row: row.written_by,
        "its size": lambda row: _shown(size, row.out_bytes),
        "compared": lambda row: _listed(row.verified),
        "migrated with": lambda row: _listed(row.versions),
        "options": lambda row: _listed(row.options),
        "bytes_text": lambda row: _shown(size, row.bytes),
        "seconds_text": lambda row: _shown(duration, row.seconds),
        "memory_text": lambda row: _shown(size, row.peak_memory),
    }
    columns = {name: _column([value(row) for row in rows]) for name, value in of.items()}
    return {"count": len(rows), "columns": columns, "changes": [list(each) for each in changes]}


def _shown(text: Callable[[float], str], value: float | None) -> str:
    return "" if value is None else text(value)


def _column(values: list[Any]) -> list[Any] | dict[str, list[Any]]:
    """Returns a column; where few values are many times there, each once, and their places."""
    places: dict[Any, int] = {}
    at = [
        places.setdefault(tuple(each) if isinstance(each, list) else each, len(places))
        for each in values
    ]
    return {"values": list(places), "at": at} if len(places) < len(values) / 2 else values


def _listed(value: Mapping[str, Any] | None) -> str | None:
    """Returns an object as text."""
    if not value:
        return None
    return ", ".join(
        f"{key}: {each if isinstance(each, str) else json.dumps(each)}"
        for key, each in value.items()
        if each is not None
    )


def _for_script(value: object) -> str:
    # ASCII without "<": no text in it ends the element, or is a surrogate without its other half.
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _runs(found: LedgerSummary) -> Iterator[Table]:
    if found.runs:
        yield Table(
            (
                Column("run", "path"),
                Column("began"),
                Column("first line to last", "number"),
                *NUMBERS,
                Column("host", "path"),
                Column("of", "path"),
            ),
            [
                (
                    run.name,
                    run.first or "",
                    "" if (seconds := seconds_of_run(run)) is None else duration(seconds),
                    *(f"{run.rows.get(result, 0):,}" for result in RESULTS),
                    ", ".join(run.hosts[:_HOSTS])
                    + (f" and {others:,} more" if (others := len(run.hosts) - _HOSTS) > 0 else ""),
                    ", ".join(run.roots),
                )
                for run in found.runs
            ],
            name="runs",
            values=[{"run": run.name} for run in found.runs],
        )
    if found.versions:
        yield Table(
            (Column("migrated with"), Column("version: artefacts", "path")),
            [
                (name, ", ".join(f"{version}: {count:,}" for version, count in each.items()))
                for name, each in found.versions.items()
            ],
            name="versions",
            values=[{"name": name} for name in found.versions],
        )
