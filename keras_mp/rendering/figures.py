"""Figures of matplotlib, which is imported where one is drawn: no display, no state of pyplot."""

from pathlib import Path
from typing import Any

from keras_mp.files.atomic_writing import replacing
from keras_mp.rendering.markup import Colours

DPI = 130
LARGEST = 30000  # pixels a side; viewers and encoders stop somewhere above


def load_matplotlib(what: str, instead: str) -> tuple[Any, Any]:
    """Returns matplotlib and its class of figures.

    Args:
        what: Is drawn, for the message.
        instead: What needs no matplotlib, likewise.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            f"{what} needs matplotlib: pip install 'keras-mp[plot]'. {instead}"
        ) from error
    return mpl, Figure


def draw_head(figure: Any, title: str, below: str, colours: Colours) -> None:
    """Writes a title, and a line below it, at the top left of a figure."""
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


def style(axes: Any, colours: Colours) -> None:
    """Gives axes the colours, and no frame at the top and the right."""
    axes.set_facecolor(colours.ground)
    for side, spine in axes.spines.items():
        spine.set_color(colours.text)
        spine.set_linewidth(0.7)
        spine.set_visible(side in ("left", "bottom"))
    axes.tick_params(colors=colours.text, labelsize=8.5, width=0.7)
    axes.xaxis.label.set(color=colours.text, fontsize=9)
    axes.yaxis.label.set(color=colours.text, fontsize=9)


def save(figure: Any, path: str | Path | None) -> None:
    """Writes a figure as PNG, SVG or PDF, by the suffix; the same figure gives the same bytes."""
    if path is None:
        return
    kind = Path(path).suffix.removeprefix(".").lower() or "png"
    metadata = {"Date": None} if kind == "svg" else {"CreationDate": None} if kind == "pdf" else {}
    with replacing(path) as beside:
        figure.savefig(
            beside, format=kind, dpi=figure.dpi, metadata=metadata, facecolor=figure.get_facecolor()
        )
