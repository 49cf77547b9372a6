"""`inspect`: recognizes the kind of an artefact, and calls its reader."""

from dataclasses import replace
from pathlib import Path

from keras_mp.compat.checkpoints import Unreadable, locating
from keras_mp.compat.checkpoints.staging import local_artefact
from keras_mp.compat.configs import kind_of as kind_of_config
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.file_formats.file_kinds import kind_of
from keras_mp.compat.inspecting import (
    checkpoint,
    configs,
    hdf5,
    keras_archive,
    saved_model,
    versions,
)
from keras_mp.compat.inspecting.inspection import Inspection
from keras_mp.files.stores.scratch import Scratch
from keras_mp.files.stores.urls import is_url, parent, redacted

_MOST_JSON = 1 << 26


def inspect(path: str | Path, scratch: Scratch | None = None, *, check: bool = True) -> Inspection:
    """Returns what is inside an artefact; needs neither Keras nor TensorFlow.

    Reads every array once, and checks its checksum where the format has any.

    Args:
        path: A checkpoint (its prefix, `.index` or folder), the folder of a SavedModel, an HDF5
            file, a `.keras` file, or a config as JSON; or its address where fsspec reaches it.
        scratch: Where files of stores are kept meanwhile.
        check: Whether to read every array; without, single numbers only, such as a loss scale.

    Raises:
        Unreadable: It does not exist, of no such kind, or so damaged that nothing can be said.

    >>> import json, tempfile
    >>> config = {"class_name": "Sequential", "config": {"name": "net", "layers": []}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "model.json")
    ...     _ = path.write_text(json.dumps(config))
    ...     inspect(path).model
    Model(class_name='Sequential', name='net', layers=0)
    """
    with local_artefact(path, scratch) as local:
        found = _inspected(local, check)
    if is_url(path):
        found.path = redacted(path)
        old, new = str(local.parent), redacted(parent(str(path))).rstrip("/")
        found.damage = [replace(one, file=one.file.replace(old, new)) for one in found.damage]
    return found


def _inspected(path: Path, check: bool) -> Inspection:
    found = Inspection(str(path), kind_of(path))
    match found.kind:
        case "checkpoint":
            checkpoint.fill_from_checkpoint(found, locating.prefix_of(path), check=check)
        case "saved_model":
            saved_model.fill_from_saved_model(
                found, path if path.is_dir() else path.parent, check=check
            )
        case "h5":
            hdf5.fill_from_hdf5(found, str(path), str(path), check=check)
        case "keras":
            keras_archive.fill_from_archive(found, str(path), check=check)
        case _:
            _read_json(found, path)
    return found


def _read_json(found: Inspection, path: Path) -> None:
    try:
        if path.stat().st_size > _MOST_JSON:
            raise Unreadable(str(path), "", "is larger than 64 MiB")
        config = configs.json_object(path.read_bytes())
        kind = kind_of_config(config)
    except OSError as error:
        raise Unreadable(str(path), "", f"cannot be opened: {error.strerror}") from None
    except configs.Nonsense as error:
        raise Unreadable(str(path), "", str(error)) from None
    except LegacyError as error:
        raise Unreadable(str(path), error.path, f"{error.found}: {error.why}") from None
    found.layout = f"config of {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    version = config.get("keras_version")
    if isinstance(version, str):
        found.written_by, found.why = versions.of_keras_version(version)
    if kind == "model":
        configs.describe_model(found, config)
    if kind in ("optimizer", "training"):
        given = config if kind == "optimizer" else config.get("optimizer_config")
        optimizer = configs.optimizer_of(given)
        found.optimizers = [optimizer] if optimizer is not None else []
