"""What is shown of a trace: its headline, its chart, its tables."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_mp.rendering.model import Chart, Column, Events, Part, Table, facts_table
from keras_mp.rendering.text import number, percent, pluralized

if TYPE_CHECKING:
    from keras_mp.monitor.trace import Trace

KINDS = ("finite", "inf", "nan")  # what came of a step, by its number in a trace
FINITE, INF, NAN = range(3)
Array = np.ndarray[Any, Any]


def parts(trace: "Trace", most: int = 12, rest: str = "overflows()") -> Iterator[Part]:
    """Yields what a terminal and a notebook show.

    Args:
        trace: Of a run.
        most: Variables that are named.
        rest: Where the others are.
    """
    yield chart(trace)
    yield facts(trace)
    if found := trace.overflows():
        yield overflows(found, trace, most=most, rest=rest)


def facts(trace: "Trace", run: Mapping[str, Any] | None = None) -> Table:
    """Returns what a trace comes down to.

    Args:
        trace: Of a run.
        run: What `run.json` says; without a step in the trace, that counts.
    """
    found = trace.summary()
    scale, is_end = last_scale(trace)
    if run is not None and not len(trace):
        known = {key: run.get(key) for key in ("steps", "skipped")}
        found = {**found, **known, "longest_skips": None}
        scale, is_end = run.get("loss_scale"), True
    skipped = "not recorded" if found["skipped"] is None else number(found["skipped"])
    if found["skipped"] and len(trace) and trace.has_kinds:
        share = percent(found["skipped"] / found["steps"])
        skipped += f" ({share}): {found['overflows']:,} inf, {found['nans']:,} nan"
    end = "last loss scale" if is_end else "before the last step"
    rows = [
        ("steps", f"{found['unit']}s", found["steps"], _number_or_text(found["steps"])),
        ("skipped", "skipped steps", found["skipped"], skipped),
        *(
            (key.replace("_", "-"), label, found[key], _number_or_text(found[key]))
            for key, label in (
                ("longest_skips", "longest run of skips"),
                ("lowest_scale", "lowest loss scale"),
                ("highest_scale", "highest loss scale"),
            )
            if trace.has_kinds or key != "longest_skips"
        ),
        ("loss-scale", end, scale, _number_or_text(scale)),
    ]
    return facts_table(rows)


def _number_or_text(value: object) -> str:
    return number(value) if value is None or isinstance(value, int | float) else str(value)


def overflows(found: Sequence[Mapping[str, Any]], trace: "Trace", **how: Any) -> Table:
    """Returns the variables whose gradients were not finite, and in how many steps.

    Args:
        found: Each with "variable", "count", "first_step", and where known "kind".
        trace: Of the same run: has the kind of the first step.
        how: More of the `Table`.
    """
    kinds = dict(zip(trace.steps.tolist(), trace.kinds.tolist(), strict=True))
    columns = (
        Column("variable", "path"),
        Column("layer", "path", is_extra=True),
        Column("skipped", "number"),
        Column("first step", "number"),
        Column("kind"),
    )
    rows = [
        (
            each.get("variable") or "not recorded: LossScaleOptimizer(..., diagnose=True) names it",
            each.get("layer") or str(each.get("variable") or "").rpartition("/")[0],
            f"{each['count']:,}",
            number(each.get("first_step")),
            _kind(each.get("kind") or kinds.get(each.get("first_step"))),
        )
        for each in found
    ]
    values = [{key: each.get(key) for key in ("variable", "count", "first_step")} for each in found]
    return Table(columns, rows, name="overflows", values=values, **how)


def _kind(value: object) -> str:
    if isinstance(value, int) and 0 <= value < len(KINDS):
        return KINDS[value]
    return "" if value is None else str(value)


def chart(trace: "Trace", title: str = "Loss scale") -> Chart:
    """Returns the loss scale by step, and below it which steps were skipped, by kind.

    Long ones are thinned: no skipped step and no extreme is lost.
    """
    kept = downsampled(trace)
    heights = logarithms(trace.scales)
    last = heights[-1:] if trace.end is None else logarithms(np.array([trace.end]))
    # Each step has its width, so that one alone is seen, too.
    ends = trace.steps[-1:] + 0.5
    events = [
        Events(KINDS[kind], trace.steps[at].tolist(), heights[at].tolist())
        for kind in (INF, NAN)
        for at in [np.flatnonzero(trace.kinds == kind)]
    ]
    return Chart(
        title,
        headline(trace),
        x_label=f"optimizer {trace.unit}" if trace.unit == "step" else trace.unit,
        y_label="loss scale",
        x=np.append(trace.steps[kept] - 0.5, ends).tolist(),
        y=np.append(heights[kept], last).tolist(),
        sections=[(step - 0.5, label) for step, label in epoch_starts(trace)],
        events=events if trace.has_kinds else (),
    )


def headline(trace: "Trace") -> str:
    """Returns what a trace comes down to, on one line.

    >>> from keras_mp.monitor.trace import Trace
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


def last_scale(trace: "Trace") -> tuple[float | None, bool]:
    """Returns the last loss scale that is known, and whether it is that at the end.

    >>> from keras_mp.monitor.trace import Trace
    >>> last_scale(Trace([1], [0], [4.0], [1], ["out/bias"]))
    (4.0, False)
    """
    if trace.end is not None:
        return trace.end, True
    return (float(trace.scales[-1]) if len(trace) else None), trace.unit == "epoch"


def downsampled(trace: "Trace", most: int = 4000) -> Array:
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


def epoch_starts(trace: "Trace", most: int = 25) -> list[tuple[int, str]]:
    """Returns (step, label) of the first steps of epochs, of more than one.

    None where there are too many to show. Each `fit` numbers its epochs anew: "epoch" is said of
    the first one of each.

    >>> from keras_mp.monitor.trace import Trace
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
