"""A Keras 3 model from the configs of an old file: converted, built and compiled, without weights.

Nothing of a file is run: a class or function that is not of Keras comes from `custom_objects` or
was registered, and is never imported by the name that the file gives.
"""

import contextlib
import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import keras

import keras_mp
from keras_mp.backends import keras_hooks
from keras_mp.compat import configs, recursion
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.configs import Change, dotted_names
from keras_mp.compat.configs.checks import at, describe, is_deep
from keras_mp.compat.configs.inner_optimizers import REPEATED
from keras_mp.compat.errors import LegacyError, NotComputed
from keras_mp.compat.restoring import claims, keras_layers, variable_order
from keras_mp.compat.restoring.limits import limit_weights
from keras_mp.compat.restoring.reasons import reason_of
from keras_mp.files.deserializing import Dangerous, compile_by, deserialized

Json = dict[str, Any]
Custom = Mapping[str, Any]

_OWN = "a {kind} of your own: pass custom_objects={{{name!r}: ...}}, or register it before"
_WITHOUT = "; compile=False loads the model without"
_FUNCTIONS = ("activation", "_initializer", "_regularizer", "_constraint")
_FUNCTION = {"module": "builtins", "class_name": "function"}
SPARSE = (
    "the optimizer's rule for sparse gradients, which embeddings had, is kept: sparse_variables={}"
)


