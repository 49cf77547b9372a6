"""Charts drawn by matplotlib, which is imported where one is drawn: no display, no pyplot."""

import contextlib
import hashlib
import io
import itertools
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from keras_mp.files.atomic_writing import replacing
from keras_mp.rendering.html import escaped
from keras_mp.rendering.model import Chart, Events, HeatMap, Reach, Strong
from keras_mp.rendering.style import DARK, LIGHT, Colours
from keras_mp.rendering.text import power, printable, shortened

Shape = Sequence[tuple[float, float]]

DPI = 130
LARGEST = 30000  # pixels a side; viewers and encoders stop somewhere above

# Inches.
_LINE = (9.0, 3.3)
_WIDE = 10.0
_ROW, _ABOVE, _BELOW = 0.2, 0.68, 0.3
_LETTER = 0.062  # of a label
_NOTES, _NUMBER = 0.85, 0.58
_HEAD, _NO_HEAD, _FOOT = 0.65, 0.1, 0.35
_RULER = 0.85  # of a row
_ROOM = 42  # characters of a label
_FEW = 200  # events that are marked on the line, too
_MARKERS = ("X", "D", "o")
_PLACES = 2000  # that events can have, side by side
_LEVELS = 12  # of a heat map
_FULL, _FAINTEST = 0.5, 0.12  # the share that is drawn in full; how a single value is drawn


def draw(chart: Chart, path: str | Path | None = None, *, dark: bool = False) -> Any:
    """Returns a chart as a `matplotlib.figure.Figure`.

    Args:
        chart: The chart.
        path: Where to write it as well: PNG, SVG or PDF by its suffix.
        dark: Whether for a dark ground.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: matplotlib writes no format of this suffix.
        OSError: It could not be written; what was there is as it was.
    """
    with figures(path) as (figure_class, saved):
        figure = _figure(figure_class, chart, DARK if dark else LIGHT, _HEAD)
        saved(figure)
    return figure


@contextlib.contextmanager
def figures(path: str | Path | None = None) -> Iterator[tuple[Any, Any]]:
    """Yields matplotlib's class of figures, and what writes one of them to `path`.

    The same figure gives the same bytes.
    """
    mpl, figure_class = _matplotlib()

    def saved(figure: Any) -> None:
        if path is None:
            return
        form = Path(path).suffix.removeprefix(".").lower() or "png"
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
        with replacing(path) as beside:
            figure.savefig(
                beside,
                format=form,
                dpi=figure.dpi,
                metadata=metadata,
                facecolor=figure.get_facecolor(),
            )

    with mpl.rc_context({"svg.hashsalt": "keras-mp"}):
        yield figure_class, saved


def svg(chart: Chart, width: float | None = None) -> str:
    """Returns a chart as an `<svg>` for a page, which has its colours, and says title and words.

    Args:
        chart: The chart.
        width: In inches, if it is to be narrower than others.

    Raises:
        ImportError: matplotlib is not installed.
    """
    mpl, figure_class = _matplotlib()
    file = io.StringIO()
    how = {"svg.hashsalt": "keras-mp", "svg.fonttype": "none"}
    # The browser has the letters that matplotlib's font lacks.
    with mpl.rc_context(how), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure = _figure(figure_class, chart, LIGHT, _NO_HEAD, width)
        figure.savefig(file, format="svg", facecolor=figure.get_facecolor())
    points = round(72 * figure.get_size_inches()[0])
    return _inlined(file.getvalue(), f"{chart.title}: {chart.words}", points)


def _matplotlib() -> tuple[Any, Any]:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Pictures need matplotlib: pip install 'keras-mp[plot]'.") from error
    return mpl, Figure


