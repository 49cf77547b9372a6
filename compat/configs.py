"""Optimizer configs of TF 1.15 to 2.15, rewritten as today's.

Knows JSON, not optimizers: imports neither keras, a framework nor numpy. What the old programs
wrote is in `tables.py`; whatever they did not write is refused by its JSON path.
"""

import copy
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from keras_mp.compat import checks, tables
from keras_mp.compat.checks import at, found
from keras_mp.compat.errors import LegacyError
from keras_mp.settings import GROWTH_STEPS, INITIAL_SCALE, Settings

Config = Mapping[str, object]
Version = tuple[int, int] | None

_BY_LOWER_CASE = {name.lower(): name for name in tables.OPTIMIZERS}
_OWN_CLASS = "a class of your own is to be built in code"

UNCHANGED = "already in today's form: nothing to do"
FIXED = (
    "a fixed loss scale: TensorFlow applied gradients that are not finite under one, and so does "
    "skip_nonfinite=False, which is written here; skip_nonfinite=True skips such steps"
)
WHICH_VERSION = (
    "TF 2.1, 2.2 and 2.3 write the same config, but only from 2.3 on a skipped step counts as an "
    "iteration; taken as 2.3 (if it was not, say so: --from 2.2, or tf_version='2.2')"
)
NADAM = "Nadam is not the same rule in Keras 3: its momentum schedule is 0.96^t, not 0.96^(0.004 t)"
RMSPROP = (
    "RMSprop without momentum is not the same rule in Keras 3: it divides by sqrt(v + epsilon), "
    "not sqrt(v) + epsilon, which matters for small gradients"
)
RMSPROP_2_10 = (
    "RMSprop of TF 2.10's optimizers.experimental is not the same rule in Keras 3: it divided by "
    "sqrt(v) + epsilon and kept the learning rate out of the momentum"
)
ADAGRAD = (
    "Adagrad is not the same rule in Keras 3 while accumulators are near epsilon: it divides by "
    "sqrt(a + epsilon), not sqrt(a) + epsilon"
)
EMA = (
    "use_ema: in a fresh run the moving average starts at zero in Keras 3, at the weights in TF; "
    "a resumed one goes on the same"
)
JIT_COMPILE = "jit_compile is dropped: today it is an argument of model.compile"


@dataclass(frozen=True, slots=True)
class Converted:
    """A config of today.

    Attributes:
        config: What `keras.optimizers.serialize` gives today; serialises as JSON.
        notes: What the reader should know.
        changed: Whether `config` is other than what was given.
    """

    config: dict[str, object]
    notes: tuple[str, ...]
    changed: bool


def convert_optimizer(config: Config, *, tf_version: str | None = None) -> Converted:
    """Returns today's form of a serialized optimizer, with or without a loss scale.

    Args:
        config: `{"class_name": ..., "config": ...}`, as `tf.keras.optimizers.serialize` wrote it.
            Never changed. One of today comes back as it is.
        tf_version: The TensorFlow that wrote it, such as "2.2". Needed only where configs do not
            tell: up to 2.2, a skipped step did not count as an iteration.

    Raises:
        LegacyError: Something in it has no faithful counterpart today.

    >>> sgd = {"class_name": "SGD", "config": {"learning_rate": 0.05, "decay": 0.0}}
    >>> convert_optimizer(sgd).config["config"]
    {'learning_rate': 0.05}
    >>> fixed = {"class_name": "FixedLossScale", "config": {"loss_scale_value": 123.0}}
    >>> wrapped = {"optimizer": sgd, "loss_scale": fixed}
    >>> done = convert_optimizer({"class_name": "LossScaleOptimizer", "config": wrapped})
    >>> done.config["registered_name"], done.config["config"]["initial_scale"]
    ('keras_mp>LossScaleOptimizer', 123.0)
    """
    version = _version(tf_version)
    notes: list[str] = []
    config = checks.mapping(config, "$")
    name, inside = _unpacked(config, "$")
    is_wrapper = name.lower() in tables.LOSS_SCALED
    if _is_todays(config) and not (is_wrapper and is_legacy(inside)):
        return Converted(_copied(config, "$"), (UNCHANGED,), changed=False)
    if is_wrapper:
        _check_origin(config, "$", tables.LOSS_SCALED_MODULE)
        today: dict[str, object] = {
            "module": "keras_mp",
            "class_name": "LossScaleOptimizer",
            "config": _wrapper(inside, "$.config", version, notes),
            "registered_name": "keras_mp>LossScaleOptimizer",
        }
    else:
        today = _optimizer(config, "$", notes)
    return Converted(today, tuple(notes), changed=True)


