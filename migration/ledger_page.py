"""The ledger of a migration as one HTML page that needs nothing else.

The summary is plain HTML. The rows are JSON in the page, and its one script, `ledger_page.js`,
shows a hundred at a time: all of them as HTML would take a browser seconds, and ten times the room.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_mp.files.atomic_writing import write_atomically
from keras_mp.migration.ledger import RESULTS
from keras_mp.migration.ledger_reading import Change, Ledger, Row
from keras_mp.migration.ledger_summary import (
    UNKNOWN,
    Counts,
    LedgerSummary,
    seconds_of_run,
    summary,
)
from keras_mp.rendering.html import data_attributes, facts, head, table
from keras_mp.rendering.markup import escaped
from keras_mp.rendering.page_style import CSS
from keras_mp.rendering.text import duration, number, percent, pluralized, size

_SCRIPT = Path(__file__).with_name("ledger_page.js")
_STYLE = """
.counts { display: flex; flex-wrap: wrap; gap: 0 3rem; align-items: flex-start; }
.counts > div, .tops > div { min-width: 0; max-width: 100%; margin-bottom: 1rem; }
.counts .path { max-width: 16rem; }
.tops { display: grid; gap: 0 2rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); }
.tops table { width: 100%; }
.tops td, .tops th { vertical-align: top; }
svg.share { display: block; width: 100%; height: 0.7rem; border-radius: 3px; margin: 1rem 0 0; }
svg .done { fill: var(--line); }
svg .done-before { fill: var(--line); fill-opacity: 0.55; }
svg .refused { fill: var(--inf); }
svg .failed { fill: var(--nan); }
td.refused { color: var(--inf); }
td.failed { color: var(--nan); font-weight: 700; }
td .refused { color: var(--inf); }
td .failed { color: var(--nan); font-weight: 700; }
form.filter { display: flex; flex-wrap: wrap; gap: 0.5rem; align-items: center;
  margin: 0.5rem 0; }
input, select, button { font: inherit; color: inherit; background: var(--ground);
  border: 1px solid var(--faint); border-radius: 6px; padding: 0.25rem 0.5rem; }
input:focus-visible, select:focus-visible, button:focus-visible, a:focus-visible {
  outline: 2px solid var(--line); outline-offset: 1px; }
input[type="search"] { flex: 1 1 16rem; min-width: 0; }
select { max-width: 100%; }
button { cursor: pointer; }
button:disabled { opacity: 0.4; cursor: default; }
.pager { display: flex; gap: 0.6rem; align-items: center; margin: 0.5rem 0; }
.scroll + .scroll { margin-top: 1rem; }
#examples td, #examples th, #runs td, #runs th { vertical-align: top; }
#artefacts { width: 100%; }
#artefacts td, #artefacts th { vertical-align: top; }
#artefacts .number { padding-left: 0.5rem; }
#artefacts thead button, #artefacts tbody th button { border: none; background: none; padding: 0;
  font: inherit; text-align: inherit; overflow-wrap: anywhere; }
#artefacts tbody th button:hover, #artefacts thead button:hover { text-decoration: underline; }
#artefacts thead th[aria-sort] { font-weight: 700; }
#artefacts th.path { max-width: none; }
#artefacts thead .result, #artefacts td.result { white-space: nowrap; }
#artefacts .why { display: block; font-family: system-ui, -apple-system, "Segoe UI", Roboto,
  "DejaVu Sans", sans-serif; font-size: 0.8rem; opacity: 0.85; }
#artefacts .details td { padding: 0.2rem 0 0.8rem 1rem; border-left: 3px solid var(--line); }
.details dl { display: grid; grid-template-columns: max-content minmax(0, 1fr);
  gap: 0.1rem 1rem; margin: 0.3rem 0; }
