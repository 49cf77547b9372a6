"""Models of Keras 3 whose weights are in several files: what `keras-mp migrate --shard-size` wrote.

Keras has sharded weights, `model.weights.json` and the files it names, but no model file of them.
The config of the model lies beside them here, as in an unpacked `.keras` file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_mp import regular_files
from keras_mp.backends import keras_hooks
from keras_mp.compat.checkpoints import Unreadable, locating
from keras_mp.compat.file_formats.file_kinds import SHARDS
from keras_mp.compat.file_formats.zip_archives import CONFIG
from keras_mp.compat.restoring import building, claims, recursion
from keras_mp.compat.restoring.limits import limited


def is_sharded(path: str | Path) -> bool:
    """Returns whether a path is the folder of such a model."""
    return locating.known(Path(path, SHARDS).is_file) and locating.known(Path(path, CONFIG).is_file)


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
    try:
        text = regular_files.read_bytes(Path(path, CONFIG))
    except OSError as error:
        raise Unreadable(file, CONFIG, f"cannot be read: {error.strerror}") from None
    config = building.parsed(text, file, CONFIG)
    if safe_mode:
        building.refuse_code(file, CONFIG, config)
    claims.refuse(file, CONFIG, config)
    if not compile:
        config["compile_config"] = None
    with limited(file), recursion.enough_for(recursion.layers_of(config)):
        with building.named_errors(file, CONFIG), keras_hooks.sharing_objects():
            model = keras.saving.deserialize_keras_object(
                config, custom_objects=dict(custom_objects), safe_mode=safe_mode
            )
        with building.named_errors(file, SHARDS):
            model.load_weights(Path(path, SHARDS))
    return model
