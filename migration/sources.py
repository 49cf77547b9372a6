"""The files that make up an artefact, their checksum, and the mark that an output carries of it."""

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import keras_mp
from keras_mp.compat.checkpoints import Unreadable, locating
from keras_mp.compat.file_formats.file_kinds import Kind
from keras_mp.files import regular_files
from keras_mp.files.stores.downloads import tail
from keras_mp.files.stores.errors import NotThere, StoreError
from keras_mp.files.stores.urls import is_url, local_of, redacted

_PIECE = 1 << 20
# What ends a zip archive: a record, and a comment of at most 65,535 bytes.
_END, _END_SIZE, _LONGEST_END = b"PK\x05\x06", 22, 22 + 0xFFFF
_PART = re.compile(r"\.(?:index|data-\d{5}-of-\d{5})")


def files_of(path: Path, kind: Kind) -> list[Path]:
    """Returns the files that an artefact consists of.

    Raises:
        Unreadable: There is no checkpoint.
    """
    if kind == "saved_model":
        folder = path if path.is_dir() else path.parent
        names = ("saved_model.pb", "keras_metadata.pb", "fingerprint.pb")
        files = [folder / name for name in names] + list((folder / "variables").glob("*"))
        files += (folder / "assets").rglob("*")  # vocabularies, and what export_saved_model wrote
        return sorted(file for file in files if file.is_file())
    if kind == "checkpoint":
        prefix = Path(locating.prefix_of(path))
        start = len(prefix.name)
        return sorted(
            file
            for file in prefix.parent.iterdir()
            if file.name.startswith(prefix.name) and _PART.fullmatch(file.name[start:])
        )
    return [path]


def holds_model(path: Path, kind: Kind) -> bool:
    """Returns whether an artefact says what model it is of: no checkpoint does, nor weights.

    Raises:
        Unreadable: It is an HDF5 file with neither a model nor weights, or damaged.
    """
    if kind != "h5":
        return kind != "checkpoint"
    import h5py

    try:
        with h5py.File(path, "r") as file:
            names = {"layer_names", "layers", "_layer_checkpoint_dependencies", "model_weights"}
            if "model_config" in file.attrs:
                return True
            if not names & {*file.attrs, *file}:
                why = "holds neither a Keras model nor weights (interrupted save?)"
                raise Unreadable(str(path), "", why)
    except (OSError, RuntimeError, KeyError) as error:
        why = f"cannot be opened: {' '.join(str(error).split())}"
        raise Unreadable(str(path), "", why) from None
    return False


def checksum(files: list[Path], progress: Callable[[int], object] = lambda _: None) -> str:
    """Returns the SHA-256 of one file; of several, that of what `sha256sum` prints of them.

    Args:
        files: To be read.
        progress: Is called with the number of bytes after each piece.

    Raises:
        Unreadable: One cannot be read.
    """
    lines = []
    for file in files:
        digest = hashlib.sha256()
        try:
            with regular_files.opened(file) as opened:
                while piece := opened.read(_PIECE):
                    digest.update(piece)
                    progress(len(piece))
        except OSError as error:
            raise Unreadable(str(file), "", f"cannot be read: {error.strerror}") from None
        lines.append(f"{digest.hexdigest()}  ".encode() + os.fsencode(file.name) + b"\n")
    if len(files) == 1:
        return lines[0][:64].decode()
    return hashlib.sha256(b"".join(lines)).hexdigest()


def write_mark(path: Path, source: str, sha256: str, options: Mapping[str, object]) -> None:
    """Writes into a `.keras` file from what it was made.

    The comment of the archive is the place: Keras does not read it, and it cannot get lost.
    """
    shown = redacted(source)[-1000:]
    made = {"keras_mp": keras_mp.__version__, "from": shown, "sha256": sha256}
    text = json.dumps({**made, "options": dict(options)}, sort_keys=True)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = text.encode()


def read_mark(path: str | Path) -> dict[str, object]:
    """Returns the mark of a file, local or of a store; nothing where it has none.

    Raises:
        StoreError: The store does not answer.
    """
    try:
        found = json.loads(_comment_of(str(path)) if is_url(path) else _comment(local_of(path)))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, StoreError) and not isinstance(error, NotThere):
            raise
        return {}
    return found if isinstance(found, dict) else {}


def _comment(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.comment


def _comment_of(url: str) -> bytes:
    end = tail(url, _LONGEST_END)
    at = end.rfind(_END)
    return end[at + _END_SIZE :] if at >= 0 else b""
