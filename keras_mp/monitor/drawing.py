"""What the pictures of a trace share, drawn by matplotlib or as SVG: words, lines, downsampling."""

import itertools
import math
from typing import Any

import numpy as np

from keras_mp.monitor.trace import Trace
from keras_mp.rendering.text import number, pluralized

Array = np.ndarray[Any, Any]


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
    parts = [pluralized(found["steps"], found["unit"])]
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


def downsampled(trace: Trace, most: int = 4000) -> Array:
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


def _sortable(values: Array, otherwise: float) -> Array:
    return np.where(np.isfinite(values), values, otherwise)
