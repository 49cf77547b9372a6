"""Numbers as a line of bars, for a terminal."""

import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Returns `values`, all positive, as bars of their logarithms, at most `width` of them.

    Where there are more, each bar is the largest of its group.

    >>> sparkline([1, 2, 4, 8, 4, 128])
    '▁▂▃▄▃█'
    """
    step = max(1, math.ceil(len(values) / width))
    groups = [values[i : i + step] for i in range(0, len(values), step)]
    logarithms = [math.log2(max(group)) for group in groups]
    low, high = min(logarithms), max(logarithms)
    span = (high - low) or 1.0
    return "".join(BARS[round((x - low) / span * (len(BARS) - 1))] for x in logarithms)