def convert_loss_scale_config(config: Config, *, tf_version: str | None = None) -> Converted:
    """Returns the arguments of `keras_mp.LossScaleOptimizer` for an old one's `get_config()`.

    Args and errors are those of `convert_optimizer`; paths start inside: `$.loss_scale`.

    >>> sgd = {"class_name": "SGD", "config": {"learning_rate": 0.05}}
    >>> done = convert_loss_scale_config({"optimizer": sgd, "loss_scale": "dynamic"})
    >>> done.config["dynamic"], done.config["initial_scale"], done.config["dynamic_growth_steps"]
    (True, 32768.0, 2000)
    """
    notes: list[str] = []
    arguments = _wrapper(checks.mapping(config, "$"), "$", _version(tf_version), notes)
    return Converted(arguments, tuple(notes), changed=True)


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
    return isinstance(inner, Mapping) and not _is_todays(inner, own_classes=True)


def parse_version(text: str) -> tuple[int, int]:
    """Returns the first two numbers of a TensorFlow version.

    >>> parse_version("2.3.4")
    (2, 3)
    """
    match = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,4})(\..*)?", text)
    if match is None:
        raise ValueError(f"{text!r} is not a TensorFlow version such as 2.2")
    return int(match[1]), int(match[2])


def _version(text: str | None) -> Version:
    return None if text is None else parse_version(text)


def _wrapper(config: Config, path: str, version: Version, notes: list[str]) -> dict[str, object]:
    read = _wrapper_2_1 if "optimizer" in config or "loss_scale" in config else _wrapper_2_4
    arguments = read(config, path, version, notes)
    scale = arguments["initial_scale"]
    if not arguments["dynamic"]:
        if "skip_nonfinite" not in arguments:
            arguments["skip_nonfinite"] = False
            notes.append(FIXED)
    elif isinstance(scale, float) and scale < 1 and "min_scale" not in arguments:
        arguments["min_scale"] = scale
        notes.append(
            f"a dynamic scale that starts at {scale}, below the floor of 1: min_scale={scale} is "
            "written; TensorFlow raised such a scale to 1 at its first overflow"
        )
    named = {key: arguments.pop(key) for key in ("name", "inner_optimizer") if key in arguments}
    try:
        # Defaults too, as get_config writes them: they may change one day, this file does not.
        return named | Settings.checked(**arguments).as_config()
    except ValueError as error:
        raise LegacyError(path, "cannot be kept", str(error)) from error


def _wrapper_2_1(
    config: Config, path: str, version: Version, notes: list[str]
) -> dict[str, object]:
    parts = checks.entries(config, path, tables.WRAPPED, "LossScaleOptimizer")
    checks.require(parts, path, "optimizer", "loss_scale")
    inner = _optimizer(parts["optimizer"], f"{path}.optimizer", notes)
    loss_scale = _loss_scale(parts["loss_scale"], f"{path}.loss_scale", notes)
    if loss_scale["dynamic"] and version is None:
        notes.append(WHICH_VERSION)
    elif loss_scale["dynamic"] and version and version < (2, 3):
        loss_scale["count_skipped_steps"] = False
    return {"inner_optimizer": inner} | loss_scale


