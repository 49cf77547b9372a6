"""Optimizer configs that TF 1.15 to 2.15 wrote, against what their programs were told to build."""

import copy
import json
import math
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from keras_mp.compat.configs import convert
from keras_mp.compat.configs.optimizers import convert_loss_scale_config, is_legacy
from keras_mp.compat.configs.versions import parse_version
from keras_mp.compat.errors import LegacyError
from keras_mp.settings import Settings
from tests.fixtures import oracles, recorded_configs

Json = dict[str, Any]


# What `keras_mp.compat.optimizers` takes beside the arguments of Keras 3.
OURS: Json = {"decay": 0.0, "sparse_variables": []}

# What the recording program passed to the constructors: id -> class, arguments.
OPTIMIZERS: dict[str, tuple[str, Json]] = {
    "sgd": ("SGD", {"learning_rate": 0.05}),
    "sgd_m09": ("SGD", {"learning_rate": 0.05, "momentum": 0.9}),
    "sgd_m_nesterov": ("SGD", {"learning_rate": 0.05, "momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {"learning_rate": 0.002}),
    "adam_amsgrad_eps": (
        "Adam",
        {"learning_rate": 0.001, "beta_1": 0.85, "beta_2": 0.98, "epsilon": 1e-5, "amsgrad": True},
    ),
    "rmsprop_centered": (
        "RMSprop",
        {"learning_rate": 0.01, "rho": 0.8, "momentum": 0.6, "centered": True},
    ),
    "adagrad": ("Adagrad", {"learning_rate": 0.03}),
    "adadelta": ("Adadelta", {"learning_rate": 0.7, "rho": 0.9}),
    "adamax": ("Adamax", {"learning_rate": 0.004}),
    "nadam": ("Nadam", {"learning_rate": 0.003, "schedule_decay": 0.004, **OURS}),
    "ftrl": ("Ftrl", {"learning_rate": 0.1, "l1_regularization_strength": 0.01}),
    "adam_named": ("Adam", {"learning_rate": 0.01, "name": "my_adam"}),
    "adam_decay": ("Adam", {"learning_rate": 0.01, **OURS, "decay": 0.001}),
    "sgd_lr_alias": ("SGD", {"learning_rate": 0.03}),
    "sgd_clipnorm": ("SGD", {"learning_rate": 0.1, "clipnorm": 1.0}),
    "adam_clipvalue": ("Adam", {"learning_rate": 0.1, "clipvalue": 0.5}),
    "adam_expdecay": (
        "Adam",
        {
            "learning_rate": (
                "ExponentialDecay",
                {
                    "initial_learning_rate": 0.1,
                    "decay_steps": 100,
                    "decay_rate": 0.5,
                    "staircase": True,
                },
            )
        },
    ),
    "sgd_piecewise": (
        "SGD",
        {
            "learning_rate": (
                "PiecewiseConstantDecay",
                {"boundaries": [10, 20], "values": [0.1, 0.05, 0.01]},
            )
        },
    ),
    "sgd_poly": (
        "SGD",
        {
            "learning_rate": (
                "PolynomialDecay",
                {"initial_learning_rate": 0.1, "decay_steps": 50, "power": 2.0, "cycle": True},
            )
        },
    ),
    "sgd_invtime": (
        "SGD",
        {
            "learning_rate": (
                "InverseTimeDecay",
                {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5},
            )
        },
    ),
}


# What keras_mp.LossScaleOptimizer writes besides, by default.
DEFAULTS: Json = {
    "growth_factor": 2.0,
    "backoff_factor": 0.5,
    "min_scale": 1.0,
    "max_scale": None,
    "hysteresis": 1,
    "count_skipped_steps": True,
    "skip_nonfinite": True,
    "diagnose": False,
    "max_consecutive_skips": None,
    "fused": False,
}


def dynamic(scale: float = 32768.0, steps: int = 2000, **others: float) -> Json:
    return {
        **DEFAULTS,
        "dynamic": True,
        "initial_scale": float(scale),
        "dynamic_growth_steps": steps,
        **others,
    }


def fixed(scale: float) -> Json:
    return {
        **DEFAULTS,
        "dynamic": False,
        "initial_scale": float(scale),
        "dynamic_growth_steps": None,
        "skip_nonfinite": False,
    }


SCALES = {
    "dynamic": dynamic(),
    "num_123": fixed(123),
    "num_float": fixed(64.5),
    "fixed_obj": fixed(256),
    "dyn_2048_500": dynamic(2048, 500),
}
# The recordings made with the API of TF 2.4.
NEW_API = {
    "lso/adam/default": ("Adam", {}, dynamic()),
    "lso/adam/dynamic": ("Adam", {}, dynamic(2048, 500)),
    "lso/sgd/fixed": ("SGD", {}, fixed(123)),
    "lso/rmsprop_clip": ("RMSprop", OURS, dynamic()),
}


RECORDED = [pytest.param(*row, id=f"{row[0]}/{row[1]}") for row in recorded_configs()]


def is_refused(config: Json) -> bool:
    """Whether the loss scale is a class of the recording program's own, or grows by 4."""
    text = json.dumps(config)
    return "TriangleLossScale" in text or '"multiplier": 4.0' in text


TRAINED = [
    (folder, oracle)
    for folder, oracle in oracles()
    if "class_name" in (oracle.get("optimizer_config") or ())
]
ORACLES = [pytest.param(oracle, id=folder) for folder, oracle in TRAINED]
WRITTEN = [row[2] for row in recorded_configs()]
WRITTEN += [oracle["optimizer_config"] for _, oracle in TRAINED]
GOOD = [config for config in WRITTEN if not is_refused(config)]


def test_every_version_is_among_the_fixtures() -> None:
    versions = {version for version, _, _ in recorded_configs()}
    versions |= {oracle["tf_version"] for _, oracle in TRAINED}
    minor = {parse_version(version) for version in versions}
    assert minor >= {(1, 15), *((2, n) for n in (1, 2, 3, 4, 6, 10, 11, 13, 15))}


def assert_has(config: Json, expected: Json) -> None:
    """Asserts the arguments; numbers up to float32, where TF kept hyperparameters."""
    for key, value in expected.items():
        if isinstance(value, tuple):
            schedule = config[key]
            assert schedule["module"] == "keras.optimizers.schedules"
            assert schedule["registered_name"] is None
            assert schedule["class_name"] == value[0]
            assert_has(schedule["config"], value[1])
        elif isinstance(value, float):
            assert math.isclose(config[key], value, rel_tol=1e-6), key
        else:
            assert config[key] == value, key


def assert_optimizer(serialized: Json, name: str, expected: Json) -> None:
    assert list(serialized) == ["module", "class_name", "config", "registered_name"]
    assert serialized["class_name"] == name
    if OURS.keys() <= expected.keys():
        assert serialized["module"] == "keras_mp.compat.optimizers"
        assert serialized["registered_name"] == f"keras_mp>{name}"
    else:
        assert serialized["module"] == "keras.optimizers"
        assert serialized["registered_name"] is None
        assert not OURS.keys() & serialized["config"].keys()
    assert not {"lr", "jit_compile", "is_legacy_optimizer"} & serialized["config"].keys()
    assert_has(serialized["config"], expected)


def assert_wrapper(serialized: Json, expected: Json) -> Json:
    """Asserts all there is beside the inner optimizer, and returns that."""
    assert serialized["module"] == "keras_mp"
    assert serialized["class_name"] == "LossScaleOptimizer"
    assert serialized["registered_name"] == "keras_mp>LossScaleOptimizer"
    settings = dict(serialized["config"])
    inner = settings.pop("inner_optimizer")
    assert settings == expected
    assert type(settings["initial_scale"]) is float
    assert isinstance(inner, dict)
    return inner


def assert_refuses_the_loss_scale(serialized: Json) -> None:
    """Asserts that it is refused at its place, with what to write instead."""
    loss_scale = serialized["config"]["loss_scale"]
    with pytest.raises(LegacyError) as caught:
        convert(serialized, kind="optimizer")
    if loss_scale["class_name"] == "TriangleLossScale":
        assert caught.value.path == "$.config.loss_scale.class_name"
        return
    assert caught.value.path == "$.config.loss_scale.config.multiplier"
    arguments = loss_scale["config"]
    assert str(caught.value).endswith(
        "keras_mp.LossScaleOptimizer(optimizer, "
        f"initial_scale={arguments['initial_loss_scale']}, "
        f"dynamic_growth_steps={arguments['increment_period']}, "
        "growth_factor=4.0, backoff_factor=0.25)"
    )


@pytest.mark.parametrize(("version", "name", "serialized"), RECORDED)
def test_recorded(version: str, name: str, serialized: Json) -> None:
    kind, *rest = name.split("/")
    if rest[-1] in ("custom", "dyn_mult4"):
        assert_refuses_the_loss_scale(serialized)
        return
    config = convert(serialized, kind="optimizer", tf_version=version).config
    if kind == "plain":
        assert_optimizer(config, *OPTIMIZERS[rest[0]])
        return
    if kind == "lso":
        inner_class, arguments, expected = NEW_API[name]
        inner = assert_wrapper(config, expected)
        assert_optimizer(inner, inner_class, {"learning_rate": 0.01, **arguments})
        return
    expected = dict(SCALES[rest[1]])
    if parse_version(version) < (2, 3) and expected["dynamic"]:
        expected["count_skipped_steps"] = False
    assert_optimizer(assert_wrapper(config, expected), *OPTIMIZERS[rest[0]])


def stated(case: Json) -> Json:
    """Returns the arguments for the loss scale of a recording's recipe."""
    match case["loss_scale"]:
        case "dynamic":
            return dynamic()
        case {"dynamic": arguments}:
            return dynamic(arguments["initial_loss_scale"], arguments["increment_period"])
        case {"fixed": scale}:
            return fixed(scale)
        case scale:
            return fixed(scale)


@pytest.mark.parametrize("oracle", ORACLES)
def test_trained(oracle: Json) -> None:
    case, serialized = oracle["case"], oracle["optimizer_config"]
    if is_refused(serialized):
        assert_refuses_the_loss_scale(serialized)
        return
    version = parse_version(oracle["tf_version"])
    config: Json = convert(serialized, kind="optimizer", tf_version=oracle["tf_version"]).config
    if oracle["wrapped_by"]:
        expected = stated(case)
        if version < (2, 3) and expected["dynamic"]:
            expected["count_skipped_steps"] = False
        config = assert_wrapper(config, expected)
    arguments = dict(case["optimizer"]["kwargs"])
    rate, name = arguments["learning_rate"], case["optimizer"]["class"].split(".")[-1]
    if isinstance(rate, dict):
        arguments["learning_rate"] = (rate["class"], rate["kwargs"])
    legacy = "is_legacy_optimizer" not in json.dumps(serialized)
    if legacy and name == "Nadam":
        arguments |= OURS | {"schedule_decay": 0.004}
    elif arguments.get("decay") or (legacy and name == "RMSprop" and not arguments.get("momentum")):
        arguments = OURS | arguments
    assert_optimizer(config, name, arguments)


@pytest.mark.parametrize("config", GOOD, ids=lambda config: config["class_name"])
def test_keeps_every_other_value(config: Json) -> None:
    def inner(serialized: Json) -> Json:
        inside: Json = serialized["config"]
        found = inside.get("optimizer") or inside.get("inner_optimizer")
        return dict(found["config"] if found else inside)

    before, after = inner(config), inner(convert(config, kind="optimizer").config)
    for gone in ("jit_compile", "is_legacy_optimizer"):
        before.pop(gone, None)
    decay = before.pop("decay", 0.0)
    if "schedule_decay" in after:
        before["schedule_decay"], decay = decay, 0.0
    if "sparse_variables" in after:
        before |= {"decay": decay, "sparse_variables": []}
    else:
        assert decay == 0
    assert before.keys() == after.keys()
    assert {**before, "learning_rate": None} == {**after, "learning_rate": None}


def places(value: Any, path: str = "$", keys: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Yields (path, keys from the root, value) of everything in a JSON document but the root."""
    for key, item in value.items():
        yield f"{path}.{key}", (*keys, key), item
        if isinstance(item, dict):
            yield from places(item, f"{path}.{key}", (*keys, key))


def with_value(document: Json, keys: tuple[Any, ...], value: Any) -> Json:
    result = copy.deepcopy(document)
    *parents, last = keys
    target = result
    for key in parents:
        target = target[key]
    target[last] = value
    return result


DISTINCT = list({json.dumps(config): config for config in GOOD}.values())


def test_ignores_no_value() -> None:
    """Whatever is in a real config matters: made a thing of another kind, it is refused there."""
    for config in DISTINCT:
        for path, keys, value in places(config):
            spoilt = with_value(config, keys, {"x": 1} if isinstance(value, list) else [])
            with pytest.raises(LegacyError) as caught:
                convert(spoilt, kind="optimizer")
            assert caught.value.path == path


def test_ignores_no_key() -> None:
    for config in DISTINCT:
        objects = [("$", ())] + [
            (path, keys) for path, keys, value in places(config) if isinstance(value, dict)
        ]
        for path, keys in objects:
            with pytest.raises(LegacyError) as caught:
                convert(with_value(config, (*keys, "surprise"), 1), kind="optimizer")
            assert (caught.value.path, caught.value.found) == (f"{path}.surprise", "is not known")


def sgd(**others: Any) -> Json:
    return {"class_name": "SGD", "config": {"learning_rate": 0.1, **others}}


def old(loss_scale: Any = "dynamic", optimizer: Any = None) -> Json:
    """Returns what TF 2.1 to 2.3 wrote."""
    inside = {"optimizer": optimizer or sgd(), "loss_scale": loss_scale}
    return {"class_name": "LossScaleOptimizer", "config": inside}


def flat(inner: Any = None, **others: Any) -> Json:
    """Returns what TF 2.4 to 2.15 wrote."""
    settings = {"dynamic": True, "initial_scale": 32768.0, "dynamic_growth_steps": 2000} | others
    inside = {"inner_optimizer": inner or sgd(), **settings}
    return {"class_name": "LossScaleOptimizer", "config": inside}


def dynamic_object(**config: Any) -> Json:
    return {"class_name": "DynamicLossScale", "config": config}


def optimizer(class_name: str, **others: Any) -> Json:
    return {"class_name": class_name, "config": {"learning_rate": 0.1, **others}}


SCHEDULE = {
    "class_name": "ExponentialDecay",
    "config": {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5},
}
NAN = float("nan")

REFUSED = {
    "a list": ([], "$ is a list: expected an object"),
    "a model": (
        {"class_name": "Functional", "config": {}},
        '$.class_name is "Functional": no optimizer of tf.keras; the config of an optimizer',
    ),
    "a training config": (
        {"optimizer_config": sgd()},
        "$.class_name is missing: expected what tf.keras",
    ),
    "no config": ({"class_name": "SGD"}, "$.config is missing"),
    "a numeric class": ({"class_name": 1, "config": {}}, "$.class_name is 1: expected the name"),
    "an optimizer of Addons": (
        optimizer("Addons>Yogi"),
        '$.class_name is "Addons>Yogi": of TensorFlow Addons, no class of today has its rule; the',
    ),
    "an unknown one of Addons": (
        optimizer("Addons>Zogi"),
        '$.class_name is "Addons>Zogi": of TensorFlow Addons, and not among AdamW, SGDW, LazyAdam',
    ),
    "a scheduled weight decay": (
        optimizer("Addons>AdamW", weight_decay=SCHEDULE),
        "$.config.weight_decay is an object: a schedule of the weight decay has no counterpart",
    ),
    "two weight decays": (
        optimizer("Addons>LAMB", weight_decay=0.1, weight_decay_rate=0.1),
        "$.config.weight_decay is there: so is weight_decay_rate",
    ),
    "excluded weights": (
        optimizer("Addons>SGDW", weight_decay=0.1, exclude_from_weight_decay=["bias"]),
        "$.config.exclude_from_weight_decay is a list: configs of Keras 3 do not say which",
    ),
    "an optimizer of tf.compat.v1.train": (
        optimizer("AdamOptimizer"),
        '$.class_name is "AdamOptimizer": an optimizer of tf.compat.v1.train, which has no config; '
        "use keras.optimizers.Adam with epsilon=1e-8",
    ),
    "one in lower case": (
        old(optimizer=optimizer("momentumoptimizer")),
        '$.config.optimizer.class_name is "momentumoptimizer": an optimizer of tf.compat.v1.train',
    ),
    "a TFOptimizer": ({"class_name": "TFOptimizer", "config": {}}, '$.class_name is "TFOptimizer'),
    "gradient transformers": (
        sgd(gradient_transformers=["clip"]),
        "$.config.gradient_transformers is a list: Keras 3 has none; transform the gradients in",
    ),
    "a gradient aggregator": (
        sgd(gradient_aggregator={"class_name": "x"}),
        "$.config.gradient_aggregator is an object: Keras 3 sums the gradients of the replicas",
    ),
    "an odd shared object": (
        {**sgd(), "shared_object_id": "1"},
        '$.shared_object_id is "1": expected a whole number, zero or more',
    ),
    "somebody's Adam": (
        {**optimizer("Adam"), "module": "my.optimizers"},
        '$.module is "my.optimizers": expected a module of Keras',
    ),
    "somebody's registered Adam": (
        {**optimizer("Adam"), "registered_name": "mine>Adam"},
        '$.registered_name is "mine>Adam": expected the name that Keras gave',
    ),
    "no learning rate": ({"class_name": "SGD", "config": {}}, "$.config.learning_rate is missing"),
    "two learning rates": (sgd(lr=0.1), "$.config.lr is there: so is learning_rate"),
    "a learning rate of NaN": (sgd(learning_rate=NAN), "$.config.learning_rate is NaN: expected"),
    "a true learning rate": (sgd(learning_rate=True), "$.config.learning_rate is true: expected"),
    "a number too large": (sgd(momentum=10**400), "$.config.momentum is a huge number: expected"),
    "a key of another class": (sgd(beta_1=0.9), "$.config.beta_1 is not known: no SGD of TF 1.15"),
    "an odd key": (sgd(**{"a b": 1}), '$.config["a b"] is not known'),
    "a path in a name": (sgd(name="a/SGD"), '$.config.name is "a/SGD": Keras 3 allows no'),
    "two clippings": (
        sgd(clipvalue=0.5, clipnorm=1.0),
        "$.config.clipvalue is 0.5: clipnorm is set, too",
    ),
    "decay below zero": (sgd(decay=-0.1), "$.config.decay is -0.1: expected zero or more"),
    "decay of a Nadam below zero": (
        optimizer("Nadam", decay=-0.1),
        "$.config.decay is -0.1: expected zero or more",
    ),
    "decay of a new optimizer": (
        sgd(decay=0.1, is_legacy_optimizer=False),
        "$.config.decay is 0.1: SGD of the new optimizers of TF 2.10 to 2.15 had no decay",
    ),
    "decay of an AdamW": (optimizer("AdamW", decay=0.1), "$.config.decay is 0.1: AdamW of the new"),
    "both styles": (sgd(is_legacy_optimizer=True), "$.config.is_legacy_optimizer is true: no TF"),
    "half a schedule": (
        sgd(learning_rate={"class_name": "ExponentialDecay", "config": {}}),
        "$.config.learning_rate.config.initial_learning_rate is missing",
    ),
    "a boundary of another kind": (
        sgd(
            learning_rate={
                "class_name": "PiecewiseConstantDecay",
                "config": {"boundaries": [1, "2"], "values": [0.1, 0.2, 0.3]},
            }
        ),
        '$.config.learning_rate.config.boundaries[1] is "2": expected a number',
    ),
    "no loss scale": (old(None), "$.config.loss_scale is null: there is no loss scale; use the"),
    "an unknown loss scale": (old("static"), '$.config.loss_scale is "static": expected "dynamic"'),
    "a true loss scale": (old(True), "$.config.loss_scale is true: expected a number"),
    "a loss scale of NaN": (old(NAN), "$.config.loss_scale is NaN: expected a finite number"),
    "a loss scale of zero": (old(0), "$.config.loss_scale is 0: expected a positive scale"),
    "a loss scale above float32": (old(1e39), "$.config.loss_scale is 1e+39: expected a positive"),
    "a text as period": (
        old(dynamic_object(increment_period="2000")),
        '$.config.loss_scale.config.increment_period is "2000": expected a whole number from 1',
    ),
    "a period of zero": (
        old(dynamic_object(increment_period=0)),
        "$.config.loss_scale.config.increment_period is 0: expected a whole number from 1 to",
    ),
    "a fractional period": (
        old(dynamic_object(increment_period=2.5)),
        "$.config.loss_scale.config.increment_period is 2.5: expected a whole number",
    ),
    "a shrinking multiplier": (
        old(dynamic_object(multiplier=0.5)),
        "$.config.loss_scale.config.multiplier is 0.5: expected more than 1",
    ),
    "an empty fixed scale": (
        old({"class_name": "FixedLossScale", "config": {}}),
        "$.config.loss_scale.config.loss_scale_value is missing",
    ),
    "half a wrapper": (
        {"class_name": "LossScaleOptimizer", "config": {"loss_scale": "dynamic"}},
        "$.config.optimizer is missing",
    ),
    "an empty wrapper": (
        {"class_name": "LossScaleOptimizer", "config": {}},
        "$.config.inner_optimizer is missing",
    ),
    "both forms": (
        {"class_name": "LossScaleOptimizer", "config": {**flat()["config"], **old()["config"]}},
        "$.config.inner_optimizer is not known",
    ),
    "a wrapper in a wrapper": (
        old(optimizer=old()),
        '$.config.optimizer.class_name is "LossScaleOptimizer": a loss scale inside another',
    ),
    "an optimizer inside of one's own": (
        flat({"class_name": "Mine", "module": "mine", "config": {}, "registered_name": "m>Mine"}),
        '$.config.inner_optimizer.class_name is "Mine": no optimizer of tf.keras',
    ),
    "a text as dynamic": (flat(dynamic="dynamic"), '$.config.dynamic is "dynamic": expected true'),
    "a fixed scale of null": (
        flat(dynamic=False, initial_scale=None, dynamic_growth_steps=None),
        "$.config.initial_scale is null: a fixed loss scale needs one",
    ),
    "a fixed scale without it": (
        {
            "class_name": "LossScaleOptimizer",
            "config": {"inner_optimizer": sgd(), "dynamic": False},
        },
        "$.config.initial_scale is missing: a fixed loss scale needs one",
    ),
    "a floor above the cap": (
        flat(min_scale=4.0, max_scale=2.0),
        "$.config cannot be kept: min_scale must not exceed max_scale",
    ),
    "a fixed scale that grows": (
        flat(dynamic=False),
        "$.config.dynamic_growth_steps is 2000: a fixed loss scale never grows",
    ),
}


@pytest.mark.parametrize(("config", "message"), REFUSED.values(), ids=REFUSED)
def test_refuses(config: Any, message: str) -> None:
    with pytest.raises(LegacyError) as caught:
        convert(config, kind="optimizer")
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 300
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (str(copied), copied.path) == (str(caught.value), caught.value.path)


def test_nesting_without_end_is_one_error() -> None:
    deep: Json = {}
    for _ in range(100_000):
        deep = {"learning_rate": deep}
    today = {"module": "keras.optimizers", "class_name": "MultiOptimizer", "config": deep}
    with pytest.raises(LegacyError, match=r"^\$ is nested too deeply"):
        convert(today, kind="optimizer")
    with pytest.raises(LegacyError, match=r"^\$\.config\.learning_rate\.class_name is missing"):
        convert({"class_name": "SGD", "config": deep}, kind="optimizer")
    # Freed step by step: the interpreter would recurse, too.
    while deep:
        deep = deep.pop("learning_rate")


@pytest.mark.parametrize(("loss_scale", "expected"), [("dynamic", dynamic()), (8, fixed(8))])
def test_takes_bare_loss_scales(loss_scale: Any, expected: Json) -> None:
    assert_wrapper(convert(old(loss_scale), kind="optimizer").config, expected)


@pytest.mark.parametrize(
    ("version", "counts"), [("1.15", False), ("2.2.3", False), ("2.3", True), ("2.15.1", True)]
)
def test_skipped_steps_count_since_2_3(version: str, counts: bool) -> None:
    done = convert_loss_scale_config(old()["config"], tf_version=version)
    assert done.config["count_skipped_steps"] is counts
    assert done.notes == ()


def test_says_that_the_version_is_not_in_the_config() -> None:
    (note,) = convert(old(), kind="optimizer").notes
    assert "TF 2.1, 2.2 and 2.3 write the same config" in note
    assert convert(flat(), kind="optimizer").notes == ()


def test_2_2_wrote_no_flat_config() -> None:
    with pytest.raises(LegacyError, match=r"^\$\.config\.inner_optimizer is there: TF 2\.2 wrote"):
        convert(flat(), kind="optimizer", tf_version="2.2")


@pytest.mark.parametrize("text", ["", "2", "two", "2.x", "-1.2", "2.3 or 2.4"])
def test_refuses_versions(text: str) -> None:
    with pytest.raises(ValueError, match="is not a TensorFlow version"):
        convert(old(), kind="optimizer", tf_version=text)


def test_fixed_scales_say_what_they_let_pass() -> None:
    for config in (old(8), flat(dynamic=False, initial_scale=8.0, dynamic_growth_steps=None)):
        (note,) = convert(config, kind="optimizer").notes
        assert "skip_nonfinite=True skips such steps" in note


@pytest.mark.parametrize("skips", [True, False])
def test_a_fixed_scale_that_says_what_it_lets_pass_keeps_it(skips: bool) -> None:
    scale = {"dynamic": False, "initial_scale": 8.0, "dynamic_growth_steps": None}
    done = convert(flat(**scale, skip_nonfinite=skips), kind="optimizer")
    assert done.config["config"]["skip_nonfinite"] is skips  # type: ignore[index]
    assert done.notes == ()


def test_what_says_every_setting_is_given_none() -> None:
    every = Settings.checked().as_config()
    done = convert(flat(**every), kind="optimizer")
    assert done.config["config"].items() >= every.items()  # type: ignore[attr-defined]
    assert not [change for change in done.changes if change.kind == "defaulted"]


@pytest.mark.parametrize("around", [flat, lambda inner: old(8, inner)], ids=["2.4", "2.1"])
def test_an_inner_optimizer_of_today_is_kept(around: Any) -> None:
    today = convert(sgd(), kind="optimizer").config
    done: Any = convert(around(today), kind="optimizer").config
    assert done["config"]["inner_optimizer"] == today


def test_a_low_dynamic_scale_lowers_the_floor() -> None:
    for config in (old(dynamic_object(initial_loss_scale=0.25)), flat(initial_scale=0.25)):
        done = convert(config, kind="optimizer", tf_version="2.4")
        assert_wrapper(done.config, dynamic(0.25, min_scale=0.25))
        assert "min_scale=0.25" in done.notes[0]


@pytest.mark.parametrize("multiplier", [4, 3.0, 1.5])
def test_a_multiplier_other_than_two_says_what_to_write(multiplier: float) -> None:
    with pytest.raises(LegacyError) as caught:
        convert(old(dynamic_object(multiplier=multiplier)), kind="optimizer", tf_version="2.3")
    call = str(caught.value).partition("keras_mp.LossScaleOptimizer")[2]
    arguments = dict(part.split("=") for part in call.strip("()").split(", ")[1:])
    assert {name: float(value) for name, value in arguments.items()} == {
        "initial_scale": 32768.0,
        "dynamic_growth_steps": 2000.0,
        "growth_factor": multiplier,
        "backoff_factor": 1 / multiplier,
    }


def test_a_multiplier_of_two_is_what_every_loss_scale_has() -> None:
    done = convert(old(dynamic_object(multiplier=2)), kind="optimizer", tf_version="2.3")
    assert_wrapper(done.config, dynamic())


def became(name: str, reason: str, today: str = "") -> str:
    home = f"keras_mp.compat.optimizers.{today or name}"
    return f"{name} became {home}, which a program must import keras_mp to open: {reason}"


RULES = {
    "Nadam": (
        optimizer("Nadam", decay=0.004000000189989805),
        became("Nadam", "the momentum schedule of Keras 3 is 0.96^t"),
    ),
    "new Nadam": (optimizer("Nadam", is_legacy_optimizer=False), ""),
    "RMSprop": (
        optimizer("RMSprop", momentum=0.0),
        became("RMSprop", "without momentum Keras 3 divides by sqrt(v + epsilon)"),
    ),
    "RMSprop with momentum": (optimizer("RMSprop", momentum=0.9), ""),
    "new RMSprop": (optimizer("RMSprop", name="r", is_legacy_optimizer=False), ""),
    "RMSprop of 2.10": (
        optimizer("Custom>RMSprop", is_legacy_optimizer=False),
        became("RMSprop", "TF 2.10's optimizers.experimental divided", "ExperimentalRMSprop"),
    ),
    "Adagrad": (optimizer("Adagrad", initial_accumulator_value=0.1, epsilon=1e-7), ""),
    "Adagrad from zero": (
        optimizer("Adagrad", initial_accumulator_value=0.0),
        became("Adagrad", "Keras 3 divides by sqrt(a + epsilon)"),
    ),
    "Adagrad with a large epsilon": (
        optimizer("Adagrad", epsilon=1e-3),
        became("Adagrad", "Keras 3 divides by sqrt(a + epsilon)"),
    ),
    "Adagrad without epsilon": (
        optimizer("Adagrad", initial_accumulator_value=0.0, epsilon=0.0),
        "",
    ),
    "SGDW of Addons": (
        optimizer("Addons>sgdw", weight_decay=0.1),
        became("Addons>SGDW", "Addons decays weights by weight_decay", "SGD"),
    ),
    "EMA": (sgd(use_ema=True, is_legacy_optimizer=False), "use_ema: in a fresh run"),
    "jit_compile": (sgd(jit_compile=True, is_legacy_optimizer=False), "jit_compile is dropped"),
    "no jit_compile": (sgd(jit_compile=False, is_legacy_optimizer=False), ""),
    "decay": (sgd(decay=0.5), became("SGD", "Keras 3 has no decay, which is 0.5 here")),
    "decay of a schedule": (
        sgd(learning_rate=SCHEDULE, decay=0.5),
        became("SGD", "Keras 3 has no decay, which is 0.5 here"),
    ),
    "no decay": (sgd(decay=0.0), ""),
}


@pytest.mark.parametrize(("config", "note"), RULES.values(), ids=RULES)
def test_notes(config: Json, note: str) -> None:
    notes = convert(config, kind="optimizer").notes
    assert [text[: len(note)] for text in notes] == ([note] if note else [])


def test_reads_what_a_round_trip_left() -> None:
    """Every tf.keras wrote class names in lower case into a config that it read."""
    lower = old(optimizer=optimizer("rmsprop", momentum=0.5))
    lower["class_name"] = "lossscaleoptimizer"
    inner = assert_wrapper(convert(lower, kind="optimizer", tf_version="2.3").config, dynamic())
    assert_optimizer(inner, "RMSprop", {"momentum": 0.5})


def test_whole_numbers_become_floats() -> None:
    """Keras 3 takes no other learning rate and momentum."""
    config: Json = convert(
        {"class_name": "SGD", "config": {"lr": 1, "momentum": 0}}, kind="optimizer"
    ).config
    assert config["config"] == {"learning_rate": 1.0, "momentum": 0.0}
    assert all(type(value) is float for value in config["config"].values())


TODAY: dict[str, Json] = {
    "Adam": {
        "module": "keras.optimizers",
        "class_name": "Adam",
        "config": {"name": "adam", "learning_rate": 0.1, "loss_scale_factor": None},
        "registered_name": None,
    },
}
TODAY["Adam on torch"] = {
    **TODAY["Adam"],
    "module": "keras.src.backend.torch.optimizers.torch_adam",
    "registered_name": "Adam",
}
TODAY["ours"] = {
    "module": "keras_mp",
    "class_name": "LossScaleOptimizer",
    "config": {"inner_optimizer": TODAY["Adam"], "dynamic": True, "hysteresis": 1},
    "registered_name": "keras_mp>LossScaleOptimizer",
}
TODAY["Keras's own"] = {
    "module": "keras.optimizers",
    "class_name": "LossScaleOptimizer",
    "config": {"inner_optimizer": TODAY["Adam"], "initial_scale": 8.0, "name": "lso"},
    "registered_name": None,
}
TODAY["ours on torch"] = copy.deepcopy(TODAY["ours"])
TODAY["ours on torch"]["config"]["inner_optimizer"] = TODAY["Adam on torch"]
TODAY["around somebody's"] = copy.deepcopy(TODAY["ours"])
TODAY["around somebody's"]["config"]["inner_optimizer"] = {
    "module": "my.optimizers",
    "class_name": "Adam",
    "config": {"decay": 0.1},
    "registered_name": "mine>Adam",
}


@pytest.mark.parametrize("config", TODAY.values(), ids=TODAY)
def test_todays_configs_stay(config: Json) -> None:
    done = convert(config, kind="optimizer", tf_version="2.2")
    assert done.config == config
    assert done.config["config"] is not config["config"]
    assert not done.changed
    assert done.notes == ("already in today's form: nothing to do",)
    assert "inner_optimizer" not in config["config"] or not is_legacy(config["config"])


def test_an_old_optimizer_in_our_wrapper_keeps_our_settings() -> None:
    ours = {
        **TODAY["ours"],
        "config": {"inner_optimizer": sgd(), "name": "w", "max_scale": 2.0**20},
    }
    assert is_legacy(ours["config"])
    expected = dynamic() | {"name": "w", "max_scale": 2.0**20}
    assert_optimizer(assert_wrapper(convert(ours, kind="optimizer").config, expected), "SGD", {})


WRAPPED = [each for each in GOOD if {"optimizer", "inner_optimizer"} & each["config"].keys()]


@pytest.mark.parametrize("config", WRAPPED, ids=lambda config: config["class_name"])
def test_from_config_sees_what_is_old(config: Json) -> None:
    inside = config["config"]
    assert is_legacy(inside)
    done = convert_loss_scale_config(inside)
    assert done.config == convert(config, kind="optimizer").config["config"]
    assert not is_legacy(done.config)


rates = st.floats(1e-6, 1.0) | st.just(1)
schedules = st.builds(
    lambda rate, steps, staircase: {
        "class_name": "ExponentialDecay",
        "config": {
            "initial_learning_rate": rate,
            "decay_steps": steps,
            "decay_rate": 0.5,
            "staircase": staircase,
            "name": None,
        },
    },
    rates,
    st.integers(1, 10**6),
    st.booleans(),
)
legacy_optimizers = st.one_of(
    st.builds(
        lambda name, rate, decay, momentum: {
            "class_name": name,
            "config": {"name": "x", "learning_rate": rate, "decay": decay, "momentum": momentum},
        },
        st.sampled_from(["SGD", "sgd", "RMSprop"]),
        rates | schedules,
        st.just(0.0) | rates,
        st.floats(0, 1),
    ),
    st.builds(
        lambda name, rate, decay: {
            "class_name": name,
            "config": {"lr": rate, "decay": decay},
            "shared_object_id": 3,
        },
        st.sampled_from(["Nadam", "Adagrad", "Ftrl", "Addons>LAMB", "Addons>AdamW"]),
        rates,
        st.just(0.0) | rates,
    ),
    st.builds(
        lambda name, rate, clipnorm: {
            "class_name": name,
            "config": {"learning_rate": rate, "clipnorm": clipnorm, "is_legacy_optimizer": False},
        },
        st.sampled_from(["Adam", "Custom>Adam", "AdamW", "Lion", "Adafactor"]),
        rates | schedules,
        st.none() | rates,
    ),
)
loss_scales = st.one_of(
    st.just("dynamic"),
    st.floats(1, 2.0**100),
    st.builds(
        dynamic_object,
        initial_loss_scale=st.floats(2.0**-20, 2.0**100),
        increment_period=st.integers(1, 10**6),
        multiplier=st.just(2.0),
    ),
)
legacy = st.one_of(
    st.sampled_from(GOOD),
    legacy_optimizers,
    st.builds(old, loss_scales, legacy_optimizers),
    st.builds(flat, legacy_optimizers, initial_scale=st.none() | st.floats(0.5, 2.0**100)),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["class_name", "config", "module", "optimizer", "learning_rate", "x y"]
            ),
            inside,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(legacy, st.sampled_from([None, "2.4"]), st.sampled_from([(), ("embeddings",)]))
def test_converts_to_json_and_a_second_time_to_itself(
    config: Json, version: str | None, sparse: tuple[str, ...]
) -> None:
    before = copy.deepcopy(config)
    done = convert(config, kind="optimizer", tf_version=version, sparse_variables=sparse)
    assert config == before
    assert done.changed
    assert json.loads(json.dumps(done.config, allow_nan=False)) == done.config
    again = convert(done.config, kind="optimizer", tf_version=version)
    assert again.config == done.config
    assert not again.changed


@given(st.data())
def test_answers_anything_with_a_config_or_a_path(data: st.DataObject) -> None:
    document: Any = data.draw(anything)
    if data.draw(st.booleans()):
        config = data.draw(legacy)
        _, keys, _ = data.draw(st.sampled_from(list(places(config))))
        document = with_value(config, keys, document)
    before = repr(document)
    answer: Any = None
    try:
        answer = convert(document, kind="optimizer").config
    except LegacyError as error:
        answer = error
    assert repr(document) == before
    if isinstance(answer, LegacyError):
        assert answer.path.startswith("$")
        assert str(answer).isprintable()
    else:
        json.dumps(answer)


PROBE = "import sys, {}; sys.exit(3 * bool({{'keras', 'numpy', {}}} & sys.modules.keys()))"


@pytest.mark.parametrize(
    ("module", "heavy", "loaded"),
    [
        ("keras_mp.compat.configs", "tensorflow", 0),
        # The probe itself: it can say yes.
        ("keras_mp.compat.configs", "keras_mp.compat.configs.optimizer_tables", 3),
    ],
)
def test_loads_nothing_heavy(module: str, heavy: str, loaded: int) -> None:
    command = [sys.executable, "-c", PROBE.format(module, repr(heavy))]
    assert subprocess.run(command, check=False).returncode == loaded
