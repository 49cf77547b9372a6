"""The layers of a painted graph as a picture, by matplotlib: no display, no state of pyplot.

Boxes stand in the order of the call, in columns from the left to the right, as lines of a text do:
a model is a long chain with few branches, and needs no other layout.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_mp.graph_rewrite import drawing, folding, report_text
from keras_mp.graph_rewrite.painted_graph import Edge, PaintedGraph
from keras_mp.rendering import pictures
from keras_mp.rendering.text import percent, shortened

# Inches.
_WIDTH, _HEIGHT, _PITCH, _COLUMN = 2.3, 0.44, 0.74, 3.1
_WORDS = 1.5  # the width of an input or an output
_MARGIN, _HEAD, _KEY = 0.3, 0.7, 0.2
_NARROWEST = 5.0
_ASPECT = 1.5
DPI = 110
_LETTERS = 32  # of a name in a box
Point = tuple[float, float]


@dataclass
class _Arrow:
    """What goes from one node to another: the number of tensors, and of casts by dtype."""

    tensors: set[int]
    casts: dict[tuple[int, str], None]

    def words(self) -> str:
        """Returns the dtypes that are cast to: "float16, 2 float32"."""
        counts = Counter(dtype for _, dtype in self.casts)
        return ", ".join(f"{n} {name}" if n > 1 else name for name, n in sorted(counts.items()))


def plot(graph: PaintedGraph, folds: Sequence[folding.Fold], path: str | Path | None = None) -> Any:
    """Returns a `matplotlib.figure.Figure` of folds; see `Report.plot`."""
    nodes, arrows, unseen = _graph(graph, folds)
    tall = max(1, math.ceil(math.sqrt(len(nodes) * _COLUMN / _PITCH / _ASPECT)))
    tall = min(len(nodes), max(tall, 8)) or 1
    columns = max(1, math.ceil(len(nodes) / tall))
    tall = math.ceil(len(nodes) / columns) or 1
    needed = columns * _COLUMN + 2 * _MARGIN
    width = max(needed, _NARROWEST)
    keys = 2 if width < 8 else 3 if width < 10 else 6  # side by side
    head = _HEAD + _KEY * 6 / keys
    height = tall * _PITCH + head + 2 * _MARGIN
    places = {
        node: (
            _MARGIN + _COLUMN * (at // tall + 0.5),
            height - _MARGIN - head - _PITCH * (at % tall + 0.5),
        )
        for at, node in enumerate(nodes)
    }
    with pictures.figures(path) as (figure_class, saved):
        dpi = min(DPI, pictures.LARGEST / max(width, height))
        figure = figure_class((width, height), dpi=dpi, facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, width), ylim=(0, height))
        axes.axis("off")
        for (source, target), arrow in arrows.items():
            sides = [_WIDTH / 2 if nodes[node] is None else _WORDS / 2 for node in (source, target)]
            _draw_arrow(axes, places[source], places[target], sides, arrow)
        total = sum(row.flops for row in graph.rows)
        for place, fold in enumerate(folds):
            x, y = places["fold", place]
            _draw_fold(axes, x, y, fold, graph.dtype, total)
            if place in unseen:
                at = x - _WIDTH / 2 - 0.09
                axes.plot([at], [y], "o", markersize=4, color=drawing.LINE, zorder=4)
        for node, edge in nodes.items():
            if edge is not None:
                x, y = places[node]
                _text(axes, x, y + 0.08, node[0], 8, style="italic")
                _text(axes, x, y - 0.09, f"{edge.dtype} {drawing.shape_text(edge.shape)}", 7)
        _draw_head(axes, graph, keys, width, height)
        saved(figure)
    return figure


def _graph(
    graph: PaintedGraph, folds: Sequence[folding.Fold]
) -> tuple[
    Mapping[drawing.Node, Edge | None], Mapping[tuple[drawing.Node, drawing.Node], _Arrow], set[int]
]:
    """Returns the nodes in their order, the arrows, and which folds take what no keras op made."""
    owner = folding.owners(folds)
    inputs: dict[drawing.Node, Edge] = {}
    outputs: dict[drawing.Node, Edge] = {}
    arrows: dict[tuple[drawing.Node, drawing.Node], _Arrow] = {}
    unseen: set[int] = set()
    for edge in graph.edges:
        if edge.unseen:
            unseen.update(owner[end] for end in (edge.target,) if end is not None)
            continue
        source, target = (
            ("fold", owner[index]) if kind == "op" else (kind, index)
            for kind, index in drawing.ends(edge)
        )
        if source == target:
            continue
        if edge.source is None:
            inputs.setdefault(source, edge)
        if edge.target is None:
            outputs.setdefault(target, edge)
        arrow = arrows.setdefault((source, target), _Arrow(set(), {}))
        arrow.tensors.add(edge.tensor)
        if edge.cast is not None:
            arrow.casts[edge.tensor, edge.cast] = None
    nodes: dict[drawing.Node, Edge | None] = {**inputs}
    nodes.update({("fold", place): None for place in range(len(folds))})
    return {**nodes, **outputs}, arrows, unseen


def _draw_fold(axes: Any, x: float, y: float, fold: folding.Fold, low: str, total: int) -> None:
    dtype = fold.dtype()
    flops = sum(row.flops for row in fold.rows)
    share = sum(row.flops for row in fold.rows if row.dtype == low) / flops if flops else 0.0
    if dtype == low:
        fill, border, share = *drawing.LOW, 0.0
    elif dtype in ("float32", folding.MIXED):
        fill, border = drawing.DENY
    else:
        fill, border = drawing.OTHER
    _box(axes, x, y, _WIDTH, _HEIGHT, fill, border, share, 0.9 if dtype == low else 1.8)
    _text(axes, x, y + 0.09, shortened(report_text.counted(fold), _LETTERS), 8, weight="bold")
    words = f"{dtype}: {percent(share)} {low}" if dtype == folding.MIXED else dtype
    of_all = f" · {percent(flops / total if total else 0.0)} of flops"
    _text(axes, x, y - 0.1, words + of_all, 7)


def _box(
    axes: Any,
    x: float,
    y: float,
    width: float,
    height: float,
    fill: str,
    border: str,
    share: float,
    line: float,
) -> None:
    """Draws a box whose left part, a share of its width, has the colour of 16 bits."""
    from matplotlib.patches import FancyBboxPatch, Rectangle

    def box(**how: Any) -> Any:
        return FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.06",
            **how,
        )

    ground = box(facecolor=fill, edgecolor="none", zorder=3)
    axes.add_patch(ground)
    if share:
        corner = (x - width / 2, y - height / 2)
        part = Rectangle(corner, width * share, height, facecolor=drawing.LOW[0], zorder=3.1)
        axes.add_patch(part)
        part.set_clip_path(ground)
    axes.add_patch(box(facecolor="none", edgecolor=border, linewidth=line, zorder=3.2))


def _draw_arrow(axes: Any, start: Point, end: Point, sides: Sequence[float], arrow: _Arrow) -> None:
    (x0, y0), (x1, y1) = start, end
    half = _HEIGHT / 2
    words = arrow.words()
    rows = (y0 - y1) / _PITCH
    side, other = sides
    if abs(x0 - x1) < 0.01 and 0.5 < rows < 1.5:
        points, codes = [(x0, y0 - half), (x1, y1 + half)], "ML"
        label = (x1, (y0 + y1) / 2)
    elif abs(x0 - x1) < 0.01:
        # Past what is between them, at the right; the longer, the wider.
        far = x0 + _WIDTH / 2 + min(0.4, 0.12 + 0.04 * abs(rows)) * 4 / 3
        points, codes = [(x0 + side, y0), (far, y0), (far, y1), (x1 + other, y1)], "MCCC"
        label = (x1 + other + 0.3, y1 + 0.1)
    else:
        sign = 1 if x1 > x0 else -1
        left, right = x0 + sign * side, x1 - sign * other
        bend = sign * max(0.35, abs(right - left) / 2)
        points = [(left, y0), (left + bend, y0), (right - bend, y1), (right, y1)]
        codes = "MCCC"
        label = (right - sign * 0.32, y1 + 0.11)
    _curve(axes, points, codes, drawing.CAST if words else drawing.LINE, "--" if words else "-")
    if words:
        axes.text(
            *label,
            words,
            fontsize=7,
            color=drawing.CAST,
            ha="center",
            va="center",
            zorder=5,
            bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"},
        )


def _curve(axes: Any, points: Sequence[Point], codes: str, color: str, line: str) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path as Curve

    known = {"M": Curve.MOVETO, "L": Curve.LINETO, "C": Curve.CURVE4}
    axes.add_patch(
        FancyArrowPatch(
            path=Curve(points, [known[code] for code in codes]),
            arrowstyle="-|>,head_length=4,head_width=2",
            linestyle=line,
            linewidth=1.1,
            color=color,
            shrinkA=0,
            shrinkB=0,
            zorder=2,
        )
    )


def _text(axes: Any, x: float, y: float, text: str, size: float, **how: Any) -> None:
    how = {"ha": "center", "va": "center", "color": drawing.TEXT, "zorder": 4, **how}
    axes.text(x, y, text, fontsize=size, parse_math=False, **how)


def _draw_head(axes: Any, graph: PaintedGraph, columns: int, width: float, height: float) -> None:
    """Writes the title, the summary, and what the signs mean."""
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    top = height - _MARGIN
    title = shortened(graph.title, int((width - 2 * _MARGIN) * 11))
    _text(axes, _MARGIN, top, title, 10, weight="bold", ha="left", va="top")
    _text(axes, _MARGIN, top - 0.25, graph.summary, 8, ha="left", va="top")
    low, deny, other = (
        Patch(facecolor=fill, edgecolor=border)
        for fill, border in (drawing.LOW, drawing.DENY, drawing.OTHER)
    )
    cast = Line2D([], [], linestyle="--", color=drawing.CAST, linewidth=1.1)
    unseen = Line2D([], [], linestyle="none", marker="o", markersize=4, color=drawing.LINE)
    signs = {
        graph.dtype: low,
        "float32": deny,
        f"mixed: share in {graph.dtype}": (low, deny),
        "other dtype": other,
        "cast to": cast,
        "takes what no keras op made": unseen,
    }
    axes.legend(
        list(signs.values()),
        list(signs),
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0.0)},
        loc="upper left",
        bbox_to_anchor=(_MARGIN / width, (top - 0.5) / height),
        borderaxespad=0,
        borderpad=0,
        ncols=columns,
        fontsize=7.5,
        labelcolor=drawing.TEXT,
        frameon=False,
    )
