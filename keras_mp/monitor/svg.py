"""The pictures of a report as SVG: text, styled by the page's CSS, so light and dark are one.

Every text that comes from a run goes through `escaped`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from keras_mp.markup import escaped as escaped, path as path
from keras_mp.monitor import drawing
from keras_mp.monitor.trace import INF, KINDS, NAN, Trace

# Units of the viewBox.
_WIDTH, _HEIGHT = 960, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 930, 24, 238
_MARKS = {INF: (252, 272), NAN: (276, 296)}
_FEW = 400  # skipped steps that are told one by one, on the pointer
STRIP, STRIP_HEIGHT, RULER_HEIGHT = 400, 18, 48
_LARGEST = 0.5  # the share that is drawn in full


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
    for exponent in drawing.whole_ticks(low, high, 8):
        at = _round(y(exponent))
        parts.append(f'<path class="grid" d="M{_LEFT} {at}H{_RIGHT}"/>')
        parts.append(_text(_LEFT - 8, at + 4, drawing.power(exponent), "end"))
    for step, label in drawing.epoch_starts(trace):
        at = _round(x(step))
        parts.append(f'<path class="grid" d="M{at} {_TOP}V{_BOTTOM}"/>')
        parts.append(_text(at, _TOP - 6, label, "middle"))
    parts.append(f'<path class="axis" d="M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}"/>')
    if len(steps):
        for step in drawing.whole_ticks(first, last, 10):
            parts.append(_text(_round(x(step + 0.5)), 312, f"{step:,}", "middle"))
    parts.append(_text((_LEFT + _RIGHT) / 2, 328, trace.unit, "middle"))
    drop = f"V{_round(y(end[0]))}" if np.isfinite(np.append(heights[-1:], end)).sum() == 2 else ""
    parts.append(f'<path class="scale" d="{_line(trace, heights, x, y)}{drop}"/>')
    if trace.has_kinds:
        parts += _skipped(trace, x, wide)
    parts.append("</svg>")
    return "\n".join(parts)


def _line(trace: Trace, heights: Any, x: Any, y: Any) -> str:
    kept = drawing.thinned(trace)
    words, was_drawn = [], False
    ends = np.append(trace.steps[kept][1:], trace.steps[-1] + 1) if len(kept) else kept
    for i, end in zip(kept.tolist(), ends.tolist(), strict=True):
        if np.isnan(heights[i]):
            was_drawn = False
            continue
        across, up = _round(x(trace.steps[i])), _round(y(heights[i]))
        words.append(f"V{up}" if was_drawn else f"M{across} {up}")
        words.append(f"H{_round(x(end))}")
        was_drawn = True
    return "".join(words)


def _skipped(trace: Trace, x: Any, wide: float) -> Iterable[str]:
    for kind, (top, bottom) in _MARKS.items():
        name = KINDS[kind]
        at = np.flatnonzero(trace.kinds == kind)
        yield f'<g class="skipped {name}" data-kind="{name}" data-count="{len(at)}">'
        yield _text(_LEFT - 8, (top + bottom) / 2 + 4, name, "end")
        yield f'<path class="axis" d="M{_LEFT} {bottom}H{_RIGHT}"/>'
        if len(at) <= _FEW:
            for i in at.tolist():
                place = f"M{_round(x(trace.steps[i] + 0.5))} {top}V{bottom}"
                where = f" in {trace.variables[i]}" if trace.variables[i] else ""
                title = escaped(f"{trace.unit} {trace.steps[i]:,}: {name}{where}")
                yield (
                    f'<path class="mark" data-step="{trace.steps[i]}" d="{place}">'
                    f"<title>{title}</title></path>"
                )
        else:
            # One line for all that fall on the same tenth of a unit.
            places = np.unique(np.round(x(trace.steps[at] + 0.5), 1)).tolist()
            line = "".join(f"M{_round(place)} {top}V{bottom}" for place in places)
            yield f'<path class="mark" d="{line}"/>'
        yield "</g>"


def ruler(ranges: Mapping[str, Any], kind: str, ends: tuple[int, int]) -> str:
    """Returns how far float16 and bfloat16 reach, on the axis of `strip`, as an `<svg>`."""
    first, last = ends
    parts = [f'<svg class="ruler" viewBox="0 0 {STRIP} {RULER_HEIGHT}" aria-hidden="true">']
    for row, (dtype, limits, label) in enumerate(drawing.rulers(ranges, kind)):
        top = 15 * row
        for start, end, part, text in (
            (limits.subnormal, limits.normal, "subnormal", "subnormal"),
            (limits.normal, limits.largest, "normal", label),
        ):
            left, right = (
                _across(min(max(at, first), last + 1), first, last) for at in (start, end)
            )
            if right <= left:
                continue
            box = f'x="{left}" y="{top}" width="{_round(right - left)}" height="13"'
            parts.append(f'<rect class="{dtype} {part}" {box}/>')
            if right - left > 6 * len(text):
                parts.append(_text(_round((left + right) / 2), top + 10, text, "middle", part))
    for exponent in drawing.whole_ticks(first, last + 1, 10):
        at = _across(exponent, first, last)
        anchor = "start" if at < 14 else "end" if at > STRIP - 14 else "middle"
        parts.append(_text(at, RULER_HEIGHT - 6, drawing.power(exponent), anchor))
        parts.append(f'<path class="axis" d="M{at} {RULER_HEIGHT - 3}v3"/>')
    return "".join([*parts, "</svg>"])


def strip(ranges: Mapping[str, Any], row: Mapping[str, Any], ends: tuple[int, int]) -> str:
    """Returns the magnitudes of one row as an `<svg>`: the darker, the more values.

    Args:
        ranges: As `ranges.json` holds them.
        row: Of them.
        ends: `drawing.shown_exponents(ranges)`, which looks at all rows.
    """
    first, last = ends
    start = ranges["exponents"][0]
    title = _strip_title(row, start)
    parts = [
        f'<svg class="strip" viewBox="0 0 {STRIP} {STRIP_HEIGHT}" role="img" '
        f'preserveAspectRatio="none"><title>{escaped(title)}</title>'
    ]
    for i, share in enumerate(drawing.shares(row["histogram"])[first - start :].tolist()):
        if share and i <= last - first:
            left, right = (_across(first + at, first, last) for at in (i, i + 1))
            opacity = 0.12 + 0.88 * max(0.0, 1 + np.log10(share / _LARGEST) / 5) ** 1.5
            parts.append(
                f'<rect class="heat" x="{left}" width="{_round(right - left)}" '
                f'height="{STRIP_HEIGHT}" fill-opacity="{min(opacity, 1):.2f}"/>'
            )
    limits = drawing.float16_limits(ranges, row["kind"])
    for line, dtype, at in (
        ("subnormal", "float16", limits.subnormal),
        ("normal", "float16", limits.normal),
        ("largest", "float16", limits.largest),
        ("subnormal", "bfloat16", drawing.BFLOAT16.subnormal),
        ("normal", "bfloat16", drawing.BFLOAT16.normal),
        ("largest", "bfloat16", drawing.BFLOAT16.largest),
    ):
        if first < at < last + 1:
            place = f"M{_across(at, first, last)} 0V{STRIP_HEIGHT}"
            parts.append(f'<path class="limit {dtype} {line}" d="{place}"/>')
    return "".join([*parts, "</svg>"])


def _strip_title(row: Mapping[str, Any], start: int) -> str:
    held = [start + i for i, count in enumerate(row["histogram"]) if count]
    if not held:
        return f"{row['path']}: {drawing.besides(row)}"
    most = start + int(np.argmax(row["histogram"]))
    ends = f"from {drawing.power(held[0])} to {drawing.power(held[-1] + 1)}"
    return f"{row['path']}: magnitudes {ends}, most often near {drawing.power(most)}"


def _across(exponent: float, first: int, last: int) -> float:
    return _round((exponent - first) / (last - first + 1) * STRIP)


def _round(value: Any) -> float:
    number = round(float(value), 1)
    return int(number) if number == int(number) else number


def _text(x: float, y: float, text: str, anchor: str, what: str = "") -> str:
    kind = f' class="{what}"' if what else ""
    return (
        f'<text{kind} x="{_round(x)}" y="{_round(y)}" text-anchor="{anchor}">{escaped(text)}</text>'
    )
