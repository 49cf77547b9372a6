"""Finds the artefacts in a folder, and the place of each output. Symbolic links are not followed.

In a folder of a store what a file is is told by its name: it is listed once, and nothing is read.
Left out are the folders that `code/tree.py` leaves out, too, but for those that `.gitignore` names.
"""

import hashlib
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from keras_mp.compat.checkpoints import locating, table
from keras_mp.compat.file_formats.file_kinds import Kind
from keras_mp.files.stores import listing
from keras_mp.files.stores.errors import NotThere
from keras_mp.files.stores.urls import is_url, join, local_of
from keras_mp.migration.code.tree import is_left_out, is_left_out_name

_DATA = re.compile(r"(.+)\.data-\d{5}-of-\d{5}")
_FOOTER = 48  # bytes that end an index
_SUFFIXES: dict[Kind, tuple[str, ...]] = {"keras": (".keras",), "h5": (".h5", ".hdf5", ".keras")}


@dataclass(frozen=True, slots=True)
class Found:
    """An artefact in a folder.

    Attributes:
        path: Its path or address; of a checkpoint its prefix, or the folder that has nothing else.
        kind: What it is; in a store, by its name.
        out: Its output, relative to the folder of the outputs.
        size: In bytes, as a store lists it; None for a local one.
        version: Of a store's: a text that another version of it would have otherwise, as far as
            the store tells.
    """

    path: str
    kind: Kind
    out: Path
    size: int | None = None
    version: str | None = None


@dataclass(slots=True)
class Walk:
    """What is in a folder.

    Attributes:
        found: The artefacts, in the order of their paths.
        left: How many other files there are.
        links: How many symbolic links.
        closed: Folders in it that may not be read.
        renamed: Outputs that got a number, as their names differ from others in case only.
    """

    found: list[Found]
    left: int = 0
    links: int = 0
    closed: list[str] = field(default_factory=list)
    renamed: int = 0


def walk(folder: str | Path) -> Walk:
    """Returns the artefacts in a folder and the folders in it.

    Args:
        folder: A local path, or an address.

    Raises:
        OSError: The folder cannot be read, or listed.
    """
    result = Walk([])
    if is_url(folder):
        _walk_store(str(folder), result)
        return result
    folder = local_of(folder)
    rows = sorted(_walk(folder, result))
    places = [PurePosixPath(path.relative_to(folder).as_posix()) for path, _ in rows]
    outs = _outs([(place, kind) for place, (_, kind) in zip(places, rows, strict=True)], result)
    for (path, kind), out in zip(rows, outs, strict=True):
        result.found.append(Found(str(path), kind, out))
    return result


def _outs(rows: list[tuple[PurePosixPath, Kind]], result: Walk) -> list[Path]:
    """Returns the outputs of artefacts, in their order. No two are one where case is nothing."""
    names = Counter((path.parent, _short(path.name, kind)) for path, kind in rows)
    outs, taken = [], set()
    for path, kind in rows:
        short = _short(path.name, kind)
        # Where two would become one, each keeps its whole name.
        name = short if names[path.parent, short] == 1 else path.name
        number, out = 1, path.parent / f"{name}.keras"
        while str(out).casefold() in taken:
            number += 1
            out = path.parent / f"{name}~{number}.keras"
        result.renamed += number > 1
        taken.add(str(out).casefold())
        outs.append(Path(out))
    return outs


def _walk_store(url: str, result: Walk) -> None:
    files: dict[str, listing.Entry] = {}
    for one in listing.listed(url, deep=True):
        parts = one.name.split("/")
        if one.type == "link":
            result.links += 1
        elif one.type == "file" and not any(map(is_left_out_name, parts[:-1])):
            files[one.name] = one
    of = _artefacts(files)
    result.left = len(files) - sum(len(parts) for _, parts in of.values())
    rows = sorted((PurePosixPath(name), kind) for name, (kind, _) in of.items())
    for (path, kind), out in zip(rows, _outs(rows, result), strict=True):
        entries = [files[part] for part in of[str(path)][1]]
        sizes = [one.size for one in entries if one.size is not None]
        size = sum(sizes) if len(sizes) == len(entries) else None
        versions = repr([(one.name, one.version) for one in entries])
        version = hashlib.sha256(versions.encode()).hexdigest()
        result.found.append(Found(join(url, str(path)), kind, out, size, version))


def is_folder_of_artefacts(path: str | Path) -> bool:
    """Returns whether a path is a folder of artefacts, and not one itself.

    Raises:
        StoreError: The store does not tell.
    """
    if is_url(path):
        return is_folder_of_store(str(path))
    path = local_of(path)
    if not path.is_dir() or (path / "saved_model.pb").is_file():
        return False
    return not is_one_checkpoint(path)


