"""The loss scale of a run as a picture, by matplotlib."""

from pathlib import Path
from typing import Any

import numpy as np

from keras_mp.monitor import drawing
from keras_mp.monitor.trace import INF, NAN, Trace
from keras_mp.rendering import figures
from keras_mp.rendering.markup import DARK, LIGHT, Colours
from keras_mp.rendering.text import power
from keras_mp.rendering.ticks import integer_ticks

_WIDTH, _HEIGHT = 9.0, 4.4  # inches
_FEW = 200  # skipped steps that are marked on the line, too
_MANY = 5000  # marks above which SVG and PDF hold them as pixels
_NEEDS = (
    "A picture",
    "`keras-mp plot` without -o, and `keras-mp report`, need nothing.",
)


def plot_trace(
    trace: Trace, path: str | Path | None = None, *, title: str | None = None, dark: bool = False
) -> Any:
    """Draws the loss scale by step, and below it which steps were skipped, by kind.

    Args:
        trace: Of a run. Long ones are thinned: no skipped step and no extreme is lost.
        path: Where to write it: PNG, SVG or PDF by its suffix.
        title: Above the picture; "Loss scale" if None.
        dark: Whether for a dark ground.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: The suffix of `path` is of no format that matplotlib writes.
        OSError: It could not be written; what was there is as it was.
    """
    mpl, figure_class = figures.load_matplotlib(*_NEEDS)
    colours = DARK if dark else LIGHT
    with mpl.rc_context({"svg.hashsalt": "keras-mp"}):
        figure = figure_class((_WIDTH, _HEIGHT), dpi=figures.DPI, facecolor=colours.ground)
        below = trace.has_kinds
        grid = figure.add_gridspec(
            2 if below else 1,
            1,
            height_ratios=(6, 1) if below else None,
            hspace=0.08,
            left=0.085,
            right=0.96,
            top=0.83,
            bottom=0.125,
        )
        axes = figure.add_subplot(grid[0])
        _draw_scale(axes, trace, colours)
        last = axes
        if below:
            last = figure.add_subplot(grid[1], sharex=axes)
            axes.tick_params(labelbottom=False)
            _draw_skipped(last, trace, colours)
        last.set_xlabel(f"optimizer {trace.unit}" if trace.unit == "step" else trace.unit)
        figures.draw_head(figure, title or "Loss scale", drawing.headline(trace), colours)
        figures.save(figure, path)
    return figure


def _draw_scale(axes: Any, trace: Trace, colours: Colours) -> None:
    figures.style(axes, colours)
    kept = drawing.downsampled(trace)
    heights = drawing.logarithms(trace.scales)
    last = heights[-1:] if trace.end is None else drawing.logarithms(np.array([trace.end]))
    low, high = drawing.bounds(np.append(heights, last))
    steps = trace.steps
    # Each step has its width, so that one alone is seen, too.
    across = np.append(steps[kept], steps[-1] + 1) - 0.5 if len(kept) else steps
    up = np.append(heights[kept], last) if len(kept) else heights
    axes.plot(
        across, up, color=colours.line, linewidth=1.6, drawstyle="steps-post", zorder=3, gid="scale"
    )
    axes.set_ylim(low, high)
    if len(steps):
        room = max(0.01 * (steps[-1] - steps[0] + 1), 0.2)
        axes.set_xlim(steps[0] - 0.5 - room, steps[-1] + 0.5 + room)
    ticks = integer_ticks(low, high, 9)
    axes.set_yticks(ticks, [power(tick) for tick in ticks])
    axes.set_ylabel("loss scale")
    left, right = axes.get_xlim()
    marked = integer_ticks(left, right, 10)
    axes.set_xticks(marked, [f"{step:,}" for step in marked])
    axes.grid(True, axis="y", color=colours.faint, linewidth=0.6)
    _draw_epochs(axes, trace, colours)
    if trace.skipped <= _FEW:
        for kind, marker, color in ((INF, "X", colours.inf), (NAN, "D", colours.nan)):
            at = np.flatnonzero((trace.kinds == kind) & np.isfinite(heights))
            axes.plot(
                steps[at],
                heights[at],
                linestyle="none",
                marker=marker,
                markersize=6.5 if kind == INF else 5.5,
                markerfacecolor=color,
                markeredgecolor=colours.ground,
                markeredgewidth=0.7,
                zorder=4,
                gid=("", "inf", "nan")[kind],
            )


def _draw_epochs(axes: Any, trace: Trace, colours: Colours) -> None:
    for step, label in drawing.epoch_starts(trace):
        axes.axvline(step - 0.5, color=colours.faint, linewidth=0.8, zorder=1)
        axes.annotate(
            label,
            (step - 0.5, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            fontsize=7,
            color=colours.text,
            ha="center",
        )


def _draw_skipped(axes: Any, trace: Trace, colours: Colours) -> None:
    figures.style(axes, colours)
    counts = []
    # Steps that follow each other touch.
    width = min(max(_WIDTH * 64 / max(len(trace), 1), 1.2), 3.0)
    for row, (kind, color) in enumerate(((INF, colours.inf), (NAN, colours.nan))):
        steps = trace.steps[trace.kinds == kind]
        counts.append(len(steps))
        axes.vlines(
            steps,
            row + 0.12,
            row + 0.88,
            color=color,
            linewidth=width,
            rasterized=len(steps) > _MANY,
        )
    axes.set_ylim(2, 0)
    axes.set_yticks([0.5, 1.5], ["inf", "nan"])
    axes.tick_params(axis="y", length=0)
    axes.set_ylabel("skipped", labelpad=8)
    if not any(counts):
        axes.text(
            0.5,
            0.5,
            "no step was skipped" if len(trace) else "no step was recorded",
            transform=axes.transAxes,
            ha="center",
            va="center",
            fontsize=9,
            color=colours.text,
        )
