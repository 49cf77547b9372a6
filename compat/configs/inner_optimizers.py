"""Configs of optimizers of TF 1.15 to 2.15 without a loss scale, rewritten as today's.

Where Keras 3 has the rule it had, the class is that of Keras 3; elsewhere it is the class of that
name in `keras_mp.compat.optimizers`, and a Change says why. What the old programs wrote is in
`optimizer_tables.py` and `addons.py`.
"""

import math
from collections.abc import Iterable, Mapping

from keras_mp.compat.configs import addons, checks, optimizer_tables as tables
from keras_mp.compat.configs.checks import Check, describe
from keras_mp.compat.configs.report import Report
from keras_mp.compat.configs.serialized import (
    CARRIED_OVER,
    OWN_CLASS,
    OWN_OPTIMIZERS,
    Config,
    check_origin,
    class_and_config,
    deep_copy,
    is_todays,
    of_keras,
    of_ours,
    own_object,
)
from keras_mp.compat.errors import LegacyError

_BY_LOWER_CASE = {name.lower(): name for name in tables.OPTIMIZERS}
_V1 = {name.lower(): why for name, why in tables.V1.items()}

RMSPROP = "without momentum Keras 3 divides by sqrt(v + epsilon), TF by sqrt(v) + epsilon"
RMSPROP_2_10 = (
    "TF 2.10's optimizers.experimental divided by sqrt(v) + epsilon and kept the learning rate out "
    "of the momentum"
)
NADAM = "the momentum schedule of Keras 3 is 0.96^t, that of TF 0.96^(schedule_decay * t)"
ADAGRAD = (
    "Keras 3 divides by sqrt(a + epsilon), TF by sqrt(a) + epsilon, which is another number while "
    "accumulators are near epsilon"
)
SPARSE = "sparse_variables: rows of them that are not in the batch stay"
REPEATED = (
    "on TensorFlow, Keras 3 does not add up the gradients of an embedding's row that a batch names "
    "twice, as TF did"
)
REPEATED_HERE = f"{REPEATED}: this {{}} then trains differently where a batch repeats tokens"
EMA = (
    "use_ema: in a fresh run the moving average starts at zero in Keras 3, at the weights in TF; "
    "a resumed one goes on the same"
)
JIT_COMPILE = "jit_compile is dropped: today it is an argument of model.compile"


def inner_optimizer(
    value: object, path: str, report: Report, sparse_variables: Iterable[str] = ()
) -> dict[str, object]:
    """Returns today's form of a serialized optimizer that has no loss scale.

    Args:
        value: The optimizer; one of today is copied.
        path: Where it is.
        report: Gets what is not as it was.
        sparse_variables: For `keras_mp.compat.optimizers`, where the sparse rule of TF differs.

    Raises:
        LegacyError: Something in it has no faithful counterpart today.
    """
    config = checks.mapping(value, path)
    name, inside = class_and_config(config, path)
    if is_todays(config):
        return deep_copy(config, path)
    registered = config.get("registered_name")  # where TF 2.13 and later wrote the prefix
    for full in (name, registered):
        if isinstance(full, str) and full.lower().startswith(addons.PREFIX.lower()):
            return _of_addons(full, config, path, report, sparse_variables)
    known = _known_class(name, f"{path}.class_name")
    if known is None:
        return _own(name, config, inside, path, report)
    name = known
    check_origin(config, path, tables.OPTIMIZER_MODULE, report)
    table = tables.SHARED | tables.OPTIMIZERS[name]
    given = _entries(inside, f"{path}.config", table, name, report)
    new_style = "is_legacy_optimizer" in given or name in tables.NEW_ONLY
    sparse_variables = list(sparse_variables)
    sparse = sparse_variables if _has_sparse_rule(name, given, new_style) else []
    if name == "Nadam" and not new_style:
        # Here it is not a decay of the learning rate.
        if "decay" in given and "schedule_decay" in given:
            why = "so is schedule_decay, which is the same; keep one of them"
            raise LegacyError(f"{path}.config.decay", "is there", why)
        given = _renamed(given, {"decay": "schedule_decay"}, f"{path}.config", report)
        if "schedule_decay" not in given:
            given["schedule_decay"] = 0.004
            report.add(f"{path}.config.decay", "defaulted", "schedule_decay=0.004, as in TF")
    decay = _decay(given, f"{path}.config")
    if decay and new_style:
        why = f"{name} of the new optimizers of TF 2.10 to 2.15 had no decay"
        raise LegacyError(f"{path}.config.decay", describe(decay), why)
    own_name, reasons = _own_rule(name, given, new_style)
    if decay:
        reasons.append(f"Keras 3 has no decay, which is {decay} here")
    if sparse:
        reasons.append(SPARSE)
    if sparse_variables and new_style and name in tables.OF_ROWS:
        reasons.append(REPEATED)
    elif sparse_variables and new_style and name != "SGD":
        report.add(path, "differs", REPEATED_HERE.format(name), matters=True)
    for key in tables.DROPPED:
        if key in given:
            dropped = given.pop(key)
            what = JIT_COMPILE if dropped else f"{key} is no argument of Keras 3"
            report.add(f"{path}.config.{key}", "dropped", what, matters=bool(dropped))
    if given.get("use_ema"):
        report.add(f"{path}.config.use_ema", "differs", EMA, matters=True)
    if not reasons:
        if decay is not None:
            report.add(f"{path}.config.decay", "dropped", "0.0 is no decay")
        report.add(path, "rewritten", f"spelled as Keras 3 does: keras.optimizers.{name}")
        return of_keras("keras.optimizers", name, given)
    return _ours(name, own_name, given, decay, sparse, reasons, path, report)


