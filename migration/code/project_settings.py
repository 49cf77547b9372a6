"""What `[tool.keras-mp]` of a pyproject.toml says of the source code beside and below it.

    [tool.keras-mp]
    ignore = ["KMP016"]                          # rules
    exclude = ["legacy/*"]                       # files and folders, as in a .gitignore
    per-file-ignores = { "tests/*" = ["KMP012"] }

Of a file, the nearest pyproject.toml counts that has this table, as for ruff.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_mp.files import regular_files
from keras_mp.migration.code.ignoring import Ignore, ignore_of, too_much
from keras_mp.migration.publishing import Refused
from keras_mp.migration.rules import RULES

NAME = "pyproject.toml"
_TABLE = "tool.keras-mp"
_KEYS = ("ignore", "exclude", "per-file-ignores")
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a project.

    Attributes:
        folder: Where its pyproject.toml is.
        ignore: Rules that are not applied.
        exclude: Files that are left out.
        per_file: Files, and rules that are not applied to them.
    """

    folder: Path
    ignore: frozenset[str]
    exclude: Ignore
    per_file: tuple[tuple[Ignore, frozenset[str]], ...]

    def excludes(self, path: Path, *, is_folder: bool = False) -> bool:
        """Returns whether a file or a folder, or a folder that it is in, is left out."""
        return self._is_named(self.exclude, path, is_folder)

    def skipped(self, path: Path) -> frozenset[str]:
        """Returns the rules that are not applied to a file."""
        of_file = (rules for files, rules in self.per_file if self._is_named(files, path, False))
        return self.ignore.union(*of_file)

    def _is_named(self, globs: Ignore, path: Path, is_folder: bool) -> bool:
        path = _absolute(path)
        if globs.says(str(path), is_folder=is_folder):
            return True
        above = path.relative_to(self.folder).parents
        return any(globs.says(str(self.folder / one), is_folder=True) for one in above)


class Projects:
    """The settings of files, of which each pyproject.toml is read once."""

    def __init__(self) -> None:
        self._known: dict[Path, Settings | None] = {}

    def of(self, path: Path) -> Settings | None:
        """Returns the settings of a file, or of a folder by what is above it.

        Raises:
            Refused: A pyproject.toml on the way cannot be read, or is wrong.
        """
        waiting = []
        found = None
        for folder in _absolute(path).parents:
            if folder in self._known:
                found = self._known[folder]
                break
            waiting.append(folder)
            found = _read(folder)
            if found is not None:
                break
        self._known.update(dict.fromkeys(waiting, found))
        return found


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - links stay


def _read(folder: Path) -> Settings | None:
    file = folder / NAME
    try:
        text = regular_files.read_bytes(file, _MOST_BYTES).decode()
        table = tomllib.loads(text)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except OSError as error:
        raise Refused(f"{file}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise Refused(f"{file} is not TOML: {error}: correct it") from None
    tool = table.get("tool")
    if not isinstance(tool, dict) or "keras-mp" not in tool:
        return None
    try:
        return _settings(folder, tool["keras-mp"])
    except _WrongError as error:
        raise Refused(f"{file}: {error}") from None


class _WrongError(ValueError):
    """A setting is wrong; its text says which, and what to do."""


def _settings(folder: Path, table: object) -> Settings:
    table = _table(_TABLE, table)
    for key in table:
        if key not in _KEYS:
            raise _WrongError(f"unknown setting {_TABLE}.{key}: use one of {', '.join(_KEYS)}")
    per_file = _table(f"{_TABLE}.per-file-ignores", table.get("per-file-ignores", {}))
    where = f"{_TABLE}.per-file-ignores"
    _refuse_too_much(where, [*per_file])
    return Settings(
        folder,
        _rules(f"{_TABLE}.ignore", table.get("ignore", [])),
        _globs(folder, f"{_TABLE}.exclude", table.get("exclude", [])),
        tuple(
            (_globs(folder, where, [glob]), _rules(f'{where}."{glob}"', rules))
            for glob, rules in per_file.items()
        ),
    )


def _table(where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _WrongError(f"{where} is {_kind(value)}: write a table")
    return value


def _rules(where: str, value: object) -> frozenset[str]:
    rules = [*_strings(where, value, 'rules, such as ["KMP016"]')]
    for rule in rules:
        if rule not in RULES:
            known = ", ".join(RULES)
            raise _WrongError(f"{where} has {rule!r}: remove it, or write one of {known}")
    return frozenset(rules)


def _globs(folder: Path, where: str, value: object) -> Ignore:
    globs = [*_strings(where, value, 'globs, such as ["legacy/*"]')]
    _refuse_too_much(where, globs)
    for glob in globs:
        if glob.startswith("!") or not ignore_of(folder, [glob]).patterns:
            what = "write a glob as in a .gitignore, without a leading !"
            raise _WrongError(f"{where} has {glob!r}: {what}")
    return ignore_of(folder, globs)


def _refuse_too_much(where: str, globs: Sequence[str]) -> None:
    if why := too_much(globs):
        raise _WrongError(f"{where}: {why}: shorten it")


def _strings(where: str, value: object, what: str) -> Iterator[str]:
    if not isinstance(value, list):
        raise _WrongError(f"{where} is {_kind(value)}: write an array of {what}")
    for i, one in enumerate(value):
        if not isinstance(one, str):
            raise _WrongError(f"{where}[{i}] is {_kind(one)}: write an array of {what}")
        yield one


def _kind(value: object) -> str:
    match value:
        case str():
            return "a string"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case list():
            return "an array"
        case dict():
            return "a table"
    return "a date or a time"
