"""Room on the stack for models that Keras builds by recursion, a level for each layer of a path."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_LEVELS = 4  # of Python for one layer; Keras has one
_MOST = 100_000


def limit_for(layers: int) -> int:
    """Returns the recursion limit that a model of so many layers needs.

    >>> limit_for(500)
    3000
    """
    return min(_MOST, 1000 + _LEVELS * layers)


@contextmanager
def enough_for(layers: int) -> Iterator[None]:
    """Raises the recursion limit of Python as far as a model of so many layers needs it.

    Keras 3 cannot open ResNetRS270 otherwise. It holds for all threads, and ends with the scope.

    >>> with enough_for(500):
    ...     sys.getrecursionlimit() >= 1000 + 4 * 500
    True
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, limit_for(layers)))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def layers_of(config: object) -> int:
    """Returns how many layers a config has, those of models inside included.

    >>> layers_of({"config": {"layers": [{"config": {"layers": [{}, {}]}}]}})
    3
    """
    count, waiting = 0, [config]
    while waiting:
        value = waiting.pop()
        inside = value.get("config") if isinstance(value, Mapping) else None
        rows = inside.get("layers") if isinstance(inside, Mapping) else None
        if isinstance(rows, list):
            count += len(rows)
            waiting += rows
    return count
