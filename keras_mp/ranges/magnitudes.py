"""How large numbers are: counts by power of two, and what 16-bit dtypes would make of them.

Knows NumPy arrays only. Bounded memory: a `Tally` keeps counts, no numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FIRST, LAST = -149, 127  # the exponents that float32 has, its subnormal numbers included
BINS = LAST - FIRST + 1
_CHUNK = 1 << 20  # numbers at a time


@dataclass(frozen=True, slots=True)
class Format:
    """Where a floating-point format rounds to zero, to a subnormal number, and to infinity.

    A magnitude m is rounded to nearest, ties to even: to zero where m <= `to_zero`, to a number
    with fewer digits where m < `to_normal`, to infinity where m >= `to_infinity`.
    """

    name: str
    to_zero: float
    to_normal: float
    to_infinity: float

    @classmethod
    def of(cls, name: str, digits: int, lowest: int, highest: int) -> "Format":
        """Returns a format by its bits of precision and the exponents of its normal numbers."""
        step = 2.0 ** (lowest - digits + 1)  # between subnormal numbers
        top = 2.0 ** (highest + 1)
        return cls(name, step / 2, 2.0**lowest - step / 2, top - 2.0 ** (highest - digits))


FLOAT16 = Format.of("float16", 11, -14, 15)
BFLOAT16 = Format.of("bfloat16", 8, -126, 127)
FORMATS = (FLOAT16, BFLOAT16)


@dataclass(slots=True)
class Tally:
    """Counts of the numbers that were added.

    Attributes:
        count: All of them.
        zeros, infs, nans: How many of them are that.
        largest, smallest: Magnitudes of finite numbers that are not zero, or None.
        histogram: int64, shape (BINS,): item i counts numbers with floor(log2(magnitude)) equal to
            FIRST + i; those beyond an end are in the last bin there.
        lost: By format how many (not zero) round to zero, to a subnormal number, to infinity; infs
            are among the last.
    """

    count: int = 0
    zeros: int = 0
    infs: int = 0
    nans: int = 0
    largest: float | None = None
    smallest: float | None = None
    histogram: Any = field(default_factory=lambda: np.zeros(BINS, np.int64))
    lost: dict[str, list[int]] = field(
        default_factory=lambda: {one.name: [0, 0, 0] for one in FORMATS}
    )

    def add(self, values: Any, scale: float = 1.0) -> None:
        """Adds numbers.

        Args:
            values: An array of any shape and floating-point dtype.
            scale: What they were multiplied by: they are counted divided by it. What a format
                makes of them is counted as they are.

        >>> tally = Tally()
        >>> tally.add(np.array([0.0, 3.0, 2.0**-26, np.inf]))
        >>> tally.count, tally.zeros, tally.infs, tally.largest, tally.lost["float16"]
        (4, 1, 1, 3.0, [1, 0, 1])
        >>> int(tally.histogram[1 - FIRST])
        1
        """
        flat = np.asarray(values).reshape(-1)
        for start in range(0, flat.size, _CHUNK):
            self._add(flat[start : start + _CHUNK], scale)

    def _add(self, values: Any, scale: float) -> None:
        sizes = np.abs(values.astype(np.float64))
        self.count += sizes.size
        nans = np.isnan(sizes)
        self.nans += int(nans.sum())
        sizes = sizes[~nans & (sizes > 0)]
        self.zeros += int(nans.size - nans.sum() - sizes.size)
        for one in FORMATS:
            counts = self.lost[one.name]
            zero = int((sizes <= one.to_zero).sum())
            counts[0] += zero
            counts[1] += int((sizes < one.to_normal).sum()) - zero
            counts[2] += int((sizes >= one.to_infinity).sum())
        finite = sizes[sizes < np.inf]
        self.infs += sizes.size - finite.size
        if not finite.size:
            return
        finite = finite / scale
        exponents = np.frexp(finite)[1] - 1
        bins = np.clip(exponents, FIRST, LAST) - FIRST
        self.histogram += np.bincount(bins, minlength=BINS)
        top, bottom = float(finite.max()), float(finite.min())
        self.largest = top if self.largest is None else max(top, self.largest)
        self.smallest = bottom if self.smallest is None else min(bottom, self.smallest)

    def fractions(self, name: str) -> dict[str, float]:
        """Returns which part of the numbers (zeros and nans left out) a format does not hold."""
        numbers = self.count - self.zeros - self.nans
        parts = [lost / numbers if numbers else 0.0 for lost in self.lost[name]]
        return dict(zip(("zero", "subnormal", "overflow"), parts, strict=True))


def fraction_below(histogram: Sequence[int], exponent: int) -> float:
    """Returns which part of the numbers in a histogram is smaller than 2**exponent.

    >>> fraction_below([0] * 10 + [3, 1] + [0] * 265, FIRST + 11)
    0.75
    """
    counts = np.asarray(histogram)
    total = int(counts.sum())
    end = min(max(exponent - FIRST, 0), BINS)
    return float(counts[:end].sum() / total) if total else 0.0


def highest_scale(largest: float, margin: int, limit: float = FLOAT16.to_infinity) -> int | None:
    """Returns the largest k so that `largest` times 2**(k + margin) is below `limit`.

    None where every k is: `largest` is 0.

    >>> highest_scale(1.0, 2), highest_scale(65519.0, 0), highest_scale(65520.0, 0)
    (13, 0, -1)
    """
    if not largest > 0:
        return None
    k = math.frexp(limit)[1] - math.frexp(largest)[1] - margin
    return k if math.ldexp(largest, k + margin) < limit else k - 1
