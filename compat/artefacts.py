"""What kind of artefact a path is: by its first bytes, or by TensorFlow's own names of files.

`saved_model.pb`, `checkpoint` and `.index` are such names; any other says nothing.
"""

from pathlib import Path
from typing import Literal
from zipfile import BadZipFile

from keras_mp.compat.checkpoints import locating
from keras_mp.compat.checkpoints.errors import Unreadable

# Of zipfile on damaged files; NotImplementedError is its word for a compression it does not know.
ZIP_FAILURES = (BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError, EOFError)

Kind = Literal["checkpoint", "saved_model", "h5", "keras", "json"]


def kind_of(path: str | Path) -> Kind:
    """Returns what a path is.

    Up to TF 2.12 a file called model.keras is HDF5, and one called x.weights.h5 may be of two
    layouts, so names say nothing.

    Raises:
        Unreadable: It is not there, or nothing of this kind.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "model.keras")
    ...     _ = path.write_bytes(b"\\x89HDF\\r\\n\\x1a\\n")
    ...     kind_of(path)
    'h5'
    """
    path = Path(path)
    if path.is_dir():
        if (path / "saved_model.pb").exists():
            return "saved_model"
        locating.prefix_of(path)
        return "checkpoint"
    if path.is_file() and path.suffix != ".index" and path.name != locating.STATE_FILE:
        with path.open("rb") as file:
            start = file.read(64)
        if start.startswith(b"\x89HDF\r\n\x1a\n"):
            return "h5"
        if start.startswith(b"PK\x03\x04"):
            return "keras"
        if start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
            return "json"
        if path.name == "saved_model.pb":
            return "saved_model"
    if not path.exists() and not Path(f"{path}.index").exists():
        raise Unreadable(str(path), "", "there is no such file")
    locating.prefix_of(path)
    return "checkpoint"
