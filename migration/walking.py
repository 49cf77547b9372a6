"""The artefacts in a folder, and where each of them goes. Symbolic links are not followed."""

import os
import re
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from keras_mp.compat.artefacts import Kind
from keras_mp.compat.checkpoints import locating

_PART = re.compile(r"(.+)\.(index|data-\d{5}-of-\d{5})")
_SUFFIXES = {"h5": (".h5", ".hdf5", ".keras"), "keras": (".keras",)}


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
    """

    found: list[Found]
    left: int = 0
    links: int = 0


def walk(folder: Path) -> Walk:
    """Returns the artefacts in a folder and the folders in it.

    Raises:
        OSError: One of them cannot be read.
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
    return _is_checkpoint(folder, _walk(folder, Walk([]), inside=False))


def _is_checkpoint(folder: Path, rows: list[tuple[Path, Kind]]) -> bool:
    if not rows or any(kind != "checkpoint" or path.parent != folder for path, kind in rows):
        return False
    return (folder / locating.STATE_FILE).is_file() or len(rows) == 1


def _short(path: Path, kind: Kind) -> str:
    for suffix in _SUFFIXES.get(kind, ()):
        if path.name.endswith(suffix) and path.name != suffix:
            return path.name.removesuffix(suffix)
    return path.name


def _walk(folder: Path, result: Walk, *, inside: bool = True) -> list[tuple[Path, Kind]]:
    rows: list[tuple[Path, Kind]] = []
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        path = folder / entry.name
        if entry.is_symlink():
            result.links += 1
        elif entry.is_dir():
            if (path / "saved_model.pb").is_file():
                rows.append((path, "saved_model"))
                continue
            below = _walk(path, result)
            rows += [(path, "checkpoint")] if _is_checkpoint(path, below) else below
        elif match := _PART.fullmatch(entry.name):
            # Without its index, too: then its error is reported.
            prefix = (folder / match[1], "checkpoint")
            if prefix not in rows:
                rows.append(prefix)  # type: ignore[arg-type]
        elif entry.is_file() and (kind := _kind(path)) is not None:
            rows.append((path, kind))
        elif entry.name != locating.STATE_FILE:
            result.left += 1
    return rows


def _kind(path: Path) -> Kind | None:
    """Returns what a file is, if it is a model of Keras or the weights of one."""
    with path.open("rb") as file:
        start = file.read(8)
    if start == b"\x89HDF\r\n\x1a\n":
        return "h5" if path.name.endswith(_SUFFIXES["h5"]) else None
    if start.startswith(b"PK\x03\x04"):
        try:
            with zipfile.ZipFile(path) as archive:
                return "keras" if "config.json" in archive.namelist() else None
        except (OSError, zipfile.BadZipFile, ValueError):
            return "keras" if path.name.endswith(".keras") else None
    return None
