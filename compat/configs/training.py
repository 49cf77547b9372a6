"""Losses, metrics and training configs of TF 1.15 to 2.15, rewritten as today's."""

from collections.abc import Callable, Mapping

from keras_mp.compat.configs import checks, training_tables as tables
from keras_mp.compat.configs.checks import at, describe
from keras_mp.compat.configs.layers import Json, function, is_of_keras, name_of_today
from keras_mp.compat.configs.optimizer_tables import OPTIMIZERS, OTHER_DEFAULTS
from keras_mp.compat.configs.optimizers import convert_optimizer
from keras_mp.compat.configs.plain import json_copy
from keras_mp.compat.configs.report import Change, Converted, Report
from keras_mp.compat.configs.serialized import (
    CARRIED_OVER,
    Config,
    class_and_config_or_function,
    of_keras,
    of_ours,
    own_object,
)
from keras_mp.compat.errors import LegacyError
from keras_mp.settings import Settings

AUTO = (
    'reduction "auto" became "sum_over_batch_size", which it meant in fit() without a distribution '
    "strategy"
)
SCALED = (
    "the optimizer is wrapped in a keras_mp.LossScaleOptimizer: under the policy mixed_float16, "
    "compile() wrapped it and saved it without the wrapper; its scale starts again at 32768"
)
UNSURE = (
    "whether compile() scaled the loss does not show in this file, nor does the model's policy: if "
    "it was mixed_float16, wrap the optimizer in keras_mp.LossScaleOptimizer"
)
STEPS = "steps_per_execution above 1 is refused by Keras 3 on torch"
TEMPORAL = "Keras 3 has no such mode; give sample_weight in the shape of the loss"

# Byte code in a `.keras` file, which is never run, and what an HDF5 file has instead.
_LAMBDA, _LAMBDA_NAME = "__lambda__", "<lambda>"

One = Callable[[object, str, Report], object]


def convert_training(config: Config, *, tf_version: str | None = None) -> Converted:
    """Returns today's form of a training config: what `model.compile_from_config` takes.

    Args:
        config: The `training_config` of an HDF5 file or a SavedModel, or the `compile_config` of
            a `.keras` file. Never changed. One of today comes back as it is.
        tf_version: As in `convert_optimizer`.

    Raises:
        LegacyError: Something in it has no faithful counterpart today.

    >>> loss = {"class_name": "MeanSquaredError", "config": {"reduction": "auto", "name": "mse"}}
    >>> sgd = {"class_name": "SGD", "config": {"learning_rate": 0.1}}
    >>> done = convert_training({"loss": loss, "metrics": [], "optimizer_config": sgd})
    >>> done.config["loss"]["config"]["reduction"], sorted(done.config)
    ('sum_over_batch_size', ['loss', 'metrics', 'optimizer'])
    """
    report = Report()
    given = checks.mapping(json_copy(config, "$"), "$")
    today = compile_config(given, "$", report, tf_version, is_scaled=False)
    return Converted.of(today, given, report)


def convert_loss(config: Config) -> Converted:
    """Returns today's form of a serialized loss; args and errors as in `convert_training`.

    >>> old = {"class_name": "Huber", "config": {"reduction": "auto", "delta": 2.0}}
    >>> convert_loss(old).config["config"]
    {'reduction': 'sum_over_batch_size', 'delta': 2.0}
    """
    return _converted(loss, config)


def convert_metric(config: Config) -> Converted:
    """Returns today's form of a serialized metric; args and errors as in `convert_training`.

    >>> old = {"name": "accuracy", "dtype": "float32", "fn": "sparse_categorical_accuracy"}
    >>> convert_metric({"class_name": "MeanMetricWrapper", "config": old}).config["class_name"]
    'SparseCategoricalAccuracy'
    """
    return _converted(metric, config)


def _converted(convert: One, config: Config) -> Converted:
    report = Report()
    given = checks.mapping(json_copy(config, "$"), "$")
    return Converted.of(checks.mapping(convert(given, "$", report), "$"), given, report)


def compile_config(
    given: Config, path: str, report: Report, tf_version: str | None, *, is_scaled: bool | None
) -> Json:
    """Returns the arguments of `model.compile`, serialized.

    Args:
        given: A training config; a copy that may be kept.
        path: Where it is.
        report: Takes the changes.
        tf_version: As in `convert_optimizer`.
        is_scaled: Whether compile() scaled the loss without writing so; None if nobody knows.
    """
    result: Json = {}
    for key, value in given.items():
        where = at(path, key)
        match key:
            case "optimizer_config" | "optimizer":
                if "optimizer" in result:
                    raise LegacyError(where, "is there", "so is another optimizer; keep one")
                result["optimizer"] = _optimizer(value, where, report, tf_version, is_scaled)
            case "loss":
                result[key] = _nested(loss, value, where, report)
            case "metrics" | "weighted_metrics":
                # Of several outputs Keras 3.10 takes no empty list.
                result[key] = _nested(metric, _of_one_output(value), where, report) or None
            case "loss_weights":
                result[key] = _nested(lambda one, _path, _report: one, value, where, report)
            case "sample_weight_mode":
                _check_mode(value, where)
                report.add(where, "dropped", "Keras 3 has no such mode")
            case "run_eagerly" | "steps_per_execution" | "jit_compile" | "auto_scale_loss":
                if value is None:
                    report.add(where, "dropped", "null was the default")
                    continue
                if key == "steps_per_execution" and value != 1:
                    report.add(where, "differs", STEPS, matters=True)
                result[key] = value
            case _:
                raise LegacyError(where, "is not known", "no training config of tf.keras has it")
    return result


