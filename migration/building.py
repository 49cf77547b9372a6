"""The model and the optimizer for a checkpoint: from configs, or from the user's own code.

Imports keras only when asked for a model.
"""

import contextlib
import dataclasses
import importlib.util
import json
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.configs import Change, checks, convert, dotted_names
from keras_mp.compat.file_formats.file_kinds import kind_of
from keras_mp.migration import optimizer_choice
from keras_mp.migration.publishing import Refused
from keras_mp.migration.reading import Unreadable as NotJson, read_json

NEEDS_OPTIMIZER = (
    "the file has optimizer state but the model has no optimizer; {}: pass --optimizer "
    "optimizer.json, or --model-only to skip it"
)
_OF_SCRIPT = "keras_mp_model_script"


def run_script(file: str) -> ModuleType:
    """Runs the user's script, which they named for that, and returns it as a module.

    Raises:
        Refused: It does not exist.
    """
    path = Path(file).resolve()
    if not path.is_file():
        raise Refused(f"--model: {file} does not exist")
    before = sum(name.startswith(_OF_SCRIPT) for name in sys.modules)
    called = f"{_OF_SCRIPT}_{before}" if before else _OF_SCRIPT
    spec = importlib.util.spec_from_file_location(called, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[called] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # as for any script: it may import its neighbours
    with _no_bytecode(), _own_code(file):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _own_code(file: str) -> Iterator[None]:
    """Turns an error of the user's code into one that names its line."""
    try:
        yield
    except Exception as error:
        raise Refused(_own_error(file, _line_in(file, error), error), "own code") from error


def of_scripts(error: Exception, files: Iterable[str]) -> str | None:
    """Returns what to say of an error that the user's code raised; None for any other.

    Args:
        error: It, or what another made of it.
        files: The user's scripts.
    """
    one: BaseException | None = error
    while one is not None:
        for file in files:
            # That it passed there is not enough: Keras is called from there, too.
            if (line := _line_in(file, one, last=True)) is not None:
                return _own_error(file, line, one)
        one = one.__cause__ or one.__context__
    return None


def _line_in(file: str, error: BaseException, *, last: bool = False) -> int | None:
    """Returns the line of a script at which an error passed it; with `last`, was raised in it."""
    path = str(Path(file).resolve())
    frames = traceback.extract_tb(error.__traceback__)[-1 if last else 0 :]
    return next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)


def _own_error(file: str, line: int | None, error: BaseException) -> str:
    where = f", line {line}" if line is not None else ""
    return f"--model: {file}{where}: {type(error).__name__}: {error}"


@contextlib.contextmanager
def _no_bytecode() -> Iterator[None]:
    # Python would leave a folder __pycache__ beside the script.
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def objects_of(modules: Iterable[ModuleType]) -> dict[str, Any]:
    """Returns the classes that scripts have, and their own functions, by name, for Keras."""
    return {
        name: value
        for module in modules
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
        raise Refused(f"--model: {file} has no function {factory!r}: pass script.py:function")
    with _no_bytecode(), _own_code(file):
        model = function()
    if not isinstance(model, keras.Model):
        raise Refused(f"--model: {factory}() returned {type(model).__name__}, not a Keras model")
    return model


def model_of_config(
    file: str,
    tf_version: str | None,
    exact_training: bool = False,
    objects: Mapping[str, Any] | None = None,
) -> tuple[Any, list[Change]]:
    """Returns the model of what `to_json()` wrote, in Keras 2 or Keras 3, and what is otherwise.

    Args:
        file: JSON or YAML.
        tf_version: As of `keras_mp.compat.configs.convert`.
        exact_training: As there.
        objects: Classes and functions that it may name.

    Raises:
        Refused: The file cannot be read.
        LegacyError: The config has no counterpart today, or names a class that nobody knows.
    """
    from keras_mp.compat.restoring import differences
    from keras_mp.compat.restoring.building import model as built, with_names_of_the_backend
    from keras_mp.files.deserializing import Dangerous, compile_by

    known = dict(objects or {})
    given = _json(file, "--model")
    done = convert(given, kind="model", tf_version=tf_version, exact_training=exact_training)
    config, names = with_names_of_the_backend(dict(done.config))
    training = config.get("compile_config")
    config = {key: value for key, value in config.items() if key != "compile_config"}
    try:
        model = built(file, config, known, safe_mode=True, tf_version=tf_version)
        if isinstance(training, dict) and training:  # of Keras 3
            compile_by(model, training, known)
    except Unreadable as error:
        raise Refused(f"--model: {error}") from error
    except Dangerous as error:
        raise Refused(f"--model: {file}: {error.danger}") from None
    told = [*done.changes, *dotted_names.changes(names)]
    return model, told + differences.changes(model, told, tf_version)


def optimizer_of_config(file: str, tf_version: str | None, model: Any = None) -> Any:
    """Returns the optimizer of a config of Keras 2 or Keras 3, as in `model_of_config`.

    Args:
        file: The config.
        tf_version: As of `keras_mp.compat.configs.convert`.
        model: What it is for, built: which variables are embeddings.
    """
    from keras_mp.files.deserializing import Dangerous

    try:
        return _optimizer(_json(file, "--optimizer"), tf_version, model)
    except Dangerous as error:
        raise Refused(f"--optimizer: {file}: {error.danger}") from None


def optimizer_of_checkpoint(
    path: Path, tf_version: str | None, model: Any, optimizer_path: str | None = None
) -> tuple[Any, str] | None:
    """Returns (optimizer, what to say of it), as a checkpoint tells; None where it holds none.

    Args:
        path: Of the checkpoint, or of weights.
        tf_version: As of `keras_mp.compat.configs.convert`.
        model: What it is for, built.
        optimizer_path: Of the optimizer in a checkpoint of several objects.

    Raises:
        Refused: It does not tell enough.
    """
    from keras_mp.compat.inspecting import inspect

    found = [one for one in inspect(path).optimizers if one.iterations is not None or one.slots]
    if optimizer_path is not None:
        found = [one for one in found if one.path == optimizer_path]
    if not found:
        return None
    told = optimizer_choice.config_of(found[0]) if len(found) == 1 else "it holds several"
    if isinstance(told, str):
        raise Refused(NEEDS_OPTIMIZER.format(told), "needs --optimizer")
    config, version, said = told
    return _optimizer(config, tf_version or version, model), said


def _optimizer(given: Mapping[str, object], tf_version: str | None, model: Any) -> Any:
    from keras_mp.compat.restoring.building import paths_of_embeddings
    from keras_mp.files.deserializing import deserialized_optimizer

    patterns = () if model is None else paths_of_embeddings(model)
    config = convert(
        given, kind="optimizer", tf_version=tf_version, sparse_variables=patterns
    ).config
    return deserialized_optimizer(json.loads(json.dumps(config)))


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
    note = "optimizer state skipped (--model-only)"
    return dataclasses.replace(report, unused=(), notes=(*report.notes, note))


def _json(file: str, option: str) -> Mapping[str, object]:
    try:
        return checks.mapping(read_json(file), "$")
    except NotJson as error:
        raise Refused(f"{option}: {file}: {error}") from None
