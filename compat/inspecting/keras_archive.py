"""What is in a `.keras` file that is a zip archive: TF 2.13 and later, and Keras 3."""

import zipfile
from pathlib import Path
from typing import BinaryIO, cast

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.file_formats.zip_archives import (
    CONFIG,
    METADATA,
    WEIGHTS,
    ZIP_FAILURES,
    stored_member,
    zip_reason,
)
from keras_mp.compat.inspecting import configs, hdf5, versions
from keras_mp.compat.inspecting.inspection import Damage, Inspection

NO_SCALE = ".keras files of TF 2.13 to 2.15 hold neither the current loss scale nor its counter"
UNWRAPPED = (
    "compile() scaled the loss under the policy mixed_float16, and wrote the optimizer without its "
    "loss scaler"
)
_MOST_CONFIG = 1 << 28
_PIECE = 1 << 20


def fill_from_archive(found: Inspection, path: str, *, check: bool = True) -> None:
    """Fills in what a `.keras` archive says.

    Raises:
        Unreadable: It cannot be opened, or is no archive of Keras.
    """
    try:
        archive = zipfile.ZipFile(Path(path))
    except ZIP_FAILURES as error:
        raise Unreadable(path, "", f"cannot be opened: {zip_reason(error)}") from None
    with archive:
        names = archive.namelist()
        if CONFIG not in names:
            raise Unreadable(path, CONFIG, "is not in this archive: Keras did not write it")
        found.layout = "zip archive"
        damaged = _damaged(found, archive, path) if check else set()
        metadata = _json(found, archive, METADATA, path, damaged)
        version = metadata.get("keras_version")
        config = _json(found, archive, CONFIG, path, damaged)
        compiled = config.get("compile_config")
        optimizer = compiled.get("optimizer") if isinstance(compiled, dict) else None
        if isinstance(version, str):
            found.written_by, found.why = versions.of_keras_version(version, optimizer)
        configs.describe_model(found, config)
        described = configs.optimizer_of(optimizer)
        found.optimizers = [described] if described is not None else []
        if WEIGHTS not in names:
            found.damage.append(Damage(path, WEIGHTS, "is not in this archive"))
        elif WEIGHTS not in damaged:
            info = archive.getinfo(WEIGHTS)
            is_stored = info.compress_type == zipfile.ZIP_STORED
            with stored_member(path, info) if is_stored else archive.open(info) as file:
                _read_weights(found, cast("BinaryIO", file), path, check=check)
    if hdf5.NO_CHECKSUMS in found.notes:
        found.notes.remove(hdf5.NO_CHECKSUMS)  # the archive has some
    if versions.is_keras_3(found.written_by):
        return
    scaled = any("mixed_float16" in policy for policy in found.policies)
    for one in found.optimizers:
        one.note = NO_SCALE if scaled or one.loss_scaler is not None else None
        if one.loss_scaler is None and scaled:
            found.notes.append(UNWRAPPED)


def _damaged(found: Inspection, archive: zipfile.ZipFile, path: str) -> set[str]:
    """Reads every member, which checks its CRC; returns the names of those that fail."""
    damaged = set()
    for member in archive.infolist():
        try:
            if member.file_size > 1 << 30 and member.compress_size < member.file_size // 1000:
                raise ValueError("unpacks to more than a thousand times its size")
            with archive.open(member) as file:
                while file.read(_PIECE):
                    pass
        except ZIP_FAILURES as error:
            damaged.add(member.filename)
            found.damage.append(Damage(path, member.filename, zip_reason(error)))
    return damaged


def _json(
    found: Inspection, archive: zipfile.ZipFile, name: str, path: str, damaged: set[str]
) -> configs.Config:
    if name in damaged or name not in archive.namelist():
        return {}
    try:
        if archive.getinfo(name).file_size > _MOST_CONFIG:
            raise configs.Nonsense("is larger than 256 MiB")
        return configs.json_object(archive.read(name))
    except configs.Nonsense as error:
        found.damage.append(Damage(path, name, str(error)))
        return {}


def _read_weights(found: Inspection, file: BinaryIO, path: str, *, check: bool) -> None:
    try:
        hdf5.fill_from_hdf5(found, file, f"{path}/{WEIGHTS}", check=check)
    except Unreadable as error:
        found.damage.append(Damage(path, WEIGHTS, error.why))
