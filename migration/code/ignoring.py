"""Which files the `.gitignore` files of a folder name, as git decides it.

A path is asked for by itself: what is below a folder that is ignored is never asked for, so that
nothing in there can be taken back. Source: git 2.39, gitignore(5), dir.c and wildmatch.c.
"""

import errno
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from keras_mp.files import regular_files

# Every pattern is asked about every path.
_MOST_BYTES, _MOST_PATTERNS, _LONGEST = 1 << 20, 10_000, 4096
_PIECE = re.compile(
    r"""
    (?P<start>(?:^|(?<=/))\*\*+/)           # **/ is any folders, or none
    | (?P<end>(?:^|(?<=/))\*\*+$)           # /** is all that is inside
    | (?P<many>\*+) | (?P<one>\?)
    | \\(?P<escaped>.)
    | \[(?P<negated>[!^]?)(?P<inside>\]?(?:\[:[a-z]+:\]|\\.|[^\]\\])*)\]
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
# A range that ends before it starts is its first character only.
_IN_BRACKET = re.compile(r"\[:(?P<name>[a-z]+):\]|\\?(?P<low>.)(?:-\\?(?P<high>.))?", re.DOTALL)
_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": r" \t", "digit": "0-9", "lower": "a-z",
    "space": r"\s", "upper": "A-Z", "xdigit": "0-9a-fA-F", "punct": r"!-/:-@\[-`{-~",
    "cntrl": r"\x00-\x1f\x7f", "graph": "!-~", "print": " -~",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Pattern:
    regex: re.Pattern[str]
    takes_back: bool
    folders_only: bool
    names_only: bool


@dataclass(frozen=True, slots=True)
class Ignore:
    """A `.gitignore` file.

    Attributes:
        folder: Where it is; its name ends in a separator.
        patterns: What it says, in its order.
    """

    folder: str
    patterns: tuple[_Pattern, ...]

    def says(self, path: str, *, is_folder: bool) -> bool | None:
        """Returns whether a path is to be ignored, or None where nothing is said about it."""
        if not path.startswith(self.folder) or path == self.folder:
            return None
        inside = path.removeprefix(self.folder).replace(os.sep, "/")
        name = inside.rpartition("/")[2]
        for pattern in reversed(self.patterns):
            if is_folder or not pattern.folders_only:
                text = name if pattern.names_only else inside
                if pattern.regex.fullmatch(text):
                    return not pattern.takes_back
        return None


def read_gitignore(folder: Path) -> list[Ignore]:
    """Returns the `.gitignore` of a folder, if it has one that may be read.

    Raises:
        OSError: It is a pipe or a device, or larger than any that people write.
    """
    path = folder / ".gitignore"
    try:
        data = regular_files.read_bytes(path, _MOST_BYTES)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EFBIG):
            raise
        return []
    lines = data.decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n").split("\n")
    lines = [line for line in lines if line and not line.startswith("#")]
    if why := too_much(lines):
        raise OSError(errno.EFBIG, f"{why}: shorten it, or name files", str(path))
    return [ignore_of(folder, lines)]


def too_much(lines: Sequence[str]) -> str:
    """Returns why lines are more than any that people write; "" where they are not."""
    longest = max(map(len, lines), default=0)
    if len(lines) <= _MOST_PATTERNS and longest <= _LONGEST:
        return ""
    why = f"it has {len(lines)} patterns, the longest of {longest} characters, and at most "
    return f"{why}{_MOST_PATTERNS} of {_LONGEST} are read"


def ignore_of(folder: Path, lines: Iterable[str]) -> Ignore:
    """Returns what lines of a `.gitignore` file say; those that match nothing are left out."""
    patterns = tuple(found for line in lines if (found := _pattern(line)) is not None)
    return Ignore(str(folder / "x")[:-1], patterns)


def is_ignored(ignores: list[Ignore], path: str, *, is_folder: bool) -> bool:
    """Returns whether a path is ignored, by the files from the outermost to the innermost."""
    for ignore in reversed(ignores):
        if (said := ignore.says(path, is_folder=is_folder)) is not None:
            return said
    return False


def above(folder: Path) -> list[Ignore]:
    """Returns the `.gitignore` files above a folder, from the root of its repository on.

    None of them, where they name the folder itself: who asks for it means it.
    """
    if (folder / ".git").exists():
        return []
    found: list[Ignore] = []
    for parent in folder.parents:
        found = [*read_gitignore(parent), *found]
        if (parent / ".git").exists():
            within = [*list(folder.parents)[::-1], folder]
            named = any(is_ignored(found, str(path), is_folder=True) for path in within)
            return [] if named else found
    return []


def _pattern(line: str) -> _Pattern | None:
    line = re.sub(r"(?<!\\) +$", "", line)
    if line.startswith("#"):
        return None
    takes_back = line.startswith("!")
    line = line[takes_back:]
    folders_only = line.endswith("/")
    line = line.removesuffix("/")
    if not line:
        return None
    expression = _regex(line.removeprefix("/"))
    if expression is None:
        return None
    return _Pattern(expression, takes_back, folders_only, "/" not in line)


def _regex(glob: str) -> re.Pattern[str] | None:
    """Returns the expression of a glob, or None of one that matches nothing.

    What is between two `*`, or two `**/`, is looked for once: the first place where it fits leaves
    the most to what follows. So it never takes longer than pattern times path.
    """
    groups = [[""]]  # what is between two **/, and in there between two *
    for piece in _PIECE.finditer(glob):
        match piece.lastgroup, piece[piece.lastgroup or 0]:
            case "start", _:
                groups.append([""])
            case "end", _:
                groups[-1][-1] += ".+"
            case "many", _:
                groups[-1].append("")
            case "one", _:
                groups[-1][-1] += "[^/]"
            case "inside", inside:
                groups[-1][-1] += _bracket(inside, negated=bool(piece["negated"]))
            case "other", "\\" | "[":
                return None
            case _, other:
                groups[-1][-1] += re.escape(other)
    first, *inner, last = [[""], *groups] if len(groups) == 1 else groups
    result = _once(first)
    result += "".join(f"(?>{_FOLDERS}{_once(group)})" for group in inner if group != [""])
    result += _FOLDERS if len(groups) > 1 else ""
    result += _once(last[:-1]) + f"[^/]*{last[-1]}" if len(last) > 1 else last[0]
    try:
        return re.compile(result, re.DOTALL)
    except re.error:
        return None


_FOLDERS = "(?:[^/]*/)*?"


def _once(parts: list[str]) -> str:
    """Returns the expression of what is between `*`."""
    first, *others = parts
    return first + "".join(f"(?>[^/]*?{part})" for part in others)


def _bracket(inside: str, *, negated: bool) -> str:
    def of(match: re.Match[str]) -> str:
        if match["name"]:
            return _CLASSES.get(match["name"], "")
        low, high = match["low"], match["high"]
        return re.escape(low) + (f"-{re.escape(high)}" if high and low <= high else "")

    return f"(?!/)[{'^' if negated else ''}{_IN_BRACKET.sub(of, inside)}]"
