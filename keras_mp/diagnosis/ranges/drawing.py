"""What is shown of ranges: heat maps with the limits of the dtypes, and tables."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_mp.float_formats import BFLOAT16, FLOAT16, FloatFormat
from keras_mp.rendering.model import Cells, Chart, Column, HeatMap, Part, Reach, Strong, Table, Text
from keras_mp.rendering.text import number, percent, pluralized

Array = np.ndarray[Any, Any]


# The fraction of values above which it is set in bold that a dtype does not hold them.
NOTABLE = {"zero": 0.01, "subnormal": 0.1, "overflow": 0.0}
KINDS_OF_RANGES = ("activation", "activation gradient", "weight", "weight gradient")


def by_kind(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Returns the rows of ranges by their kind, in the order of `KINDS_OF_RANGES`, others last."""
    found: dict[str, list[Mapping[str, Any]]] = {kind: [] for kind in KINDS_OF_RANGES}
    for row in rows:
        found.setdefault(row["kind"], []).append(row)
    return {kind: each for kind, each in found.items() if each}


def fraction_of(row: Mapping[str, Any], dtype: str, key: str) -> float | None:
    """Returns what a dtype makes of a row: the fraction that "zero", "subnormal", "overflow"."""
    found = row.get(dtype)
    value = found.get(key) if isinstance(found, Mapping) else None
    return float(value) if isinstance(value, int | float) else None


def outside_histogram(row: Mapping[str, Any]) -> str:
    """Returns what a histogram of magnitudes cannot show.

    >>> outside_histogram({"histogram": [1], "infs": 2, "nans": 0})
    '2 inf'
    >>> outside_histogram({"histogram": [0], "zeros": 9})
    'all 0'
    """
    found = [f"{row[key]:,} {key[:-1]}" for key in ("infs", "nans") if row.get(key)]
    if not found and not any(row["histogram"]):
        return "all 0" if row.get("zeros") else "no values"
    return ", ".join(found)


def shares(histogram: Sequence[int]) -> Array:
    """Returns counts as fractions of their sum; zeros where it is 0."""
    counts = np.asarray(histogram, np.float64)
    total = counts.sum()
    return counts / total if total > 0 else counts


