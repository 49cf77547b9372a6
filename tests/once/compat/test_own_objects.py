"""Losses, metrics, optimizers and schedules of one's own are carried over, and said to be."""

import pytest

from keras_mp.compat.configs import convert
from keras_mp.compat.configs.serialized import CARRIED_OVER

SCHEDULE = {"class_name": "WarmUp", "config": {"warmup_steps": 3, "decay_schedule_fn": {"a": 1}}}
FUNCTION = {
    "module": "builtins",
    "class_name": "function",
    "config": "mine",
    "registered_name": "function",
}


def own(config):
    return {"module": None, "class_name": "Mine", "config": config, "registered_name": "Mine"}


@pytest.mark.parametrize(
    ("given", "today"),
    [
        ({"learning_rate": 0.5, "decay": 0.0, "clipnorm": 1.0}, {"clipnorm": 1.0}),
        ({"lr": 0.5, "decay": 0.25, "beta": 2}, {"decay": 0.25, "beta": 2}),
        ({"learning_rate": 0.5, "jit_compile": True, "is_legacy_optimizer": False}, {}),
    ],
)
def test_optimizers(given, today):
    done = convert({"class_name": "Mine", "config": given}, kind="optimizer")
    assert done.config == own({"learning_rate": 0.5, **today})
    assert CARRIED_OVER.format(name="Mine") in done.notes


def test_under_a_loss_scale():
    inner = {"class_name": "Custom>Mine", "config": {"learning_rate": 0.5}}
    config = {"inner_optimizer": inner, "dynamic": True, "initial_scale": 8.0}
    config["dynamic_growth_steps"] = 3
    done = convert({"class_name": "LossScaleOptimizer", "config": config}, kind="optimizer")
    found = done.config["config"]["inner_optimizer"]
    assert found == own({"learning_rate": 0.5}) | {"registered_name": "Custom>Mine"}


def test_schedules():
    done = convert({"class_name": "SGD", "config": {"learning_rate": SCHEDULE}}, kind="optimizer")
    found = done.config["config"]["learning_rate"]
    assert (found["class_name"], found["config"]) == ("WarmUp", SCHEDULE["config"])
    assert CARRIED_OVER.format(name="WarmUp") in done.notes


def test_functions_of_metrics():
    named = {"class_name": "MeanMetricWrapper", "config": {"name": "mine", "fn": "mine"}}
    assert convert(named, kind="metric").config == FUNCTION
    config = {"name": "f", "dtype": "float32", "fn": "mine"}
    done = convert({"class_name": "MeanMetricWrapper", "config": config}, kind="metric")
    assert done.config["class_name"] == "MeanMetricWrapper"
    assert done.config["config"] == {"name": "f", "dtype": "float32", "fn": FUNCTION}
    assert CARRIED_OVER.format(name="mine") in done.notes


@pytest.mark.parametrize("reduction", ["auto", "sum_over_batch_size"])
def test_functions_of_losses(reduction):
    config = {"reduction": reduction, "name": "mine", "fn": "mine"}
    done = convert({"class_name": "LossFunctionWrapper", "config": config}, kind="loss")
    assert done.config == FUNCTION


def test_reduction_of_losses():
    done = convert(
        {"class_name": "Mine", "config": {"reduction": "auto", "gamma": 2.0}}, kind="loss"
    )
    assert done.config == own({"reduction": "sum_over_batch_size", "gamma": 2.0})
