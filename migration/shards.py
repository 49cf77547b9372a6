"""`--shard-size`: a folder with the config of a model, and its weights in files of a bounded size.

The weights, and the state of the optimizer with them, are Keras' sharded weights.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_mp.files.stores.scratch import parsed_size
from keras_mp.migration import archives, disk_room
from keras_mp.migration.publishing import Refused

LEAST = 1000
_SINCE = (3, 11)
TOO_OLD = (
    "--shard-size needs Keras 3.11 or later, and this is {}: earlier versions lose optimizer "
    "state that spans several shards"
)
ASSETS = (
    "--shard-size: {} keeps files of its own (a vocabulary), which Keras' sharded weights "
    "cannot store: omit --shard-size"
)
SMALL = (
    "--shard-size: {} has {:,} bytes, and Keras does not split a variable: pass at least that size"
)


def size(text: str) -> int:
    """Returns how many bytes a size is: "5GB", "500 MB", "2GiB", or a plain number.

    Raises:
        ValueError: It is no size, or too small for a file of HDF5.

    >>> size("5GB"), size("1.5 MiB"), size("20000")
    (5000000000, 1572864, 20000)
    """
    found = parsed_size(text)
    if found < LEAST:
        raise ValueError(f"expected {LEAST} bytes or more, but got {text!r}")
    return found


def check_version() -> None:
    """Refuses a Keras whose sharded weights lose something.

    Raises:
        Refused: It is one.
    """
    import keras

    if tuple(map(int, keras.__version__.split(".")[:2])) < _SINCE:
        raise Refused(TOO_OLD.format(keras.__version__))


def check(model: Any, shard_size: int) -> None:
    """Refuses a model that does not go into shards of that size.

    Raises:
        Refused: A tensor is larger, or a layer has what is no tensor.
    """
    from keras_mp.backends import keras_hooks  # late: it imports Keras

    for layer in keras_hooks.all_layers(model):
        if hasattr(layer, "save_assets"):
            raise Refused(ASSETS.format(layer.name))
    for variable in disk_room.variables_of(model):
        if (taken := disk_room.bytes_of(variable)) > shard_size:
            raise Refused(SMALL.format(variable.path, taken))


def save(model: Any, folder: Path, shard_size: int, made: Mapping[str, object]) -> None:
    """Saves a model as what `keras_mp.compat.load_model` loads.

    Args:
        model: A Keras model that `check` let pass.
        folder: Does not exist yet.
        shard_size: The most bytes that the tensors in a file have.
        made: What is to be said of how it came about, as JSON: in the metadata.

    Raises:
        OSError: It cannot be written.
    """
    import keras

    from keras_mp.backends import keras_hooks
    from keras_mp.compat.file_formats.file_kinds import SHARDS
    from keras_mp.compat.file_formats.zip_archives import CONFIG, METADATA

    folder.mkdir()
    with keras_hooks.sharing_objects():
        config = keras.saving.serialize_keras_object(model)
    (folder / CONFIG).write_text(
        json.dumps(archives.renumber_shared_objects(config)), encoding="utf-8"
    )
    metadata = {"keras_version": keras.__version__, archives.MADE: dict(made)}
    (folder / METADATA).write_text(json.dumps(metadata), encoding="utf-8")
    with disk_room.named_errors(folder):
        model.save_weights(folder / SHARDS, max_shard_size=shard_size / 1024**3)
