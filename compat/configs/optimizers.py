"""Optimizer configs of TF 1.15 to 2.15, rewritten as today's: the entry, and the loss scale.

What is around the optimizer is here, the optimizer itself in `inner_optimizers.py`. What the old
programs wrote is in `optimizer_tables.py`; whatever they did not write is refused by its JSON path.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from keras_mp.compat.configs import checks, optimizer_tables as tables
from keras_mp.compat.configs.checks import describe
from keras_mp.compat.configs.inner_optimizers import inner_optimizer
from keras_mp.compat.configs.report import Converted, Report
from keras_mp.compat.configs.serialized import (
    OWN_CLASS,
    Config,
    check_origin,
    class_and_config,
    deep_copy,
    is_todays,
    of_ours,
)
from keras_mp.compat.configs.versions import Version, optional_version
from keras_mp.compat.errors import LegacyError
from keras_mp.float_formats import FLOAT32
from keras_mp.settings import GROWTH_STEPS, INITIAL_SCALE, Settings

FIXED = (
    "a fixed loss scale: TensorFlow applied gradients that are not finite under one, and so does "
    "skip_nonfinite=False, which is written here; skip_nonfinite=True skips such steps"
)
WHICH_VERSION = (
    "TF 2.1, 2.2 and 2.3 write the same config, but only from 2.3 on a skipped step counts as an "
    "iteration; taken as 2.3 (if TF 2.1 or 2.2 wrote it, pass tf_version='2.2')"
)


def convert_optimizer(
    config: Config, *, tf_version: str | None = None, sparse_variables: Iterable[str] = ()
) -> Converted:
    """Returns today's form of a serialized optimizer, with or without a loss scale.

    Args:
        config: `{"class_name": ..., "config": ...}`, as `tf.keras.optimizers.serialize` wrote it.
            Never changed. One of today comes back as it is.
        tf_version: The TensorFlow that wrote it, such as "2.2". Needed only where configs do not
            tell: up to 2.2, a skipped step did not count as an iteration, and a loss scale made
            sparse gradients dense.
        sparse_variables: Regular expressions for `variable.path`, for variables whose gradients
            were sparse: those of Embedding layers, which a config does not tell. Used where the
            old rule for them was another than that of Keras 3, see
            `keras_mp.compat.keras2.optimizer_options`.

    Returns:
        The optimizer: of `keras.optimizers` where its rule is that of Keras 3, else the class of
        that name in `keras_mp.compat.optimizers`. (With `decay` it is the latter, too: the rates
        of an InverseTimeDecay are the same, but a callback could no longer set learning_rate.)

    Raises:
        LegacyError: Something in it has no faithful counterpart today.
        ValueError: `tf_version` is no version.

    >>> sgd = {"class_name": "SGD", "config": {"learning_rate": 0.05, "decay": 0.0}}
    >>> convert_optimizer(sgd).config["config"]
    {'learning_rate': 0.05}
    >>> fixed = {"class_name": "FixedLossScale", "config": {"loss_scale_value": 123.0}}
    >>> wrapped = {"optimizer": sgd, "loss_scale": fixed}
    >>> done = convert_optimizer({"class_name": "LossScaleOptimizer", "config": wrapped})
    >>> done.config["registered_name"], done.config["config"]["initial_scale"]
    ('keras_mp>LossScaleOptimizer', 123.0)
    """
    version = optional_version(tf_version)
    report = Report()
    config = checks.mapping(config, "$")
    patterns = (sparse_variables,) if isinstance(sparse_variables, str) else tuple(sparse_variables)
    name, inside = class_and_config(config, "$")
    is_wrapper = name.lower() in tables.LOSS_SCALED
    if is_todays(config) and not (is_wrapper and is_legacy(inside)):
        return Converted(deep_copy(config, "$"), (), changed=False)
    if is_wrapper:
        check_origin(config, "$", tables.LOSS_SCALED_MODULE, report)
        report.add("$", "rewritten", f"{name} became keras_mp.LossScaleOptimizer")
        arguments = _wrapper(inside, "$.config", version, report, patterns)
        today = of_ours("keras_mp", "LossScaleOptimizer", arguments)
    else:
        today = inner_optimizer(config, "$", report, patterns)
    return Converted(today, tuple(report), changed=True)


def convert_loss_scale_config(config: Config, *, tf_version: str | None = None) -> Converted:
    """Returns the arguments of `keras_mp.LossScaleOptimizer` for an old one's `get_config()`.

    Args and errors are those of `convert_optimizer`; paths start inside: `$.loss_scale`.

    >>> sgd = {"class_name": "SGD", "config": {"learning_rate": 0.05}}
    >>> done = convert_loss_scale_config({"optimizer": sgd, "loss_scale": "dynamic"})
    >>> done.config["dynamic"], done.config["initial_scale"], done.config["dynamic_growth_steps"]
    (True, 32768.0, 2000)
    """
    report = Report()
    arguments = _wrapper(checks.mapping(config, "$"), "$", optional_version(tf_version), report, ())
    return Converted(arguments, tuple(report), changed=True)


def is_legacy(config: Config) -> bool:
    """Whether the `config` of a serialized LossScaleOptimizer was written before Keras 3.

    >>> is_legacy({"optimizer": {"class_name": "SGD", "config": {}}, "loss_scale": "dynamic"})
    True
    >>> is_legacy({"inner_optimizer": {"module": "keras.optimizers", "class_name": "SGD"}})
    False
    """
    if "optimizer" in config or "loss_scale" in config:
        return True
    inner = config.get("inner_optimizer")
    if isinstance(inner, Mapping) and inner.get("registered_name") and inner.get("module") is None:
        return False  # Keras 3 writes no module for a class that a script defines
    return isinstance(inner, Mapping) and not is_todays(inner, own_classes=True)


def _wrapper(
    config: Config, path: str, version: Version, report: Report, sparse_variables: Iterable[str]
) -> dict[str, object]:
    read = _wrapper_2_1 if "optimizer" in config or "loss_scale" in config else _wrapper_2_4
    arguments = read(config, path, version, report, sparse_variables)
    scale = arguments["initial_scale"]
    if not arguments["dynamic"]:
        if "skip_nonfinite" not in arguments:
            arguments["skip_nonfinite"] = False
            report.add(path, "defaulted", FIXED, matters=True)
    elif isinstance(scale, float) and scale < 1 and "min_scale" not in arguments:
        arguments["min_scale"] = scale
        report.add(
            path,
            "defaulted",
            f"a dynamic scale that starts at {scale}, below the floor of 1: min_scale={scale} is "
            "written; TensorFlow raised such a scale to 1 at its first overflow",
            matters=True,
        )
    named = {key: arguments.pop(key) for key in ("name", "inner_optimizer") if key in arguments}
    try:
        # Defaults too, as get_config writes them: they may change one day, this file does not.
        settings = Settings.checked(**cast("dict[str, Any]", arguments)).as_config()
    except ValueError as error:
        raise LegacyError(path, "cannot be kept", str(error)) from error
    defaults = [f"{key}={settings[key]}" for key in settings if key not in arguments]
    if defaults:
        report.add(path, "defaulted", f"what TensorFlow did in every case: {', '.join(defaults)}")
    return named | settings


def _or_default(value: object, default: object, path: str, report: Report) -> object:
    if value is not None:
        return value
    report.add(path, "defaulted", f"{default}, as in TF")
    return default


def _wrapper_2_1(
    config: Config, path: str, version: Version, report: Report, sparse_variables: Iterable[str]
) -> dict[str, object]:
    parts = checks.entries(config, path, tables.WRAPPED, "LossScaleOptimizer")
    checks.require(parts, path, "optimizer", "loss_scale")
    report.add(f"{path}.optimizer", "renamed", "inner_optimizer")
    if version and version < (2, 3):
        sparse_variables = ()  # made dense before they reached the optimizer
    inner = inner_optimizer(parts["optimizer"], f"{path}.optimizer", report, sparse_variables)
    loss_scale = _loss_scale(parts["loss_scale"], f"{path}.loss_scale", report)
    if loss_scale["dynamic"] and version is None:
        report.add(path, "differs", WHICH_VERSION, matters=True)
    elif loss_scale["dynamic"] and version and version < (2, 3):
        loss_scale["count_skipped_steps"] = False
        what = f"count_skipped_steps=False, as in TF {version[0]}.{version[1]}"
        report.add(path, "defaulted", what)
    return {"inner_optimizer": inner} | loss_scale


def _wrapper_2_4(
    config: Config, path: str, version: Version, report: Report, sparse_variables: Iterable[str]
) -> dict[str, object]:
    given = checks.entries(config, path, tables.FLAT | tables.KNOBS, "LossScaleOptimizer")
    checks.require(given, path, "inner_optimizer")
    if version and version < (2, 4):
        why = f"TF {version[0]}.{version[1]} wrote `optimizer`; this form is of 2.4 and later"
        raise LegacyError(f"{path}.inner_optimizer", "is there", why)
    inner_path = f"{path}.inner_optimizer"
    inner = inner_optimizer(given["inner_optimizer"], inner_path, report, sparse_variables)
    if "dynamic" not in given:
        report.add(f"{path}.dynamic", "defaulted", "true, as in TF")
    dynamic = given.get("dynamic", True)
    scale, steps = given.get("initial_scale"), given.get("dynamic_growth_steps")
    if dynamic:
        scale = _or_default(scale, INITIAL_SCALE, f"{path}.initial_scale", report)
        steps = _or_default(steps, GROWTH_STEPS, f"{path}.dynamic_growth_steps", report)
    elif scale is None:
        state = "is null" if "initial_scale" in given else "is missing"
        raise LegacyError(f"{path}.initial_scale", state, "a fixed loss scale needs one")
    elif steps is not None:
        why = "a fixed loss scale never grows; expected null"
        raise LegacyError(f"{path}.dynamic_growth_steps", describe(steps), why)
    return {
        "inner_optimizer": inner,
        "dynamic": dynamic,
        "initial_scale": scale,
        "dynamic_growth_steps": steps,
        **{key: given[key] for key in given if key in tables.KNOBS},
    }


def _loss_scale(value: object, path: str, report: Report) -> dict[str, object]:
    """Returns the arguments that a loss scale of TF 2.1 to 2.3 stands for."""
    what = "became dynamic, initial_scale and dynamic_growth_steps, beside inner_optimizer"
    report.add(path, "rewritten", what)
    if value is None:
        raise LegacyError(path, "is null", "there is no loss scale; use the optimizer alone")
    if isinstance(value, str):
        if value != "dynamic":
            raise LegacyError(path, describe(value), 'expected "dynamic" or a number')
        value = {"class_name": "DynamicLossScale", "config": {}}
    elif not isinstance(value, Mapping):
        return _fixed(checks.scale(value, path))
    name, config = class_and_config(value, path)
    if name not in tables.LOSS_SCALES:
        why = f"only {' and '.join(tables.LOSS_SCALES)} can be kept; {OWN_CLASS}"
        raise LegacyError(f"{path}.class_name", describe(name), why)
    check_origin(value, path, tables.LOSS_SCALE_MODULE, report)
    path = f"{path}.config"
    given = checks.entries(config, path, tables.LOSS_SCALES[name], name)
    if name == "FixedLossScale":
        checks.require(given, path, "loss_scale_value")
        return _fixed(given["loss_scale_value"])
    _check_multiplier(given, path)
    scale, steps = given.get("initial_loss_scale"), given.get("increment_period")
    return {
        "dynamic": True,
        "initial_scale": _or_default(scale, INITIAL_SCALE, f"{path}.initial_loss_scale", report),
        "dynamic_growth_steps": _or_default(
            steps, GROWTH_STEPS, f"{path}.increment_period", report
        ),
    }


def _fixed(scale: object) -> dict[str, object]:
    return {"dynamic": False, "initial_scale": scale, "dynamic_growth_steps": None}


def _check_multiplier(config: Config, path: str) -> None:
    multiplier = config.get("multiplier", 2.0)
    if multiplier == 2:
        return
    if not isinstance(multiplier, float) or not 1 < multiplier <= FLOAT32.largest:
        raise LegacyError(f"{path}.multiplier", describe(multiplier), "expected more than 1")
    scale = config.get("initial_loss_scale", INITIAL_SCALE)
    steps = config.get("increment_period", GROWTH_STEPS)
    raise LegacyError(
        f"{path}.multiplier",
        describe(multiplier),
        "only 2.0 can be kept, as in tf.keras since 2.4. Build the optimizer in code: "
        f"keras_mp.LossScaleOptimizer(optimizer, initial_scale={scale}, "
        f"dynamic_growth_steps={steps}, growth_factor={multiplier}, "
        f"backoff_factor={1 / multiplier})",
    )
