"""Measures in turn, so that disturbances affect all alike. Imports no Keras."""

import statistics
from collections.abc import Iterator, Sequence


def in_turn(names: Sequence[str], repeat: int) -> Iterator[str]:
    """Yields each name `repeat` times: all names in turn, in another order each time.

    >>> " ".join(in_turn("abc", 2))
    'a b c a c b'
    """
    for repetition in range(repeat):
        turn = repetition % len(names)
        yield from [*names[turn:], *names[:turn]][:: -1 if repetition % 2 else 1]


def quartiles(numbers: Sequence[float]) -> list[float]:
    """Returns lower quartile, median and upper quartile.

    >>> quartiles([1.0, 2.0, 3.0]), quartiles([5.0])
    ([1.5, 2.0, 2.5], [5.0, 5.0, 5.0])
    """
    if len(numbers) < 2:
        return [*numbers] * 3
    return statistics.quantiles(numbers, n=4, method="inclusive")


def ratios(numbers: Sequence[float], base: Sequence[float]) -> list[float]:
    """Returns quartiles of the ratio of `numbers` to `base`, both measured in turn.

    >>> ratios([2.0, 3.0], [1.0, 1.0])
    [2.25, 2.5, 2.75]
    """
    return quartiles([a / b for a, b in zip(numbers, base, strict=True)])
