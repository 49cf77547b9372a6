"""A trace, as a notebook shows it: a picture and a table."""

import numpy as np

from keras_mp.monitor import drawing, svg
from keras_mp.monitor.trace import KINDS, Trace
from keras_mp.rendering import markup
from keras_mp.rendering.markup import escaped
from keras_mp.rendering.style import NOTEBOOK

_SHOWN = 12  # rows of the table


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
    return markup.output(parts, NOTEBOOK)
