"""Configs of a LossScaleOptimizer: those that `get_config` writes and `from_config` accepts."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_mp.array_types import Optimizer
from keras_mp.files import deserializing
from keras_mp.settings import BASE_OPTIONS


def constructor_arguments(
    config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
) -> tuple[Optimizer, dict[str, Any]]:
    """Returns the inner optimizer, and the other arguments of the constructor.

    Args:
        config: Of this class, of Keras 3's LossScaleOptimizer, or of those of TensorFlow 2.1 to
            2.15. It is not changed.
        custom_objects: Classes by name, for the inner optimizer.

    Raises:
        ValueError: It contains no inner optimizer.
    """
    arguments = dict(config)
    inner = arguments.get("inner_optimizer")
    if not isinstance(inner, keras.optimizers.Optimizer):
        from keras_mp.compat import configs  # late: the one arrow from the core to the past

        if configs.optimizers.is_legacy(arguments):
            arguments = dict(configs.optimizers.convert_loss_scale_config(arguments).config)
        if "inner_optimizer" not in arguments:
            raise ValueError(
                f"A config of a LossScaleOptimizer has an inner_optimizer, but the keys are "
                f"{', '.join(arguments)}. For a serialized optimizer pass its 'config'."
            )
        inner = deserializing.deserialized(arguments["inner_optimizer"], custom_objects)
    del arguments["inner_optimizer"]
    # Keras' own class has no floor, and accepts a scale below ours.
    if "dynamic" not in arguments and "min_scale" not in arguments:
        arguments["min_scale"] = min(1.0, arguments.get("initial_scale") or 1.0)
    # Keras 3 also wrote the options of its base class: at their defaults they have no effect.
    for option, default in BASE_OPTIONS.items():
        if option in arguments and arguments[option] == default:
            del arguments[option]
    return inner, arguments


def serialized(optimizer: Optimizer) -> dict[str, Any]:
    """Returns the config of `optimizer` by its public name, so that any backend can read it.

    On PyTorch, Keras writes the module of its PyTorch class, which no other backend can import.

    >>> serialized(keras.optimizers.SGD())["module"]
    'keras.optimizers'
    """
    config: dict[str, Any] = _by_public_names(keras.saving.serialize_keras_object(optimizer))
    return config


def _by_public_names(config: Any) -> Any:
    """Returns `config` with the public names of Keras' optimizers in it, at any depth.

    Those of a MultiOptimizer are three levels down.
    """
    if isinstance(config, list):
        return [_by_public_names(each) for each in config]
    if not isinstance(config, dict):
        return config
    config = {key: _by_public_names(value) for key, value in config.items()}
    private = str(config.get("module")).startswith("keras.src.")
    if private and _is_of_keras(config):
        return {**config, "module": "keras.optimizers", "registered_name": None}
    return config


def _is_of_keras(config: Mapping[str, Any]) -> bool:
    public = getattr(keras.optimizers, str(config.get("class_name")), None)
    return isinstance(public, type) and issubclass(public, keras.optimizers.Optimizer)