def json_object(text: str | bytes, file: str, where: str) -> Json:
    """Returns a JSON object of a file.

    Raises:
        Unreadable: It is not a JSON object.
    """
    try:
        value = json.loads(text)
        if isinstance(value, str):  # JSON in JSON
            value = json.loads(value)
    except RecursionError:
        raise Unreadable(file, where, "is nested too deeply") from None
    except ValueError as error:
        raise Unreadable(file, where, f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Unreadable(file, where, f"{describe(value)}, not an object")
    if is_deep(value):
        raise Unreadable(file, where, "is nested too deeply")
    return value


def version_of(keras_version: str | None, optimizer: object) -> str | None:
    """Returns the TensorFlow that wrote a file, as far as it matters; None where nothing tells.

    Args:
        keras_version: What Keras wrote of itself.
        optimizer: The config of the optimizer.

    >>> version_of("2.3.0-tf", None), version_of("2.13.1", None), version_of("2.2.4", None)
    ('2.2', '2.13', None)
    """
    if keras_version is None:
        return None
    text = json.dumps(optimizer)
    if keras_version == "2.2.4-tf":  # of TF 1.15, too, which could not write a loss scaler
        return "2.1" if '"loss_scale"' in text else None
    if keras_version == "2.3.0-tf":
        return "2.2"
    if keras_version == "2.4.0":
        return "2.4" if "inner_optimizer" in text or "OptimizerV1" in text else "2.3"
    match = re.match(r"(2\.[0-9]{1,3})\.[0-9]+", keras_version)
    is_later = match is not None and tuple(map(int, match[1].split("."))) >= (2, 5)
    return match[1] if match is not None and is_later else None


def is_keras_3(keras_version: object) -> bool:
    """Returns whether Keras 3 wrote a file."""
    match = re.match(r"([0-9]{1,3})\.", keras_version) if isinstance(keras_version, str) else None
    return match is not None and int(match[1]) >= 3


def with_names_of_the_backend(config: Json) -> tuple[Json, dict[str, str]]:
    """Returns a converted config whose names the backend takes, and old name -> new name."""
    renamed, names = dotted_names.without_dots(config)
    return (renamed, names) if names and not _takes_dots() else (config, {})


def _take_names(config: Json) -> None:
    """Lets Keras count past the names "concatenate", "concatenate_1" ... that a config has.

    Keras merges masks by operations of its own, which it names so. It counts the names that it has
    given, and knows nothing of those in configs: two of one name in a model are an error.
    """
    pattern = re.compile(r'"concatenate(?:_([0-9]{1,3}))?"')
    numbers = [int(number or 0) for number in pattern.findall(json.dumps(config))]
    for _ in range(max(numbers, default=-1) + 1):
        keras.layers.Concatenate()


@functools.cache
def _takes_dots() -> bool:
    """Whether weights may have a dot in their names."""
    try:
        keras.layers.Dense(1, kernel_initializer="zeros", name="a.b").build((None, 1))
    except KeyError:  # of torch.nn.Module
        return False
    return True


def model(
    file: str,
    config: Json,
    custom_objects: Custom,
    *,
    safe_mode: bool,
    policy: object = None,
    tf_version: str | None = None,
) -> Any:
    """Returns the model of a converted config.

    Args:
        file: For errors.
        config: What `configs.convert` returned, without "compile_config".
        custom_objects: Name -> class or function.
        safe_mode: As of `keras.saving.load_model`.
        policy: A dtype policy for what the model makes in its constructor; None for the global one.
        tf_version: The TensorFlow that wrote it; None where nobody knows.

    Raises:
        LegacyError: A class of one's own is not known.
        Unreadable: Keras cannot make the model.
    """
    claims.refuse(file, "the model's config", config)
    config = resolved_config(config, ("$",), custom_objects)
    scope: Any = contextlib.nullcontext() if policy is None else keras_mp.policy_scope(policy)
    room = recursion.enough_for(recursion.layers_of(config))
    with scope, room, limit_weights(file), named_errors(file, "the model's config"):

        def build(config: Json) -> Any:  # Keras takes a config apart
            return deserialized(_copied(config), custom_objects, safe_mode=safe_mode)

        _take_names(config)
        if keras_layers.has_operations(config):
            # Shapes are known of what was built; without values that is soon done.
            with keras.StatelessScope(initialize_variables=False):
                plain = keras_layers.layers_of_operations(build(config))
            config = keras_layers.with_keras_layers(config, plain)
        made = keras_layers.built(config, build, tf_version)
        variable_order.remember(made, config)
    if not isinstance(made, keras.Model):
        raise Unreadable(
            file, "the model's config", f"describes a {type(made).__name__}, not a model"
        )
    return made


def call(file: str, made: Any, arguments: tuple[Any, ...] | None, policy: object = None) -> None:
    """Builds a model that has no config, by calling it.

    Raises:
        Unreadable: The file does not say with what, or it fails.
    """
    if arguments is None:
        why = (
            f"does not say what inputs {type(made).__name__} takes: build and compile it in code, "
            "then call keras_mp.compat.restore with this file"
        )
        raise Unreadable(file, "", why)
    scope: Any = contextlib.nullcontext() if policy is None else keras_mp.policy_scope(policy)
    with scope, limit_weights(file), named_errors(file, f"a call of {type(made).__name__}"):
        made(*arguments)


def compile_model(
    file: str, made: Any, training: Json, custom_objects: Custom, *, safe_mode: bool
) -> None:
    """Compiles a model by a converted training config, with just the optimizer that is there."""
    training = resolved_config(training, ("$",), custom_objects, _WITHOUT)
    training["auto_scale_loss"] = False  # an old loss scale is in the optimizer
    with named_errors(file, "the training config"):
        compile_by(made, training, custom_objects, safe_mode=safe_mode)
        if made.optimizer is not None and not made.optimizer.built:
            made.optimizer.build(made.trainable_variables)


def with_sparse_rule(
    training: Json, given: object, made: Any, tf_version: str | None
) -> tuple[Json, list[Change]]:
    """Returns a converted training config whose optimizer knows which variables are embeddings.

    Args:
        training: The converted one.
        given: The old config of the optimizer.
        made: The model.
        tf_version: As in `configs.convert`.
    """
    today = training.get("optimizer")
    patterns = paths_of_embeddings(made)
    if not patterns or not isinstance(given, Mapping) or not isinstance(today, Mapping):
        return training, []
    is_wrapped = today.get("registered_name") == "keras_mp>LossScaleOptimizer"
    if is_wrapped and not str(given.get("class_name")).lower().startswith("lossscale"):
        inside = {"inner_optimizer": given, "dynamic": True}
        given = {"class_name": "LossScaleOptimizer", "config": inside}
    done = configs.convert(
        given, kind="optimizer", tf_version=tf_version, sparse_variables=patterns
    )
    told = [change for change in done.changes if REPEATED in change.what]
    if done.config == today:
        return training, told
    if not told:
        told = [Change("$.optimizer", "defaulted", SPARSE.format(patterns), matters=False)]
    return {**training, "optimizer": done.config}, told


def paths_of_embeddings(made: Any) -> list[str]:
    """Returns patterns for the paths of a model's embeddings that are trained."""
    # Not the whole path: Keras leaves out the model's name where a saved model is loaded again.
    return [
        f"(^|/){re.escape(layer.name)}/{layer.embeddings.name}$"
        for layer in keras_hooks.all_layers(made)
        if isinstance(layer, keras.layers.Embedding) and layer.embeddings.trainable
    ]


def resolved_config(
    value: Any, path: tuple[object, ...], custom_objects: Custom, more: str = ""
) -> Any:
    """Returns a copy of a config that imports nothing: each class is of Keras, given, or known.

    Args:
        value: The config, or a part of it.
        path: Where that is.
        custom_objects: What is given.
        more: What else can be done about a class that is not known.
    """
    if isinstance(value, list):
        return [
            resolved_config(item, (*path, i), custom_objects, more) for i, item in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    value = {
        k: resolved_config(item, (*path, k), custom_objects, more) for k, item in value.items()
    }
    name, module = value.get("class_name"), value.get("module")
    if not isinstance(name, str) or "module" not in value:
        return value
    if module == "builtins":
        function = value.get("config")
        if name != "function" or not isinstance(function, str):
            return value
        if not _is_known(function, custom_objects):
            why = _OWN.format(kind="function", name=function) + more
            raise LegacyError(_at((*path, "config")), describe(function), why, needs_code=True)
        return value
    registered = value.get("registered_name")
    for known in (registered, name):
        if isinstance(known, str) and _is_known(known, custom_objects):
            inside = _with_own_functions(value.get("config"), custom_objects)
            return value | {"registered_name": known, "module": None, "config": inside}
    if isinstance(module, str) and (module == "keras" or module.startswith("keras.")):
        return value
    why = _OWN.format(kind="class", name=name) + more
    raise LegacyError(_at((*path, "class_name")), describe(name), why, needs_code=True)


def _with_own_functions(config: Any, custom_objects: Custom) -> Any:
    """Returns the config of a class of one's own, whose functions Keras 3 does not find by name."""
    if not isinstance(config, dict):
        return config
    return {
        key: _FUNCTION | {"config": value, "registered_name": value}
        if key.endswith(_FUNCTIONS) and isinstance(value, str) and value in custom_objects
        else value
        for key, value in config.items()
    }


def _at(path: tuple[object, ...]) -> str:
    return functools.reduce(at, path[1:], str(path[0]))


def _copied(value: Any) -> Any:
    """Returns a copy of JSON, in less time than `copy.deepcopy`, which looks for cycles."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _is_known(name: str, custom_objects: Custom) -> bool:
    return keras.saving.get_registered_object(name, custom_objects=custom_objects) is not None


@contextlib.contextmanager
def named_errors(file: str, where: str) -> Iterator[None]:
    """Turns any error into an `Unreadable` that names the file and the part of it."""
    try:
        yield
    except (LegacyError, Unreadable):
        raise
    except Exception as error:
        causes = list(_causes(error))
        for one in causes:
            if isinstance(one, Unreadable):  # Keras makes its own of what it meets inside
                raise one from None
        danger = next((one for one in causes if isinstance(one, Dangerous)), None)
        if danger is not None:
            raise Unreadable(file, danger.where or where, danger.reason) from error
        said = next((one for one in causes if isinstance(one, NotComputed)), None)
        raise Unreadable(file, where, str(said) if said else reason_of(error)) from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and what it came of, the first cause first."""
    found = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    yield from reversed(found)
