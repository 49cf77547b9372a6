"""The painted graph as a picture, by matplotlib: no display, no state of pyplot."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from keras_mp.graph_rewrite import drawing
from keras_mp.graph_rewrite.painted_graph import PaintedGraph, Row
from keras_mp.rendering import figures

# Inches.
_WIDTH, _HEIGHT, _PITCH = 1.75, 0.36, 0.66
_MARGIN, _HEAD = 0.3, 0.9
_NARROWEST = 7.0
_DPI = 120
_NEEDS = ("A picture of the graph", "Report.to_dot() needs nothing.")


def plot(graph: PaintedGraph, path: str | Path | None = None) -> Any:
    """Returns a `matplotlib.figure.Figure` of a report; see `Report.plot`."""
    mpl, figure_class = figures.load_matplotlib(*_NEEDS)
    layout = drawing.layout(graph)
    across = [x for x, _ in layout.places.values()]
    left, right = min(across, default=0.0), max(across, default=0.0)
    ranks = 1 + max((rank for _, rank in layout.places.values()), default=0)
    needed = (right - left + 1) * _WIDTH + 2 * _MARGIN
    width, height = max(needed, _NARROWEST), ranks * _PITCH + _HEAD + 2 * _MARGIN
    start = (width - needed) / 2 + _MARGIN + _WIDTH / 2
    places = {
        node: (
            start + (x - left) * _WIDTH,
            height - _MARGIN - _HEAD - _PITCH * (rank + 0.5),
        )
        for node, (x, rank) in layout.places.items()
    }
    with mpl.rc_context({"svg.hashsalt": "keras-mp"}):
        figure = figure_class(
            (width, height), dpi=min(_DPI, figures.LARGEST / max(width, height)), facecolor="white"
        )
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, width), ylim=(0, height))
        axes.axis("off")
        _draw_edges(axes, graph, layout, places)
        _draw_nodes(axes, graph, places)
        _draw_head(axes, graph, width, height)
        figures.save(figure, path)
    return figure


def _draw_nodes(axes: Any, graph: PaintedGraph, places: Any) -> None:
    for row in graph.rows:
        x, y = places["op", row.index]
        _box(axes, x, y, _WIDTH, _HEIGHT, *drawing.colours(row, graph.dtype), _style(row))
        _text(axes, x, y + 0.08, row.op, 7.5, weight="bold", room=30)
        _text(axes, x, y - 0.08, _below(row), 6.5)
    for node, edge in drawing.edges_of_nodes(graph).items():
        x, y = places[node]
        if node[0] == "unseen":
            axes.plot([x], [y], "o", markersize=3, color=drawing.LINE)
        elif node[0] != "op":
            _text(axes, x, y + 0.08, node[0], 7.5, style="italic")
            _text(axes, x, y - 0.08, f"{edge.dtype} {drawing.shape_text(edge.shape)}", 6.5)


def _below(row: Row) -> str:
    words = drawing.words(row)
    return f"{_fitted(row.layer, 36 - len(words))} · {words}" if row.layer else words


def _fitted(text: str, room: int) -> str:
    return text if len(text) <= room else "…" + text[1 - room :]


def _style(row: Row) -> str:
    return "deny" if row.colour == "deny" else "plain"


def _box(
    axes: Any, x: float, y: float, width: float, height: float, fill: str, border: str, style: str
) -> None:
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=fill,
            edgecolor=border,
            linewidth=2.0 if style == "deny" else 0.9,
            zorder=3,
        )
    )


def _text(axes: Any, x: float, y: float, text: str, size: float, **how: Any) -> None:
    room = how.pop("room", None)
    how = {"ha": "center", "va": "center", "color": drawing.TEXT, "zorder": 4, **how}
    shown = text if room is None else _fitted(text, room)
    axes.text(x, y, shown, fontsize=size, parse_math=False, **how)


def _draw_edges(axes: Any, graph: PaintedGraph, layout: drawing.Layout, places: Any) -> None:
    drawn: set[Any] = set()
    for edge, way in zip(graph.edges, layout.ways, strict=True):
        points = []
        for i, node in enumerate(way):
            x, y = places[node]
            # A bend passes its rank straight, beside the boxes.
            if i > 0:
                points.append((x, y + _HEIGHT / 2 + 0.01))
            if i < len(way) - 1:
                points.append((x, y if node[0] == "unseen" else y - _HEIGHT / 2))
        color = drawing.LINE
        if len(way) > 2:
            shared = tuple(way[:-1])
            if shared not in drawn:
                _curve(axes, points[:-1], color, "-")
                drawn.add(shared)
        cast = edge.cast is not None
        _curve(
            axes, points[-2:], drawing.CAST if cast else color, "--" if cast else "-", arrow=True
        )
        if edge.cast is not None:
            x, y = points[-1]
            (x0, _) = points[-2]
            # Beside the arrow: casts that come in from two sides do not hide each other.
            at = x if abs(x0 - x) < 0.05 else x + (0.24 if x0 > x else -0.24)
            axes.text(
                at,
                y + 0.11,
                edge.cast,
                fontsize=5.5,
                color=drawing.CAST,
                ha="center",
                va="center",
                zorder=5,
                bbox={"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none"},
            )


def _curve(
    axes: Any, points: Sequence[tuple[float, float]], color: str, line: str, arrow: bool = False
) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path as Curve

    vertices, codes = [points[0]], [Curve.MOVETO]
    for (x0, y0), (x1, y1) in pairwise(points):
        bend = (y0 - y1) / 2
        vertices += [(x0, y0 - bend), (x1, y1 + bend), (x1, y1)]
        codes += [Curve.CURVE4] * 3
    axes.add_patch(
        FancyArrowPatch(
            path=Curve(vertices, codes),
            arrowstyle="-|>,head_length=3,head_width=1.6" if arrow else "-",
            linestyle=line,
            linewidth=1.0,
            color=color,
            shrinkA=0,
            shrinkB=0,
            zorder=2,
        )
    )


def _draw_head(axes: Any, graph: PaintedGraph, width: float, height: float) -> None:
    top = height - _MARGIN
    phase = "training" if graph.training else "inference"
    title = f"{graph.model}: {phase}, {graph.lists} lists"
    _text(axes, _MARGIN, top, title, 10, weight="bold", ha="left", va="top")
    _text(axes, _MARGIN, top - 0.25, graph.summary, 8, ha="left", va="top")
    at, y = _MARGIN, top - 0.68
    for name, (fill, border), style in (
        (graph.dtype, drawing.LOW, "plain"),
        ("float32, deny", drawing.DENY, "deny"),
        ("float32", drawing.FLOAT32, "plain"),
        ("other dtype", drawing.OTHER, "plain"),
    ):
        _box(axes, at + 0.14, y, 0.28, 0.17, fill, border, style)
        _text(axes, at + 0.36, y, name, 7.5, ha="left")
        at += 0.62 + 0.075 * len(name)
    axes.plot([at, at + 0.35], [y, y], "--", color=drawing.CAST, linewidth=1.0)
    _text(axes, at + 0.43, y, "cast to", 7.5, ha="left")
    at += 1.05
    axes.plot([at], [y], "o", markersize=3, color=drawing.LINE)
    _text(axes, at + 0.1, y, "not made by a keras op", 7.5, ha="left")
