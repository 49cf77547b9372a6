"""The pictures of ranges as SVG: text, styled by the page's CSS, so light and dark are one."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_mp.diagnosis.ranges import drawing
from keras_mp.rendering.markup import escaped
from keras_mp.rendering.svg import rounded, text
from keras_mp.rendering.text import power
from keras_mp.rendering.ticks import integer_ticks

# Units of the viewBox.
STRIP, STRIP_HEIGHT, RULER_HEIGHT = 400, 18, 48
_LARGEST = 0.5  # the share that is drawn in full


def ruler(ranges: Mapping[str, Any], kind: str, ends: tuple[int, int]) -> str:
    """Returns how far float16 and bfloat16 reach, on the axis of `strip`, as an `<svg>`."""
    first, last = ends
    parts = [f'<svg class="ruler" viewBox="0 0 {STRIP} {RULER_HEIGHT}" aria-hidden="true">']
    for row, (dtype, limits, label) in enumerate(drawing.rulers(ranges, kind)):
        top = 15 * row
        for start, end, part, words in (
            (limits.subnormal, limits.normal, "subnormal", "subnormal"),
            (limits.normal, limits.largest, "normal", label),
        ):
            left, right = (
                _across(min(max(at, first), last + 1), first, last) for at in (start, end)
            )
            if right <= left:
                continue
            box = f'x="{left}" y="{top}" width="{rounded(right - left)}" height="13"'
            parts.append(f'<rect class="{dtype} {part}" {box}/>')
            if right - left > 6 * len(words):
                parts.append(text(rounded((left + right) / 2), top + 10, words, "middle", part))
    for exponent in integer_ticks(first, last + 1, 10):
        at = _across(exponent, first, last)
        anchor = "start" if at < 14 else "end" if at > STRIP - 14 else "middle"
        parts.append(text(at, RULER_HEIGHT - 6, power(exponent), anchor))
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
                f'<rect class="heat" x="{left}" width="{rounded(right - left)}" '
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
        return f"{row['path']}: {drawing.outside_histogram(row)}"
    most = start + int(np.argmax(row["histogram"]))
    ends = f"from {power(held[0])} to {power(held[-1] + 1)}"
    return f"{row['path']}: magnitudes {ends}, most often near {power(most)}"


def _across(exponent: float, first: int, last: int) -> float:
    return rounded((exponent - first) / (last - first + 1) * STRIP)
