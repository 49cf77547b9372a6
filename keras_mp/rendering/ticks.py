"""Where an axis is marked."""

import math
from collections.abc import Iterator


def integer_ticks(low: float, high: float, most: int) -> list[int]:
    """Returns whole numbers from `low` to `high`, at most `most`, at a step of 1, 2, 5, 10, ...

    >>> integer_ticks(0, 1000, 6)
    [0, 200, 400, 600, 800, 1000]
    """
    return next(found for found in _ticks(low, high) if len(found) <= most)


def _ticks(low: float, high: float) -> Iterator[list[int]]:
    magnitude = 1
    while True:
        for step in (magnitude, 2 * magnitude, 5 * magnitude):
            start, end = -(-math.ceil(low) // step), math.floor(high) // step
            if end - start < 100:
                yield [step * i for i in range(start, end + 1)]
        magnitude *= 10
