"""What a conversion of an optimizer config reports: everything, by its path."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keras_mp.compat.configs import Converted, convert
from keras_mp.compat.errors import LegacyError
from tests.fixtures import oracles, recorded_configs

Json = dict[str, Any]

ADDONS = json.loads(
    (Path(__file__).parents[2] / "data/legacy/optimizers/recorded_tf23.json").read_text(
        encoding="utf-8"
    )
)


def written() -> Iterator[Json]:
    """Every config that a TF wrote and that converts."""
    for _, _, config in recorded_configs():
        yield config
    for _, oracle in oracles():
        yield oracle.get("optimizer_config") or {}
    for case in ADDONS["cases"].values():
        yield case["config"]


REFUSED = ("TriangleLossScale", '"multiplier": 4.0', "SWA", "Average", "Yogi", "NovoGrad")
REFUSED += ("Lookahead", "RectifiedAdam", "ConditionalGradient", "Proximal", '"weight_decay": {')
CONFIGS = {
    text: json.loads(text)
    for text in (json.dumps(config) for config in written())
    if "class_name" in text and not any(word in text for word in REFUSED)
}


def optimizer_in(serialized: Json) -> tuple[Json, str]:
    """Returns the optimizer, with or without a loss scale, and where it is."""
    for key in ("optimizer", "inner_optimizer"):
        if key in serialized["config"]:
            return serialized["config"][key], f"$.config.{key}"
    return serialized, "$"


def reported(done: Converted, path: str) -> bool:
    """Whether there is a change at `path`."""
    return any(change.path == path for change in done.changes)


@pytest.mark.parametrize("text", CONFIGS, ids=range(len(CONFIGS)))
def test_nothing_is_other_without_a_change(text: str) -> None:
    done = convert(CONFIGS[text], kind="optimizer")
    assert reported(done, "$")
    (before, path), (after, _) = optimizer_in(CONFIGS[text]), optimizer_in(done.config)
    assert reported(done, path)
    old, new = before["config"], after["config"]
    for key in old:
        place = f"{path}.config.{key}"
        inside = any(change.path.startswith(f"{place}.") for change in done.changes)
        same = key in new and new[key] == old[key]
        assert same != (reported(done, place) or inside) or key == "use_ema", key
    named = {change.what for change in done.changes if change.kind == "renamed"}
    extra = new.keys() - old.keys() - named - {"decay", "sparse_variables"}
    assert not extra


@pytest.mark.parametrize("text", CONFIGS, ids=range(len(CONFIGS)))
def test_what_matters_is_a_note_and_nothing_else_is(text: str) -> None:
    done = convert(CONFIGS[text], kind="optimizer")
    assert set(done.notes) == {change.what for change in done.changes if change.matters}
    for change in done.changes:
        assert change.path.startswith("$")
        assert change.what
        assert change.matters <= (change.kind != "renamed")


def sgd(**others: Any) -> Json:
    return {"class_name": "SGD", "config": {"learning_rate": 0.1, **others}}


def wrapped(optimizer: Json, **others: Any) -> Json:
    inside = {"inner_optimizer": optimizer, **others}
    return {"class_name": "LossScaleOptimizerV3", "config": inside}


SCHEDULE: Json = {
    "class_name": "ExponentialDecay",
    "config": {
        "initial_learning_rate": 0.1,
        "decay_steps": 10,
        "decay_rate": 0.5,
        "staircase": False,
        "name": None,
    },
}

CHANGES: dict[str, tuple[Json, list[tuple[str, str]]]] = {
    "lr": (
        {"class_name": "SGD", "config": {"lr": 0.1}},
        [("$.config.lr", "renamed"), ("$", "rewritten")],
    ),
    "class names of a round trip": (
        {**sgd(), "class_name": "sgd"},
        [("$", "rewritten")],
    ),
    "a decay of zero": (sgd(decay=0.0), [("$.config.decay", "dropped"), ("$", "rewritten")]),
    "the new style": (
        sgd(jit_compile=False, is_legacy_optimizer=False),
        [
            ("$.config.jit_compile", "dropped"),
            ("$.config.is_legacy_optimizer", "dropped"),
            ("$", "rewritten"),
        ],
    ),
    "a schedule": (
        sgd(learning_rate=SCHEDULE),
        [
            ("$.config.learning_rate.config.name", "dropped"),
            ("$.config.learning_rate", "rewritten"),
            ("$", "rewritten"),
        ],
    ),
    "gradient arguments at their defaults": (
        sgd(gradient_transformers=[], gradient_aggregator=None),
        [
            ("$.config.gradient_aggregator", "dropped"),
            ("$.config.gradient_transformers", "dropped"),
            ("$", "rewritten"),
        ],
    ),
    "a shared object": (
        {**sgd(), "shared_object_id": 0},
        [("$.shared_object_id", "dropped"), ("$", "rewritten")],
    ),
    "Nadam": (
        {"class_name": "Nadam", "config": {"learning_rate": 0.1, "decay": 0.004}},
        [("$.config.decay", "renamed"), ("$", "rewritten")],
    ),
    "Nadam by hand": (
        {"class_name": "Nadam", "config": {"learning_rate": 0.1}},
        [("$.config.decay", "defaulted"), ("$", "rewritten")],
    ),
    "Addons": (
        {"class_name": "Addons>AdamW", "config": {"learning_rate": 0.1, "weight_decay": 0.1}},
        [("$.config.weight_decay", "renamed"), ("$", "rewritten")],
    ),
    "TF 2.4 and later": (
        wrapped(sgd(), initial_scale=None),
        [
            ("$", "rewritten"),
            ("$.config.inner_optimizer", "rewritten"),
            ("$.config.dynamic", "defaulted"),
            ("$.config.initial_scale", "defaulted"),
            ("$.config.dynamic_growth_steps", "defaulted"),
            ("$.config", "defaulted"),
        ],
    ),
    "TF 2.2": (
        {
            "class_name": "LossScaleOptimizer",
            "config": {
                "optimizer": sgd(),
                "loss_scale": {
                    "class_name": "DynamicLossScale",
                    "config": {"multiplier": 2.0},
                    "shared_object_id": 2,
                },
            },
        },
        [
            ("$", "rewritten"),
            ("$.config.optimizer", "renamed"),
            ("$.config.optimizer", "rewritten"),
            ("$.config.loss_scale", "rewritten"),
            ("$.config.loss_scale.shared_object_id", "dropped"),
            ("$.config.loss_scale.config.initial_loss_scale", "defaulted"),
            ("$.config.loss_scale.config.increment_period", "defaulted"),
            ("$.config", "defaulted"),
            ("$.config", "defaulted"),
        ],
    ),
}


@pytest.mark.parametrize(("config", "expected"), CHANGES.values(), ids=CHANGES)
def test_changes(config: Json, expected: list[tuple[str, str]]) -> None:
    done = convert(
        config, kind="optimizer", tf_version="2.2" if "loss_scale" in config["config"] else None
    )
    assert [(change.path, change.kind) for change in done.changes] == expected


def test_todays_configs_have_none() -> None:
    again = convert(convert(sgd(decay=0.1), kind="optimizer").config, kind="optimizer")
    assert (again.changes, again.changed) == ((), False)


# What becomes of a class whose variables `embeddings` had sparse gradients.
def test_nadam_of_keras_2_2_4() -> None:
    config: Json = {"lr": 0.002, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}
    given = {"class_name": "Nadam", "config": {**config, "schedule_decay": 0.01}}
    done: Json = convert(given, kind="optimizer").config
    assert done["module"] == "keras_mp.compat.optimizers"
    assert (done["config"]["schedule_decay"], done["config"]["learning_rate"]) == (0.01, 0.002)
    both = {**config, "schedule_decay": 0.01, "decay": 0.02}
    with pytest.raises(LegacyError, match=r"\$\.config\.decay is there: so is schedule_decay"):
        convert({"class_name": "Nadam", "config": both}, kind="optimizer")


SPARSE: dict[str, tuple[Json, str | None]] = {
    "SGD": (sgd(), None),
    "SGD with momentum": (sgd(momentum=0.9), "SGD"),
    **{
        name: ({"class_name": name, "config": {"learning_rate": 0.1}}, name)
        for name in ("Adam", "Adamax", "Nadam", "Adagrad", "Adadelta", "RMSprop", "Ftrl")
    },
    "Addons' AdamW": (
        {"class_name": "Addons>AdamW", "config": {"learning_rate": 0.1, "weight_decay": 0.1}},
        "Adam",
    ),
    "LazyAdam": ({"class_name": "Addons>LazyAdam", "config": {"learning_rate": 0.1}}, "LazyAdam"),
    "a new SGD": (sgd(momentum=0.9, is_legacy_optimizer=False), None),
    "a new AdamW": ({"class_name": "AdamW", "config": {"learning_rate": 0.1}}, "AdamW"),
    "a new Nadam": (
        {"class_name": "Nadam", "config": {"learning_rate": 0.1, "is_legacy_optimizer": False}},
        None,
    ),
}


@pytest.mark.parametrize(("config", "name"), SPARSE.values(), ids=SPARSE)
def test_sparse_variables(config: Json, name: str | None) -> None:
    done: Json = convert(config, kind="optimizer", sparse_variables=["embeddings"]).config
    assert (done["module"] == "keras_mp.compat.optimizers") == (name is not None)
    rule = [] if name == "AdamW" else ["embeddings"]  # a new one only sums repeated rows
    assert done["config"].get("sparse_variables") == (rule if name else None)
    if name:
        assert done["class_name"] == name
        one: Json = convert(config, kind="optimizer", sparse_variables="embeddings").config
        assert one == done
    without: Json = convert(config, kind="optimizer").config
    assert not without["config"].get("sparse_variables")


@pytest.mark.parametrize(
    ("version", "sparse"), [("2.1", False), ("2.2.3", False), ("2.3", True), (None, True)]
)
def test_loss_scales_up_to_2_2_made_gradients_dense(version: str | None, sparse: bool) -> None:
    config = {
        "class_name": "LossScaleOptimizer",
        "config": {"optimizer": sgd(momentum=0.9), "loss_scale": "dynamic"},
    }
    before = copy.deepcopy(config)
    done = convert(config, kind="optimizer", tf_version=version, sparse_variables=("embeddings",))
    assert config == before
    inner, _ = optimizer_in(done.config)
    assert inner["config"].get("sparse_variables") == (["embeddings"] if sparse else None)
    plain: Json = convert(
        sgd(momentum=0.9), kind="optimizer", tf_version=version, sparse_variables=("embeddings",)
    ).config
    assert plain["config"]["sparse_variables"] == ["embeddings"]


def test_addons_of_later_versions() -> None:
    """From TF 2.13 on the package stands beside the class; keys of Addons 0.13 and later."""
    config = {
        "module": "tensorflow_addons.optimizers.weight_decay_optimizers",
        "class_name": "AdamW",
        "config": {"learning_rate": 0.1, "weight_decay": 0.1, "exclude_from_weight_decay": None},
        "registered_name": "Addons>AdamW",
    }
    done: Json = convert(config, kind="optimizer").config
    assert (done["class_name"], done["config"]["decoupled_weight_decay"]) == ("Adam", 0.1)
    lamb = {"class_name": "Addons>LAMB", "config": {"learning_rate": 0.1, "weight_decay": 0.2}}
    done = convert(lamb, kind="optimizer").config
    assert done["config"]["weight_decay_rate"] == 0.2