def is_folder_of_store(url: str) -> bool:
    """Returns whether an address is of a folder of artefacts, and not of one.

    Raises:
        StoreError: The store does not tell.
    """
    try:
        if listing.entry(url).type != "folder":
            return False
    except NotThere:
        return False  # of a checkpoint, the prefix; reading it says why where it is none
    files = [one.name for one in listing.listed(url, deep=True) if one.type == "file"]
    if "saved_model.pb" in files:
        return False
    found = _artefacts(f"here/{name}" for name in files)
    return list(found) != ["here"]


def _artefacts(names: Iterable[str]) -> dict[str, tuple[Kind, list[str]]]:
    """Returns name -> (kind, names of its files) of artefacts, by nothing but names."""
    files = list(names)
    found: dict[str, tuple[Kind, list[str]]] = {}
    folders = {name.rpartition("/")[0] for name in files if _last(name) == "saved_model.pb"} - {""}
    states = {name.rpartition("/")[0]: name for name in files if _last(name) == locating.STATE_FILE}
    prefixes: dict[str, list[str]] = {}
    # A prefix without its index, too: then its error is reported.
    with_data = {match[1] for name in files if (match := _DATA.fullmatch(name))}
    for name in sorted(files):
        inside = _ancestor(name, folders)
        prefix = locating.without_suffix(name)
        if inside is not None:
            found.setdefault(inside, ("saved_model", []))[1].append(name)
        elif prefix in with_data and prefix != name:
            if prefix not in found:
                prefixes.setdefault(name.rpartition("/")[0], []).append(prefix)
            found.setdefault(prefix, ("checkpoint", []))[1].append(name)
        else:
            ends = (kind for kind in _SUFFIXES if _last(name).endswith(_SUFFIXES[kind]))
            if (kind := next(ends, None)) is not None:
                found[name] = (kind, [name])
    below = Counter(str(above) for name in found for above in PurePosixPath(name).parents)
    for folder, inside_it in prefixes.items():
        # A folder that has nothing but one checkpoint, or those of one manager, is one artefact.
        is_one = folder in states or len(inside_it) == 1
        if folder and is_one and below[folder] == len(inside_it):
            parts = [part for prefix in inside_it for part in found.pop(prefix)[1]]
            state = [states[folder]] if folder in states else []
            found[folder] = ("checkpoint", sorted([*parts, *state]))
    return found


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _ancestor(name: str, folders: set[str]) -> str | None:
    found = (str(one) for one in reversed(PurePosixPath(name).parents))
    return next((one for one in found if one in folders), None)


def is_one_checkpoint(folder: str | Path) -> bool:
    """Returns whether a folder has nothing but one checkpoint, or those of one manager."""
    folder = local_of(folder)
    return _is_checkpoint(folder, _walk(folder, Walk([])))


def _is_checkpoint(folder: Path, rows: list[tuple[Path, Kind]]) -> bool:
    if not rows or any(kind != "checkpoint" or path.parent != folder for path, kind in rows):
        return False
    # Not where a folder in it has one, but that a SavedModel has lost its graph is to be said.
    inner = [path for path, _ in rows if path.is_dir() and path.name != "variables"]
    if any(not Path(f"{path}.index").exists() for path in inner):
        return False
    return (folder / locating.STATE_FILE).is_file() or len(rows) == 1


def _short(name: str, kind: Kind) -> str:
    for suffix in _SUFFIXES.get(kind, ()):
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return name


def _walk(folder: Path, result: Walk) -> list[tuple[Path, Kind]]:
    # Not by recursion, which ends at some hundred folders inside each other.
    rows: dict[Path, list[tuple[Path, Kind]]] = {}
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            if here != folder and (here / "saved_model.pb").is_file():
                rows[here] = [(here, "saved_model")]
                continue
            rows[here], folders = _listed(here, result)
        except PermissionError:
            if here == folder:
                raise
            result.closed.append(str(here))
        else:
            waiting += reversed(folders)
    for here in reversed(list(rows)[1:]):  # each before the folder that it is in
        below = rows[here]
        rows[here.parent] += [(here, "checkpoint")] if _is_checkpoint(here, below) else below
    return rows[folder]


def _listed(folder: Path, result: Walk) -> tuple[list[tuple[Path, Kind]], list[Path]]:
    """Returns the artefacts that lie in a folder, and the folders to look into."""
    rows: list[tuple[Path, Kind]] = []
    folders = []
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
            folders += [] if is_left_out(path) else [path]
        elif _DATA.fullmatch(entry.name) or entry.name in indexes:
            continue
        elif entry.is_file() and (kind := _kind(path)) is not None:
            rows.append((path.with_suffix("") if kind == "checkpoint" else path, kind))
        elif entry.name != locating.STATE_FILE:
            result.left += 1
    return rows, folders


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
