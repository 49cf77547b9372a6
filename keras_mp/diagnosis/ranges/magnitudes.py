"""How large numbers are: counts by power of two, and what 16-bit dtypes would make of them.

Knows NumPy arrays only. Bounded memory: `MagnitudeStatistics` keep counts, no numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from keras_mp.float_formats import BFLOAT16, FLOAT16

FIRST, LAST = -149, 127  # the exponents that float32 has, its subnormal numbers included
BINS = LAST - FIRST + 1
_CHUNK = 1 << 20  # numbers at a time


FORMATS = (FLOAT16, BFLOAT16)


@dataclass(slots=True)
class MagnitudeStatistics:
    """What is known of the magnitudes of all numbers that were added.

    Attributes:
        count: All of them.
        zeros, infs, nans: How many of them are that.
        largest, smallest: Magnitudes of finite numbers that are not zero, or Nform.
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
        default_factory=lambda: {form.name: [0, 0, 0] for form in FORMATS}
    )

    def add(self, values: Any, scale: float = 1.0) -> None:
        """Adds numbers.

        Args:
            values: An array of any shape and floating-point dtype.
            scale: What they were multiplied by: they are counted divided by it. What a format
                makes of them is counted as they are.

        >>> found = MagnitudeStatistics()
        >>> found.add(np.array([0.0, 3.0, 2.0**-26, np.inf]))
        >>> found.count, found.zeros, found.infs, found.largest, found.lost["float16"]
        (4, 1, 1, 3.0, [1, 0, 1])
        >>> int(found.histogram[1 - FIRST])
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
        for form in FORMATS:
            counts = self.lost[form.name]
            zero = int((sizes <= form.rounds_to_zero).sum())
            counts[0] += zero
            counts[1] += int((sizes < form.rounds_to_normal).sum()) - zero
            counts[2] += int((sizes >= form.rounds_to_infinity).sum())
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


def highest_scale(
    largest: float, margin: int, limit: float = FLOAT16.rounds_to_infinity
) -> int | None:
    """Returns the largest k so that `largest` times 2**(k + margin) is below `limit`.

    None where every k is: `largest` is 0.

    >>> highest_scale(1.0, 2), highest_scale(65519.0, 0), highest_scale(65520.0, 0)
    (13, 0, -1)
    """
    if not largest > 0:
        return None
    k = math.frexp(limit)[1] - math.frexp(largest)[1] - margin
    return k if math.ldexp(largest, k + margin) < limit else k - 1
