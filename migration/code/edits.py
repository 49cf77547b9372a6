"""Edits of a text by position: what no edit touches stays as it was, to the byte."""

import bisect
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Puts `text` in the place of the characters from `start` to before `end`."""

    start: int
    end: int
    text: str


def overlapping(edits: Sequence[Edit], edit: Edit) -> list[Edit]:
    """Returns those of sorted edits, of which no two overlap, that overlap another one.

    >>> overlapping([Edit(0, 2, ""), Edit(2, 2, "a"), Edit(2, 5, "")], Edit(1, 3, ""))
    [Edit(start=0, end=2, text=''), Edit(start=2, end=2, text='a'), Edit(start=2, end=5, text='')]
    """
    result: list[Edit] = []
    at = bisect.bisect_left(edits, edit.end, key=attrgetter("start"))
    while at and edits[at - 1].end >= edit.start:
        at -= 1
        if edit.start < edits[at].end and edits[at].start < edit.end:
            result.insert(0, edits[at])
    return result


class Lines:
    """Where the lines of a text begin.

    >>> lines = Lines("ab\\r\\ncd\\n")
    >>> lines.offset(2, 1), lines.of(2), lines.within(1, 5)
    (5, 'cd', range(1, 3))
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._ends = [match.span() for match in _LINE_END.finditer(text)]
        self.starts = [0, *(end for _, end in self._ends)]

    def offset(self, line: int, column: int) -> int:
        """Returns the offset of a line, from 1, and a column, from 0."""
        return self.starts[line - 1] + column

    def within(self, start: int, end: int) -> range:
        """Returns the lines, from 1, that the characters from `start` to before `end` are on."""
        last = max(start, end - 1)
        return range(bisect.bisect(self.starts, start), bisect.bisect(self.starts, last) + 1)

    def of(self, line: int) -> str:
        """Returns a line without its end."""
        end = self._ends[line - 1][0] if line <= len(self._ends) else len(self._text)
        return self._text[self.starts[line - 1] : end]

    def indent(self, line: int) -> str:
        """Returns the white space at the beginning of a line."""
        text = self.of(line)
        return text[: len(text) - len(text.lstrip())]

    def after(self, line: int) -> int:
        """Returns where the line after a line begins; the end of the text after the last one."""
        return self.starts[line] if line < len(self.starts) else len(self._text)

    def ending(self, line: int) -> str:
        """Returns what ends a line; the end of another where the text ends with it."""
        ends = self._ends[line - 1 : line] or self._ends[-1:]
        return self._text[slice(*ends[0])] if ends else "\n"

    def __len__(self) -> int:
        return len(self.starts)


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Returns `text` with `edits`, which must not overlap, in it.

    >>> apply("a b c", [Edit(2, 3, "B"), Edit(0, 0, "- ")])
    '- a B c'
    >>> apply("a b c", [Edit(0, 2, ""), Edit(1, 3, "B")])
    Traceback (most recent call last):
    ValueError: edits overlap at 1: 'B'

    Raises:
        ValueError: Two of them overlap.
    """
    parts, at = [], 0
    for edit in sorted(set(edits)):
        if edit.start < at:
            raise ValueError(f"edits overlap at {edit.start}: {edit.text!r}")
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, text[at:]])