def shown_exponents(ranges: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the first and the last bin to show: all that hold something, and what float16 has."""
    first, last = ranges["exponents"]
    held = [i for row in ranges["rows"] for i, count in enumerate(row["histogram"]) if count]
    shift = round(loss_scale_exponent(ranges))
    low = min([first + min(held, default=0), -25, -25 - shift if _has_gradients(ranges) else 0])
    high = max(first + max(held, default=0), 16)
    return max(first, low), min(last, high)


def loss_scale_exponent(ranges: Mapping[str, Any]) -> float:
    """Returns log2 of the scale at which ranges were taken; 0 where it is unknown.

    Gradients are shown unscaled: in float16 they were that much larger.
    """
    try:
        scale = float(ranges.get("loss_scale") or 1.0)
    except (TypeError, ValueError):
        return 0.0
    return math.log2(scale) if math.isfinite(scale) and scale > 0 else 0.0


def _has_gradients(ranges: Mapping[str, Any]) -> bool:
    return any(row["kind"].endswith("gradient") for row in ranges["rows"])


def reaches(ranges: Mapping[str, Any], kind: str) -> tuple[Reach, Reach]:
    """Returns how far float16 and bfloat16 reach for rows of a kind.

    Gradients are scaled where they are computed: for them, float16 begins and ends lower.
    """
    shift = loss_scale_exponent(ranges) if kind.endswith("gradient") else 0.0
    label = "float16, at that loss scale" if shift else "float16, 2⁻¹⁴ to 65504"
    return (
        Reach("float16", label, _ends(FLOAT16, shift)),
        Reach("bfloat16", "bfloat16, 2⁻¹²⁶ to 3.4e38", _ends(BFLOAT16)),
    )


def _ends(form: FloatFormat, shift: float = 0.0) -> tuple[float, float, float]:
    subnormal, normal, largest = (
        math.log2(each) - shift
        for each in (form.smallest_subnormal, form.smallest_normal, form.largest)
    )
    return subnormal, normal, largest


def chart(ranges: Mapping[str, Any]) -> Chart:
    """Returns a heat map for each kind of values."""
    words = f"{pluralized(len(ranges['rows']), 'row')}, each of the values of a tensor"
    if isinstance(steps := ranges.get("steps"), int):
        words += f" over {pluralized(steps, 'step')}"
    if isinstance(scale := ranges.get("loss_scale"), int | float):
        words += f"; gradients are shown unscaled; the loss scale was {number(scale)}"
    shown = shown_exponents(ranges)
    return Chart(
        f"Ranges of {ranges.get('model') or 'the model'}",
        words,
        heat_maps=[
            _heat_map(ranges, kind, rows, shown) for kind, rows in by_kind(ranges["rows"]).items()
        ],
        note="The darker (in dark mode: the lighter), the more of the row's values. Lines: "
        "smallest subnormal number (dotted), smallest normal (dashed), largest (solid).",
    )


def _heat_map(
    ranges: Mapping[str, Any], kind: str, rows: Sequence[Mapping[str, Any]], shown: tuple[int, int]
) -> HeatMap:
    first, last = shown
    start = ranges["exponents"][0]
    return HeatMap(
        kind,
        first,
        [row["path"] for row in rows],
        [shares(row["histogram"])[first - start : last - start + 1].tolist() for row in rows],
        reaches(ranges, kind),
        [outside_histogram(row) for row in rows],
        {
            head: [_fraction(row, "float16", key) for row in rows]
            for head, key in (
                ("to zero", "zero"),
                ("subnormal", "subnormal"),
                ("to inf", "overflow"),
            )
        },
    )


_COLUMNS = (
    Column("values of", "path"),
    Column("kind"),
    Column("dtype"),
    Column("log2"),
    Column("largest", "number", is_extra=True),
    Column("zeros", "number"),
    Column("to zero", "number"),
    Column("subnormal", "number"),
    Column("to inf", "number"),
    Column("bfloat16: to zero", "number", is_extra=True),
    Column("bfloat16: to inf", "number", is_extra=True),
    Column("inf, nan"),
)
_FRACTIONS = (
    ("float16", "zero"),
    ("float16", "subnormal"),
    ("float16", "overflow"),
    ("bfloat16", "zero"),
    ("bfloat16", "overflow"),
)


def table(ranges: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], **how: Any) -> Table:
    """Returns rows of `ranges.json` as a table.

    Args:
        ranges: As `ranges.json` holds them.
        rows: Of them.
        how: More of the `Table`.
    """
    first = ranges["exponents"][0]
    cells, values = [_cells(row, first) for row in rows], [_values(row) for row in rows]
    return Table(_COLUMNS, cells, name="ranges", values=values, **how)


def _values(row: Mapping[str, Any]) -> dict[str, object]:
    keys = ("path", "kind", "count", "zeros", "infs", "nans", "smallest", "largest")
    fractions = {f"{dtype}_{key}": fraction_of(row, dtype, key) for dtype, key in _FRACTIONS}
    return {**{key: row.get(key) for key in keys}, **fractions}


def _cells(row: Mapping[str, Any], first: int) -> Cells:
    filled = [first + i for i, count in enumerate(row["histogram"]) if count]
    count, outside = row.get("count"), outside_histogram(row)
    low, subnormal, high, *other = (_fraction(row, *each) for each in _FRACTIONS)
    return (
        row["path"],
        row["kind"],
        row.get("dtype") or "",
        f"{filled[0]} to {filled[-1]}" if filled else "",
        _short(row.get("largest")),
        percent((row.get("zeros") or 0) / count if count else None),
        low,
        subnormal,
        high,
        *other,
        Strong(outside) if row.get("infs") or row.get("nans") else outside,
    )


def _fraction(row: Mapping[str, Any], dtype: str, key: str) -> str:
    fraction = fraction_of(row, dtype, key)
    shown = percent(fraction)
    return Strong(shown) if (fraction or 0) > NOTABLE[key] else shown


def _short(value: object) -> str:
    if not isinstance(value, int | float):
        return ""
    return number(float(f"{value:.3g}")) if 1e-3 <= value < 1e5 else f"{value:.2g}"


def parts(
    ranges: Mapping[str, Any], rows: Sequence[Mapping[str, Any]] | None = None, **how: Any
) -> Iterator[Part]:
    """Yields the heat maps and a table.

    Args:
        ranges: As `ranges.json` holds them.
        rows: Of them, in the order of the table, if not all by kind.
        how: More of the `Table`.
    """
    if rows is None:
        rows = [row for each in by_kind(ranges["rows"]).values() for row in each]
    yield chart({**ranges, "rows": rows[: how.get("most")]})
    yield table(ranges, rows, **how)
    yield Text(
        "to zero, subnormal, to inf: the fractions of the values (zeros and nans left out) that a "
        "cast to float16 makes that, of gradients times the loss scale. log2: of the magnitudes.",
        "note",
    )
