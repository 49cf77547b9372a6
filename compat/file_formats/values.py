"""A value of a file that is read each time it is asked for, so that none is kept in memory."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a file, which is read whenever it is asked for, and not kept.

    Attributes:
        source: Its key there.
        read: Returns it.

    >>> counter = Value("iter", lambda: np.asarray(3)).mapped(lambda array: array + 1)
    >>> counter.source, int(counter.array)
    ('iter', 4)
    """

    source: str
    read: Callable[[], Array]

    @classmethod
    def of(cls, source: str, array: Array) -> "Value":
        """Returns one that is in memory already."""
        return cls(source, lambda: array)

    @property
    def array(self) -> Array:
        """It, read anew."""
        return self.read()

    def mapped(self, function: Callable[[Array], Array]) -> "Value":
        """Returns what a function makes of it, computed when it is read."""
        return Value(self.source, lambda: function(self.read()))


def value_of(values: Mapping[str, Array], key: str) -> Value:
    """Returns a value of a mapping that reads what it is asked for, such as a checkpoint."""
    return Value(key, functools.partial(values.__getitem__, key))