def _optimizer(
    value: object, path: str, report: Report, tf_version: str | None, is_scaled: bool | None
) -> object:
    if value is None:
        return None
    if isinstance(value, str):
        return _named_optimizer(value, path, report, is_scaled)
    given = checks.mapping(value, path)
    done = _at(path, given, tf_version)
    is_plain = done.changed and done.config.get("registered_name") != _WRAPPER
    if is_plain and is_scaled is None:
        report.add(path, "differs", UNSURE, matters=True)
    elif is_plain and is_scaled:
        scaled = {"inner_optimizer": given, "dynamic": True}
        done = _at(path, {"class_name": "LossScaleOptimizer", "config": scaled}, tf_version)
        report.add(path, "defaulted", SCALED, matters=True)
    for change in done.changes:
        moved = path + change.path.removeprefix("$")
        report.changes.append(Change(moved, change.kind, change.what, change.matters))
    return done.config


_WRAPPER = "keras_mp>LossScaleOptimizer"
_BY_LOWER_CASE = {name.lower(): name for name in OPTIMIZERS}


def _named_optimizer(given: str, path: str, report: Report, is_scaled: bool | None) -> object:
    """What was given to compile() by name is written so, before compile() wraps it."""
    name = _BY_LOWER_CASE.get(given.lower())
    if is_scaled is None or (name is None and is_scaled):
        report.add(path, "differs", UNSURE, matters=True)
    if name is None:
        return given
    defaults = OTHER_DEFAULTS.get(name, {})
    for key, value in defaults.items():
        report.add(path, "rewritten", f"{name} with {key}={value}, its default then")
    inner = of_keras("keras.optimizers", name, dict(defaults))
    if is_scaled:
        report.add(path, "defaulted", SCALED, matters=True)
        arguments = {"inner_optimizer": inner} | Settings.checked().as_config()
        return of_ours("keras_mp", "LossScaleOptimizer", arguments)
    return inner if defaults else given


def _at(path: str, given: Config, tf_version: str | None) -> Converted:
    try:
        return convert_optimizer(given, tf_version=tf_version)
    except LegacyError as error:
        raise LegacyError(
            path + error.path.removeprefix("$"),
            error.found,
            error.why,
            error.each,
            error.needs_code,
        ) from error


def _nested(convert: One, value: object, path: str, report: Report) -> object:
    """Losses and metrics come alone, in lists, or by the name of an output."""
    if isinstance(value, list):
        return [_nested(convert, item, f"{path}[{i}]", report) for i, item in enumerate(value)]
    if isinstance(value, Mapping) and "class_name" not in value:
        return {
            name_of_today(key, at(path, key), report): _nested(convert, item, at(path, key), report)
            for key, item in value.items()
        }
    return convert(value, path, report)


def _of_one_output(value: object) -> object:
    """After training, TF wrote a list for each output, also where there is one."""
    while isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    return value


def _check_mode(value: object, path: str) -> None:
    if isinstance(value, Mapping):
        value = list(value.values())
    for item in value if isinstance(value, list) else [value]:
        if item is not None:
            raise LegacyError(path, describe(item), TEMPORAL)


def loss(value: object, path: str, report: Report) -> object:
    """Returns today's form of a loss: a name or an object."""
    if value is None:
        return None
    if isinstance(value, str):
        return _by_name(value, path, report, tables.LOSSES, tables.LOSS_NAMES)
    given = checks.mapping(value, path)
    if given.get("class_name") == _LAMBDA:
        return loss(_LAMBDA_NAME, path, report)
    name, inside = class_and_config_or_function(given, path)
    if name == "function":
        return _by_name(str(given["config"]), path, report, tables.LOSSES, tables.LOSS_NAMES)
    if name == "LossFunctionWrapper":
        wrapped = _wrapped(inside, path, tables.LOSSES)
        if wrapped is None:
            return _own_loss(inside, path, report)
        name, inside = wrapped
        given = {"class_name": name, "config": inside}
    if name not in tables.LOSSES or not is_of_keras(given, name, "losses"):
        report.add(path, "rewritten", CARRIED_OVER.format(name=name), matters=True)
        if inside.get("reduction") == "auto":
            report.add(f"{path}.config.reduction", "rewritten", AUTO, matters=True)
            inside = {**inside, "reduction": "sum_over_batch_size"}
        return own_object(given, dict(inside))
    config: Json = {}
    for key, item in inside.items():
        where = at(f"{path}.config", key)
        if key == "fn":
            report.add(where, "dropped", "it follows from the class")
        elif key == "reduction" and item == "auto":
            report.add(where, "rewritten", AUTO, matters=True)
            config[key] = "sum_over_batch_size"
        elif key not in tables.LOSSES[name] and key not in ("name", "reduction", "dtype"):
            why = f"no {name} of TF 1.15 to 2.15 wrote it"
            raise LegacyError(where, "is not known", why)
        else:
            config[key] = item
    return of_keras("keras.losses", name, config)


