"""What the pictures of ranges share: the limits of dtypes, the rows by kind, and words."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_mp import float_formats
from keras_mp.float_formats import FloatFormat

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a dtype ends, as log2 of magnitudes.

    Args:
        subnormal: The smallest subnormal number.
        normal: The smallest normal number; below it, bits are lost.
        largest: The largest finite number.
    """

    subnormal: float
    normal: float
    largest: float


def _limits(form: FloatFormat) -> Limits:
    return Limits(*map(math.log2, (form.smallest_subnormal, form.smallest_normal, form.largest)))


FLOAT16, BFLOAT16 = _limits(float_formats.FLOAT16), _limits(float_formats.BFLOAT16)


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


def float16_limits(ranges: Mapping[str, Any], kind: str) -> Limits:
    """Returns the limits of float16 for rows of a kind: those of gradients lie below, scaled."""
    shift = loss_scale_exponent(ranges) if kind.endswith("gradient") else 0.0
    return Limits(
        FLOAT16.subnormal - shift,
        FLOAT16.normal - shift,
        FLOAT16.largest - shift,
    )


def rulers(ranges: Mapping[str, Any], kind: str) -> list[tuple[str, Limits, str]]:
    """Returns name, limits and label of the dtypes whose reach is shown above rows of a kind."""
    scaled = loss_scale_exponent(ranges) and kind.endswith("gradient")
    label = "float16, at that loss scale" if scaled else "float16, 2⁻¹⁴ to 65504"
    return [
        ("float16", float16_limits(ranges, kind), label),
        ("bfloat16", BFLOAT16, "bfloat16, 2⁻¹²⁶ to 3.4e38"),
    ]


def _has_gradients(ranges: Mapping[str, Any]) -> bool:
    return any(row["kind"].endswith("gradient") for row in ranges["rows"])
