"""Plans as output: patches, lines, tables, and rows of JSON. Prints nothing itself."""

import difflib
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

from keras_mp.migration.code.findings import (
    BASELINE,
    KEPT,
    NOQA,
    PERSON,
    REWRITTEN,
    Failure,
    Plan,
)
from keras_mp.migration.rules import RULES
from keras_mp.rendering.text import printable

_VERDICTS = (REWRITTEN, PERSON, KEPT)
_SUPPRESSED = "suppressed"
_COLOURS = (
    ("--- ", "\x1b[1m"),
    ("+++ ", "\x1b[1m"),
    ("@@", "\x1b[36m"),
    ("+", "\x1b[32m"),
    ("-", "\x1b[31m"),
)


def patch(plan: Plan) -> bytes:
    """Returns a unified diff that `git apply` and `patch -p1` take, in the bytes of the file."""
    old, new = _name_in_patch(plan.path, b"a/"), _name_in_patch(plan.path, b"b/")
    before, after = _lines(plan.before), _lines(plan.after)
    lines = difflib.diff_bytes(difflib.unified_diff, before, after, old, new, lineterm=b"\n")
    ended = (
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
        for line in lines
    )
    return b"".join(ended)


def for_terminal(diff: bytes, *, colours: bool) -> str:
    """Returns a diff to be looked at: nothing in it steers the terminal but its own colours.

    >>> for_terminal(b"+a  # \\x1b[2J\\r\\n", colours=False)
    '+a  # \\\\x1b[2J\\n'
    """
    return "".join(_for_terminal(line, colours) for line in _lines(diff))


def wants_colour(stream: TextIO | None) -> bool:
    """Returns whether colours are welcome: on a terminal, unless NO_COLOR says no."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream is not None and stream.isatty()


def manual_lines(plans: Iterable[Plan]) -> list[str]:
    """Returns a line for each place where somebody must look."""
    return [
        f"{plan.path}:{found.place}: {found.rule} {found.message}"
        for plan in plans
        for found in plan.findings
        if found.verdict == PERSON
    ]


def changed_lines(plans: Iterable[Plan], *, written: bool) -> list[str]:
    """Returns a line for each file that changes, with how many places do."""
    verb = "rewritten" if written else "would be rewritten"
    lines = []
    for plan in plans:
        if plan.changes and plan.failure is None:
            count = sum(found.verdict == REWRITTEN for found in plan.findings)
            places = f"{count} place{'s' if count != 1 else ''}"
            if not count:
                places = "and each place needs a look, too"
            lines.append(f"{plan.path}: {verb}, {places}")
    return lines


def failure_line(path: Path, failure: Failure) -> str:
    """Returns why a file was left as it is."""
    where = "" if failure.place is None else f"{failure.place}:"
    return f"{path}:{where} error: {failure.message}"


def status(plan: Plan, *, written: bool) -> str:
    """Returns what became of a file, in the words of the --json report."""
    if plan.failure is not None:
        return "failed"
    if plan.changes:
        return "rewritten" if written else "would rewrite"
    return "unchanged"


def row(plan: Plan, out: Path | None, *, written: bool, with_diff: bool) -> dict[str, object]:
    """Returns a file's part of the --json report."""
    error = None
    if plan.failure is not None:
        place = plan.failure.place
        error = {
            "path": None,
            "message": plan.failure.message,
            "cell": place and place.cell,
            "line": place and place.line,
            "column": place and place.column,
        }
    return {
        "path": str(plan.path),
        "kind": "notebook" if plan.path.suffix == ".ipynb" else "python",
        "status": status(plan, written=written),
        "out": None if out is None or plan.failure is not None else str(out),
        "needs_review": plan.needs_review,
        "findings": [found.to_dict() for found in plan.findings],
        "suppressed": [found.to_dict() for found in plan.suppressed],
        "diff": patch(plan).decode("utf-8", "backslashreplace") if with_diff else None,
        "error": error,
    }


