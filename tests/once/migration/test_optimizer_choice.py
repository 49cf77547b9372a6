"""Which optimizer a checkpoint says it is of."""

from typing import Any

import numpy as np
import pytest

from keras_mp.compat.inspecting import inspect
from keras_mp.compat.inspecting.inspection import Optimizer
from keras_mp.migration.optimizer_choice import config_of
from tests.fixtures import FIXTURES, oracles

Json = dict[str, Any]
RECORDED = {
    folder: oracle["optimizer_config"]
    for folder, oracle in oracles()
    if (FIXTURES / folder / "ckpt.index").exists()
    and "config" in (oracle["optimizer_config"] or {})
}


def inner(config: Json) -> Json:
    inside = config["config"]
    return inside.get("inner_optimizer") or inside.get("optimizer") or config


@pytest.mark.parametrize("folder", RECORDED)
def test_it_is_the_one_that_was_recorded(folder: str) -> None:
    (found,) = inspect(FIXTURES / folder / "ckpt", check=False).optimizers
    told = config_of(found)
    old = RECORDED[folder]
    wrapper = old["class_name"]
    if isinstance(told, str):
        rate = inner(old)["config"]["learning_rate"]
        is_fixed = wrapper != inner(old)["class_name"] and found.loss_scale is None
        assert found.layout == "new" or found.name is None or isinstance(rate, dict) or is_fixed
        return
    config, version, said = told
    assert config["class_name"] == wrapper.removesuffix("V1")
    mine, recorded = inner(config), inner(old)
    assert mine["class_name"] == recorded["class_name"]
    left_to_defaults = {"epsilon", "nesterov", "l2_shrinkage_regularization_strength"}
    for key, value in mine["config"].items():
        known = recorded["config"][key]
        assert key in left_to_defaults or np.float32(value) == np.float32(known), key
    told_of = {*recorded["config"]} & left_to_defaults - {"nesterov"}
    assert all(f"{key}=" in said for key in told_of)
    is_early = folder.startswith("tf22/") and wrapper == "LossScaleOptimizer"
    assert version == ("2.2" if is_early else None)


SGD = {"learning_rate": 0.5, "decay": 0.0, "momentum": 0.5}


@pytest.mark.parametrize(
    ("otherwise", "why"),
    [
        ({"name": "Ranger"}, "it is called 'Ranger'"),
        ({"name": None}, "it has no name"),
        ({"layout": "new"}, "keep their learning rate only"),
        ({"config": {"decay": 0.0, "momentum": 0.5}}, "was a schedule"),
        ({"config": {**SGD, "rho": 0.5}}, "are not those of SGD"),
        ({"slots": {"momentum": 2, "slow": 2}}, "are not those of SGD"),
        ({"loss_scaler": "LossScaleOptimizer"}, "its loss scale was fixed"),
    ],
    ids=["class", "no name", "new", "schedule", "other", "slot", "fixed"],
)
def test_nothing_is_guessed(otherwise: Json, why: str) -> None:
    known: Json = {"layout": "flat", "name": "SGD", "config": SGD, "slots": {"momentum": 2}}
    assert isinstance(config_of(Optimizer(**known)), tuple)
    assert why in str(config_of(Optimizer(**{**known, **otherwise})))


def test_what_is_said() -> None:
    found = config_of(Optimizer(layout="flat", name="SGD", config=SGD, slots={"momentum": 2}))
    assert isinstance(found, tuple)
    assert "assumed the optimizer SGD(learning_rate=0.5, momentum=0.5), from its name" in found[2]
    assert "defaults for the rest: nesterov=False, no clipping. To use another" in found[2]
