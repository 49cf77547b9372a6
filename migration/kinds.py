"""Decides by its name and its first bytes what a PATH is, without heavy imports."""

from pathlib import Path
from typing import Literal

from keras_mp.files import regular_files
from keras_mp.files.stores.urls import is_url, local_of, name
from keras_mp.migration.reading import STDIN, YAML

KindOfPath = Literal["config", "source", "folder", "artefact"]

SOURCES = (".py", ".ipynb")
# The kinds of `compat.configs.convert`, which takes longer to import than the help to be shown.
CONFIGS = ("layer", "loss", "metric", "model", "optimizer", "policy", "training")


def kind_of_path(path: str, said: str | None) -> KindOfPath:
    """Returns what a PATH is; a folder may be an artefact, too.

    Args:
        path: As given; "-" is stdin.
        said: What a config is of, where the user said that it is one.
    """
    if said is not None:
        return "config"
    if is_url(path):
        # What it is of the others is asked of the store, later.
        return "config" if name(path).endswith((".json", *YAML)) else "artefact"
    if is_source(path):
        return "source"
    if _is_config(path):
        return "config"
    return "folder" if Path(path).is_dir() else "artefact"


def is_source(path: str) -> bool:
    """Returns whether a PATH is named as source code is, and no folder."""
    return path.endswith(SOURCES) and not is_url(path) and not is_folder(path)


def is_folder(path: str | Path) -> bool:
    """Returns whether a PATH is a folder, as far as one can tell."""
    try:
        return Path(path).is_dir()
    except OSError:
        return False  # reading it says why not


def is_there(path: str) -> bool:
    """Returns whether there is something by a PATH, as far as one can tell."""
    try:
        return path == STDIN or is_url(path) or local_of(path).exists()
    except OSError:
        return True  # reading it says why not


def _is_config(path: str) -> bool:
    """Returns whether a path is to be read as JSON, so that nothing heavy need be loaded."""
    if path == STDIN:
        return True
    try:
        if Path(path).is_dir() or Path(f"{path}.index").exists():
            return False
        if not Path(path).is_file():
            return not _has_data_files(path)
        if path.endswith((".json", *YAML)):
            return True
        with regular_files.opened(path) as file:
            start = file.read(64)
    except OSError:
        return True  # reading it says why not
    return start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[", b'"')


def _has_data_files(path: str) -> bool:
    """Returns whether a path that does not exist names a checkpoint that has lost its index."""
    from keras_mp.compat.checkpoints import locating  # late: it needs NumPy

    prefix = Path(locating.without_suffix(path))
    return bool(locating.data_files(prefix.parent, prefix.name))
