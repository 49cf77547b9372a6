"""Which files the `.gitignore` files of a folder name, as git decides it.

A path is asked for by itself: what is below a folder that is ignored is never asked for, so that
nothing in there can be taken back. Source: git 2.39, gitignore(5), dir.c and wildmatch.c.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

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


def read(folder: Path) -> list[Ignore]:
    """Returns the `.gitignore` of a folder, if it has one that can be read."""
    try:
        text = (folder / ".gitignore").read_bytes().decode("utf-8-sig", "surrogateescape")
    except OSError:
        return []
    lines = text.replace("\r\n", "\n").split("\n")
    patterns = tuple(found for line in lines if (found := _pattern(line)) is not None)
    return [Ignore(str(folder / "x")[:-1], patterns)]


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
        found = [*read(parent), *found]
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
    """Returns the expression of a glob, or None of one that matches nothing."""
    result = []
    for piece in _PIECE.finditer(glob):
        match piece.lastgroup, piece[piece.lastgroup or 0]:
            case "start", _:
                result.append("(?:.*/)?")
            case "end", _:
                result.append(".+")
            case "many", _:
                result.append("[^/]*")
            case "one", _:
                result.append("[^/]")
            case "inside", inside:
                result.append(_bracket(inside, negated=bool(piece["negated"])))
            case "other", "\\" | "[":
                return None
            case _, other:
                result.append(re.escape(other))
    try:
        return re.compile("".join(result), re.DOTALL)
    except re.error:
        return None


def _bracket(inside: str, *, negated: bool) -> str:
    def of(match: re.Match[str]) -> str:
        if match["name"]:
            return _CLASSES.get(match["name"], "")
        low, high = match["low"], match["high"]
        return re.escape(low) + (f"-{re.escape(high)}" if high and low <= high else "")

    return f"(?!/)[{'^' if negated else ''}{_IN_BRACKET.sub(of, inside)}]"
