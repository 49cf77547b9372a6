"""A run as one HTML page that needs nothing else: no script, no request."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_mp.diagnosis.ranges import drawing as drawing_of_ranges
from keras_mp.files.atomic_writing import write_atomically
from keras_mp.files.json_files import json_values
from keras_mp.monitor import drawing
from keras_mp.monitor.drawing import KINDS
from keras_mp.monitor.run_folder import RunFolder
from keras_mp.monitor.trace import Trace
from keras_mp.rendering import html
from keras_mp.rendering.model import Column, Fold, Part, Table, Text
from keras_mp.rendering.text import number

_MOST = 500  # skipped steps in the table; the trace has all
_SEEN = 10  # of them are shown at once


def html_report(run: RunFolder) -> str:
    """Returns the page.

    Numbers can be read from it: `data-` attributes hold them unrounded, in the elements with the
    ids `facts`, `overflows`, `skipped-steps`, `ranges`, `layers`, `settings` and `versions`.
    """
    return html.page(f"Mixed precision of {run.run.get('model') or run.path.name}", _parts(run))


def write_html_report(run: RunFolder, path: str | Path) -> None:
    """Writes the page, whole or, on an OSError, not at all."""
    write_atomically(path, html_report(run))


def _parts(run: RunFolder) -> Iterator[Part]:
    backend, started = run.run.get("backend"), run.run.get("started")
    when = f"on {backend}" if backend else "", f"started {started}" if started else ""
    yield Text(", ".join(filter(None, when)))
    yield drawing.facts(run.trace, run.run)
    yield Text("Loss scale", "heading")
    yield drawing.chart(run.trace)
    yield from _repaired_layers(run.run)
    yield _skipped_steps(run.trace)
    yield Text("What was not finite", "heading")
    yield from _overflows(run)
    if run.ranges is not None:
        yield Text("Ranges", "heading")
        advice = (run.ranges.get("advice") or {}).get("text")
        yield from (Text(each, "item") for each in (advice if isinstance(advice, list) else ()))
        yield from drawing_of_ranges.parts(run.ranges)
    yield Text("Layers", "heading")
    yield _layers(run.run.get("layers", []))
    yield Text("Settings and versions", "heading")
    yield from _settings(run.run)


def _repaired_layers(run: Mapping[str, Any]) -> Iterator[Part]:
    paths = run.get("repaired")
    if isinstance(paths, list) and paths:
        yield Text(f"In float32 since a repair: {', '.join(map(str, paths))}.")


def _skipped_steps(trace: Trace) -> Part:
    at = np.flatnonzero(trace.is_skipped)
    if not trace.has_kinds:
        return Text("Which steps were skipped was not recorded.")
    if not len(at):
        return Text("No step was skipped." if len(trace) else "No step was recorded.")
    table = Table(
        (
            Column("step", "number"),
            Column("epoch", "number"),
            Column("loss scale", "number"),
            Column("kind"),
            Column("first variable", "path"),
        ),
        [
            (
                f"{trace.steps[i]:,}",
                str(trace.epochs[i]),
                number(float(trace.scales[i])),
                KINDS[trace.kinds[i]],
                trace.variables[i] or "",
            )
            for i in at.tolist()
        ],
        most=_MOST,
        rest="in the trace",
        name="skipped-steps",
        values=[{"step": int(trace.steps[i]), "kind": KINDS[trace.kinds[i]]} for i in at.tolist()],
    )
    return Fold(f"Skipped steps ({len(at):,})", [table], is_open=len(at) <= _SEEN)


def _overflows(run: RunFolder) -> Iterator[Part]:
    found = run.run.get("overflows") or run.trace.overflows()
    if not found:
        is_known = len(run.trace) and run.trace.has_kinds
        yield Text("Nothing: every gradient was finite." if is_known else "Not recorded.")
        return
    yield Text("The variables whose gradients were not finite, and in how many steps.")
    yield drawing.overflows(found, run.trace)


def _layers(layers: Sequence[Mapping[str, Any]]) -> Part:
    if not layers:
        return Text("Not recorded.")
    columns = {
        "path": Column("layer", "path"),
        "class": Column("class"),
        "policy": Column("policy"),
        "compute_dtype": Column("computes in"),
        "variable_dtype": Column("variables"),
    }
    return Table(
        tuple(columns.values()),
        [tuple("" if each.get(key) is None else str(each[key]) for key in columns)
         for each in layers],
        name="layers",
        values=[{"path": each["path"], "policy": each.get("policy")} for each in layers],
    )  # fmt: skip


def _settings(run: Mapping[str, Any]) -> Iterator[Table]:
    versions = {key: run[key] for key in ("keras", "keras_mp", "backend", "started") if key in run}
    for title, found in (("Settings", run.get("optimizer", {})), ("Versions", versions)):
        rows = [(str(key), _setting(value)) for key, value in found.items()]
        if rows:
            yield Table(
                (Column("name", "path"), Column("value", "path")),
                rows,
                title=title,
                name=title.lower(),
                values=[{"name": name, "value": value} for name, value in rows],
            )


def _setting(value: object) -> str:
    plain = json_values(value)
    return number(plain) if isinstance(plain, float) else str(plain)