def _wrapper_2_4(
    config: Config, path: str, version: Version, notes: list[str]
) -> dict[str, object]:
    given = checks.entries(config, path, tables.FLAT | tables.KNOBS, "LossScaleOptimizer")
    checks.require(given, path, "inner_optimizer")
    if version and version < (2, 4):
        why = f"TF {version[0]}.{version[1]} wrote `optimizer`; this form is of 2.4 and later"
        raise LegacyError(f"{path}.inner_optimizer", "is there", why)
    inner = _optimizer(given["inner_optimizer"], f"{path}.inner_optimizer", notes)
    dynamic = given.get("dynamic", True)
    scale, steps = given.get("initial_scale"), given.get("dynamic_growth_steps")
    if dynamic:
        scale = INITIAL_SCALE if scale is None else scale
        steps = GROWTH_STEPS if steps is None else steps
    elif scale is None:
        raise LegacyError(f"{path}.initial_scale", "is missing", "a fixed loss scale needs one")
    elif steps is not None:
        why = "a fixed loss scale never grows; expected null"
        raise LegacyError(f"{path}.dynamic_growth_steps", found(steps), why)
    return {
        "inner_optimizer": inner,
        "dynamic": dynamic,
        "initial_scale": scale,
        "dynamic_growth_steps": steps,
        **{key: given[key] for key in given if key in tables.KNOBS},
    }


def _loss_scale(value: object, path: str, notes: list[str]) -> dict[str, object]:
    """Returns the arguments that a loss scale of TF 2.1 to 2.3 stands for."""
    if value is None:
        raise LegacyError(path, "is null", "there is no loss scale; use the optimizer alone")
    if isinstance(value, str):
        if value != "dynamic":
            raise LegacyError(path, found(value), 'expected "dynamic" or a number')
        value = {"class_name": "DynamicLossScale", "config": {}}
    elif not isinstance(value, Mapping):
        return _fixed(checks.scale(value, path))
    name, config = _unpacked(value, path)
    if name not in tables.LOSS_SCALES:
        why = f"only {' and '.join(tables.LOSS_SCALES)} can be kept; {_OWN_CLASS}"
        raise LegacyError(f"{path}.class_name", found(name), why)
    _check_origin(value, path, tables.LOSS_SCALE_MODULE)
    path = f"{path}.config"
    given = checks.entries(config, path, tables.LOSS_SCALES[name], name)
    if name == "FixedLossScale":
        checks.require(given, path, "loss_scale_value")
        return _fixed(given["loss_scale_value"])
    return {
        "dynamic": True,
        "initial_scale": given.get("initial_loss_scale", INITIAL_SCALE),
        "dynamic_growth_steps": given.get("increment_period", GROWTH_STEPS),
        **_factors(given.get("multiplier"), f"{path}.multiplier", notes),
    }


def _fixed(scale: object) -> dict[str, object]:
    return {"dynamic": False, "initial_scale": scale, "dynamic_growth_steps": None}


def _factors(multiplier: object, path: str, notes: list[str]) -> dict[str, object]:
    if not isinstance(multiplier, float) or multiplier == 2:
        return {}
    if not 1 < multiplier <= checks.FLOAT32_MAX:
        raise LegacyError(path, found(multiplier), "expected more than 1")
    if math.frexp(multiplier)[0] != 0.5:
        notes.append(
            f"a multiplier of {multiplier}: a shrinking scale is multiplied by {1 / multiplier}, "
            f"not divided by {multiplier}, which can differ in the last bit"
        )
    return {"growth_factor": multiplier, "backoff_factor": 1 / multiplier}