def _entries(
    inside: Config, path: str, table: Mapping[str, Check], name: str, report: Report
) -> dict[str, object]:
    """Returns the keys of an optimizer, checked; `learning_rate` is among them."""

    def rate(value: object, at: str) -> object:
        return _learning_rate(value, at, report)

    table = {**table, "learning_rate": rate, "lr": rate}
    given = checks.entries(inside, path, table, name)
    # Every tf.keras read "lr" as well, which standalone Keras wrote before 2.3.
    if "lr" in given and "learning_rate" in given:
        raise LegacyError(f"{path}.lr", "is there", "so is learning_rate; keep one of them")
    given = _renamed(given, {"lr": "learning_rate"}, path, report)
    checks.require(given, path, "learning_rate")
    clipping = [key for key in tables.CLIPPING if given.get(key) is not None]
    if len(clipping) > 1:
        why = f"{clipping[0]} is set, too, and Keras 3 takes one kind of clipping; keep one"
        raise LegacyError(f"{path}.{clipping[1]}", describe(given[clipping[1]]), why)
    if given.get("is_legacy_optimizer"):
        raise LegacyError(f"{path}.is_legacy_optimizer", "is true", "no TF wrote it")
    return given


def _renamed(
    given: dict[str, object], names: Mapping[str, str], path: str, report: Report
) -> dict[str, object]:
    for key in names:
        if key in given:
            report.add(f"{path}.{key}", "renamed", names[key])
    return {names.get(key, key): value for key, value in given.items()}


def _known_class(name: str, path: str) -> str | None:
    bare = name.removeprefix("Custom>").lower()
    if bare in tables.LOSS_SCALED:
        raise LegacyError(path, describe(name), "a loss scale inside another; keep one of them")
    if bare in _V1:
        why = f"an optimizer of tf.compat.v1.train, which has no config; use {_V1[bare]}"
        raise LegacyError(path, describe(name), why)
    return _BY_LOWER_CASE.get(bare)


def _own(name: str, config: Config, inside: Config, path: str, report: Report) -> dict[str, object]:
    """Returns an optimizer of the user's class; what Keras' base class wrote is as today's."""
    if not {"learning_rate", "lr"} & inside.keys():
        why = (
            "no optimizer of tf.keras; the config of an optimizer of your own needs a learning_rate"
        )
        raise LegacyError(f"{path}.class_name", describe(name), why)
    given = {key: value for key, value in inside.items() if key not in tables.DROPPED}
    given = _renamed(given, {"lr": "learning_rate"}, f"{path}.config", report)
    if given.get("decay") == 0:
        del given["decay"]
    rate = f"{path}.config.learning_rate"
    given["learning_rate"] = _learning_rate(given["learning_rate"], rate, report)
    report.add(path, "rewritten", CARRIED_OVER.format(name=name), matters=True)
    return own_object(config, given)