def summary(plans: Sequence[Plan]) -> dict[str, object]:
    """Returns how many files and findings of which kind there are."""
    suppressed = Counter(found.suppressed for plan in plans for found in plan.suppressed)
    return {
        "files": dict.fromkeys(_FILES, 0) | Counter(map(_kind, plans)),
        "rules": {
            rule: {verdict: counts[verdict] for verdict in _VERDICTS}
            for rule, counts in sorted(_by_rule(plans).items())
        },
        "suppressed": {by: suppressed[by] for by in (NOQA, BASELINE)},
        "baseline": None,
    }


def tables(plans: Sequence[Plan], *, written: bool) -> list[list[tuple[str, ...]]]:
    """Returns the same, as the rows of two tables; the second only where something was found."""
    counts = Counter(map(_kind, plans))
    words = _FILES if written else _FILES | _WOULD
    files = [("files", str(len(plans)))]
    files += [(words[kind], str(counts[kind])) for kind in _FILES if counts[kind]]
    by_rule = _by_rule(plans)
    for plan in plans:
        for one in plan.suppressed:
            by_rule.setdefault(one.rule, Counter())[_SUPPRESSED] += 1
    has_suppressed = any(found[_SUPPRESSED] for found in by_rule.values())
    columns = (*_VERDICTS, _SUPPRESSED) if has_suppressed else _VERDICTS
    rules = [
        (
            rule,
            *(str(found[column]) for column in columns),
            RULES[rule].title if rule in RULES else "",
        )
        for rule, found in sorted(by_rule.items())
    ]
    head = ("rule", "rewritten" if written else "to rewrite", *columns[1:], "what")
    return [list[tuple[str, ...]](files), *([[head, *rules]] if rules else [])]


_FILES = {
    "rewritten": "rewritten",
    "rewritten_in_part": "rewritten, and need manual review",
    "manual": "need manual review",
    "untouched": "untouched",
    "failed": "failed",
}
_WOULD = {
    "rewritten": "would be rewritten",
    "rewritten_in_part": "would be rewritten, and need manual review",
}


def _kind(plan: Plan) -> str:
    if plan.failure is not None:
        return "failed"
    if plan.changes:
        return "rewritten_in_part" if plan.needs_review else "rewritten"
    return "manual" if plan.needs_review else "untouched"


def _by_rule(plans: Iterable[Plan]) -> dict[str, Counter[str]]:
    result: dict[str, Counter[str]] = {}
    for plan in plans:
        for found in plan.findings if plan.failure is None else ():
            result.setdefault(found.rule, Counter())[found.verdict] += 1
    return result


def _name_in_patch(path: Path, side: bytes) -> bytes:
    # Relative to here, if it is below: that is where a patch is applied.
    try:
        path = Path(os.path.abspath(path)).relative_to(Path.cwd())  # noqa: PTH100 - links stay
    except ValueError:
        path = path.absolute().relative_to(path.absolute().anchor)
    name = side + os.fsencode(path.as_posix())
    if any(c < 0x20 or c in b'\x7f"\\' for c in name):
        # As git does it: a newline in a name would begin a patch of another file.
        return b'"%s"' % b"".join(map(_quoted, name))
    # Without it, patch takes the name to end at its first space.
    return name + b"\t" if b" " in name else name


def _quoted(byte: int) -> bytes:
    if byte < 0x20 or byte == 0x7F:
        return b"\\%03o" % byte
    return b"\\" * (byte in b'"\\') + bytes([byte])


def _lines(data: bytes) -> list[bytes]:
    # Of a patch, only a line feed ends lines.
    return [line for line in re.split(rb"(?<=\n)", data) if line]


def _for_terminal(line: bytes, colours: bool) -> str:
    text = line.decode("utf-8", "backslashreplace")
    body = text.removesuffix("\n").removesuffix("\r")
    body = "\t".join(map(printable, body.split("\t")))
    colour = next((colour for start, colour in _COLOURS if body.startswith(start)), None)
    if colour is None or not colours:
        return f"{body}\n"
    return f"{colour}{body}\x1b[0m\n"
