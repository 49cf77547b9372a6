"""Parts of a report as text of a given width."""

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from keras_mp.rendering.model import Cells, Chart, Column, Fold, Part, Table, Text
from keras_mp.rendering.text import printable, shortened

BARS = "▁▂▃▄▅▆▇█"
_GAP = 2
_NARROWEST = {"path": 16, "sentence": 24}  # that a column becomes


def to_text(parts: Iterable[Part], width: int = 100, bars: int = 60) -> str:
    """Returns parts as text.

    Args:
        parts: Of a report.
        width: Most characters of a line, where words allow it.
        bars: Most characters of a sparkline.

    >>> parts = Text("net: 2 layers", "title"), Table([Column("layer"), Column("MB", "number")],
    ...     [("dense", "1.5"), ("out", "12")])
    >>> print(to_text(parts))
    net: 2 layers
    <BLANKLINE>
    layer   MB
    dense  1.5
    out     12
    """
    lines: list[str] = []
    before: Part | None = None
    for part in parts:
        found = list(_lines(part, width, bars))
        if found and before is not None and not _belong_together(before, part):
            lines.append("")
        lines += found
        before = part if found else before
    return "\n".join(line.rstrip() for line in lines)


def _belong_together(before: Part, after: Part) -> bool:
    """Returns whether no empty line parts them."""
    if isinstance(before, Chart):
        return True
    if not (isinstance(before, Text) and isinstance(after, Text)):
        return False
    if before.style == "heading":
        return True
    return "code" not in (before.style, after.style) and after.style != "heading"


def _lines(part: Part, width: int, bars: int) -> Iterator[str]:
    match part:
        case Text():
            yield from _text(part, width)
        case Table(form="records"):
            yield from _records(part, width)
        case Table():
            yield from _table(part, width)
        case Chart():
            heights = _heights(part, bars)
            if heights:
                yield _sparkline(heights)
        case Fold(hint=hint) if hint:
            yield hint


def _text(part: Text, width: int) -> Iterator[str]:
    lines = [printable(line) for line in part.words.splitlines()]
    if part.style == "code":
        yield from lines
        return
    first, others = ("  ", "    ") if part.style == "item" else ("", "  ")
    if part.style in ("title", "alarm"):
        others = "  "
    for line in lines:
        yield from textwrap.wrap(
            line, width, initial_indent=first, subsequent_indent=others, break_on_hyphens=False
        )


def _records(table: Table, width: int) -> Iterator[str]:
    longest = max(len(column.head) for column in table.columns[2:])
    for i, row in enumerate(table.shown):
        if i:
            yield ""
        label, first, *others = map(printable, row)
        yield from textwrap.wrap(f"{label}: {first}", width, subsequent_indent="  ")
        for column, cell in zip(table.columns[2:], others, strict=True):
            head = f"  {column.head}:".ljust(longest + 4)
            yield from textwrap.wrap(head + cell, width, subsequent_indent=" " * len(head))
    if table.left_out:
        yield table.left_out


def _table(table: Table, width: int) -> Iterator[str]:
    if table.title:
        yield table.title
    kept = [i for i, column in enumerate(table.columns) if not column.is_extra]
    columns = [table.columns[i] for i in kept]
    rows = [tuple(printable(row[i]) for i in kept) for row in table.shown]
    heads = tuple(column.head for column in columns)
    cells = [heads, *rows] if any(heads) else rows
    indent = "  " if table.sections else ""
    widths = fitting([max(map(len, column)) for column in zip(*cells, strict=True)], columns,
                     width - len(indent))  # fmt: skip
    for i, row in enumerate(cells, start=len(rows) - len(cells)):
        if table.sections and i in table.sections:
            yield shortened(printable(table.sections[i]), width)
        yield from (indent + line for line in _row(row, columns, widths))
    if table.left_out:
        yield table.left_out


def fitting(widths: list[int], columns: Sequence[Column], width: int) -> list[int]:
    """Returns the widths of columns: those of sentences, then of paths, give way to `width`."""
    over = sum(widths) + _GAP * (len(widths) - 1) - width
    for style in ("sentence", "path"):
        for i in sorted(range(len(widths)), key=lambda i: -widths[i]):
            if columns[i].style == style and over > 0:
                less = min(over, max(0, widths[i] - _NARROWEST[style]))
                widths[i] -= less
                over -= less
    return widths


def _row(row: Cells, columns: Sequence[Column], widths: Sequence[int]) -> Iterator[str]:
    broken = [
        textwrap.wrap(cell, width) or [""]
        if column.style == "sentence"
        else [shortened(cell, width) if column.style == "path" else cell]
        for cell, column, width in zip(row, columns, widths, strict=True)
    ]
    for line in range(max(map(len, broken), default=0)):
        texts = [each[line] if line < len(each) else "" for each in broken]
        yield (
            (" " * _GAP)
            .join(
                text.rjust(width) if column.style == "number" else text.ljust(width)
                for text, column, width in zip(texts, columns, widths, strict=True)
            )
            .rstrip()
        )


def _heights(chart: Chart, most: int) -> list[float]:
    """Returns how high the line of a chart is at most, in up to `most` parts of its axis."""
    levels = zip(chart.x, chart.x[1:], chart.y, strict=False)
    if len(chart.x) < 2:
        return []
    start, length = chart.x[0], chart.x[-1] - chart.x[0]
    count = max(1, min(most, round(length)))
    tops = [-math.inf] * count
    for left, right, height in levels:
        if math.isfinite(height):
            first, last = ((x - start) / length * count for x in (left, right))
            for i in range(int(first), min(max(math.ceil(last), int(first) + 1), count)):
                tops[i] = max(tops[i], height)
    return [top for top in tops if math.isfinite(top)]


def _sparkline(heights: Sequence[float]) -> str:
    """Returns a bar for each height.

    >>> _sparkline([0, 1, 2, 3, 2, 7])
    '▁▂▃▄▃█'
    """
    low = min(heights)
    span = (max(heights) - low) or 1.0
    return "".join(BARS[round((each - low) / span * (len(BARS) - 1))] for each in heights)