def _optimizer(value: object, path: str, notes: list[str]) -> dict[str, object]:
    config = checks.mapping(value, path)
    name, inside = _unpacked(config, path)
    if _is_todays(config):
        return _copied(config, path)
    name = _known_class(name, f"{path}.class_name")
    _check_origin(config, path, tables.OPTIMIZER_MODULE)
    path = f"{path}.config"
    rates = dict.fromkeys(("learning_rate", "lr"), _learning_rate)
    table = tables.SHARED | tables.OPTIMIZERS[name] | rates
    given = _without_alias(checks.entries(inside, path, table, name), path)
    checks.require(given, path, "learning_rate")
    clipping = [key for key in tables.CLIPPING if given.get(key) is not None]
    if len(clipping) > 1:
        why = f"{clipping[0]} is set, too, and Keras 3 takes one kind of clipping; keep one"
        raise LegacyError(f"{path}.{clipping[1]}", found(given[clipping[1]]), why)
    notes.extend(_other_rules(name, given))
    if given.pop("is_legacy_optimizer", False):
        raise LegacyError(f"{path}.is_legacy_optimizer", "is true", "no TF wrote it")
    if given.pop("jit_compile", False):
        notes.append(JIT_COMPILE)
    decay = given.pop("decay", None)
    if name == "Nadam":
        _check_nadam(decay, f"{path}.decay")
    elif decay:
        given["learning_rate"] = _decayed(given["learning_rate"], decay, f"{path}.decay", notes)
    return _of_keras("keras.optimizers", name, given)


def _known_class(name: str, path: str) -> str:
    bare = name.removeprefix("Custom>").lower()
    if bare in tables.LOSS_SCALED:
        raise LegacyError(path, found(name), "a loss scale inside another; keep one of them")
    if bare not in _BY_LOWER_CASE:
        why = "no optimizer of tf.keras; in this version only optimizer configs are converted, and "
        raise LegacyError(path, found(name), why + _OWN_CLASS)
    return _BY_LOWER_CASE[bare]


def _without_alias(config: dict[str, object], path: str) -> dict[str, object]:
    # Every tf.keras read "lr" as well, which standalone Keras wrote before 2.3.
    if "lr" not in config:
        return config
    if "learning_rate" in config:
        raise LegacyError(f"{path}.lr", "is there", "so is learning_rate; keep one of them")
    return {"learning_rate" if key == "lr" else key: value for key, value in config.items()}


def _learning_rate(value: object, path: str) -> object:
    if not isinstance(value, Mapping):
        return checks.number(value, path)
    name, config = _unpacked(value, path)
    if name not in tables.SCHEDULES:
        why = f"expected a number or one of {', '.join(tables.SCHEDULES)}; {_OWN_CLASS}"
        raise LegacyError(f"{path}.class_name", found(name), why)
    _check_origin(value, path, tables.SCHEDULE_MODULE)
    required, optional = tables.SCHEDULES[name]
    # TF wrote "name": null where none was given, which the schedules of Keras 3 cannot use.
    named = {key: item for key, item in config.items() if (key, item) != ("name", None)}
    path = f"{path}.config"
    given = checks.entries(named, path, required | optional | {"name": checks.name}, name)
    checks.require(given, path, *required)
    return _of_keras("keras.optimizers.schedules", name, given)


def _decayed(rate: object, decay: object, path: str, notes: list[str]) -> dict[str, object]:
    if not isinstance(rate, float):
        why = "learning_rate is a schedule already, and Keras 3 has no decay; write one schedule"
        raise LegacyError(path, found(decay), why)
    if not isinstance(decay, float) or decay < 0:
        raise LegacyError(path, found(decay), "expected zero or more")
    notes.append(
        f"decay={decay} became learning_rate=InverseTimeDecay({rate}, 1, {decay}): the same rates, "
        "but a callback can no longer set learning_rate"
    )
    schedule = {
        "initial_learning_rate": rate,
        "decay_steps": 1,
        "decay_rate": decay,
        "staircase": False,
        "name": "InverseTimeDecay",
    }
    return _of_keras("keras.optimizers.schedules", "InverseTimeDecay", schedule)


def _check_nadam(decay: object, path: str) -> None:
    # Here it is not a decay of the learning rate; TF wrote 0.004, or what float32 makes of it.
    if isinstance(decay, float) and not math.isclose(decay, 0.004, rel_tol=1e-6):
        why = "for Nadam this is a constant of the momentum schedule, and Keras 3 has none"
        raise LegacyError(path, found(decay), why)


