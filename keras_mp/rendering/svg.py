"""Elements of SVG. Every text that comes from a run goes through `escaped`."""

from typing import Any

from keras_mp.rendering.markup import escaped


def rounded(value: Any) -> float:
    """Returns a coordinate with one digit after the point, if it needs one.

    >>> rounded(2.0), rounded(2.26)
    (2, 2.3)
    """
    number = round(float(value), 1)
    return int(number) if number == int(number) else number


def text(x: float, y: float, words: str, anchor: str, style: str = "") -> str:
    """Returns a `<text>`.

    Args:
        x, y: Of its anchor.
        words: Not escaped.
        anchor: "start", "middle" or "end".
        style: Its class, if it has one.
    """
    kind = f' class="{style}"' if style else ""
    at = f'x="{rounded(x)}" y="{rounded(y)}"'
    return f'<text{kind} {at} text-anchor="{anchor}">{escaped(words)}</text>'
