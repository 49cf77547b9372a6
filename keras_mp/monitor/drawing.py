"""What the pictures share, drawn by matplotlib or as SVG: limits, colours, words, and thinning."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_mp.markup import DARK as DARK, LIGHT as LIGHT, Colours as Colours
from keras_mp.monitor.trace import Trace

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a dtype ends, as log2 of magnitudes.

    Args:
        subnormal: The smallest subnormal number.
        normal: The smallest normal number; below it, bits are lost.
        largest: The largest finite number.
    """

    subnormal: float
    normal: float
    largest: float


FLOAT16 = Limits(-24.0, -14.0, math.log2(65504.0))
BFLOAT16 = Limits(-133.0, -126.0, 128.0 + math.log2(1 - 2.0**-8))


# The fraction of values above which what a dtype makes of them is set in bold.
MUCH = {"zero": 0.01, "subnormal": 0.1, "overflow": 0.0}
KINDS_OF_RANGES = ("activation", "activation gradient", "weight", "weight gradient")
_ABOVE = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(exponent: int) -> str:
    """Returns a power of two as text.

    >>> power(-14)
    '2⁻¹⁴'
    """
    return "2" + str(exponent).translate(_ABOVE)


def number(value: float | int | None) -> str:
    """Returns a number as people read it.

    >>> number(65536.0), number(0.5), number(1e-9), number(None)
    ('65,536', '0.5', '1e-09', 'unknown')
    """
    if value is None:
        return "unknown"
    if isinstance(value, int) or (value == int(value) if math.isfinite(value) else False):
        return f"{int(value):,}" if abs(value) < 1e15 else f"{value:.4g}"
    return f"{value:.4g}"


def percent(fraction: float | None) -> str:
    """Returns a fraction in percent; what is there is never shown as none, nor as all.

    >>> percent(0.25), percent(0.0), percent(1e-7), percent(0.99999), percent(None)
    ('25 %', '0 %', '<0.01 %', '>99.9 %', '')
    """
    if fraction is None:
        return ""
    if 0 < fraction < 1e-4:
        return "<0.01 %"
    return (
        ">99.9 %" if 0.999 < fraction < 1 else f"{100 * fraction:.{3 if fraction > 0.01 else 2}g} %"
    )


def fitted(text: str, room: int) -> str:
    """Returns a path in at most `room` characters; its end tells most.

    >>> fitted("encoder/block_1/dense/kernel", 16)
    '…_1/dense/kernel'
    """
    return text if len(text) <= room else "…" + text[len(text) - room + 1 :]


def counted(count: int, one: str) -> str:
    """Returns a count and its noun.

    >>> counted(1, "step"), counted(2000, "step")
    ('1 step', '2,000 steps')
    """
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def headline(trace: Trace) -> str:
    """Returns what a trace comes down to, on one line.

    >>> headline(Trace([1, 2], [0, 0], [4.0, 2.0], [1, 0], ["out/bias", None]))
    '2 steps, 1 skipped (1 inf); loss scale 2 to 4, 2 before the last step'
    >>> headline(Trace([1], [0], [4.0], [1], [None], end=2.0))
    '1 step, 1 skipped (1 inf); loss scale 2 to 4, at last 2'
    """
    found = trace.summary()
    if not len(trace):
        return "no step was recorded"
    parts = [counted(found["steps"], found["unit"])]
    if found["skipped"] is not None:
        kinds = (("overflows", "inf"), ("nans", "nan"))
        told = ", ".join(f"{found[key]:,} {kind}" for key, kind in kinds if found[key])
        what = "" if found["unit"] == "step" else " steps"
        count = f"{found['skipped']:,}" if found["skipped"] else "no" if what else "none"
        parts.append(f"{count}{what} skipped{f' ({told})' if told else ''}")
    low, high = found["lowest_scale"], found["highest_scale"]
    if low is None:
        return f"{', '.join(parts)}; loss scale never finite"
    value, is_end = last_scale(trace)
    if low == high == value and np.isfinite(trace.scales).all():
        return f"{', '.join(parts)}; loss scale always {number(value)}"
    last = f"at last {number(value)}" if is_end else f"{number(value)} before the last step"
    return f"{', '.join(parts)}; loss scale {number(low)} to {number(high)}, {last}"


