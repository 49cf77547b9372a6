"""Models of Keras 3 whose weights are in several files: what `keras-mp migrate --shard-size` wrote.

Keras has sharded weights, `model.weights.json` and the files it names, but no model file of them.
The config of the model lies beside them here, as in an unpacked `.keras` file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_mp.backends import keras_hooks
from keras_mp.compat import recursion
from keras_mp.compat.checkpoints import Unreadable, locating
from keras_mp.compat.configs.checks import at, describe
from keras_mp.compat.file_formats.file_kinds import SHARDS
from keras_mp.compat.file_formats.hdf5_groups import open_hdf5
from keras_mp.compat.file_formats.zip_archives import CONFIG
from keras_mp.compat.restoring import building, claims
from keras_mp.compat.restoring.limits import limit_weights
from keras_mp.files import regular_files
from keras_mp.files.deserializing import deserialized

# Keras opens it whatever the index names, and 3.10 takes from it what that leaves out.
_FIRST = SHARDS.replace(".weights.json", "_00000.weights.h5")


def is_sharded(path: str | Path) -> bool:
    """Returns whether a path is the folder of such a model."""
    return locating.exists_or_raise(Path(path, SHARDS).is_file) and locating.exists_or_raise(
        Path(path, CONFIG).is_file
    )


def load(
    path: str | Path,
    custom_objects: Mapping[str, Any],
    *,
    safe_mode: bool = True,
    compile: bool = True,
) -> Any:
    """Returns the model, with the state of its optimizer. Args are those of `load_model`.

    Raises:
        Unreadable: It is damaged, or Keras cannot load it.
    """
    file = str(path)
    config = _json(Path(path), file, CONFIG)
    claims.refuse(file, CONFIG, config)
    if not compile:
        config["compile_config"] = None
    with limit_weights(file), recursion.enough_for(recursion.layers_of(config)):
        with building.named_errors(file, CONFIG), keras_hooks.sharing_objects():
            model = deserialized(config, custom_objects, where=CONFIG, safe_mode=safe_mode)
        _check_files(Path(path), file)
        with building.named_errors(file, SHARDS):
            model.load_weights(Path(path, SHARDS))
    return model


def _json(folder: Path, file: str, name: str) -> building.Json:
    try:
        text = regular_files.read_bytes(folder / name)
    except OSError as error:
        raise Unreadable(file, name, f"cannot be read: {error.strerror}") from None
    return building.json_object(text, file, name)


def _check_files(folder: Path, file: str) -> None:
    """Refuses shards elsewhere, which Keras 3.10 leaves out in silence, and later ones may read.

    Raises:
        Unreadable: The index names what is no shard in the folder, or one leads elsewhere.
    """
    weights = _json(folder, file, SHARDS).get("weight_map")
    if not isinstance(weights, dict):
        raise Unreadable(file, SHARDS, "has no weight_map")
    places = {_FIRST: "the first shard"}
    for key, value in weights.items():
        where = at("$.weight_map", key)
        for name in value if isinstance(value, list) else [value]:
            if not isinstance(name, str) or name in (".", "..") or Path(name).name != name:
                why = f"{where} {describe(name)}, which is no file of this folder"
                raise Unreadable(file, SHARDS, why)
            places.setdefault(name, where)
    for name, where in places.items():
        if not locating.exists_or_raise((folder / name).is_file):
            raise Unreadable(file, SHARDS, f"{where} {describe(name)}, which does not exist")
        with open_hdf5(folder / name, str(folder / name)) as root:
            root.check_all()