def _of_addons(
    name: str, config: Config, path: str, report: Report, sparse_variables: Iterable[str]
) -> dict[str, object]:
    bare = name[len(addons.PREFIX) :]
    for known, why in addons.REFUSED.items():
        if bare.lower() == known.lower():
            raise LegacyError(f"{path}.class_name", describe(name), f"of TensorFlow Addons, {why}")
    by_lower_case = {known.lower(): known for known in addons.CLASSES}
    if bare.lower() not in by_lower_case:
        why = f"of TensorFlow Addons, and not among {', '.join(addons.CLASSES)}; {OWN_CLASS}"
        raise LegacyError(f"{path}.class_name", describe(name), why)
    bare = by_lower_case[bare.lower()]
    check_origin(config, path, r"tensorflow_addons(\..+)?", report)
    own_name, table = addons.CLASSES[bare]
    path_inside = f"{path}.config"
    table = {key: tables.SHARED[key] for key in addons.SHARED} | table
    inside = class_and_config(config, path)[1]
    given = _entries(inside, path_inside, table, f"{addons.PREFIX}{bare}", report)
    for old, new in addons.RENAMED.get(bare, {}).items():
        if old in given and new in given:
            raise LegacyError(f"{path_inside}.{old}", "is there", f"so is {new}; keep one of them")
    given = _renamed(given, addons.RENAMED.get(bare, {}), path_inside, report)
    for key in addons.DROPPED:
        if key in given:
            del given[key]
            report.add(f"{path_inside}.{key}", "dropped", f"{key} was empty")
    decay = _decay(given, path_inside)
    sparse, reasons = list(sparse_variables), [addons.REASONS[bare]]
    old_name = f"{addons.PREFIX}{bare}"
    return _ours(old_name, own_name, given, decay, sparse, reasons, path, report)


def _ours(
    old_name: str,
    name: str,
    given: dict[str, object],
    decay: float | None,
    sparse: list[str],
    reasons: list[str],
    path: str,
    report: Report,
) -> dict[str, object]:
    what = (
        f"{old_name} became {OWN_OPTIMIZERS}.{name}, which a program must import keras_mp to open: "
        f"{'; '.join(reasons)}"
    )
    report.add(path, "rewritten", what, matters=True)
    options = {"decay": decay or 0.0, "sparse_variables": sparse}
    return of_ours(OWN_OPTIMIZERS, name, given | options)


def _has_sparse_rule(name: str, given: Config, new_style: bool) -> bool:
    """Whether sparse gradients trained otherwise in TF than in Keras 3: all but plain SGD.

    Adam and Adagrad are among them: their rule is the same, but Keras 3 on TensorFlow takes a row
    that a gradient names twice for two. From TF 2.11 on every rule is the dense one.
    """
    return not (new_style or (name == "SGD" and not given.get("momentum")))


def _own_rule(name: str, given: dict[str, object], new_style: bool) -> tuple[str, list[str]]:
    """Returns a class of `keras_mp.compat.optimizers`, and why it cannot be that of Keras 3."""
    if name == "RMSprop" and new_style:
        # Only TF 2.10 wrote optimizers of the new style without a name.
        return ("ExperimentalRMSprop", [RMSPROP_2_10]) if "name" not in given else (name, [])
    if new_style:
        return name, []
    if name == "Nadam":
        return name, [NADAM]
    if name == "RMSprop":
        return name, [] if given.get("momentum") else [RMSPROP]
    if name == "Adagrad":
        start, epsilon = given.get("initial_accumulator_value", 0.1), given.get("epsilon", 1e-7)
        assert isinstance(start, float)
        assert isinstance(epsilon, float)
        # sqrt(a + e) / (sqrt(a) + e) is 1 + e / 2a - e / sqrt(a), and `a` only grows.
        if epsilon and (
            start <= 0 or max(epsilon / (2 * start), epsilon / math.sqrt(start)) > 1e-6
        ):
            return name, [ADAGRAD]
    return name, []


def _decay(given: dict[str, object], path: str) -> float | None:
    """Takes `decay` out of `given` and returns it; None if it was not there."""
    decay = given.pop("decay", None)
    for value in (decay, given.get("schedule_decay")):
        if isinstance(value, float) and value < 0:
            raise LegacyError(f"{path}.decay", describe(value), "expected zero or more")
    return decay if isinstance(decay, float) else None


def _learning_rate(value: object, path: str, report: Report) -> object:
    if not isinstance(value, Mapping):
        return checks.number(value, path)
    name, config = class_and_config(value, path)
    if name not in tables.SCHEDULES:
        report.add(path, "rewritten", CARRIED_OVER.format(name=name), matters=True)
        return own_object(value, dict(config))
    check_origin(value, path, tables.SCHEDULE_MODULE, report)
    required, optional = tables.SCHEDULES[name]
    named = dict(config)
    if named.get("name", "") is None:
        del named["name"]
        what = "null, which the schedules of Keras 3 cannot use"
        report.add(f"{path}.config.name", "dropped", what)
    inside = f"{path}.config"
    given = checks.entries(named, inside, required | optional | {"name": checks.name}, name)
    checks.require(given, inside, *required)
    if value.get("module") != "keras.optimizers.schedules" or value.get("registered_name"):
        report.add(path, "rewritten", f"spelled as Keras 3 does: keras.optimizers.schedules.{name}")
    return of_keras("keras.optimizers.schedules", name, given)