def _inlined(drawn: str, words: str, width: int) -> str:
    """Returns an SVG file of matplotlib as an element of a page: no style of its own for others."""
    drawn = drawn[drawn.index("<svg") :].strip()
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r'<g id="[^"]*"', "<g", drawn)
    drawn = re.sub(r'style="[^"]*"', lambda found: _themed(found[0]), drawn)
    mark = hashlib.sha256(drawn.encode()).hexdigest()[:8]
    names = {name: i for i, name in enumerate(dict.fromkeys(re.findall(r' id="([^"]*)"', drawn)))}
    for name, i in names.items():
        drawn = re.sub(rf'(["#]){re.escape(name)}(?=[")])', rf"\1km{mark}-{i}", drawn)
    box = re.search(r'viewBox="([^"]*)"', drawn)
    begin = (
        f'<svg class="chart" viewBox="{box[1] if box else ""}" role="img" '
        f'aria-label="{escaped(words)}" style="width: 100%; min-width: {width}px; '
        f'max-width: {1.45 * width:.0f}px; stroke-linejoin: round; stroke-linecap: butt" '
        'xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return begin + drawn[drawn.index(">") + 1 :]


def _themed(declarations: str) -> str:
    for name, value in asdict(LIGHT).items():
        declarations = declarations.replace(value, f"var(--{name})")
    # The family is that of the page.
    return re.sub(
        r"font: (?:(\w+) )?([\d.]+px)[^;\"]*",
        lambda found: f"font-size: {found[2]}" + (f"; font-weight: {found[1]}" if found[1] else ""),
        declarations,
    )


def _figure(
    figure_class: Any, chart: Chart, colours: Colours, head: float, width: float | None = None
) -> Any:
    wide, height = _LINE
    if not chart.has_line:
        rows = sum(len(each.rows) for each in chart.heat_maps)
        panels = rows * _ROW + (_ABOVE + _BELOW) * len(chart.heat_maps)
        wide, height = _WIDE, max(panels, 0.4) + _FOOT
    height += head
    width = width or wide
    dpi = min(DPI, LARGEST / height)
    figure = figure_class((width, height), dpi=dpi, facecolor=colours.ground)
    if head == _HEAD:
        _draw_head(figure, chart.title, chart.words, colours)
    if chart.has_line:
        _draw_line_and_events(figure, chart, colours, height - head)
    else:
        _draw_heat_maps(figure, chart, colours, height - head)
    return figure


def _draw_head(figure: Any, title: str, below: str, colours: Colours) -> None:
    """Writes a title, and a line below it, at the top left of a figure."""
    width, height = figure.get_size_inches()
    for text, inches, size, weight in ((title, 0.28, 12, "bold"), (below, 0.53, 9, "normal")):
        room = int((width - 0.5) * (9.5 if size == 12 else 14))
        figure.text(
            0.25 / width,
            1 - inches / height,
            printable(text if len(text) <= room else f"{text[: room - 1]}…"),
            fontsize=size,
            fontweight=weight,
            color=colours.text,
            parse_math=False,
        )


def styled(axes: Any, colours: Colours) -> Any:
    """Returns axes in these colours, without a frame at the top and the right."""
    axes.set_facecolor(colours.ground)
    for side, spine in axes.spines.items():
        spine.set(color=colours.text, linewidth=0.7, visible=side in ("left", "bottom"))
    axes.tick_params(colors=colours.text, labelsize=8.5, width=0.7)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set(color=colours.text, fontsize=9)
    return axes


def _ticks(axis: Any, most: int, label: Any) -> None:
    """Marks whole numbers, at most `most`."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(most, integer=True, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: label(round(value))))


def _draw_line_and_events(figure: Any, chart: Chart, colours: Colours, top: float) -> None:
    width, height = figure.get_size_inches()
    count = 1 + bool(chart.events)
    grid = figure.add_gridspec(
        count,
        1,
        height_ratios=(6, 1)[:count],
        hspace=0.08,
        left=0.75 / width,
        right=1 - 0.3 / width,
        top=(top - 0.18) / height,
        bottom=0.5 / height,
    )
    axes = last = styled(figure.add_subplot(grid[0]), colours)
    axes.plot(
        chart.x,
        chart.y,
        color=colours.line,
        linewidth=1.6,
        drawstyle="steps-post",
        zorder=3,
        gid="line",
    )
    low, high = _bounds(chart.y)
    axes.set_ylim(low, high)
    if len(chart.x):
        room = max(0.01 * (chart.x[-1] - chart.x[0]), 0.2)
        axes.set_xlim(chart.x[0] - room, chart.x[-1] + room)
    _ticks(axes.yaxis, 8, power)
    axes.set_ylabel(chart.y_label)
    axes.grid(True, axis="y", color=colours.faint, linewidth=0.6)
    for x, label in chart.sections:
        axes.axvline(x, color=colours.faint, linewidth=0.8, zorder=1)
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        axes.annotate(
            label, (x, 1), xytext=(0, 3), fontsize=7, color=colours.text, ha="center", **place
        )
    if sum(len(each.x) for each in chart.events) <= _FEW:
        for each, marker in zip(chart.events, _MARKERS, strict=False):
            axes.plot(
                each.x,
                each.y,
                marker,
                color=getattr(colours, each.name),
                markersize=5.5,
                markeredgecolor=colours.ground,
                markeredgewidth=0.7,
                zorder=4,
                gid=each.name,
            )
    if chart.events:
        last = styled(figure.add_subplot(grid[1], sharex=axes), colours)
        axes.tick_params(labelbottom=False)
        _draw_events(last, chart.events, axes.get_xlim(), colours)
    _ticks(last.xaxis, round(width), lambda value: f"{value:,}")
    last.set_xlabel(chart.x_label)


def _bounds(heights: Sequence[float]) -> tuple[float, float]:
    """Returns where an axis begins and ends; one value gets room around it."""
    seen = np.asarray(heights, float)
    seen = seen[np.isfinite(seen)]
    if not len(seen):
        return 0.0, 1.0
    low, high = float(seen.min()), float(seen.max())
    room = max(0.06 * (high - low), 0.5 if high > low else 1.0)
    return low - room, high + room


def _draw_events(
    axes: Any, events: Sequence[Events], ends: tuple[float, float], colours: Colours
) -> None:
    step = (ends[1] - ends[0]) / _PLACES
    for row, each in enumerate(events):
        # One for all that fall on the same place.
        places = np.unique(np.round((np.asarray(each.x) - ends[0]) / step)) * step + ends[0]
        lines = (((x, row + 0.12), (x, row + 0.88)) for x in places.tolist())
        color = getattr(colours, each.name)
        _add_shapes(axes, lines, gid=f"{each.name} events", edgecolor=color, linewidth=1.6)
    axes.set_ylim(len(events), 0)
    axes.set_yticks([i + 0.5 for i in range(len(events))], [each.name for each in events])
    axes.tick_params(axis="y", length=0)


def _add_shapes(axes: Any, shapes: Iterable[Shape], **how: Any) -> None:
    """Adds lines, or polygons, as one element: a thousand of them take a thousand times less."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    points: list[tuple[float, float]] = []
    codes: list[int] = []
    for shape in shapes:
        points += shape
        codes += [int(Outline.MOVETO)] + [int(Outline.LINETO)] * (len(shape) - 1)
    if points:
        axes.add_patch(PathPatch(Outline(points, codes), fill="facecolor" in how, **how))


def _box(left: float, right: float, low: float, high: float) -> Shape:
    return (left, low), (right, low), (right, high), (left, high), (left, low)


def _draw_heat_maps(figure: Any, chart: Chart, colours: Colours, top: float) -> None:
    width, height = figure.get_size_inches()
    paths = [row for each in chart.heat_maps for row in each.rows]
    left = 0.3 + _LETTER * min(_ROOM, max(map(len, paths), default=0))
    columns = max((len(each.numbers or ()) for each in chart.heat_maps), default=0)
    for each in chart.heat_maps:
        tall = _ROW * len(each.rows)
        bottom = top - _ABOVE - tall
        box = (left, bottom, width - left - _NOTES - _NUMBER * columns, tall)
        sides = (width, height, width, height)
        axes = figure.add_axes([a / b for a, b in zip(box, sides, strict=True)])
        _draw_heat_map(styled(axes, colours), each, colours)
        top = bottom - _BELOW
    if not chart.heat_maps:
        figure.text(0.25 / width, 0.4, "nothing was recorded", color=colours.text)
    figure.text(0.25 / width, 0.1 / height, chart.note, fontsize=7.5, color=colours.text)


def _draw_heat_map(axes: Any, of: HeatMap, colours: Colours) -> None:
    rows = len(of.rows)
    levels: dict[int, list[Shape]] = {}
    for row, shares in enumerate(of.shares):
        start = of.first
        for level, run in itertools.groupby(map(_level, shares)):
            end = start + len(list(run))
            if level:
                levels.setdefault(level, []).append(_box(start, end, row + 0.06, row + 0.94))
            start = end
    for level, shapes in levels.items():
        opacity = _FAINTEST + (1 - _FAINTEST) * (level - 1) / (_LEVELS - 1)
        _add_shapes(
            axes,
            shapes,
            facecolor=colours.heat,
            edgecolor="none",
            alpha=round(opacity, 2),
            zorder=2,
        )
    axes.set_xlim(of.first, of.first + max(map(len, of.shares), default=1))
    _ticks(axes.xaxis, round(2 * _inches(axes)), power)
    axes.set_yticks(
        [i + 0.5 for i in range(rows)],
        [printable(shortened(row, _ROOM)) for row in of.rows],
        parse_math=False,
    )
    axes.tick_params(labelsize=7.5, axis="both", length=2)
    _draw_reaches(axes, of.reaches, rows, colours)
    how = {"fontsize": 9.5, "fontweight": "bold", "color": colours.text, "va": "bottom"}
    axes.text(of.first, -2.45 * _RULER, of.title, **how)
    axes.set_ylim(rows, 0)
    _draw_numbers(axes, of, colours)


def _inches(axes: Any) -> float:
    return float(axes.get_position().width * axes.figure.get_size_inches()[0])


def _level(share: float) -> int:
    if not share > 0:
        return 0
    height = min(1.0, max(0.0, 1 + math.log10(share / _FULL) / 5))
    return 1 + round(float(height**1.5) * (_LEVELS - 1))


def _draw_reaches(axes: Any, reaches: Sequence[Reach], rows: int, colours: Colours) -> None:
    """Draws, above the rows, how far the dtypes reach; their limits go on as lines."""
    from matplotlib.patheffects import withStroke

    outline = withStroke(linewidth=2.6, foreground=colours.ground)
    left, right = axes.get_xlim()
    inches = _inches(axes)
    for row, reach in enumerate(reaches):
        color = getattr(colours, reach.name)
        top = -_RULER * (2.15 - row)
        for begin, stop, opacity, label in (
            (*reach.ends[:2], 0.35, "subnormal"),
            (*reach.ends[1:], 1.0, reach.label),
        ):
            start, end = max(begin, left), min(stop, right)
            if end <= start:
                continue
            box = _box(start, end, top + 0.08 * _RULER, top + 0.92 * _RULER)
            how = {"edgecolor": "none", "alpha": opacity, "clip_on": False}
            _add_shapes(axes, [box], facecolor=color, **how)
            if (end - start) / (right - left) * inches > 0.055 * len(label):
                axes.text(
                    (start + end) / 2,
                    top + _RULER / 2,
                    label,
                    fontsize=6.5,
                    ha="center",
                    va="center_baseline",
                    color=colours.ground if opacity == 1.0 else colours.text,
                )
        for at, line in zip(reach.ends, (":", "--", "-"), strict=True):
            if left < at < right:
                (drawn,) = axes.plot([at, at], [0, rows], line, color=color, linewidth=1.4)
                drawn.set(zorder=3, path_effects=[outline])


def _draw_numbers(axes: Any, of: HeatMap, colours: Colours) -> None:
    """Writes what is said beside each row."""
    inches = _inches(axes)
    how = {"transform": axes.get_yaxis_transform(), "va": "center_baseline", "fontsize": 7}
    for i, (head, cells) in enumerate((of.numbers or {}).items()):
        at = 1 + (_NOTES + _NUMBER * (i + 0.75)) / inches
        axes.text(at, -0.65 * _RULER, head, ha="right", color=colours.text, **how)
        for row, cell in enumerate(cells):
            weight = "bold" if isinstance(cell, Strong) else "normal"
            axes.text(at, row + 0.5, cell, ha="right", color=colours.text, fontweight=weight, **how)
    for row, note in enumerate(of.notes):
        if note:
            axes.text(1 + 0.06 / inches, row + 0.5, note, color=colours.inf, **how)