def last_scale(trace: Trace) -> tuple[float | None, bool]:
    """Returns the last loss scale that is known, and whether it is that at the end.

    >>> last_scale(Trace([1], [0], [4.0], [1], ["out/bias"]))
    (4.0, False)
    """
    if trace.end is not None:
        return trace.end, True
    return (float(trace.scales[-1]) if len(trace) else None), trace.unit == "epoch"


def thinned(trace: Trace, most: int = 4000) -> Array:
    """Returns indices of the rows to draw a line through; shape (m,), int64, growing.

    Without loss where the scale stays the same, as between two changes only their ends count. Where
    more than `most` are left, each group of rows keeps its lowest and its highest. The first, the
    last, the extremes and all skipped steps are always among them.
    """
    count = len(trace)
    if count <= 2:
        return np.arange(count)
    scales = trace.scales
    change = np.flatnonzero(scales[1:] != scales[:-1])
    kept = np.unique(np.concatenate(([0, count - 1], change, change + 1)))
    if len(kept) > most:
        groups = np.array_split(kept, max(1, most // 2))
        lowest = [group[np.argmin(_sortable(scales[group], math.inf))] for group in groups]
        highest = [group[np.argmax(_sortable(scales[group], -math.inf))] for group in groups]
        kept = np.unique(np.concatenate(([0, count - 1], lowest, highest)))
    return np.union1d(kept, np.flatnonzero(trace.is_skipped))


def logarithms(scales: Array) -> Array:
    """Returns log2 of scales, nan where there is none to draw (0, inf, nan)."""
    drawable = np.isfinite(scales) & (scales > 0)
    result = np.full(len(scales), math.nan)
    result[drawable] = np.log2(scales[drawable])
    return result


def bounds(values: Array) -> tuple[float, float]:
    """Returns where an axis of log2 begins and ends; one value gets room around it.

    >>> bounds(np.array([0.0, 0.0]))
    (-1.0, 1.0)
    """
    seen = values[np.isfinite(values)]
    if not len(seen):
        return 0.0, 1.0
    low, high = float(seen.min()), float(seen.max())
    room = max(0.06 * (high - low), 0.5 if high > low else 1.0)
    return low - room, high + room


def whole_ticks(low: float, high: float, most: int) -> list[int]:
    """Returns whole numbers from `low` to `high`, at most `most`, at a step of 1, 2, 5, 10, ...

    >>> whole_ticks(0, 1000, 6)
    [0, 200, 400, 600, 800, 1000]
    """
    return next(found for found in _ticks(low, high) if len(found) <= most)


def _ticks(low: float, high: float) -> Iterator[list[int]]:
    magnitude = 1
    while True:
        for step in (magnitude, 2 * magnitude, 5 * magnitude):
            start, end = -(-math.ceil(low) // step), math.floor(high) // step
            if end - start < 100:
                yield [step * i for i in range(start, end + 1)]
        magnitude *= 10


def epoch_starts(trace: Trace, most: int = 25) -> list[tuple[int, str]]:
    """Returns (step, label) of the first steps of epochs, of more than one.

    None where there are too many to show. Each `fit` numbers its epochs anew: "epoch" is said of
    the first one of each.

    >>> epoch_starts(Trace([1, 2, 3], [0, 1, 0], [4.0] * 3, [0] * 3, [None] * 3))
    [(1, 'epoch 0'), (2, '1'), (3, 'epoch 0')]
    """
    if trace.unit == "epoch":
        return []
    starts = np.flatnonzero(np.diff(trace.epochs, prepend=-1))
    if not 1 < len(starts) <= most:
        return []
    epochs = trace.epochs[starts].tolist()
    labels = [
        f"epoch {epoch}" if epoch < before else str(epoch)
        for before, epoch in itertools.pairwise([math.inf, *epochs])
    ]
    return list(zip(trace.steps[starts].tolist(), labels, strict=True))


def by_kind(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Returns the rows of ranges by their kind, in the order of `KINDS_OF_RANGES`, others last."""
    found: dict[str, list[Mapping[str, Any]]] = {kind: [] for kind in KINDS_OF_RANGES}
    for row in rows:
        found.setdefault(row["kind"], []).append(row)
    return {kind: each for kind, each in found.items() if each}


def fraction_of(row: Mapping[str, Any], dtype: str, key: str) -> float | None:
    """Returns what a dtype makes of a row: the fraction that "zero", "subnormal", "overflow"."""
    found = row.get(dtype)
    value = found.get(key) if isinstance(found, Mapping) else None
    return float(value) if isinstance(value, int | float) else None


def besides(row: Mapping[str, Any]) -> str:
    """Returns what a histogram of magnitudes cannot show.

    >>> besides({"histogram": [1], "infs": 2, "nans": 0}), besides({"histogram": [0], "zeros": 9})
    ('2 inf', 'all 0')
    """
    found = [f"{row[key]:,} {key[:-1]}" for key in ("infs", "nans") if row.get(key)]
    if not found and not any(row["histogram"]):
        return "all 0" if row.get("zeros") else "no values"
    return ", ".join(found)


def shares(histogram: Sequence[int]) -> Array:
    """Returns counts as fractions of their sum; zeros where it is 0."""
    counts = np.asarray(histogram, np.float64)
    total = counts.sum()
    return counts / total if total > 0 else counts


def shown_exponents(ranges: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the first and the last bin to show: all that hold something, and what float16 has."""
    first, last = ranges["exponents"]
    held = [i for row in ranges["rows"] for i, count in enumerate(row["histogram"]) if count]
    shift = round(loss_scale_exponent(ranges))
    low = min([first + min(held, default=0), -25, -25 - shift if _has_gradients(ranges) else 0])
    high = max(first + max(held, default=0), 16)
    return max(first, low), min(last, high)


def loss_scale_exponent(ranges: Mapping[str, Any]) -> float:
    """Returns log2 of the scale at which ranges were taken; 0 where it is unknown.

    Gradients are shown unscaled: in float16 they were that much larger.
    """
    try:
        scale = float(ranges.get("loss_scale") or 1.0)
    except (TypeError, ValueError):
        return 0.0
    return math.log2(scale) if math.isfinite(scale) and scale > 0 else 0.0


def float16_limits(ranges: Mapping[str, Any], kind: str) -> Limits:
    """Returns the limits of float16 for rows of a kind: those of gradients lie below, scaled."""
    shift = loss_scale_exponent(ranges) if kind.endswith("gradient") else 0.0
    return Limits(
        FLOAT16.subnormal - shift,
        FLOAT16.normal - shift,
        FLOAT16.largest - shift,
    )


def rulers(ranges: Mapping[str, Any], kind: str) -> list[tuple[str, Limits, str]]:
    """Returns name, limits and label of the dtypes whose reach is shown above rows of a kind."""
    scaled = loss_scale_exponent(ranges) and kind.endswith("gradient")
    label = "float16, at that loss scale" if scaled else "float16, 2⁻¹⁴ to 65504"
    return [
        ("float16", float16_limits(ranges, kind), label),
        ("bfloat16", BFLOAT16, "bfloat16, 2⁻¹²⁶ to 3.4e38"),
    ]


def _has_gradients(ranges: Mapping[str, Any]) -> bool:
    return any(row["kind"].endswith("gradient") for row in ranges["rows"])


def _sortable(values: Array, otherwise: float) -> Array:
    return np.where(np.isfinite(values), values, otherwise)
