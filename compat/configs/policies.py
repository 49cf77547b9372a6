"""Dtype policies of TF 1.15 to 2.15, rewritten as today's."""

from collections.abc import Mapping

from keras_mp.compat.configs import checks
from keras_mp.compat.configs.checks import describe
from keras_mp.compat.configs.optimizers import convert_optimizer
from keras_mp.compat.configs.plain import json_copy
from keras_mp.compat.configs.report import Converted, Report
from keras_mp.compat.configs.serialized import Config
from keras_mp.compat.errors import LegacyError
from keras_mp.settings import Settings

LEGACY = ("Policy", "PolicyV1")
POLICY_KEYS = ("class_name", "config", "module", "registered_name", "shared_object_id")

MIXED = ("mixed_float16", "mixed_bfloat16")
DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "bool", "string"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
# TF 1.15, python/keras/mixed_precision/experimental/policy.py; 2.1 removed them.
FLOAT32_VARS = {f"{dtype}_with_float32_vars": f"mixed_{dtype}" for dtype in ("float16", "bfloat16")}
INFER = (
    "such a policy took its dtype from the first input, and Keras 3 has no such policy; write the "
    'dtype that the layer had, such as "float32"'
)
_NOT_WRITTEN = "no policy of tf.keras wrote it"
HAND_OVER = "a policy has no loss_scale in Keras 3; "
NO_SCALING = (
    HAND_OVER + "null meant that compile() did not wrap the optimizer: call "
    "model.compile(..., auto_scale_loss=False)"
)
BY_HAND = HAND_OVER + "this one cannot be kept: pass an optimizer of your own to compile()"


def convert_policy(config: Config | str) -> Converted:
    """Returns today's form of a dtype policy: a config of `keras.DTypePolicy`.

    Args:
        config: What `Policy` of TF 2.1 to 2.15 wrote into a layer's "dtype", or a name.
            Never changed. One of today comes back as it is.

    Raises:
        LegacyError: No policy of today is like it.

    >>> done = convert_policy({"class_name": "PolicyV1", "config": {"name": "mixed_float16"}})
    >>> done.config["class_name"], done.config["config"]
    ('DTypePolicy', {'name': 'mixed_float16'})
    >>> old = {"class_name": "Policy", "config": {"name": "mixed_float16", "loss_scale": None}}
    >>> print(*convert_policy(old).notes)
    a policy has no loss_scale in Keras 3; null meant that compile() did not wrap the optimizer: \
call model.compile(..., auto_scale_loss=False)
    """
    report = Report()
    given = json_copy(config, "$")
    if given is None:
        raise LegacyError("$", "is null", "expected a dtype policy")
    today = policy(given, "$", report)
    return Converted(dict(checks.mapping(today, "$")), tuple(report), changed=today != given)


def is_todays(value: object) -> bool:
    """Whether Keras 3 wrote a policy; it writes an object even where a name would do.

    >>> is_todays("float32"), is_todays({"class_name": "DTypePolicy", "config": {}})
    (False, True)
    """
    name = value.get("class_name") if isinstance(value, Mapping) else None
    return isinstance(name, str) and "DTypePolicy" in name


def policy(value: object, path: str, report: Report) -> object:
    """Returns what a "dtype" is today; null, the global policy, stays null."""
    if value is None or is_todays(value):
        return value
    if isinstance(value, str):
        return _named(_known(value, path))
    given = checks.mapping(value, path)
    checks.only(given, path, POLICY_KEYS, _NOT_WRITTEN)
    checks.require(given, path, "class_name", "config")
    if given["class_name"] not in LEGACY:
        why = f"expected {' or '.join(LEGACY)}; set a policy of your own in code"
        raise LegacyError(f"{path}.class_name", describe(given["class_name"]), why)
    inside = checks.mapping(given["config"], f"{path}.config")
    checks.only(inside, f"{path}.config", ("name", "loss_scale"), _NOT_WRITTEN)
    checks.require(inside, f"{path}.config", "name")
    name = _known(inside["name"], f"{path}.config.name")
    report.add(path, "rewritten", f"a keras.DTypePolicy of the name {name}")
    if "loss_scale" in inside:
        what = _loss_scale(inside["loss_scale"])
        # Every layer repeats it: once per policy is enough.
        if all(change.what != what for change in report):
            report.add(f"{path}.config.loss_scale", "dropped", what, matters=True)
    return _named(name)


def name_of(value: object) -> str | None:
    """Returns the name of a policy of today, if it has one."""
    inside = value.get("config") if isinstance(value, Mapping) else None
    name = inside.get("name") if isinstance(inside, Mapping) else None
    return name if isinstance(name, str) else None


def _known(name: object, path: str) -> str:
    if not isinstance(name, str):
        raise LegacyError(path, describe(name), "expected the name of a policy")
    if name in ("infer", "_infer", "infer_with_float32_vars"):
        raise LegacyError(path, describe(name), INFER)
    name = FLOAT32_VARS.get(name, name)
    if name not in MIXED and name not in DTYPES:
        why = f"expected {', '.join(MIXED)} or a dtype that Keras 3 has"
        raise LegacyError(path, describe(name), why)
    return name


def _named(name: str) -> dict[str, object]:
    inside = {"name": name}
    return {
        "module": "keras",
        "class_name": "DTypePolicy",
        "config": inside,
        "registered_name": None,
    }


def _loss_scale(value: object) -> str:
    if value is None:
        return NO_SCALING
    if isinstance(value, Mapping):
        value = {key: item for key, item in value.items() if key != "shared_object_id"}
    sgd = {"class_name": "SGD", "config": {"learning_rate": 0.01}}
    wrapped = {"optimizer": sgd, "loss_scale": value}
    try:
        # 2.3 or later makes no difference to the numbers that are looked at here.
        done = convert_optimizer(
            {"class_name": "LossScaleOptimizer", "config": wrapped}, tf_version="2.3"
        )
    except LegacyError as error:
        return f"{BY_HAND} ({error.found.removeprefix('is ')}: {error.why})"
    usual = Settings.checked().as_config()
    given = checks.mapping(done.config["config"], "$")
    arguments = [
        f"{key}={given[key]!r}"
        for key in usual
        if key in given and given[key] != usual[key] and given[key] is not None
    ]
    call = ", ".join(["optimizer", *arguments])
    return f"{HAND_OVER}write keras_mp.LossScaleOptimizer({call}) into model.compile()"
