"""Ranges as HTML: heat maps with their numbers, a table for each kind of values."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from keras_mp.diagnosis.ranges import drawing, svg
from keras_mp.rendering import markup
from keras_mp.rendering.html import data_attributes
from keras_mp.rendering.markup import escaped, path
from keras_mp.rendering.style import NOTEBOOK
from keras_mp.rendering.text import number, percent, pluralized

_COLUMNS = (
    ("layer or variable", ""),
    ("dtype", ""),
    ("log₂ of magnitudes", ""),
    ("inf, nan", "besides"),
    ("largest", "number"),
    ("to zero", "number"),
    ("sub-normal", "number"),
    ("to inf", "number"),
    ("bfloat16: to zero", "number"),
    ("bfloat16: to inf", "number"),
)
_FRACTIONS = (
    ("float16", "zero"),
    ("float16", "subnormal"),
    ("float16", "overflow"),
    ("bfloat16", "zero"),
    ("bfloat16", "overflow"),
)
_MOST = 60  # rows in a notebook


def tables(ranges: Mapping[str, Any]) -> Iterator[str]:
    """Yields the heat maps of `ranges.json` with their numbers, a table for each kind of values."""
    scale = ranges.get("loss_scale")
    at = f" (here {number(scale)})" if isinstance(scale, int | float) else ""
    yield (
        '<p class="note">The darker (in dark mode: the lighter), the more of the values have that '
        "magnitude. Lines: the smallest subnormal number (dotted), the smallest normal one "
        "(dashed) and the largest (solid). Gradients are shown unscaled; the limits of float16 "
        f"are moved by the loss scale{at} instead, those of bfloat16 are not. The fractions are "
        "what a cast to the dtype makes of the values, of gradients times the loss scale.</p>"
    )
    shown = drawing.shown_exponents(ranges)
    for kind, rows in drawing.by_kind(ranges["rows"]).items():
        yield from _table(ranges, kind, rows, shown)


def _table(
    ranges: Mapping[str, Any], kind: str, rows: Sequence[Mapping[str, Any]], shown: tuple[int, int]
) -> Iterator[str]:
    yield '<div class="scroll">'
    yield f'<table class="ranges" data-kind="{escaped(kind)}">'
    yield f"<caption><h3>{escaped(kind.capitalize())}</h3></caption>"
    yield "<thead><tr>"
    for i, (head, kind_of_cell) in enumerate(_COLUMNS):
        below = svg.ruler(ranges, kind, shown) if i == 2 else ""
        yield f'<th scope="col" class="{kind_of_cell}">{head}{below}</th>'
    yield "</tr></thead>"
    yield "<tbody>"
    for row in rows:
        fractions = {
            f"{dtype}_{key}": drawing.fraction_of(row, dtype, key) for dtype, key in _FRACTIONS
        }
        numbers = {key: row.get(key) for key in ("count", "zeros", "infs", "nans")}
        ends = {key: row.get(key) for key in ("smallest", "largest")}
        title = f"{row['class']} " if row.get("class") else ""
        cells = [
            f'<th scope="row" class="path" title="{escaped(title)}">{path(row["path"])}</th>',
            f"<td>{escaped(row.get('dtype') or '')}</td>",
            f"<td>{svg.strip(ranges, row, shown)}</td>",
            f'<td class="besides">{escaped(drawing.outside_histogram(row))}</td>',
            f'<td class="number">{escaped(_short(row.get("largest")))}</td>',
        ]
        for (_, key), fraction in zip(_FRACTIONS, fractions.values(), strict=True):
            style = "number much" if (fraction or 0) > drawing.NOTABLE[key] else "number"
            cells.append(f'<td class="{style}">{escaped(percent(fraction))}</td>')
        data = data_attributes(path=row["path"], **numbers, **ends, **fractions)
        yield f"<tr {data}>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


def _short(value: object) -> str:
    if not isinstance(value, int | float):
        return ""
    return number(float(f"{value:.3g}")) if 1e-3 <= value < 1e5 else f"{value:.2g}"


def notebook_output(ranges: Mapping[str, Any], worst: list[Any]) -> str:
    """Returns what a notebook shows: the heat maps and the advice.

    Args:
        ranges: As `ranges.json` holds them.
        worst: Its rows, the worst first.
    """
    title = f"{ranges.get('model')}: {pluralized(ranges.get('steps') or 0, 'step')}"
    parts = [f'<p class="head">{escaped(title)}</p>']
    advice = (ranges.get("advice") or {}).get("text") or []
    parts += [f"<p>{escaped(sentence)}</p>" for sentence in advice]
    parts += tables({**ranges, "rows": worst[:_MOST]})
    if len(worst) > _MOST:
        parts.append(f"<p>These {_MOST} are the worst of {len(worst)}: rows has all.</p>")
    return markup.output(parts, NOTEBOOK)