def metric(value: object, path: str, report: Report) -> object:
    """Returns today's form of a metric: a name or an object."""
    if value is None:
        return None
    if isinstance(value, str):
        return _by_name(value, path, report, tables.METRICS, tables.METRIC_NAMES)
    given = checks.mapping(value, path)
    if given.get("class_name") == _LAMBDA:
        return metric(_LAMBDA_NAME, path, report)
    name, inside = class_and_config_or_function(given, path)
    if name == "function":
        return _by_name(str(given["config"]), path, report, tables.METRICS, tables.METRIC_NAMES)
    if name in ("MeanMetricWrapper", "SumOverBatchSizeMetricWrapper"):
        wrapped = _wrapped(inside, path, tables.METRICS)
        if wrapped is None:
            fn = _own_function(inside, path, report)
            rest = {key: inside[key] for key in ("name", "dtype") if key in inside}
            if rest.get("name") == fn["config"]:
                return fn  # compile() calls it so, and Keras would take the name for the function
            return of_keras("keras.metrics", "MeanMetricWrapper", {**rest, "fn": fn})
        name, inside = wrapped
        given = {"class_name": name, "config": inside}
    if name in tables.METRICS_REFUSED:
        raise LegacyError(f"{path}.class_name", describe(name), "Keras 3 has no such metric")
    if name not in tables.METRICS or not is_of_keras(given, name, "metrics"):
        report.add(path, "rewritten", CARRIED_OVER.format(name=name), matters=True)
        return own_object(given, dict(inside))
    config: Json = {}
    for key, item in inside.items():
        where = at(f"{path}.config", key)
        if key == "ignore_class" and name == "SparseCategoricalCrossentropy":
            if item is not None:
                raise LegacyError(where, describe(item), "the metric of Keras 3 ignores no class")
            report.add(where, "dropped", "null was the default")
        elif key not in tables.METRICS[name] and key not in ("name", "dtype"):
            why = f"no {name} of TF 1.15 to 2.15 wrote it"
            raise LegacyError(where, "is not known", why)
        else:
            config[key] = item
    return of_keras("keras.metrics", name, config)


def _wrapped(inside: Config, path: str, table: Mapping[str, object]) -> tuple[str, Config] | None:
    """Returns the class that a wrapped function of tf.keras stands for; None for another's."""
    classes = {tables.snake_case(name): name for name in table}
    fn = _function_name(inside, path)
    name = classes.get(tables.FUNCTIONS.get(fn, fn))
    if name is None:
        return None
    return name, {key: value for key, value in inside.items() if key != "fn"}


def _function_name(inside: Config, path: str) -> str:
    fn = inside.get("fn")
    if isinstance(fn, Mapping):
        fn = _LAMBDA_NAME if fn.get("class_name") == _LAMBDA else fn.get("config")
    if not isinstance(fn, str):
        raise LegacyError(f"{path}.config.fn", describe(fn), "expected the name of a function")
    return fn


def _own_function(inside: Config, path: str, report: Report) -> Json:
    name = _function_name(inside, path)
    report.add(f"{path}.config.fn", "rewritten", CARRIED_OVER.format(name=name), matters=True)
    return function(name)


def _own_loss(inside: Config, path: str, report: Report) -> Json:
    """Returns a function of the user's that tf.keras had wrapped in a loss."""
    reduction = inside.get("reduction", "auto")
    if reduction not in ("auto", "sum_over_batch_size"):
        why = "Keras 3 has no such wrapper of a function; write it as a keras.losses.Loss, in code"
        raise LegacyError(f"{path}.config.reduction", describe(reduction), why)
    return _own_function(inside, path, report)


def _by_name(
    name: str,
    path: str,
    report: Report,
    table: Mapping[str, object],
    names: Mapping[str, str],
) -> object:
    if name in names:
        today = names[name]
        if today != name:
            report.add(path, "renamed", today)
        return today
    if name in table or name in map(tables.snake_case, table):
        return name
    report.add(path, "rewritten", CARRIED_OVER.format(name=name), matters=True)
    return function(name)
