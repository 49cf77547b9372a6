"""A run as one HTML page that needs nothing else: no script, no request, no library."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_mp.diagnosis.ranges import html
from keras_mp.files.atomic_writing import write_atomically
from keras_mp.files.json_files import as_json
from keras_mp.monitor import drawing, svg
from keras_mp.monitor.run_folder import RunFolder
from keras_mp.monitor.trace import KINDS, Trace
from keras_mp.rendering.html import data_attributes, facts, head, table
from keras_mp.rendering.markup import escaped
from keras_mp.rendering.page_style import CSS
from keras_mp.rendering.text import number

_MOST = 500  # skipped steps in the table; the trace has all
_SEEN = 10  # of them are shown at once


def html_report(run: RunFolder) -> str:
    """Returns the page.

    Numbers can be read from it: `data-` attributes hold them unrounded, in the elements with the
    ids `facts`, `overflows`, `skipped-steps`, `layers`, `settings` and `versions`, and in the rows
    of the tables of the class `ranges`.
    """
    name = run.run.get("model") or run.path.name
    parts = [
        head(f"Mixed precision of {name}", CSS),
        f"<p>{escaped(_when(run.run))}</p>",
        *_facts(run),
        "</header>",
        "<main>",
        "<section>",
        "<h2>Loss scale</h2>",
        f"<p>{escaped(drawing.headline(run.trace))}.</p>",
        svg.scale_curve(run.trace),
        *_repaired(run.run),
        *_skipped(run.trace),
        "</section>",
        "<section>",
        "<h2>What was not finite</h2>",
        *_overflows(run),
        "</section>",
        *(() if run.ranges is None else _ranges(run.ranges)),
        "<section>",
        "<h2>Layers</h2>",
        *_layers(run.run.get("layers", [])),
        "</section>",
        "<section>",
        "<h2>Settings and versions</h2>",
        *_settings(run.run),
        "</section>",
        "</main>",
        "</body>",
        "</html>",
    ]
    return "\n".join([*parts, ""])


def write_html_report(run: RunFolder, path: str | Path) -> None:
    """Writes the page, whole or, on an OSError, not at all."""
    write_atomically(path, html_report(run))


def _when(run: Mapping[str, Any]) -> str:
    backend, started = run.get("backend"), run.get("started")
    parts = [f"on {backend}" if backend else "", f"started {started}" if started else ""]
    return ", ".join(part for part in parts if part)


def _facts(run: RunFolder) -> Iterator[str]:
    found = run.trace.summary()
    # A run that was told by its end only, without a trace, is told by that.
    known = (
        found
        if len(run.trace)
        else {**found, "steps": run.run.get("steps"), "skipped": run.run.get("skipped")}
    )
    rows = [
        ("steps", "steps", known["steps"]),
        ("skipped", "skipped steps", known["skipped"]),
        (
            "longest-skips",
            "skipped in a row, at most",
            found["longest_skips"] if len(run.trace) else None,
        ),
        ("lowest-scale", "lowest loss scale", found["lowest_scale"]),
        ("highest-scale", "highest loss scale", found["highest_scale"]),
        ("loss-scale", *_last_scale(run)),
    ]
    yield from facts((key, label, value, _fact(value)) for key, label, value in rows)


def _fact(value: object) -> str:
    if value is None:
        return "unknown"
    return number(value) if isinstance(value, int | float) else str(value)


def _last_scale(run: RunFolder) -> tuple[str, Any]:
    scale, is_end = drawing.last_scale(run.trace)
    if not len(run.trace):
        scale, is_end = run.run.get("loss_scale"), True
    return f"loss scale {'at the end' if is_end else 'before the last step'}", scale


def _repaired(run: Mapping[str, Any]) -> Iterator[str]:
    paths = run.get("repaired")
    if isinstance(paths, list) and paths:
        names = ", ".join(map(str, paths))
        yield f'<p id="repaired">In float32 since a repair: {escaped(names)}.</p>'


def _skipped(trace: Trace) -> Iterator[str]:
    if not trace.has_kinds:
        yield "<p>Which steps were skipped was not recorded.</p>"
        return
    at = np.flatnonzero(trace.is_skipped)
    if not len(at):
        yield "<p>No step was skipped.</p>" if len(trace) else "<p>No step was recorded.</p>"
        return
    is_open = " open" if len(at) <= _SEEN else ""
    yield f"<details{is_open}><summary>Skipped steps ({len(at):,})</summary>"
    rows = [
        (
            data_attributes(step=int(trace.steps[i]), kind=KINDS[trace.kinds[i]]),
            [
                f"{trace.steps[i]:,}",
                str(trace.epochs[i]),
                number(float(trace.scales[i])),
                KINDS[trace.kinds[i]],
                trace.variables[i] or "",
            ],
        )
        for i in at[:_MOST].tolist()
    ]
    yield from table(
        "skipped-steps",
        [
            ("step", "number"),
            ("epoch", "number"),
            ("loss scale", "number"),
            ("kind", ""),
            ("first variable", "path"),
        ],
        rows,
    )
    if len(at) > _MOST:
        yield f"<p>... and {len(at) - _MOST:,} more, in the trace.</p>"
    yield "</details>"


def _overflows(run: RunFolder) -> Iterator[str]:
    found = run.run.get("overflows") or run.trace.overflows()
    if not found:
        is_known = len(run.trace) and run.trace.has_kinds
        text = "Nothing: every gradient was finite." if is_known else "Not recorded."
        yield f"<p>{text}</p>"
        return
    yield "<p>The variables whose gradients were not finite, and in how many steps.</p>"
    kinds = dict(zip(run.trace.steps.tolist(), run.trace.kinds.tolist(), strict=True))
    rows = []
    for each in found:
        variable, first = each.get("variable"), each.get("first_step")
        kind = _kind(each.get("kind") or kinds.get(first))
        layer = each.get("layer") or (str(variable).rpartition("/")[0] if variable else "")
        data = data_attributes(variable=variable, count=each["count"], first_step=first)
        cells = [
            variable or "not recorded: LossScaleOptimizer(..., diagnose=True) names it",
            layer,
            f"{each['count']:,}",
            number(first),
            kind,
        ]
        rows.append((data, cells))
    yield from table(
        "overflows",
        [
            ("variable", "path"),
            ("layer", "path"),
            ("steps", "number"),
            ("first step", "number"),
            ("kind", ""),
        ],
        rows,
    )


def _kind(value: object) -> str:
    if isinstance(value, int) and 0 <= value < len(KINDS):
        return KINDS[value]
    return "" if value is None else str(value)


def _ranges(ranges: Mapping[str, Any]) -> Iterator[str]:
    yield '<section id="ranges">'
    yield "<h2>Ranges</h2>"
    advice = ranges.get("advice") or {}
    sentences = advice.get("text") or []
    if isinstance(sentences, list) and sentences:
        yield '<ul id="advice">'
        yield from (f"<li>{escaped(sentence)}</li>" for sentence in sentences)
        yield "</ul>"
    yield from html.tables(ranges)
    yield "</section>"


def _layers(layers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not layers:
        yield "<p>Not recorded.</p>"
        return
    keys = ("path", "class", "policy", "compute_dtype", "variable_dtype")
    rows = [
        (
            data_attributes(path=each["path"], policy=each.get("policy")),
            ["" if each.get(key) is None else str(each[key]) for key in keys],
        )
        for each in layers
    ]
    heads = [("layer", "path"), *((name, "") for name in ("class", "policy"))]
    yield from table("layers", [*heads, ("computes in", ""), ("variables", "")], rows)


def _settings(run: Mapping[str, Any]) -> Iterator[str]:
    settings = [(str(key), _setting(value)) for key, value in run.get("optimizer", {}).items()]
    for identity, caption, pairs in (
        ("settings", "Optimizer", settings),
        (
            "versions",
            "Versions",
            [
                (key, _setting(run[key]))
                for key in ("keras", "keras_mp", "backend", "started")
                if key in run
            ],
        ),
    ):
        if pairs:
            rows = [
                (data_attributes(name=name, value=value), [name, value]) for name, value in pairs
            ]
            yield from table(identity, [(caption, "path"), ("", "path")], rows)


def _setting(value: object) -> str:
    plain = as_json(value)
    return number(plain) if isinstance(plain, float) else str(plain)
