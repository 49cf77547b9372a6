"""`audit`: finds what an untrusted artefact holds besides a model, without loading it.

Needs neither Keras nor TensorFlow, and looks at all of it that some program would use: the configs
of each format, the graphs of SavedModels, links, sizes and names.
"""

import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, cast

from keras_mp.compat.checkpoints import Unreadable, locating, wire
from keras_mp.compat.checkpoints.errors import Malformed
from keras_mp.compat.checkpoints.staging import local_artefact
from keras_mp.compat.file_formats import saved_models
from keras_mp.compat.file_formats.file_kinds import SHARDS, kind_of
from keras_mp.compat.file_formats.hdf5_groups import FAILURES, reason
from keras_mp.compat.file_formats.zip_archives import (
    CONFIG,
    METADATA,
    ZIP_FAILURES,
    stored_member,
    zip_reason,
)
from keras_mp.compat.inspecting import (
    audited_configs,
    audited_files,
    checkpoint,
)
from keras_mp.compat.inspecting.configs import Nonsense
from keras_mp.compat.inspecting.findings import Audit, Finding
from keras_mp.compat.inspecting.inspection import Inspection
from keras_mp.files import regular_files
from keras_mp.files.stores.scratch import Scratch
from keras_mp.files.stores.urls import is_url, redacted

_MOST_CONFIG = 1 << 28
_WEIGHTS = (".h5", ".hdf5")
_MOST = 1000
MORE = "and more: the first 1,000 are shown"


def audit(path: str | Path, scratch: Scratch | None = None) -> Audit:
    """Returns what to look at in an artefact before it is loaded.

    Nothing of it is run, unpickled or unpacked, and no link in an HDF5 file is followed. That
    nothing is found says nothing of what the model computes: only that it brings no code, names no
    other file, and hides nothing that is looked for here.

    Args:
        path: A checkpoint, the folder of a SavedModel or of Keras' sharded weights, an HDF5 file, a
            `.keras` file, or a config as JSON; or its address where fsspec reaches it.
        scratch: Where files of stores are kept meanwhile.

    >>> import json, tempfile
    >>> layer = {"class_name": "Lambda", "config": {"function": ["4wEAAA==", None, None]}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "layer.json")
    ...     _ = path.write_text(json.dumps(layer))
    ...     found = audit(path)
    >>> found.verdict, found.findings[0].where
    ('look at it', 'config: $.config.function')
    """
    shown = redacted(path) if is_url(path) else str(path)
    found = Audit(shown)
    try:
        with local_artefact(path, scratch) as local:
            _audit(found, local)
    except Unreadable as error:
        found.errors.append(str(error))
    return found


def _audit(found: Audit, path: Path) -> None:
    if locating.exists_or_raise((path / SHARDS).is_file):
        found.kind = "shards"
        _of_shards(found, path)
        return
    found.kind = kind_of(path)
    _add(found, audited_files.of_name(path.name, "file"))
    match found.kind:
        case "checkpoint":
            _of_checkpoint(found, path)
        case "saved_model":
            _of_saved_model(found, saved_models.folder_of(path))
        case "h5":
            _of_hdf5(found, str(path), "file", path.stat().st_size)
        case "keras":
            _of_archive(found, path)
        case _:
            _of_text(found, _read(path), "config", path.stat().st_size)


def _add(found: Audit, findings: Iterable[Finding]) -> None:
    for one in findings:
        if len(found.findings) == _MOST:
            found.findings.append(Finding(one.sort, "", MORE))
        if len(found.findings) > _MOST:
            return
        if one not in found.findings:
            found.findings.append(one)


def _read(path: Path) -> bytes:
    try:
        return regular_files.read_bytes(path, _MOST_CONFIG)
    except OSError as error:
        raise Unreadable(str(path), "", f"cannot be opened: {error.strerror}") from None


def _of_text(found: Audit, text: str | bytes, where: str, stored: int) -> None:
    """Audits a config."""
    _add(found, audited_configs.of_config(_parsed(found, text, where), where, stored))


def _parsed(found: Audit, text: str | bytes, where: str) -> Mapping[str, object]:
    """Returns a JSON object; an empty one where there is an error."""
    try:
        value, twice = audited_configs.json_and_findings(text, where)
    except Nonsense as error:
        found.errors.append(f"{where}: {error}")
        return {}
    _add(found, twice)
    return value


def _of_hdf5(found: Audit, file: str | BinaryIO, where: str, stored: int) -> None:
    import h5py

    try:
        with h5py.File(file, "r") as root:
            for name in ("model_config", "training_config"):
                if name in root.attrs:
                    value = root.attrs[name]
                    text = value if isinstance(value, bytes | str) else str(value)
                    _of_text(found, text, f"{where}: {name}", stored)
            _add(found, audited_files.of_hdf5(root, where))
    except FAILURES as error:
        found.errors.append(f"{where}: {reason(error)}")


