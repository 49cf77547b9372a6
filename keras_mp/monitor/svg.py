"""The loss scale of a run as SVG: text, styled by the page's CSS, so light and dark are one.

Every text that comes from a run goes through `escaped`.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_mp.monitor import drawing
from keras_mp.monitor.trace import INF, KINDS, NAN, Trace
from keras_mp.rendering.markup import escaped
from keras_mp.rendering.svg import rounded, text
from keras_mp.rendering.text import power
from keras_mp.rendering.ticks import integer_ticks

# Units of the viewBox.
_WIDTH, _HEIGHT = 960, 348
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 930, 24, 238
_MARKS = {INF: (252, 272), NAN: (276, 296)}
_FEW = 400  # skipped steps that are told one by one, on the pointer


def scale_curve(trace: Trace, *, with_ids: bool = True) -> str:
    """Returns the loss scale by step, and which steps were skipped, as one `<svg>`.

    Args:
        trace: Of a run.
        with_ids: Whether elements get ids, which a page may have once only.
    """
    steps, heights = trace.steps, drawing.logarithms(trace.scales)
    end = drawing.logarithms(np.array([] if trace.end is None else [trace.end]))
    low, high = drawing.bounds(np.append(heights, end))
    first, last = (int(steps[0]), int(steps[-1])) if len(steps) else (0, 1)
    wide = (_RIGHT - _LEFT) / (last - first + 1)

    def x(step: Any) -> Any:
        return _LEFT + (step - first) * wide

    def y(exponent: Any) -> Any:
        return _BOTTOM - (exponent - low) / (high - low) * (_BOTTOM - _TOP)

    headline = escaped(drawing.headline(trace))
    parts = [
        f'<svg id="loss-scale-curve" class="curve" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'aria-labelledby="curve-title curve-text">',
        '<title id="curve-title">Loss scale by step</title>',
        f'<desc id="curve-text">{headline}</desc>',
    ]
    if not with_ids:
        parts = [
            f'<svg class="curve" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'aria-label="Loss scale by step: {headline}">'
        ]
    for exponent in integer_ticks(low, high, 8):
        at = rounded(y(exponent))
        parts.append(f'<path class="grid" d="M{_LEFT} {at}H{_RIGHT}"/>')
        parts.append(text(_LEFT - 8, at + 4, power(exponent), "end"))
    for step, label in drawing.epoch_starts(trace):
        at = rounded(x(step))
        parts.append(f'<path class="grid" d="M{at} {_TOP}V{_BOTTOM}"/>')
        parts.append(text(at, _TOP - 6, label, "middle"))
    parts.append(f'<path class="axis" d="M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}"/>')
    if len(steps):
        for step in integer_ticks(first, last, 10):
            parts.append(text(rounded(x(step + 0.5)), 317, f"{step:,}", "middle"))
    parts.append(text((_LEFT + _RIGHT) / 2, 342, trace.unit, "middle"))
    drop = f"V{rounded(y(end[0]))}" if np.isfinite(np.append(heights[-1:], end)).sum() == 2 else ""
    parts.append(f'<path class="scale" d="{_line(trace, heights, x, y)}{drop}"/>')
    if trace.has_kinds:
        parts += _skipped(trace, x, wide)
    parts.append("</svg>")
    return "\n".join(parts)


def _line(trace: Trace, heights: Any, x: Any, y: Any) -> str:
    kept = drawing.downsampled(trace)
    words, was_drawn = [], False
    ends = np.append(trace.steps[kept][1:], trace.steps[-1] + 1) if len(kept) else kept
    for i, end in zip(kept.tolist(), ends.tolist(), strict=True):
        if np.isnan(heights[i]):
            was_drawn = False
            continue
        across, up = rounded(x(trace.steps[i])), rounded(y(heights[i]))
        words.append(f"V{up}" if was_drawn else f"M{across} {up}")
        words.append(f"H{rounded(x(end))}")
        was_drawn = True
    return "".join(words)


def _skipped(trace: Trace, x: Any, wide: float) -> Iterable[str]:
    for kind, (top, bottom) in _MARKS.items():
        name = KINDS[kind]
        at = np.flatnonzero(trace.kinds == kind)
        yield f'<g class="skipped {name}" data-kind="{name}" data-count="{len(at)}">'
        yield text(_LEFT - 8, (top + bottom) / 2 + 4, name, "end")
        yield f'<path class="axis" d="M{_LEFT} {bottom}H{_RIGHT}"/>'
        if len(at) <= _FEW:
            for i in at.tolist():
                place = f"M{rounded(x(trace.steps[i] + 0.5))} {top}V{bottom}"
                where = f" in {trace.variables[i]}" if trace.variables[i] else ""
                title = escaped(f"{trace.unit} {trace.steps[i]:,}: {name}{where}")
                yield (
                    f'<path class="mark" data-step="{trace.steps[i]}" d="{place}">'
                    f"<title>{title}</title></path>"
                )
        else:
            # One line for all that fall on the same tenth of a unit.
            places = np.unique(np.round(x(trace.steps[at] + 0.5), 1)).tolist()
            line = "".join(f"M{rounded(place)} {top}V{bottom}" for place in places)
            yield f'<path class="mark" d="{line}"/>'
        yield "</g>"
