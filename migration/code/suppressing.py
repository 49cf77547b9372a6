"""`# noqa` comments: which findings of which lines they suppress, as ruff decides it.

A comment speaks of its own line. Where a line goes on in the next one, by a backslash or within a
string of several lines, it is written at the end of the last of them. Sources: ruff 0.17,
crates/ruff_linter/src/noqa.rs (what a comment says) and directives.rs (of which line).
"""

import re
from collections.abc import Iterable

import libcst as cst

from keras_mp.migration.code.parsed import Program

_START = re.compile(r"#\s*noqa", re.IGNORECASE)
_ALL = re.compile(r"\s*$|#|\s+[^\s:]")
_CODES = re.compile(r"\s*:(?P<codes>(?:[\s,]*[A-Z]+[0-9]+)++)(?=[\s,#]|$)")
_CODE = re.compile(r"[A-Z]+[0-9]+")


def is_suppressed(comment: str, rule: str) -> bool:
    """Returns whether a comment is a `noqa` for a rule. One that is malformed is for none.

    >>> is_suppressed("# noqa", "KMP012"), is_suppressed("# noqa: E501, KMP012", "KMP012")
    (True, True)
    >>> is_suppressed("# noqa: E501", "KMP012"), is_suppressed("# noqa: training", "KMP012")
    (False, False)
    """
    start = _START.search(comment)
    if start is None:
        return False
    if _ALL.match(comment, start.end()):
        return True
    listed = _CODES.match(comment, start.end())
    return listed is not None and rule in _CODE.findall(listed["codes"])


class Suppressions:
    """The `noqa` comments of a program.

    >>> found = Suppressions(Program("f(  # noqa: KMP012\\n    x)\\n"))
    >>> found.has("KMP012", [1]), found.has("KMP012", [2]), found.has("KMP016", [1])
    (True, False, False)
    """

    def __init__(self, program: Program) -> None:
        self._comments: dict[int, str] = {}
        self._last: list[int] = []
        if not _START.search(program.text):
            return
        found = _Found(program)
        program.module.visit(found)
        self._comments = found.comments
        self._last = _last_lines(program, found)

    def has(self, rule: str, lines: Iterable[int]) -> bool:
        """Returns whether a rule is suppressed on one of these lines, counted from 1."""
        if not self._comments:
            return False
        comments = (self._comments.get(self._last[line - 1], "") for line in lines)
        return any(is_suppressed(comment, rule) for comment in comments)


class _Found(cst.CSTVisitor):
    """Collects comments by their lines, and the lines that go on in the next one in a string."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.comments: dict[int, str] = {}
        self.in_text: set[int] = set()
        self.in_short_string: set[int] = set()

    def visit_Comment(self, node: cst.Comment) -> None:
        self.comments[self._program.where(node)[0]] = node.value

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        # As for ruff, a backslash within quotes joins no lines.
        found = self.in_text if len(node.quote) == 3 else self.in_short_string
        found.update(self._program.lines_of(node)[:-1])

    def visit_FormattedString(self, node: cst.FormattedString) -> None:
        self.in_text.update(self._program.lines_of(node)[:-1])

    def visit_TemplatedString(self, node: "cst.TemplatedString") -> None:
        self.in_text.update(self._program.lines_of(node)[:-1])


def _last_lines(program: Program, found: _Found) -> list[int]:
    """Returns for each line of a program the last of those that it goes on in."""
    result = list(range(1, len(program.lines) + 1))
    for line in reversed(result[:-1]):
        if line in found.in_text or (
            line not in found.comments
            and line not in found.in_short_string
            and program.lines.of(line).endswith("\\")
        ):
            result[line - 1] = result[line]
    return result
