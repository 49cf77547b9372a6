"""Pictures of a run, by matplotlib: no display, no state of pyplot."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_mp.atomic_writing import replacing
from keras_mp.monitor import drawing
from keras_mp.monitor.drawing import Colours
from keras_mp.monitor.run_folder import check_ranges
from keras_mp.monitor.trace import INF, NAN, Trace

# Inches.
_WIDTH, _HEIGHT = 9.0, 4.4
_WIDE = 12.0
_ROW, _ABOVE, _BELOW = 0.2, 0.68, 0.3
_LABELS, _NUMBERS = 2.95, 2.85
_HEAD, _FOOT = 0.65, 0.75
_RULER = 0.17
_COLUMNS = (("zero", "to zero"), ("subnormal", "subnormal"), ("overflow", "to inf"))
_DPI = 130
_LARGEST = 30000  # pixels a side; viewers and encoders stop somewhere above
_FEW = 200  # skipped steps that are marked on the line, too
_MANY = 5000  # marks above which SVG and PDF hold them as pixels
_FAINTEST = 1e-6
_ROOM = 44  # characters of a label


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
    mpl, figure_class = _matplotlib()
    colours = drawing.DARK if dark else drawing.LIGHT
    with mpl.rc_context({"svg.hashsalt": "keras-mp"}):
        figure = figure_class((_WIDTH, _HEIGHT), dpi=_DPI, facecolor=colours.ground)
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
        _draw_head(figure, title or "Loss scale", drawing.headline(trace), colours)
        _save(figure, path)
    return figure


def plot_ranges(
    ranges: Mapping[str, Any], path: str | Path | None = None, *, dark: bool = False
) -> Any:
    """Draws how large the values of each layer are, as a heat map, with the limits of the dtypes.

    Gradients are shown unscaled; the limits of float16 are moved by the loss scale instead.

    Args:
        ranges: As `ranges.json` holds them.
        path: Where to write it: PNG, SVG or PDF by its suffix.
        dark: Whether for a dark ground.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `ranges` are not of that form; or the suffix of `path` is of no format that
            matplotlib writes.
        OSError: It could not be written; what was there is as it was.
    """
    check_ranges(ranges)
    mpl, figure_class = _matplotlib()
    colours = drawing.DARK if dark else drawing.LIGHT
    panels = drawing.by_kind(ranges["rows"])
    rows = sum(len(each) for each in panels.values())
    height = _HEAD + max(rows * _ROW + (_ABOVE + _BELOW) * len(panels), 1.0) + _FOOT
    with mpl.rc_context({"svg.hashsalt": "keras-mp"}):
        dpi = min(_DPI, _LARGEST / height)
        figure = figure_class((_WIDE, height), dpi=dpi, facecolor=colours.ground)
        title = f"Ranges of {ranges.get('model') or 'the model'}"
        _draw_head(figure, title, _ranges_headline(ranges), colours)
        top, image = height - _HEAD, None
        for kind, each in panels.items():
            bottom = top - _ABOVE - _ROW * len(each)
            size = (_WIDE - _LABELS - _NUMBERS, _ROW * len(each))
            box = (_LABELS / _WIDE, bottom / height, size[0] / _WIDE, size[1] / height)
            image = _draw_panel(figure.add_axes(box), ranges, kind, each, dark)
            top = bottom - _BELOW
        if image is None:
            figure.text(0.25 / _WIDE, 0.5, "nothing was recorded", color=colours.text)
        else:
            _draw_key(figure, image, height, colours)
        _save(figure, path)
    return figure


def _matplotlib() -> tuple[Any, Any]:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "A picture needs matplotlib: pip install 'keras-mp[plot]'. "
            "`keras-mp plot` without -o, and `keras-mp report`, need nothing."
        ) from error
    return mpl, Figure


def _draw_scale(axes: Any, trace: Trace, colours: Colours) -> None:
    _style(axes, colours)
    kept = drawing.thinned(trace)
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
    ticks = drawing.whole_ticks(low, high, 9)
    axes.set_yticks(ticks, [drawing.power(tick) for tick in ticks])
    axes.set_ylabel("loss scale")
    left, right = axes.get_xlim()
    marked = drawing.whole_ticks(left, right, 10)
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
    _style(axes, colours)
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


def _draw_head(figure: Any, title: str, below: str, colours: Colours) -> None:
    width, height = figure.get_size_inches()
    for text, inches, size, weight in ((title, 0.28, 12, "bold"), (below, 0.53, 9, "normal")):
        room = int((width - 0.5) * (9.5 if size == 12 else 14))
        figure.text(
            0.25 / width,
            1 - inches / height,
            text if len(text) <= room else f"{text[: room - 1]}…",
            fontsize=size,
            fontweight=weight,
            color=colours.text,
            parse_math=False,
        )


def _style(axes: Any, colours: Colours) -> None:
    axes.set_facecolor(colours.ground)
    for side, spine in axes.spines.items():
        spine.set_color(colours.text)
        spine.set_linewidth(0.7)
        spine.set_visible(side in ("left", "bottom"))
    axes.tick_params(colors=colours.text, labelsize=8.5, width=0.7)
    axes.xaxis.label.set(color=colours.text, fontsize=9)
    axes.yaxis.label.set(color=colours.text, fontsize=9)


def _ranges_headline(ranges: Mapping[str, Any]) -> str:
    parts = [f"{drawing.counted(len(ranges['rows']), 'row')}, each of the values of a tensor"]
    if isinstance(steps := ranges.get("steps"), int):
        parts[0] += f" over {drawing.counted(steps, 'step')}"
    if isinstance(scale := ranges.get("loss_scale"), int | float):
        parts.append(f"gradients are shown unscaled; the loss scale was {drawing.number(scale)}")
    return "; ".join(parts)


def _draw_panel(
    axes: Any, ranges: Mapping[str, Any], kind: str, rows: list[Mapping[str, Any]], dark: bool
) -> Any:
    from matplotlib.colors import LogNorm

    colours = drawing.DARK if dark else drawing.LIGHT
    _style(axes, colours)
    first, last = drawing.shown_exponents(ranges)
    start = ranges["exponents"][0]
    shares = np.array([drawing.shares(row["histogram"]) for row in rows])
    shown = np.ma.masked_equal(shares[:, first - start : last - start + 1], 0)
    image = axes.imshow(
        np.ma.clip(shown, _FAINTEST, 1),
        aspect="auto",
        interpolation="nearest",
        extent=(first, last + 1, len(rows), 0),
        cmap=_colour_map(dark),
        norm=LogNorm(_FAINTEST, 1),
        zorder=2,
    )
    axes.set_xlim(first, last + 1)
    ticks = drawing.whole_ticks(first, last + 1, 13)
    axes.set_xticks(ticks, [drawing.power(tick) for tick in ticks])
    axes.set_yticks(
        [i + 0.5 for i in range(len(rows))],
        [drawing.fitted(row["path"], _ROOM) for row in rows],
        parse_math=False,
    )
    axes.tick_params(labelsize=7.5, axis="both", length=2)
    _draw_rulers(axes, ranges, kind, len(rows), colours)
    _draw_numbers(axes, kind, rows, colours)
    return image


def _draw_rulers(
    axes: Any, ranges: Mapping[str, Any], kind: str, rows: int, colours: Colours
) -> None:
    """Draws, above the rows, how far the dtypes reach; their limits go on as lines."""
    from matplotlib.patheffects import withStroke

    outline = withStroke(linewidth=2.6, foreground=colours.ground)
    left, right = axes.get_xlim()
    height = _RULER / _ROW
    for row, (name, dtype, text) in enumerate(drawing.rulers(ranges, kind)):
        color = getattr(colours, name)
        top = -height * (2.15 - row)
        for start, end, opacity in (
            (dtype.subnormal, dtype.normal, 0.35),
            (dtype.normal, dtype.largest, 1.0),
        ):
            start, end = max(start, left), min(end, right)
            if end <= start:
                continue
            axes.fill_between(
                [start, end],
                top + 0.06,
                top + height - 0.06,
                color=color,
                alpha=opacity,
                linewidth=0,
                clip_on=False,
            )
            label = text if opacity == 1.0 else "subnormal"
            if (end - start) / (right - left) * 75 > len(label):
                axes.text(
                    (start + end) / 2,
                    top + height / 2,
                    label,
                    fontsize=6.5,
                    ha="center",
                    va="center_baseline",
                    color=colours.ground if opacity == 1.0 else colours.text,
                )
        for at, line in ((dtype.subnormal, ":"), (dtype.normal, "--"), (dtype.largest, "-")):
            if left < at < right:
                (drawn,) = axes.plot([at, at], [0, rows], line, color=color, linewidth=1.4)
                drawn.set(zorder=3, path_effects=[outline])
    axes.text(
        left, -2.45 * height, kind, fontsize=9.5, fontweight="bold", color=colours.text, va="bottom"
    )
    axes.set_ylim(rows, 0)


def _draw_numbers(axes: Any, kind: str, rows: list[Mapping[str, Any]], colours: Colours) -> None:
    """Writes, beside each row, what float16 makes of its values."""
    across = axes.get_yaxis_transform()
    inches = axes.get_position().width * _WIDE
    places = [1 + (1.5 + 0.6 * i) / inches for i in range(len(_COLUMNS))]
    height = _RULER / _ROW
    how = {"transform": across, "fontsize": 7, "color": colours.text, "ha": "right"}
    axes.text(places[-1], -1.65 * height, "in float16", va="center_baseline", **how)
    for at, (key, head) in zip(places, _COLUMNS, strict=True):
        axes.text(at, -0.65 * height, head, va="center_baseline", **how)
        for i, row in enumerate(rows):
            fraction = drawing.fraction_of(row, "float16", key)
            axes.text(
                at,
                i + 0.5,
                drawing.percent(fraction),
                va="center_baseline",
                **{
                    **how,
                    "fontweight": "bold" if (fraction or 0) > drawing.MUCH[key] else "normal",
                },
            )
    for i, row in enumerate(rows):
        beside = {**how, "color": colours.inf, "ha": "left"}
        axes.text(1 + 0.06 / inches, i + 0.5, drawing.besides(row), va="center_baseline", **beside)


def _colour_map(dark: bool) -> Any:
    import matplotlib as mpl
    from matplotlib.colors import ListedColormap

    # Without the end that is hard to tell from the ground.
    shades = np.linspace(0.85, 0.0, 256) if dark else np.linspace(0.15, 1.0, 256)
    return ListedColormap(mpl.colormaps["YlGnBu"](shades))


def _draw_key(figure: Any, image: Any, height: float, colours: Colours) -> None:
    box = (_LABELS / _WIDE, 0.42 / height, 3.0 / _WIDE, 0.11 / height)
    axes = figure.add_axes(box)
    bar = figure.colorbar(image, cax=axes, orientation="horizontal")
    bar.set_ticks([1e-6, 1e-4, 1e-2, 1], labels=["≤ 10⁻⁶", "10⁻⁴", "1 %", "all"])
    bar.outline.set_edgecolor(colours.text)
    bar.minorticks_off()
    axes.tick_params(colors=colours.text, labelsize=7)
    figure.text(
        (_LABELS - 0.1) / _WIDE,
        0.43 / height,
        "share of the row's values",
        fontsize=7.5,
        color=colours.text,
        ha="right",
    )
    figure.text(
        (_LABELS + 3.25) / _WIDE,
        0.43 / height,
        "lines: smallest subnormal (dotted), smallest normal (dashed), largest (solid)",
        fontsize=7.5,
        color=colours.text,
    )


def _save(figure: Any, path: str | Path | None) -> None:
    if path is None:
        return
    kind = Path(path).suffix.removeprefix(".").lower() or "png"
    metadata = {"Date": None} if kind == "svg" else {"CreationDate": None} if kind == "pdf" else {}
    with replacing(path) as beside:
        figure.savefig(
            beside, format=kind, dpi=figure.dpi, metadata=metadata, facecolor=figure.get_facecolor()
        )
