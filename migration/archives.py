"""A `.keras` file that depends on the model alone: the same model gives the same bytes.

Keras writes the time into it, and numbers objects that are shared by their addresses. Here dates
are fixed, and shared objects are numbered as they appear. When a file was made, its ledger says.

Keras makes the weights of a `.keras` file in memory, and reads them all at once, where half of what
is free is enough for that. A folder it writes and reads one tensor after another. So a model is
saved as a folder, loaded again from there, and packed as it is.
"""

import errno
import json
import random
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keras_mp.compat.file_formats.zip_archives import CONFIG, METADATA, WEIGHTS
from keras_mp.files.stores.downloads import head
from keras_mp.files.stores.errors import StoreError
from keras_mp.files.stores.urls import is_url
from keras_mp.migration import disk_room

DATE = "1980-01-01@00:00:00"  # the first that a zip archive knows
MADE = "keras_mp"  # the key in the metadata
MOST_METADATA = 1 << 24
_SHARED = "shared_object_id"
_PIECE = 1 << 20
_HEAD = 1 << 16
_LOCAL = 30  # bytes before the name of a member


def write(model: Any, folder: Path, made: Mapping[str, object]) -> None:
    """Saves a model as the folder that `keras.saving.load_model` reads.

    Args:
        model: A Keras model.
        folder: Does not exist yet.
        made: What is to be said of how it came about, as JSON. It is in the metadata, which Keras
            does not read: a file more, and Keras would unpack all of them to load it.

    Raises:
        OSError: It cannot be written.
    """
    with disk_room.named_errors(folder):
        # From where it stands: of a relative path Keras loses the assets.
        model.save(folder.absolute(), zipped=False)
    metadata = json.loads((folder / METADATA).read_bytes())
    metadata = metadata | {"date_saved": DATE, MADE: dict(made)}
    (folder / METADATA).write_text(json.dumps(metadata), encoding="utf-8")
    config = json.loads((folder / CONFIG).read_bytes())
    (folder / CONFIG).write_text(json.dumps(renumber_shared_objects(config)), encoding="utf-8")


def pack(folder: Path, path: Path) -> None:
    """Makes a `.keras` file of such a folder, not compressed, and reads it once.

    Raises:
        OSError: It cannot be written, or reads back differently from what was written.
    """
    with zipfile.ZipFile(path, "x") as archive:
        for file in _files(folder):
            _add(archive, file, file.relative_to(folder).as_posix())
    with zipfile.ZipFile(path) as archive:
        if (damaged := archive.testzip()) is not None:
            raise OSError(
                errno.EIO, f"{damaged} reads back differently from what was written", str(path)
            )


def made_of(path: str | Path) -> dict[str, Any]:
    """Returns what `write` was told of how a file came about; nothing where nobody told it.

    Args:
        path: A local path, or an address, of which only the beginning is read.

    Raises:
        StoreError: The store does not answer.
    """
    try:
        found = json.loads(_metadata_of(str(path)) if is_url(path) else _metadata(Path(path)))
    except StoreError:
        raise
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return {}
    made = found.get(MADE) if isinstance(found, dict) else None
    return made if isinstance(made, dict) else {}


def _metadata(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        if archive.getinfo(METADATA).file_size > MOST_METADATA:
            return b"{}"
        return archive.read(METADATA)


def _metadata_of(url: str) -> bytes:
    """Returns the first member, as `pack` stored it."""
    start = head(url, _HEAD)
    if start[:4] != b"PK\x03\x04" or len(start) < _LOCAL:
        return b"{}"
    size, name, extra = (
        int.from_bytes(start[at : at + n], "little") for at, n in ((22, 4), (26, 2), (28, 2))
    )
    end = _LOCAL + name + extra + size
    if start[_LOCAL : _LOCAL + name] != METADATA.encode() or size > MOST_METADATA:
        return b"{}"
    return (start if end <= len(start) else head(url, end))[end - size : end]


def renumber_shared_objects(config: Any) -> Any:
    """Returns a config with its shared objects numbered from 0, in the order of the text.

    >>> layers = [{"shared_object_id": 97}, {"a": {"shared_object_id": 5}}, {"a": 97}]
    >>> renumber_shared_objects(layers)
    [{'shared_object_id': 0}, {'a': {'shared_object_id': 1}}, {'a': 97}]
    """
    numbers: dict[int, int] = {}

    def walked(value: Any) -> Any:
        if isinstance(value, list):
            return [walked(one) for one in value]
        if not isinstance(value, dict):
            return value
        return {
            key: numbers.setdefault(one, len(numbers))
            if key == _SHARED and type(one) is int
            else walked(one)
            for key, one in value.items()
        }

    return walked(config)


@contextmanager
def seeds_from(sha256: str) -> Iterator[None]:
    """Lets Keras draw the seeds that a model does not give from a checksum: they are saved."""
    before = random.getstate()
    random.seed(sha256)
    try:
        yield
    finally:
        random.setstate(before)


def _files(folder: Path) -> list[Path]:
    first = [folder / name for name in (METADATA, CONFIG, WEIGHTS)]
    rest = sorted(path for path in folder.rglob("*") if path.is_file() and path not in first)
    return [*first, *rest]


def _add(archive: zipfile.ZipFile, file: Path, name: str) -> None:
    info = zipfile.ZipInfo(name)  # its date is the first that there is
    info.file_size = file.stat().st_size  # tells whether it needs zip64
    with file.open("rb") as source, archive.open(info, "w") as target:
        shutil.copyfileobj(source, target, _PIECE)
