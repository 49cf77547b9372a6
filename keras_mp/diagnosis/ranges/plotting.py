"""Ranges as a heat map, by matplotlib."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_mp.diagnosis.ranges import drawing
from keras_mp.diagnosis.ranges.file import check_ranges
from keras_mp.rendering import figures
from keras_mp.rendering.markup import DARK, LIGHT, Colours
from keras_mp.rendering.text import number, percent, pluralized, power, shortened
from keras_mp.rendering.ticks import integer_ticks

# Inches.
_WIDE = 12.0
_ROW, _ABOVE, _BELOW = 0.2, 0.68, 0.3
_LABELS, _NUMBERS = 2.95, 2.85
_HEAD, _FOOT = 0.65, 0.75
_RULER = 0.17
_COLUMNS = (("zero", "to zero"), ("subnormal", "subnormal"), ("overflow", "to inf"))
_FAINTEST = 1e-6
_ROOM = 44  # characters of a label
_NEEDS = (
    "A picture",
    "`keras-mp plot` without -o, and `keras-mp report`, need nothing.",
)


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
    mpl, figure_class = figures.load_matplotlib(*_NEEDS)
    colours = DARK if dark else LIGHT
    panels = drawing.by_kind(ranges["rows"])
    rows = sum(len(each) for each in panels.values())
    height = _HEAD + max(rows * _ROW + (_ABOVE + _BELOW) * len(panels), 1.0) + _FOOT
    with mpl.rc_context({"svg.hashsalt": "keras-mp"}):
        dpi = min(figures.DPI, figures.LARGEST / height)
        figure = figure_class((_WIDE, height), dpi=dpi, facecolor=colours.ground)
        title = f"Ranges of {ranges.get('model') or 'the model'}"
        figures.draw_head(figure, title, _ranges_headline(ranges), colours)
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
        figures.save(figure, path)
    return figure


def _ranges_headline(ranges: Mapping[str, Any]) -> str:
    parts = [f"{pluralized(len(ranges['rows']), 'row')}, each of the values of a tensor"]
    if isinstance(steps := ranges.get("steps"), int):
        parts[0] += f" over {pluralized(steps, 'step')}"
    if isinstance(scale := ranges.get("loss_scale"), int | float):
        parts.append(f"gradients are shown unscaled; the loss scale was {number(scale)}")
    return "; ".join(parts)


def _draw_panel(
    axes: Any, ranges: Mapping[str, Any], kind: str, rows: list[Mapping[str, Any]], dark: bool
) -> Any:
    from matplotlib.colors import LogNorm

    colours = DARK if dark else LIGHT
    figures.style(axes, colours)
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
    ticks = integer_ticks(first, last + 1, 13)
    axes.set_xticks(ticks, [power(tick) for tick in ticks])
    axes.set_yticks(
        [i + 0.5 for i in range(len(rows))],
        [shortened(row["path"], _ROOM) for row in rows],
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
                percent(fraction),
                va="center_baseline",
                **{
                    **how,
                    "fontweight": "bold" if (fraction or 0) > drawing.NOTABLE[key] else "normal",
                },
            )
    for i, row in enumerate(rows):
        beside = {**how, "color": colours.inf, "ha": "left"}
        axes.text(
            1 + 0.06 / inches,
            i + 0.5,
            drawing.outside_histogram(row),
            va="center_baseline",
            **beside,
        )


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
