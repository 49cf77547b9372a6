"""`# noqa` comments: which findings of which lines they suppress, as ruff decides it.

A comment speaks of its own line. Where a line goes on in the next one, by a backslash or within a
string of several lines, it is written at the end of the last of them. Sources: ruff 0.17,
crates/ruff_linter/src/noqa.rs (what a comment says) and directives.rs (of which line).
"""

import re
from collections.abc import Iterable, Mapping

import libcst as cst

from keras_mp.migration.code.parsed import Program

_START = re.compile(r"#\s*noqa", re.IGNORECASE)
_ALL = re.compile(r"\s*$|#|\s+[^\s:]")
_CODES = re.compile(r"\s*:(?P<codes>(?:[\s,]*[A-Z]+[0-9]+)++)(?=[\s,#]|$)")
_CODE = re.compile(r"[A-Z]+[0-9]+")
# Of Python 3.14; the first libcst that is supported does not know it.
_TEMPLATE: type[cst.CSTNode] = getattr(cst, "TemplatedString", cst.FormattedString)


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
        comments = program.nodes.of(cst.Comment)
        self._comments = {program.where(one)[0]: one.value for one in comments}
        self._last = _last_lines(program, self._comments)

    def has(self, rule: str, lines: Iterable[int]) -> bool:
        """Returns whether a rule is suppressed on one of these lines, counted from 1."""
        if not self._comments:
            return False
        comments = (self._comments.get(self._last[line - 1], "") for line in lines)
        return any(is_suppressed(comment, rule) for comment in comments)


def _last_lines(program: Program, comments: Mapping[int, str]) -> list[int]:
    """Returns for each line of a program the last of those that it goes on in."""
    in_text: set[int] = set()
    in_short_string: set[int] = set()
    for one in program.nodes.of(cst.SimpleString, cst.FormattedString, _TEMPLATE):
        # As for ruff, a backslash within quotes joins no lines.
        is_short = isinstance(one, cst.SimpleString) and len(one.quote) < 3
        (in_short_string if is_short else in_text).update(program.lines_of(one)[:-1])
    result = list(range(1, len(program.lines) + 1))
    for line in reversed(result[:-1]):
        if line in in_text or (
            line not in comments
            and line not in in_short_string
            and program.lines.of(line).endswith("\\")
        ):
            result[line - 1] = result[line]
    return result
