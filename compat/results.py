"""What results share: a table in a notebook, columns in a terminal, and files that are read again.

Knows no result: each gives its rows, and its fields as JSON.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from keras_mp.files import json_files
from keras_mp.rendering import terminal
from keras_mp.rendering.html import notebook
from keras_mp.rendering.model import Cells, Column, Table, Text

_VERSION = 1

Rows = tuple[Sequence[Column], Iterable[Cells]]


def columns(rows: Iterable[Cells]) -> list[str]:
    """Returns rows in columns, as wide as they must be, a line each.

    >>> print(*columns([("a", "1"), ("long", "2")]), sep="\\n")
    a     1
    long  2
    """
    cells = list(rows)
    heads = [Column("")] * max(map(len, cells), default=0)
    return terminal.to_text([Table(heads, cells)]).splitlines()


def html(title: str, *tables: Rows) -> str:
    """Returns what a notebook shows of a result: its title, and the tables that have rows."""
    parts = [Table(heads, each) for heads, rows in tables if (each := list(rows))]
    return notebook([Text(title, "title"), *parts])


class Saved(ABC):
    """A result that `save` writes as JSON, and `load` reads again."""

    __slots__ = ()
    _FORMAT: ClassVar[str]  # the "format" of its files

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as plain JSON; what JSON lacks is the text "inf", "-inf" or "nan"."""

    @classmethod
    @abstractmethod
    def _from_dict(cls, found: Mapping[str, Any]) -> Self:
        """Returns the result of what `to_dict` returned.

        Raises:
            KeyError, TypeError, ValueError: It is another's.
        """

    def save(self, path: str | Path) -> None:
        """Writes a JSON file atomically, and creates its folder.

        Raises:
            OSError: It cannot be written; what was there is as it was.
        """
        json_files.write(Path(path), self._FORMAT, _VERSION, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads what `save` wrote.

        Raises:
            ValueError: The file is another, damaged, or of a later version; names it.
            OSError: It cannot be read.
        """
        found = json_files.read(Path(path), cls._FORMAT, _VERSION, f"{cls.__name__}.save")
        try:
            return cls._from_dict(found)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path} is damaged ({type(error).__name__}: {error}): pass a file that "
                f"{cls.__name__}.save wrote."
            ) from None