def _other_rules(name: str, given: Config) -> list[str]:
    """Returns a note for each rule that Keras 3 has otherwise than the optimizer's TF."""
    new_style = "is_legacy_optimizer" in given
    notes = [EMA] if given.get("use_ema") else []
    if name == "Nadam" and not new_style:
        notes.append(NADAM)
    # Only TF 2.10 wrote optimizers of the new style without a name.
    elif name == "RMSprop" and new_style and "name" not in given:
        notes.append(RMSPROP_2_10)
    elif name == "RMSprop" and not new_style and not given.get("momentum"):
        notes.append(RMSPROP)
    elif name == "Adagrad" and not new_style:
        start, epsilon = given.get("initial_accumulator_value", 0.1), given.get("epsilon", 1e-7)
        # Up to this the two square roots agree to 1e-4.
        if isinstance(start, float) and isinstance(epsilon, float) and epsilon > 1e-4 * start:
            notes.append(ADAGRAD)
    return notes


def _is_todays(config: Config, *, own_classes: bool = False) -> bool:
    """Whether Keras 3 wrote a serialized optimizer: its own, or on request that of another module.

    Keras 2.13 wrote "keras.optimizers", too, but with keys that Keras 3 does not know. On torch,
    Keras 3 writes its private subclasses: "keras.src.backend.torch.optimizers.torch_adam".
    """
    module, inside, name = config.get("module"), config.get("config"), config.get("class_name")
    if not isinstance(module, str) or (isinstance(name, str) and ">" in name):
        return False
    if module == "keras.optimizers" or module.startswith("keras.src.backend.torch."):
        old_keys = {"decay", "is_legacy_optimizer", "jit_compile", "lr"}
        return not (isinstance(inside, Mapping) and old_keys & inside.keys())
    if module == "keras_mp":
        return True
    return own_classes and re.match(r"(tf_keras|keras|tensorflow)\.", module) is None


def _unpacked(config: Config, path: str) -> tuple[str, Config]:
    """Returns the class name and the config of a serialized object."""
    for key in ("class_name", "config"):
        if key not in config:
            why = 'only optimizer configs are converted: {"class_name": ..., "config": {...}}'
            raise LegacyError(f"{path}.{key}", "is missing", why)
    name = config["class_name"]
    if not isinstance(name, str):
        raise LegacyError(f"{path}.class_name", found(name), "expected the name of a class")
    return name, checks.mapping(config["config"], f"{path}.config")


def _check_origin(config: Config, path: str, module: str) -> None:
    """Refuses a serialized object from elsewhere, which may share no more than its class name."""
    for key in config:
        if key not in ("class_name", "config", "module", "registered_name"):
            raise LegacyError(at(path, key), "is not known", "no tf.keras wrote it")
    origin, registered = config.get("module"), config.get("registered_name")
    if origin is not None and not (isinstance(origin, str) and re.fullmatch(module, origin)):
        why = f"expected a module of Keras; {_OWN_CLASS}"
        raise LegacyError(f"{path}.module", found(origin), why)
    name = str(config["class_name"]).lower()
    own = {name, f"custom>{name}", f"keras_mp>{name}"}
    if registered is not None and not (isinstance(registered, str) and registered.lower() in own):
        why = f"expected the name that Keras gave; {_OWN_CLASS}"
        raise LegacyError(f"{path}.registered_name", found(registered), why)


def _of_keras(module: str, name: str, config: dict[str, object]) -> dict[str, object]:
    return {"module": module, "class_name": name, "config": config, "registered_name": None}


def _copied(config: Config, path: str) -> dict[str, object]:
    try:
        return copy.deepcopy(dict(config))
    except RecursionError:
        raise LegacyError(path, "is nested too deeply", "no optimizer config is") from None