def _of_archive(found: Audit, path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            if CONFIG not in archive.namelist():
                found.errors.append(f"{CONFIG} is not in this archive: Keras did not write it")
            _add(found, audited_files.of_archive(archive))
            for member in archive.infolist():
                if not audited_files.is_too_large(member):
                    _of_member(found, archive, path, member)
    except ZIP_FAILURES as error:
        found.errors.append(zip_reason(error))


def _of_member(found: Audit, archive: zipfile.ZipFile, path: Path, member: zipfile.ZipInfo) -> None:
    name, stored = member.filename, path.stat().st_size
    try:
        if name in (CONFIG, METADATA, SHARDS):
            _of_json(found, name, archive.read(member), stored)
        elif name.endswith(_WEIGHTS):
            is_stored = member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1
            opened = stored_member(path, member) if is_stored else archive.open(member)
            with opened as file:
                _of_hdf5(found, cast("BinaryIO", file), name, stored)
    except ZIP_FAILURES as error:
        found.errors.append(f"{name}: {zip_reason(error)}")


def _of_shards(found: Audit, folder: Path) -> None:
    files = _files(found, folder)
    stored = sum(file.stat().st_size for file in files)
    for name in (SHARDS, CONFIG, METADATA):
        if locating.exists_or_raise((folder / name).is_file):
            _of_json(found, name, _read(folder / name), stored)
    for file in files:
        if file.suffix in _WEIGHTS:
            _of_hdf5(found, str(file), file.name, stored)


def _of_json(found: Audit, name: str, text: bytes, stored: int) -> None:
    """Audits a JSON file of Keras 3, by what it is for."""
    if name == CONFIG:
        _of_text(found, text, name, stored)
        return
    value = _parsed(found, text, name)
    if name == SHARDS:
        _add(found, _of_index(value, name))


def _of_index(index: Mapping[str, object], where: str) -> Iterable[Finding]:
    """Yields the files that an index of sharded weights names, and that are not beside it."""
    for name in _texts(index.get("weight_map")):
        if "/" in name or "\\" in name or name.startswith("."):
            yield Finding("path", f"{where}: $.weight_map", f"the file {name!a}")


def _texts(value: object) -> dict[str, None]:
    """Returns the texts in a mapping of lists or texts, each once, in their order."""
    values = value.values() if isinstance(value, dict) else ()
    lists = (one if isinstance(one, list) else [one] for one in values)
    return dict.fromkeys(text for one in lists for text in one if isinstance(text, str))


def _files(found: Audit, folder: Path) -> list[Path]:
    """Returns the files in a folder; what is no file of it is a finding."""
    files = []
    for path in sorted(folder.rglob("*")):
        where = path.relative_to(folder).as_posix()
        _add(found, audited_files.of_name(path.name, where))
        if path.is_symlink():
            _add(found, [Finding("link", where, f"is a symbolic link to {path.readlink()}")])
        elif path.is_file():
            files.append(path)
        elif not path.is_dir():
            _add(found, [Finding("link", where, "is neither a file nor a folder")])
    return files


def _of_checkpoint(found: Audit, path: Path) -> None:
    folder = path if path.is_dir() else path.parent
    state = folder / locating.STATE_FILE
    if (path == state or path.is_dir()) and locating.exists_or_raise(state.is_file):
        _add(found, _of_state(state))
    _of_tensors(found, locating.prefix_of(path))


def _of_tensors(found: Audit, prefix: str) -> None:
    inside = Inspection(prefix, "checkpoint")
    checkpoint.fill_from_checkpoint(inside, prefix)
    found.errors += map(str, inside.damage)
    for tensor in inside.tensors:
        if not tensor.key.isprintable():
            what = f"has characters that are not seen: {tensor.key!a}"
            _add(found, [Finding("name", "tensor", what)])


def _of_state(state: Path) -> Iterable[Finding]:
    """Yields the checkpoints that a state file names, and that are not in its folder."""
    with regular_files.opened(state) as file:
        lines = file.read(1 << 22).decode("latin-1").split("\n")
    for line in lines:
        key, _, value = line.partition(":")
        name = value.strip().strip('"')
        if key.strip().endswith("checkpoint_path") or key.strip().endswith("checkpoint_paths"):
            parts = name.replace("\\", "/").split("/")
            if ".." in parts or name.startswith("/"):
                yield Finding("path", f"{state.name}: {key.strip()}", f"the file {name!a}")


def _of_saved_model(found: Audit, folder: Path) -> None:
    stored = sum(file.stat().st_size for file in _files(found, folder))
    _of_proto(found, folder / saved_models.GRAPH, lambda message: _of_graph(found, message))
    metadata = folder / saved_models.METADATA
    if metadata.is_file():
        _of_proto(found, metadata, lambda message: _of_metadata(found, message, stored))
    exported = folder / saved_models.EXPORTED
    if exported.is_file():
        _of_proto(found, exported, lambda text: _of_node(found, bytes(text), exported.name, stored))
    index = Path(saved_models.variables_of(folder))
    if index.is_file():
        _of_tensors(found, str(index).removesuffix(".index"))


def _of_proto(found: Audit, path: Path, audit_message: Callable[[memoryview], None]) -> None:
    try:
        audit_message(memoryview(_read(path)))
    except (Malformed, Unreadable) as error:
        found.errors.append(f"{path.name}: {error}")


def _of_graph(found: Audit, message: memoryview) -> None:
    _add(found, audited_files.of_graphs(message, saved_models.GRAPH))
    for meta_graph in wire.all_of(message, 2):
        for objects in wire.all_of(meta_graph, 7):
            for node in wire.all_of(objects, 1):
                for user_object in wire.all_of(node, 4):
                    for text in wire.all_of(user_object, 3):
                        _of_node(found, bytes(text), saved_models.GRAPH, len(message))


def _of_metadata(found: Audit, message: memoryview, stored: int) -> None:
    for node in wire.all_of(message, 1):
        name = next((wire.text(path) for path in wire.all_of(node, 3)), "")
        for text in wire.all_of(node, 5):
            _of_node(found, bytes(text), f"{saved_models.METADATA}: {name}", stored)


def _of_node(found: Audit, text: bytes, where: str, stored: int) -> None:
    # Objects of TensorFlow's own have metadata that is no JSON.
    if text.lstrip().startswith(b"{"):
        _of_text(found, text, where, stored)
