"""The model for a checkpoint, which holds none: from a config, or from the user's own code.

Imports keras only when asked for a model.
"""

import contextlib
import copy
import dataclasses
import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from keras_mp.compat.configs import checks, convert_model, convert_optimizer
from keras_mp.compat.file_formats.file_kinds import kind_of
from keras_mp.migration.publishing import Refused
from keras_mp.migration.reading import Unreadable as NotJson, read_json

_OF_SCRIPT = "keras_mp_model_script"


def split(given: str) -> tuple[str, str | None]:
    """Returns (file, name of the factory) of `--model`; None for a config.

    >>> split("model.json"), split("net.py:make"), split("net.py")
    (('model.json', None), ('net.py', 'make'), ('net.py', ''))
    """
    file, colon, factory = given.rpartition(":")
    if colon and file.endswith(".py"):
        return file, factory
    return (given, "") if given.endswith(".py") else (given, None)


def run_script(file: str) -> ModuleType:
    """Runs the user's script, which they named for that, and returns it as a module.

    Raises:
        Refused: It is not there.
    """
    path = Path(file).resolve()
    if not path.is_file():
        raise Refused(f"--model: there is no file {file}")
    spec = importlib.util.spec_from_file_location(_OF_SCRIPT, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_OF_SCRIPT] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # as for any script: it may import its neighbours
    with _no_bytecode():
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _no_bytecode() -> Iterator[None]:
    # Python would leave a folder __pycache__ beside the script.
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def objects_of(module: ModuleType) -> dict[str, Any]:
    """Returns the classes that a script has, and its own functions, by name, for Keras to find."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type)
        or (isinstance(value, FunctionType) and value.__module__ == module.__name__)
    }


def classes_in(model: Any) -> dict[str, type]:
    """Returns the classes of a model and its layers by name, those of Keras left out."""
    found, waiting = {}, [model]
    while waiting:
        layer = waiting.pop()
        if not type(layer).__module__.startswith(("keras.", "keras_mp.")):
            found[type(layer).__name__] = type(layer)
        waiting += getattr(layer, "layers", [])
    return found


def model_of_script(module: ModuleType, file: str, factory: str) -> Any:
    """Returns what the factory of a script makes.

    Raises:
        Refused: There is no such function, or it returns no Keras model.
    """
    import keras

    function = getattr(module, factory, None)
    if not callable(function):
        raise Refused(f"--model: {file} has no function {factory!r}: say script.py:function")
    with _no_bytecode():
        model = function()
    if not isinstance(model, keras.Model):
        raise Refused(f"--model: {factory}() returned {type(model).__name__}, not a Keras model")
    return model


def model_of_config(file: str, tf_version: str | None, exact_training: bool = False) -> Any:
    """Returns the model of what `to_json()` wrote, in Keras 2 or Keras 3.

    Raises:
        Refused: The file cannot be read.
        LegacyError: The config has no counterpart today.
    """
    from keras_mp.compat.restoring import claims, keras_layers
    from keras_mp.compat.restoring.reasons import reason_of
    from keras_mp.deserializing import Dangerous, deserialized

    given = _json(file, "--model")
    claims.refuse(file, "", given)
    config = convert_model(given, tf_version=tf_version, exact_training=exact_training).config
    compiled = config.get("compile_config") or {}
    try:
        return keras_layers.built(
            {**config, "compile_config": compiled}, lambda each: deserialized(copy.deepcopy(each))
        )
    except Dangerous as error:
        raise Refused(f"--model: {file}: {error.danger}") from None
    except Exception as error:
        raise Refused(f"--model: {file}: {reason_of(error)}") from error


def optimizer_of_config(file: str, tf_version: str | None) -> Any:
    """Returns the optimizer of a config of Keras 2 or Keras 3, as in `model_of_config`."""
    from keras_mp.deserializing import Dangerous, deserialized_optimizer

    config = convert_optimizer(_json(file, "--optimizer"), tf_version=tf_version).config
    try:
        return deserialized_optimizer(json.loads(json.dumps(config)))
    except Dangerous as error:
        raise Refused(f"--optimizer: {file}: {error.danger}") from None


def has_optimizer(path: Path) -> bool:
    """Returns whether a file holds state of an optimizer."""
    from keras_mp.compat.inspecting import inspect

    return any(one.iterations is not None or one.slots for one in inspect(path).optimizers)


def restore_model_only(path: Path, model: Any, model_path: str | None = None) -> Any:
    """Restores the weights of a file, and leaves out its optimizer.

    Args:
        path: The file.
        model: The model, built.
        model_path: What it was called in a checkpoint of several objects.

    Returns:
        The report.

    Raises:
        RestoreError: A weight is missing, or something else than an optimizer would be left out.
    """
    from keras_mp.compat.inspecting import state_of_optimizers
    from keras_mp.compat.restoring.models import load_weights
    from keras_mp.compat.restoring.plan import RestoreError

    model.optimizer, model.compiled = None, False
    report = load_weights(path, model, strict=False, model_path=model_path)
    kind = kind_of(path)
    state = state_of_optimizers(path) if kind in ("checkpoint", "saved_model") else set()
    unused = [name for name in report.unused if name not in state]
    if unused or report.missing:
        raise RestoreError(report.file, unused, list(report.missing))
    note = "the state of the optimizer is left out, as --model-only says"
    return dataclasses.replace(report, unused=(), notes=(*report.notes, note))


def _json(file: str, option: str) -> Mapping[str, object]:
    try:
        return checks.mapping(read_json(file), "$")
    except NotJson as error:
        raise Refused(f"{option}: {file}: {error}") from None
