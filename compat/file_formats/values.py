"""Values of a file that are read at each access, so that none stays in memory."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a file, read anew at each access.

    Attributes:
        source: Its key in the file.
        read: Reads it.

    >>> counter = Value("iter", lambda: np.asarray(3)).mapped(lambda array: array + 1)
    >>> counter.source, int(counter.array)
    ('iter', 4)
    """

    source: str
    read: Callable[[], Array]

    @classmethod
    def of(cls, source: str, array: Array) -> "Value":
        """Returns a value that is in memory already."""
        return cls(source, lambda: array)

    @property
    def array(self) -> Array:
        """The value, read now."""
        return self.read()

    def mapped(self, function: Callable[[Array], Array]) -> "Value":
        """Returns what a function makes of it, computed when it is read."""
        return Value(self.source, lambda: function(self.read()))


def value_of(values: Mapping[str, Array], key: str) -> Value:
    """Returns a value of a mapping that reads at each access, such as a checkpoint."""
    return Value(key, functools.partial(values.__getitem__, key))
