"""The artefacts in a folder, and where each of them goes. Symbolic links are not followed.

Left out are the folders that `code/tree.py` leaves out, too, but for those that `.gitignore` names.
"""

import os
import re
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from keras_mp.compat.checkpoints import locating, table
from keras_mp.compat.file_formats.file_kinds import Kind
from keras_mp.migration.code.tree import is_left_out

_DATA = re.compile(r"(.+)\.data-\d{5}-of-\d{5}")
_FOOTER = 48  # bytes that end an index
_SUFFIXES: dict[Kind, tuple[str, ...]] = {"keras": (".keras",), "h5": (".h5", ".hdf5", ".keras")}


@dataclass(frozen=True, slots=True)
class Found:
    """An artefact in a folder.

    Attributes:
        path: It; of a checkpoint its prefix, or the folder that has nothing else.
        kind: What it is.
        out: Its output, relative to the folder of the outputs.
    """

    path: Path
    kind: Kind
    out: Path


@dataclass(slots=True)
class Walk:
    """What is in a folder.

    Attributes:
        found: The artefacts, in the order of their paths.
        left: How many other files there are.
        links: How many symbolic links.
        closed: Folders in it that may not be read.
    """

    found: list[Found]
    left: int = 0
    links: int = 0
    closed: list[Path] = field(default_factory=list)


def walk(folder: Path) -> Walk:
    """Returns the artefacts in a folder and the folders in it.

    Raises:
        OSError: The folder cannot be read.
    """
    result = Walk([])
    rows = _walk(folder, result)
    names = Counter((path.parent, _short(path, kind)) for path, kind in rows)
    for path, kind in sorted(rows):
        short = _short(path, kind)
        # Where two would become one, each keeps its whole name.
        name = short if names[path.parent, short] == 1 else path.name
        out = path.parent.relative_to(folder) / f"{name}.keras"
        result.found.append(Found(path, kind, out))
    return result


def is_one_checkpoint(folder: Path) -> bool:
    """Returns whether a folder has nothing but one checkpoint, or those of one manager."""
    return _is_checkpoint(folder, _walk(folder, Walk([])))


def _is_checkpoint(folder: Path, rows: list[tuple[Path, Kind]]) -> bool:
    if not rows or any(kind != "checkpoint" or path.parent != folder for path, kind in rows):
        return False
    return (folder / locating.STATE_FILE).is_file() or len(rows) == 1


def _short(path: Path, kind: Kind) -> str:
    for suffix in _SUFFIXES.get(kind, ()):
        if path.name.endswith(suffix) and path.name != suffix:
            return path.name.removesuffix(suffix)
    return path.name


def _walk(folder: Path, result: Walk) -> list[tuple[Path, Kind]]:
    rows: list[tuple[Path, Kind]] = []
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    files = [entry.name for entry in listed if entry.is_file(follow_symlinks=False)]
    # A prefix without its index, too: then its error is reported.
    prefixes = {match[1] for name in files if (match := _DATA.fullmatch(name))}
    indexes = {f"{prefix}.index" for prefix in prefixes}
    rows += [(folder / prefix, "checkpoint") for prefix in prefixes]
    for entry in listed:
        path = folder / entry.name
        if entry.is_symlink():
            result.links += 1
        elif entry.is_dir():
            try:
                rows += [] if is_left_out(path) else _below(path, result)
            except PermissionError:
                result.closed.append(path)
        elif _DATA.fullmatch(entry.name) or entry.name in indexes:
            continue
        elif entry.is_file() and (kind := _kind(path)) is not None:
            rows.append((path.with_suffix("") if kind == "checkpoint" else path, kind))
        elif entry.name != locating.STATE_FILE:
            result.left += 1
    return rows


def _below(folder: Path, result: Walk) -> list[tuple[Path, Kind]]:
    if (folder / "saved_model.pb").is_file():
        return [(folder, "saved_model")]
    below = _walk(folder, result)
    return [(folder, "checkpoint")] if _is_checkpoint(folder, below) else below


def _kind(path: Path) -> Kind | None:
    """Returns what a file is, if it is a model of Keras or the weights of one, or their index."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            file.seek(max(0, file.seek(0, os.SEEK_END) - _FOOTER))
            end = file.read()
    except OSError:
        # By its name it is one: then its error is reported.
        return next((kind for kind in _SUFFIXES if path.name.endswith(_SUFFIXES[kind])), None)
    if path.name.endswith(".index") and table.has_magic(memoryview(end)):
        return "checkpoint"
    if start == b"\x89HDF\r\n\x1a\n":
        return "h5" if path.name.endswith(_SUFFIXES["h5"]) else None
    if start.startswith(b"PK\x03\x04"):
        try:
            with zipfile.ZipFile(path) as archive:
                return "keras" if "config.json" in archive.namelist() else None
        except (OSError, zipfile.BadZipFile, ValueError):
            return "keras" if path.name.endswith(".keras") else None
    return None