.details dt { opacity: 0.85; }
.details dd { margin: 0; overflow-wrap: anywhere; }
.details ul { margin: 0; padding-left: 1.1rem; }
.details code { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.details .matters { font-weight: 700; }
@media (max-width: 48rem) {
  body { padding: 0.8rem; }
  #artefacts .besides-small { display: none; }
  #artefacts, #artefacts thead, #artefacts tbody { display: block; }
  #artefacts tr { display: flex; flex-wrap: wrap; gap: 0 1rem; }
  #artefacts th.path, #artefacts .details td { flex: 1 0 100%; min-width: 0; padding-right: 0; }
  #artefacts thead th.path, #artefacts thead th { flex: none; min-width: 0; border: none; }
  #artefacts thead tr { border-bottom: 1px solid var(--text); }
  #artefacts td.result { flex: 1; white-space: normal; }
  .details dl { grid-template-columns: minmax(0, 1fr); }
  .details dt { font-size: 0.8rem; margin-top: 0.3rem; }
}
@media print { form.filter, .pager { display: none; } }
"""
_HOSTS = 4  # that a run shows
_UNITS = {"bytes": size, "seconds": duration, "peak_memory": size}


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
    found = summary(ledger)
    script = _SCRIPT.read_text("utf-8")
    parts = [
        head(f"Migration to {name}", CSS + _STYLE, script),
        *_beginning(found),
        "</header>",
        "<main>",
        "<section>",
        "<h2>What was refused, and why</h2>",
        *_refusals(found),
        "</section>",
        "<section>",
        "<h2>What there is</h2>",
        '<div class="counts">',
        *_counts("kinds", "kind", found.kinds),
        *_counts("writers", "written by", found.writers),
        *_counts("policies", "has layers of policy", found.policies),
        "</div>",
        "</section>",
        "<section>",
        "<h2>The largest and the slowest</h2>",
        '<div class="tops">',
        *_top("bytes", "largest", "size", found.largest),
        *_top("seconds", "slowest", "time", found.slowest),
        *_top("peak_memory", "most memory", "at most", found.most_memory),
        "</div>",
        "</section>",
        *_artefacts(ledger.rows),
        "<section>",
        "<h2>Runs and versions</h2>",
        *_runs(found),
        *_versions(found),
        "</section>",
        "</main>",
        f"<script>{script}</script>",
        "</body>",
        "</html>",
    ]
    return "\n".join([*parts, ""])


def write_ledger_page(ledger: Ledger, name: str, path: str | Path) -> None:
    """Writes the page, whole or, on an OSError, not at all."""
    write_atomically(path, ledger_page(ledger, name))


def _beginning(found: LedgerSummary) -> Iterator[str]:
    lines = f"{pluralized(found.lines, 'line')} of {pluralized(len(found.runs), 'run')}"
    yield f"<p>{lines}; of each artefact, the last one counts.</p>"
    if found.torn:
        torn = pluralized(found.torn, "torn line")
        yield f"<p>{torn} besides, as a run that was killed leaves them, not counted.</p>"
    yield _share(found.results)
    rate = found.bytes_per_second
    yield from facts(
        [
            ("count", "artefacts", found.artefacts, number(found.artefacts)),
            *(
                (result.replace(" ", "-"), result, count, number(count))
                for result, count in found.results.items()
            ),
            ("matters", "done, with changes to read", found.matters, number(found.matters)),
            ("size", "size", found.bytes, size(found.bytes)),
            ("size-out", "written", found.bytes_out, size(found.bytes_out)),
            ("time", "time, all processes", found.seconds, duration(found.seconds)),
            ("rate", "speed of a process", rate, "unknown" if rate is None else f"{size(rate)}/s"),
        ]
    )


def _share(results: Mapping[str, int]) -> str:
    """Returns a bar of the results."""
    total, at = sum(results.values()), 0.0
    if not total:
        return ""
    said = ", ".join(f"{result} {percent(n / total)}" for result, n in results.items() if n)
    parts = [
        '<svg class="share" viewBox="0 0 100 1" preserveAspectRatio="none" role="img">',
        f"<title>{escaped(said)}</title>",
    ]
    for result, count in results.items():
        width = 100 * count / total
        if count:
            name = result.replace(" ", "-")
            parts.append(
                f'<rect class="{name}" x="{at:.4g}" y="0" width="{width:.4g}" height="1"/>'
            )
        at += width
    return "".join([*parts, "</svg>"])


def _refusals(found: LedgerSummary) -> Iterator[str]:
    if not found.refusals:
        yield "<p>Nothing.</p>" if found.artefacts else "<p>The ledger has no artefact.</p>"
        return
    heads = [
        ("reason", ""),
        ("result", ""),
        ("artefacts", "number"),
        ("size", "number"),
        ("kinds", ""),
    ]
    yield from table(
        "refusals",
        heads,
        (
            (
                data_attributes(result=each.result, reason=each.reason, count=each.count),
                [
                    each.reason,
                    each.result,
                    number(each.count),
                    size(each.bytes),
                    ", ".join(f"{kind} {count:,}" for kind, count in each.kinds.items()),
                ],
            )
            for each in found.refusals
        ),
    )
    yield "<details open><summary>Examples</summary>"
    yield from table(
        "examples",
        [("reason", ""), ("artefact", "path"), ("why", "")],
        (
            (
                data_attributes(name=row.name),
                ["" if i else each.reason, row.name, row.said or ""],
            )
            for each in found.refusals
            for i, row in enumerate(each.examples)
        ),
    )
    yield "</details>"


def _counts(identity: str, caption: str, counts: Counts) -> Iterator[str]:
    if not counts:
        return
    shown = [result for result in RESULTS if any(result in each for each in counts.values())]
    yield "<div>"
    yield from table(
        identity,
        [(caption, "path"), *((result, "number") for result in shown)],
        (
            (
                data_attributes(
                    name=name,
                    **{result.replace(" ", "_"): each.get(result) for result in RESULTS},
                ),
                [name, *(f"{each[result]:,}" if result in each else "" for result in shown)],
            )
            for name, each in counts.items()
        ),
    )
    yield "</div>"


def _top(key: str, caption: str, what: str, rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    yield "<div>"
    yield from table(
        key,
        [(caption, "path"), (what, "number")],
        (
            (
                data_attributes(name=row.name, value=getattr(row, key)),
                [row.name, _UNITS[key](getattr(row, key))],
            )
            for row in rows
        ),
    )
    yield "</div>"


def _artefacts(rows: Sequence[Row]) -> Iterator[str]:
    reasons, kinds = {_reason(row) for row in rows}, {row.kind or UNKNOWN for row in rows}
    yield "<section>"
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
    yield "</section>"


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
        "name": lambda row: row.name,
        "result": lambda row: row.result,
        "kind": lambda row: row.kind or UNKNOWN,
        "bytes": lambda row: row.bytes,
        "files": lambda row: row.files,
        "seconds": lambda row: row.seconds,
        "memory": lambda row: row.peak_memory,
        "written": lambda row: row.written_by,
        "model": lambda row: _listed(row.model),
        "policies": lambda row: _listed(row.policies),
        "optimizer": lambda row: row.optimizer,
        "scale": lambda row: None if row.loss_scale is None else number(row.loss_scale),
        "reason": _reason,
        "why": lambda row: row.said,
        "changes": numbers,
        "notes": lambda row: list(row.notes),
        "sha256": lambda row: row.sha256,
        "out": lambda row: row.out,
        "out_bytes": lambda row: row.out_bytes,
        "verified": lambda row: _listed(row.verified),
        "when": lambda row: row.when,
        "run": lambda row: row.run,
        "versions": lambda row: _listed(row.versions),
        "options": lambda row: _listed(row.options),
    }
    columns = {name: _column([value(row) for row in rows]) for name, value in of.items()}
    return {"count": len(rows), "columns": columns, "changes": [list(each) for each in changes]}


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


def _runs(found: LedgerSummary) -> Iterator[str]:
    if not found.runs:
        return
    yield from table(
        "runs",
        [
            ("run", "path"),
            ("began", ""),
            ("first line to last", "number"),
            *((result, "number") for result in RESULTS),
            ("host", "path"),
            ("of", "path"),
        ],
        (
            (
                data_attributes(run=run.name),
                [
                    run.name,
                    run.first or "",
                    "" if (seconds := seconds_of_run(run)) is None else duration(seconds),
                    *(f"{run.rows.get(result, 0):,}" for result in RESULTS),
                    ", ".join(run.hosts[:_HOSTS])
                    + (f" and {others:,} more" if (others := len(run.hosts) - _HOSTS) > 0 else ""),
                    ", ".join(run.roots),
                ],
            )
            for run in found.runs
        ),
    )


def _versions(found: LedgerSummary) -> Iterator[str]:
    if not found.versions:
        return
    yield from table(
        "versions",
        [("migrated with", ""), ("version: artefacts", "path")],
        (
            (
                data_attributes(name=name),
                [name, ", ".join(f"{version}: {count:,}" for version, count in each.items())],
            )
            for name, each in found.versions.items()
        ),
    )
