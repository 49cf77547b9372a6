"""The only way to Keras' deserialization: refuses a config that would run code or read files.

Keras' own `safe_mode` differs between versions. Keras 3.10 deserializes any layer of an HDF5 file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_mp.backends import keras_hooks
from keras_mp.files.config_dangers import dangers

Custom = Mapping[str, Any]

TRUST = "if you trust it, load it in Python with safe_mode=False"


class Dangerous(ValueError):
    """A config contains code that would run, or reads a file that it names.

    Args:
        where: The part of the file that holds the config; may be empty.
        danger: The place in the config, and what it holds.
    """

    def __init__(self, where: str, danger: str) -> None:
        # Both stay in `args`, so that the error survives pickling.
        super().__init__(where, danger)
        self.where = where
        self.danger = danger

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" if self.where else self.reason

    @property
    def reason(self) -> str:
        """The danger and the remedy."""
        return f"{self.danger}: {TRUST}"


def refuse_dangers(config: object, where: str = "", *, safe_mode: bool | None = True) -> None:
    """Refuses a config that is unsafe to deserialize, on every version of Keras.

    Args:
        config: JSON, of any form that Keras takes.
        where: The part of the file that holds the config, for errors.
        safe_mode: Whether to refuse; None for the mode in which Keras calls us.

    Raises:
        Dangerous: The config is unsafe; names the first such place.

    >>> refuse_dangers({"class_name": "TFSMLayer", "config": {}})
    Traceback (most recent call last):
    keras_mp.files.deserializing.Dangerous: $ is a TFSMLayer, which runs code that is in the \
file: if you trust it, load it in Python with safe_mode=False
    """
    if safe_mode is False or (safe_mode is None and keras_hooks.is_trusting()):
        return
    for danger in dangers(config):
        raise Dangerous(where, str(danger))


def deserialized(
    config: Any,
    custom_objects: Custom | None = None,
    *,
    where: str = "",
    safe_mode: bool | None = None,
) -> Any:
    """Returns the object of a config, as `keras.saving.deserialize_keras_object` does.

    Args:
        config: A config of Keras 3. Keras modifies it.
        custom_objects: Name -> class or function.
        where: As for `refuse_dangers`.
        safe_mode: As for `refuse_dangers`.

    Raises:
        Dangerous: The config is unsafe.
    """
    refuse_dangers(config, where, safe_mode=safe_mode)
    return keras.saving.deserialize_keras_object(
        config,
        custom_objects=None if custom_objects is None else dict(custom_objects),
        safe_mode=safe_mode is not False,
    )


def deserialized_optimizer(config: Mapping[str, Any]) -> Any:
    """Returns the optimizer of a config, as `keras.optimizers.deserialize` does.

    Raises:
        Dangerous: The config is unsafe.
    """
    refuse_dangers(config)
    return keras.optimizers.deserialize(config)


def loaded(
    path: str | Path,
    held: Mapping[str, object],
    custom_objects: Custom,
    *,
    compile: bool = True,
    safe_mode: bool = True,
) -> Any:
    """Returns the model of a file, as `keras.saving.load_model` does.

    Args:
        path: The file.
        held: The configs that Keras will read from the file, by part of the file.
        custom_objects: Name -> class or function.
        compile: Whether to compile the model.
        safe_mode: As for `refuse_dangers`.

    Raises:
        Dangerous: One of the configs is unsafe.
    """
    for where, config in held.items():
        refuse_dangers(config, where, safe_mode=safe_mode)
    return keras.saving.load_model(
        path, custom_objects=dict(custom_objects), compile=compile, safe_mode=safe_mode
    )


def compile_by(
    model: Any, training: Mapping[str, Any], custom_objects: Custom, *, safe_mode: bool = True
) -> None:
    """Compiles a model with a training config, as `model.compile_from_config` does.

    Raises:
        Dangerous: The config is unsafe.
    """
    refuse_dangers(training, safe_mode=safe_mode)
    with keras.saving.custom_object_scope(custom_objects):
        model.compile_from_config(training)
