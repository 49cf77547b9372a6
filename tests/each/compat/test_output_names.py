"""Losses and metrics of models with several outputs, as tf.keras wrote them."""

from typing import Any

import keras
import numpy as np
import pytest

from keras_mp.compat.configs import convert
from keras_mp.compat.restoring import building
from keras_mp.compat.restoring.output_names import with_names_of_today

Json = dict[str, Any]
SGD = {"class_name": "SGD", "config": {"learning_rate": 0.1}}
X = np.ones((4, 3), "float32")


def wrapped(name: str, fn: str) -> Json:
    config = {"name": name, "dtype": "float32", "fn": fn}
    return {"class_name": "MeanMetricWrapper", "config": config}


def half(y_true: Any, y_pred: Any) -> Any:
    return keras.ops.mean(keras.ops.abs(keras.ops.subtract(y_true, y_pred)), axis=-1) / 2


def net(*, by_key: bool = False) -> Any:
    inputs = keras.Input((3,))
    a, b = (keras.layers.Dense(1, name=name)(inputs) for name in ("a", "b"))
    return keras.Model(inputs, {"y": a, "x": b} if by_key else [a, b])


def logs_of(training: Json, model: Any) -> set[str]:
    """Returns the names of what a model says after a step."""
    today = convert({"optimizer_config": SGD, **training}, kind="training").config
    today = with_names_of_today(dict(today), model, {})
    building.compile_model("f", model, today, {"half": half}, safe_mode=True)
    y = dict.fromkeys(("x", "y"), X[:, :1]) if isinstance(model.output, dict) else [X[:, :1]] * 2
    return set(model.train_on_batch(X, y, return_dict=True))


LOSSES = {"loss", "a_loss", "b_loss"}


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({"loss": "mse"}, LOSSES),
        ({"loss": "mse", "loss_weights": {"a": 0.3, "b": 0.7}}, LOSSES),
        ({"loss": ["mse", "mae"], "loss_weights": [0.3, 0.7]}, LOSSES),
        ({"loss": "mse", "metrics": ["mae"]}, {*LOSSES, "a_mae", "b_mae"}),
        (
            {"loss": "mse", "metrics": [[wrapped("a_err", "mean_absolute_error")], [None]]},
            {*LOSSES, "a_err"},
        ),
        (
            {
                "loss": {"a": "mse", "b": "mae"},
                "metrics": [[wrapped("a_half", "half")], [wrapped("b_half", "half"), "mse"]],
            },
            {*LOSSES, "a_half", "b_half", "b_mse"},
        ),
        ({"loss": "mse", "metrics": {"b": ["mae"]}}, {*LOSSES, "b_mae"}),
        ({"loss": "mse", "metrics": [[None], [None]]}, LOSSES),
    ],
    ids=["one", "weights", "lists", "each", "none", "own", "dict", "nothing"],
)
def test_each_output_has_its_own(training: Json, expected: set[str]) -> None:
    assert logs_of(training, net()) == expected


def test_outputs_by_their_keys() -> None:
    metrics = [[wrapped("b_err", "mean_absolute_error")], [None]]
    found = logs_of({"loss": {"y": "mse", "x": "mae"}, "metrics": metrics}, net(by_key=True))
    assert found == {"loss", "x_loss", "y_loss", "x_err"}


def test_of_one_output_nothing_is_changed() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, name="a")])
    training = {"loss": "mse", "metrics": [{"class_name": "Mean", "config": {"name": "a_mae"}}]}
    assert with_names_of_today(training, model, {}) == training
