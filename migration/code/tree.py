"""The source files in a folder, as git sees it: what `.gitignore` names is left out.

Left out, too: hidden folders, virtual environments, `node_modules`, `__pycache__`. Symbolic links
are not followed: where they lead is found under its own name, or belongs to somebody else.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from keras_mp.migration.code.ignoring import Ignore, above, is_ignored, read_gitignore
from keras_mp.migration.kinds import SOURCES

_NEVER = {"__pycache__", "node_modules", "site-packages"}


@dataclass(slots=True)
class Tree:
    """What is in a folder.

    Attributes:
        files: The source files, in the order of their paths.
        links: Symbolic links to source files or folders.
        ignored: How many source files and folders `.gitignore` files name.
        closed: Folders in it that may not be read.
    """

    files: list[Path] = field(default_factory=list)
    links: list[Path] = field(default_factory=list)
    ignored: int = 0
    closed: list[Path] = field(default_factory=list)


def find(folder: Path) -> Tree:
    """Returns the source files in a folder and the folders in it.

    The `.gitignore` files above the folder count, too, up to the root of its git repository, unless
    they name the folder itself: who names it means it.

    Raises:
        OSError: A folder cannot be read.
    """
    result = Tree()
    absolute = folder.resolve()
    _walk(folder, absolute, above(absolute), result)
    return result


def is_left_out(folder: Path) -> bool:
    """Returns whether nothing in a folder is the user's: hidden, or of installed packages."""
    if is_left_out_name(folder.name):
        return True
    try:
        return (folder / "pyvenv.cfg").exists()
    except PermissionError:
        return False


def is_left_out_name(name: str) -> bool:
    """Returns whether a folder of that name is left out wherever it is."""
    return name.startswith(".") or name in _NEVER


def _walk(folder: Path, absolute: Path, outer: list[Ignore], result: Tree) -> None:
    # Not by recursion, which ends at some hundred folders inside each other.
    waiting = _listed(folder, absolute, outer)
    while waiting:
        entry, path, absolute, ignores = waiting.pop()
        is_source = entry.name.endswith(SOURCES)
        if entry.is_symlink():
            result.links += [path] if is_source or path.is_dir() else []
        elif entry.is_dir():
            if is_left_out(path):
                continue
            if is_ignored(ignores, str(absolute), is_folder=True):
                result.ignored += 1
                continue
            try:
                waiting += _listed(path, absolute, ignores)
            except PermissionError:
                result.closed.append(path)
        elif is_source and entry.is_file():
            if is_ignored(ignores, str(absolute), is_folder=False):
                result.ignored += 1
            else:
                result.files.append(path)


_Waiting = tuple[os.DirEntry[str], Path, Path, list[Ignore]]


def _listed(folder: Path, absolute: Path, outer: list[Ignore]) -> list[_Waiting]:
    """Returns what is in a folder, the last name first: path, absolute path, what to ignore."""
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name, reverse=True)
    names = {entry.name for entry in listed}
    # What a repository says ends where another begins.
    ignores = outer if ".git" not in names else []
    ignores = [*ignores, *(read_gitignore(absolute) if ".gitignore" in names else [])]
    return [(entry, folder / entry.name, absolute / entry.name, ignores) for entry in listed]
