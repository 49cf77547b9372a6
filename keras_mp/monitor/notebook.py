"""What a notebook shows of a trace, of ranges and of overflows: tables and pictures, no script."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_mp import markup
from keras_mp.markup import escaped
from keras_mp.monitor import drawing, svg
from keras_mp.monitor.html_report import tables_of_ranges
from keras_mp.monitor.page_style import PIECES
from keras_mp.monitor.trace import KINDS, Trace
from keras_mp.overflow_search.report import Finding, OverflowReport

_STYLE = f"{markup.scoped(PIECES)}\n.keras-mp svg.curve {{ max-width: 60rem; }}\n"
_SHOWN = 12  # rows of a table that may be long
_MOST = 60  # rows of ranges


def show_trace(trace: Trace) -> str:
    """Returns the scale by step, and what was not finite."""
    parts = [
        f'<p class="head">Loss scale: {escaped(drawing.headline(trace))}</p>',
        svg.scale_curve(trace, with_ids=False),
    ]
    at = np.flatnonzero(trace.is_skipped).tolist() if trace.has_kinds else []
    if at:
        heads = [("variable", "path"), ("skipped", "number"), ("first", "number"), ("kind", "")]
        rows = [
            (
                found["variable"] or "not recorded",
                f"{found['count']:,}",
                f"{found['first_step']:,}",
                KINDS[found["kind"]],
            )
            for found in trace.overflows()
        ]
        parts.append(markup.table(heads, rows[:_SHOWN]))
        if len(rows) > _SHOWN:
            parts.append(f"<p>and {len(rows) - _SHOWN} more: overflows()</p>")
    return markup.output(parts, _STYLE)


def show_ranges(ranges: Mapping[str, Any], worst: list[Any]) -> str:
    """Returns the heat maps and the advice.

    Args:
        ranges: As `ranges.json` holds them.
        worst: Its rows, the worst first.
    """
    title = f"{ranges.get('model')}: {drawing.counted(ranges.get('steps') or 0, 'step')}"
    parts = [f'<p class="head">{escaped(title)}</p>']
    advice = (ranges.get("advice") or {}).get("text") or []
    parts += [f"<p>{escaped(sentence)}</p>" for sentence in advice]
    parts += tables_of_ranges({**ranges, "rows": worst[:_MOST]})
    if len(worst) > _MOST:
        parts.append(f"<p>These {_MOST} are the worst of {len(worst)}: rows has all.</p>")
    return markup.output(parts, _STYLE)


def show_overflows(report: OverflowReport) -> str:
    """Returns what was found, causes first."""
    first = report.first
    style = "head" if first is None else "head error"
    head, *sentences = report.summary()
    parts = [f'<p class="{style}">{escaped(head)}</p>']
    parts += [f"<p>{escaped(sentence)}</p>" for sentence in sentences]
    if report.float32_layers is not None:
        parts += report.float32_layers.html()
    for title, chosen in report.sorted_findings().items():
        heads = [("layer", "path"), ("class", ""), ("part", ""), ("op", ""), ("tensor", "path")]
        heads += [("dtype", ""), ("what", ""), ("largest", "number"), ("", "")]
        rows = [_cells(found) for found in chosen]
        parts.append(f"<p>{escaped(title)}:</p>")
        parts.append(markup.table(heads, rows[:_SHOWN]))
        if len(rows) > _SHOWN:
            parts.append(f"<p>and {len(rows) - _SHOWN} more: findings</p>")
    return markup.output(parts, _STYLE)


def _cells(found: Finding) -> tuple[str, ...]:
    return (
        found.layer,
        found.layer_class,
        found.where,
        found.op or "",
        found.tensor,
        found.dtype,
        found.kind,
        "" if found.largest is None else f"{found.largest:.2g}",
        found.note,
    )
