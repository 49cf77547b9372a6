"""Serialized objects, `{"class_name": ..., "config": {...}}`: taken apart and put together."""

import copy
import re
from collections.abc import Mapping

from keras_mp.compat.configs import checks
from keras_mp.compat.configs.checks import at, describe
from keras_mp.compat.configs.report import Report
from keras_mp.compat.errors import LegacyError

Config = Mapping[str, object]

OWN_CLASS = "build a class of your own in code"
CARRIED_OVER = (
    "your own class is kept: load it with custom_objects={{{name!r}: ...}}, or register "
    "it; its config is not converted, except for the dtype policy"
)
OWN_OPTIMIZERS = "keras_mp.compat.optimizers"


def class_and_config(config: Config, path: str) -> tuple[str, Config]:
    """Returns the class name and the config of a serialized object.

    >>> class_and_config({"class_name": "SGD", "config": {}}, "$")
    ('SGD', {})
    """
    for key in ("class_name", "config"):
        if key not in config:
            why = 'expected what tf.keras serializes: {"class_name": ..., "config": {...}}'
            raise LegacyError(f"{path}.{key}", "is missing", why)
    name = config["class_name"]
    if not isinstance(name, str) or not name.rpartition(">")[2]:
        raise LegacyError(f"{path}.class_name", describe(name), "expected the name of a class")
    return name, checks.mapping(config["config"], f"{path}.config")


def class_and_config_or_function(given: Config, path: str) -> tuple[str, Config]:
    """Returns the class name and the config of an object; of a function, "function" and {}."""
    if given.get("class_name") != "function":
        return class_and_config(given, path)
    checks.require(given, path, "config")
    if not isinstance(given["config"], str):
        raise LegacyError(f"{path}.config", describe(given["config"]), "expected a function's name")
    return "function", {}


def check_origin(config: Config, path: str, module: str, report: Report) -> None:
    """Refuses a serialized object from elsewhere, which may share no more than its class name.

    Args:
        config: The object.
        path: Where it is.
        module: What `module` must match if it is there, a regular expression.
        report: Gets the keys that Keras 3 does not write.
    """
    for key, value in config.items():
        if key == "shared_object_id":
            checks.count(value, at(path, key))
            report.add(at(path, key), "dropped", "objects of a file are not shared by number today")
        elif key not in ("class_name", "config", "module", "registered_name"):
            raise LegacyError(at(path, key), "is not known", "no tf.keras wrote it")
    origin, registered = config.get("module"), config.get("registered_name")
    if origin is not None and not (isinstance(origin, str) and re.fullmatch(module, origin)):
        why = f"expected a module of Keras; {OWN_CLASS}"
        raise LegacyError(f"{path}.module", describe(origin), why)
    name = str(config["class_name"]).lower()
    own = {name, *(f"{package}>{name}" for package in ("custom", "addons", "keras_mp"))}
    if registered is not None and not (isinstance(registered, str) and registered.lower() in own):
        why = f"expected the name that Keras gave; {OWN_CLASS}"
        raise LegacyError(f"{path}.registered_name", describe(registered), why)


def of_keras(module: str, name: str, config: dict[str, object]) -> dict[str, object]:
    """Returns a public class of Keras as Keras 3 serializes it.

    >>> of_keras("keras.optimizers", "SGD", {})
    {'module': 'keras.optimizers', 'class_name': 'SGD', 'config': {}, 'registered_name': None}
    """
    return {"module": module, "class_name": name, "config": config, "registered_name": None}


def of_ours(module: str, name: str, config: dict[str, object]) -> dict[str, object]:
    """Returns a class that keras_mp registers as Keras 3 serializes it.

    >>> of_ours("keras_mp", "LossScaleOptimizer", {})["registered_name"]
    'keras_mp>LossScaleOptimizer'
    """
    return of_keras(module, name, config) | {"registered_name": f"keras_mp>{name}"}


def own_object(given: Config, config: object) -> dict[str, object]:
    """Returns what Keras 3 writes for an object of a class that it does not know."""
    name = str(given["class_name"])
    result = {
        "module": given.get("module"),
        "class_name": name.rpartition(">")[2],
        "config": config,
        "registered_name": given.get("registered_name") or name,
    }
    return result | {key: given[key] for key in given if key not in (*result, "shared_object_id")}


def allowed_name(name: str) -> str:
    """Returns a name that Keras 3 takes.

    >>> allowed_name("block/conv")
    'block_conv'
    """
    return name.replace("/", "_")


def deep_copy(config: Config, path: str) -> dict[str, object]:
    """Returns a deep copy."""
    try:
        return copy.deepcopy(dict(config))
    except RecursionError:
        raise LegacyError(path, "is nested too deeply", "no optimizer config is") from None


def is_todays(config: Config, *, own_classes: bool = False) -> bool:
    """Whether Keras 3 wrote a serialized optimizer: its own, ours, or on request any other's.

    Keras 2.13 wrote "keras.optimizers", too, but with keys that Keras 3 does not know. On torch,
    Keras 3 writes its private subclasses: "keras.src.backend.torch.optimizers.torch_adam".

    >>> is_todays({"class_name": "SGD", "config": {"learning_rate": 0.1}})
    False
    """
    module, inside, name = config.get("module"), config.get("config"), config.get("class_name")
    if not isinstance(module, str) or (isinstance(name, str) and ">" in name):
        return False
    if module == "keras.optimizers" or module.startswith("keras.src.backend.torch."):
        old_keys = {"decay", "is_legacy_optimizer", "jit_compile", "lr"}
        return not (isinstance(inside, Mapping) and old_keys & inside.keys())
    if module == "keras_mp" or module.startswith("keras_mp."):
        return True
    return own_classes and re.match(r"(tf_keras|keras|tensorflow)\.", module) is None
