"""Tells the format of a file or folder: by its first bytes, or by TensorFlow's own file names.

Those are `saved_model.pb`, `checkpoint` and `*.index`; no other name is trusted.
"""

from pathlib import Path
from typing import Literal

from keras_mp.compat.checkpoints import locating
from keras_mp.compat.checkpoints.errors import Unreadable
from keras_mp.compat.file_formats import stand_ins
from keras_mp.files import regular_files

# How Keras 3 calls the index of sharded weights.
SHARDS = "model.weights.json"
OF_SHARDS = (
    "holds weights of Keras 3 in shards: keras_mp.compat.load_model loads what `keras-mp migrate "
    "--shard-size` wrote, and model.load_weights the weights alone"
)
_MOST_PARTS = 1000
Kind = Literal["checkpoint", "saved_model", "h5", "keras", "json"]


def kind_of(path: str | Path) -> Kind:
    """Returns what a path is.

    Up to TF 2.12 a file called model.keras is HDF5, and one called x.weights.h5 may be of two
    layouts, so names say nothing.

    Raises:
        Unreadable: It does not exist, or nothing of this kind.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "model.keras")
    ...     _ = path.write_bytes(b"\\x89HDF\\r\\n\\x1a\\n")
    ...     kind_of(path)
    'h5'
    """
    path = Path(path)
    _refuse_stand_ins(path)
    if locating.exists_or_raise(path.is_dir):
        if locating.exists_or_raise((path / "saved_model.pb").is_file):
            return "saved_model"
        if locating.exists_or_raise((path / SHARDS).is_file):
            raise Unreadable(str(path), "", OF_SHARDS)
        locating.prefix_of(path)
        return "checkpoint"
    is_part = path.suffix == ".index" or path.name == locating.STATE_FILE
    if not is_part and locating.exists_or_raise(path.is_file):
        start = _start_of(path)
        if start.startswith(b"\x89HDF\r\n\x1a\n"):
            return "h5"
        if start.startswith(b"PK\x03\x04"):
            return "keras"
        if start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[", b'"'):
            return "json"
        if path.name == "saved_model.pb":
            return "saved_model"
    if not locating.exists_or_raise(path.exists) and not _is_of_checkpoint(path):
        raise Unreadable(str(path), "", "there is no such file")
    if locating.exists_or_raise(path.exists) and not locating.exists_or_raise(path.is_file):
        raise Unreadable(str(path), "", f"cannot be read: {regular_files.NOT_REGULAR}")
    locating.prefix_of(path)
    return "checkpoint"


def _refuse_stand_ins(path: Path) -> None:
    """Raises where a file of an artefact is none: of a SavedModel and a checkpoint any of them."""
    files, is_part = [path], path.suffix == ".index" or path.name == locating.STATE_FILE
    if locating.exists_or_raise(path.is_dir):
        files = [path / "saved_model.pb", path / "keras_metadata.pb"]
        files += sorted(path.glob("variables/variables.*"))[:_MOST_PARTS]
    else:
        prefix = Path(locating.without_suffix(str(path)))
        parts = locating.data_files(prefix.parent, prefix.name)[:_MOST_PARTS]
        files += [Path(f"{prefix}.index"), *(prefix.parent / name for _, name in parts)]
    for file in files:
        what = stand_ins.kind_of_stand_in(file)
        # A part may be empty, or whoever reads the others says what it lacks.
        if what is not None and (what != stand_ins.EMPTY or (file == path and not is_part)):
            raise Unreadable(str(file), "", what)


def _is_of_checkpoint(path: Path) -> bool:
    is_whole = locating.exists_or_raise(Path(f"{path}.index").is_file)
    prefix = Path(locating.without_suffix(str(path)))
    return is_whole or bool(locating.data_files(prefix.parent, prefix.name))


def _start_of(path: Path) -> bytes:
    try:
        with regular_files.opened(path) as file:
            return file.read(64)
    except OSError as error:
        raise Unreadable(str(path), "", f"cannot be opened: {error.strerror}") from None
