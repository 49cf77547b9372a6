"""Losses, metrics and training configs that TF 1.15 to 2.15 wrote."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from keras_mp.compat.configs import convert
from keras_mp.compat.configs.training_tables import LOSSES, METRICS, snake_case
from keras_mp.compat.errors import LegacyError

Json = dict[str, Any]

DATA = Path(__file__).parents[2] / "data" / "legacy"
SGD: Json = {"class_name": "SGD", "config": {"learning_rate": 0.5}}
TODAY: Json = {
    "module": "keras.optimizers",
    "class_name": "SGD",
    "config": {"learning_rate": 0.5},
    "registered_name": None,
}


def of(package: str, kind: str, **config: Any) -> Json:
    return {
        "module": f"keras.{package}",
        "class_name": kind,
        "config": config,
        "registered_name": None,
    }


def old(kind: str, **config: Any) -> Json:
    return {"class_name": kind, "config": config}


def function(name: str) -> Json:
    return {
        "module": "builtins",
        "class_name": "function",
        "config": name,
        "registered_name": "function",
    }


HUBER = of("losses", "Huber", delta=2.0, reduction="sum_over_batch_size", name="h")
CASES: dict[str, tuple[Json, Json]] = {
    "names": (
        {"loss": "mse", "metrics": ["accuracy", "mae", "kullback_leibler_divergence"]},
        {"loss": "mse", "metrics": ["accuracy", "mae", "kl_divergence"]},
    ),
    "a loss": (
        {"loss": old("Huber", delta=2.0, reduction="auto", name="h", fn="huber")},
        {"loss": HUBER},
    ),
    "losses by name": (
        {"loss": {"a": "logcosh", "b": old("Huber", delta=2.0, reduction="auto", name="h")}},
        {"loss": {"a": "log_cosh", "b": HUBER}},
    ),
    "names with a slash": (
        {"loss": {"a/b": "mse"}, "metrics": {"a/b": ["mae"]}, "loss_weights": {"a/b": 2.0}},
        {"loss": {"a_b": "mse"}, "metrics": {"a_b": ["mae"]}, "loss_weights": {"a_b": 2.0}},
    ),
    "losses by position": (
        {"loss": ["cosine_proximity", None]},
        {"loss": ["cosine_similarity", None]},
    ),
    "other reductions": (
        {"loss": [old("Hinge", reduction="sum"), old("Hinge", reduction="none")]},
        {
            "loss": [
                of("losses", "Hinge", reduction="sum"),
                of("losses", "Hinge", reduction="none"),
            ]
        },
    ),
    "one's own": (
        {"loss": "my_loss", "metrics": [old("mine>Metric", a=1), function("f")]},
        {
            "loss": function("my_loss"),
            "metrics": [
                {
                    "module": None,
                    "class_name": "Metric",
                    "config": {"a": 1},
                    "registered_name": "mine>Metric",
                },
                function("f"),
            ],
        },
    ),
    "what TF made of a name": (
        {
            "metrics": [
                [old("MeanMetricWrapper", name="acc", dtype="float32", fn="binary_accuracy")]
            ]
        },
        {"metrics": [of("metrics", "BinaryAccuracy", name="acc", dtype="float32")]},
    ),
    "a loss that TF made of a function": (
        {"loss": old("LossFunctionWrapper", name="l", reduction="sum", fn="huber", delta=2.0)},
        {"loss": of("losses", "Huber", name="l", reduction="sum", delta=2.0)},
    ),
    "a metric that TF 2.13 made of a function": (
        {"metrics": [old("MeanMetricWrapper", name="m", fn=function("mean_squared_error"))]},
        {"metrics": [of("metrics", "MeanSquaredError", name="m")]},
    ),
    "a class to ignore that is none": (
        {"metrics": [old("SparseCategoricalCrossentropy", ignore_class=None)]},
        {"metrics": [of("metrics", "SparseCategoricalCrossentropy")]},
    ),
    "no optimizer": ({"optimizer": None, "loss": "mse"}, {"optimizer": None, "loss": "mse"}),
    "lists in lists": ({"metrics": [[["mse"]]]}, {"metrics": ["mse"]}),
    "two outputs": (
        {"weighted_metrics": [[old("Mean", name="m")], ["mse"]]},
        {"weighted_metrics": [[of("metrics", "Mean", name="m")], ["mse"]]},
    ),
    "a mode that is none": (
        {"loss": None, "sample_weight_mode": [None, None], "loss_weights": [1.0, 2.0]},
        {"loss": None, "loss_weights": [1.0, 2.0]},
    ),
    "compile_config": (
        {"optimizer": SGD, "run_eagerly": None, "steps_per_execution": 1, "jit_compile": True},
        {"optimizer": TODAY, "steps_per_execution": 1, "jit_compile": True},
    ),
    "optimizer_config": ({"optimizer_config": SGD}, {"optimizer": TODAY}),
    "a name of an optimizer": ({"optimizer": "rmsprop"}, {"optimizer": "rmsprop"}),
    "a name whose defaults were others": (
        {"optimizer": "lion"},
        {"optimizer": of("optimizers", "Lion", learning_rate=0.0001)},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_training_config_becomes(case: str) -> None:
    given, today = CASES[case]
    before = copy.deepcopy(given)
    done = convert(given, kind="training")
    assert given == before
    assert (done.config, done.changed) == (today, given != today)
    again = convert(done.config, kind="training")
    assert (again.config, again.changed, again.changes) == (today, False, ())


def test_the_loss_scale_is_kept() -> None:
    scaled = old("LossScaleOptimizer", inner_optimizer=SGD, dynamic=True, initial_scale=64.0)
    config: Any = convert({"optimizer_config": scaled}, kind="training").config["optimizer"]
    assert config["registered_name"] == "keras_mp>LossScaleOptimizer"
    assert config["config"]["initial_scale"] == 64.0


@pytest.mark.parametrize(
    ("given", "path", "why"),
    [
        ({"sample_weight_mode": "temporal"}, "$.sample_weight_mode", "no such mode"),
        ({"sample_weight_mode": {"a": "temporal"}}, "$.sample_weight_mode", "no such mode"),
        ({"wings": 2}, "$.wings", "no training config"),
        ({"optimizer": SGD, "optimizer_config": SGD}, "$.optimizer_config", "keep one"),
        ({"optimizer": old("Adam")}, "$.optimizer.config.learning_rate", "every TF"),
        ({"loss": {"a": old("Huber", wings=2)}}, "$.loss.a.config.wings", "no Huber"),
        ({"loss": 3}, "$.loss", "expected an object"),
        ({"metrics": [old("MeanTensor")]}, "$.metrics[0].class_name", "no such metric"),
        ({"metrics": [old("AUC", wings=2)]}, "$.metrics[0].config.wings", "no AUC"),
        (
            {"metrics": [old("SparseCategoricalCrossentropy", ignore_class=1)]},
            "$.metrics[0].config.ignore_class",
            "ignores no class",
        ),
        (
            {"metrics": [old("MeanMetricWrapper", fn=3)]},
            "$.metrics[0].config.fn",
            "name of a function",
        ),
        (
            {"loss": old("LossFunctionWrapper", fn="mine", reduction="none")},
            "$.loss.config.reduction",
            "no such wrapper",
        ),
        ({"loss": {"class_name": "function", "config": 3}}, "$.loss.config", "function's name"),
    ],
)
def test_what_is_refused(given: Json, path: str, why: str) -> None:
    with pytest.raises(LegacyError) as caught:
        convert(given, kind="training")
    assert caught.value.path == path
    assert why in caught.value.why


def test_an_output_of_another_name_is_told() -> None:
    done = convert({"loss": {"a/b": "mse"}, "loss_weights": {"a/b": 2.0}}, kind="training")
    assert [change.path for change in done.changes] == ['$.loss["a/b"]', '$.loss_weights["a/b"]']
    assert [note[:4] for note in done.notes] == ["a_b:"]


def test_auto_and_steps_are_told() -> None:
    (note,) = convert({"loss": old("Hinge", reduction="auto")}, kind="training").notes
    assert "distribution strategy" in note
    assert (
        "torch"
        in convert({"steps_per_execution": 2, "run_eagerly": None}, kind="training").notes[0]
    )


def model(policy: str, compiled: Json, kind: str = "Functional") -> Json:
    path = DATA / "models" / "recorded_tf215.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    config: Json = document["trainings"]["names"]["keras"]
    config["config"]["layers"][1]["config"]["dtype"] = old("Policy", name=policy)
    config["compile_config"] = compiled
    if kind != "Functional":
        config = {"class_name": kind, "config": {}, "compile_config": compiled}
    return config


@pytest.mark.parametrize(
    ("policy", "optimizer", "is_wrapped"),
    [
        ("mixed_float16", SGD, True),
        ("mixed_bfloat16", SGD, False),
        ("float32", SGD, False),
        ("mixed_float16", TODAY, False),
        ("mixed_float16", "sgd", True),
        ("mixed_bfloat16", "sgd", False),
    ],
)
def test_a_keras_file_does_not_say_that_compile_scaled(
    policy: str, optimizer: Any, is_wrapped: bool
) -> None:
    from keras_mp.compat.configs import convert

    done = convert(model(policy, {"optimizer": optimizer}), kind="model")
    found: Any = done.config["compile_config"]
    assert ("LossScaleOptimizer" in str(found["optimizer"])) == is_wrapped
    assert (
        any("without the wrapper; its scale starts again" in note for note in done.notes)
        == is_wrapped
    )
    assert not convert(done.config, kind="model").changed


@pytest.mark.parametrize(
    ("name", "inner"),
    [
        ("Sgd", of("optimizers", "SGD")),
        ("lion", of("optimizers", "Lion", learning_rate=0.0001)),
    ],
)
def test_the_name_of_an_optimizer_is_wrapped_as_its_config_is(name: str, inner: Json) -> None:
    from keras_mp.compat.configs import convert

    done: Any = convert(model("mixed_float16", {"optimizer": name}), kind="model").config
    named = done["compile_config"]["optimizer"]
    done = convert(model("mixed_float16", {"optimizer": SGD}), kind="model").config
    configured = done["compile_config"]["optimizer"]
    assert named["config"].pop("inner_optimizer") == inner
    assert configured["config"].pop("inner_optimizer") == TODAY
    assert named == configured


@pytest.mark.parametrize("optimizer", [SGD, "sgd"], ids=["config", "name"])
def test_a_class_of_ones_own_does_not_say_its_policy(optimizer: Any) -> None:
    from keras_mp.compat.configs import convert

    done = convert(model("mixed_float16", {"optimizer": optimizer}, "Net"), kind="model")
    assert any("whether compile() scaled the loss" in note for note in done.notes)
    wrapped = old("LossScaleOptimizer", inner_optimizer=SGD, dynamic=True)
    done = convert(model("mixed_float16", {"optimizer": wrapped}, "Net"), kind="model")
    assert not any("whether compile() scaled the loss" in note for note in done.notes)


def test_an_optimizer_of_ones_own_by_name_is_not_wrapped() -> None:
    from keras_mp.compat.configs import convert

    done: Any = convert(model("mixed_float16", {"optimizer": "mine"}), kind="model")
    assert done.config["compile_config"]["optimizer"] == "mine"
    assert any("whether compile() scaled the loss" in note for note in done.notes)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss(name: str) -> None:
    given = old(
        name, reduction="auto", name="x", fn=snake_case(name), **dict.fromkeys(LOSSES[name])
    )
    config = dict.fromkeys(LOSSES[name]) | {"reduction": "sum_over_batch_size", "name": "x"}
    assert convert(given, kind="loss").config == of("losses", name, **config)
    assert not convert(convert(given, kind="loss").config, kind="loss").changed


@pytest.mark.parametrize("name", METRICS)
def test_every_metric(name: str) -> None:
    given = old(name, name="x", dtype="float32", **dict.fromkeys(METRICS[name]))
    config = dict.fromkeys(METRICS[name]) | {"name": "x", "dtype": "float32"}
    assert convert(given, kind="metric").config == of("metrics", name, **config)
    assert not convert(convert(given, kind="metric").config, kind="metric").changed
