"""Converted configs load in Keras 3, and build what the old programs had."""

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import keras
import pytest

import keras_mp
from keras_mp.compat.configs import convert
from keras_mp.compat.configs.optimizers import convert_loss_scale_config
from tests.backends import on_one
from tests.fixtures import oracles, recorded_configs

Json = dict[str, Any]


def serialized() -> Iterator[tuple[str, str, Json]]:
    """Yields (name, TF version, config), without those with a loss scale that is refused."""
    seen = set()
    for version, name, config in recorded_configs():
        seen.add((name, version, json.dumps(config)))
    for folder, oracle in oracles():
        name = folder.partition("/")[2]
        seen.add((name, oracle["tf_version"], json.dumps(oracle.get("optimizer_config"))))
    for name, version, text in sorted(seen):
        refused = "TriangleLossScale" in text or '"multiplier": 4.0' in text
        if "class_name" in text and not refused:
            yield name, version, json.loads(text)


ROWS = list(serialized())


def inner_of(config: Json) -> Json | None:
    inside = config["config"]
    found: Json | None = inside.get("optimizer") or inside.get("inner_optimizer")
    return found


PLAIN = [pytest.param(*row[1:], id="/".join(row[:2])) for row in ROWS if inner_of(row[2]) is None]
WRAPPED = [pytest.param(*row[1:], id="/".join(row[:2])) for row in ROWS if inner_of(row[2])]


def assert_built(optimizer: Any, old: Json) -> None:
    """Asserts the class and each hyperparameter; numbers up to float32, as Keras keeps them."""
    assert type(optimizer).__name__ == old["class_name"].removeprefix("Custom>")
    now, before = optimizer.get_config(), dict(old["config"])
    decay = before.pop("decay", 0.0)
    if type(optimizer).__module__ == "keras_mp.compat.optimizers":
        before["schedule_decay" if type(optimizer).__name__ == "Nadam" else "decay"] = decay
    else:
        assert type(optimizer).__module__.startswith("keras.")
        assert decay == 0
    for dropped in ("jit_compile", "is_legacy_optimizer"):
        before.pop(dropped, None)
    rate = before.pop("learning_rate")
    if isinstance(rate, dict):
        schedule = now["learning_rate"]
        assert schedule["class_name"] == rate["class_name"]
        kept = {key: value for key, value in rate["config"].items() if key != "name"}
        assert {key: schedule["config"][key] for key in kept} == kept
    else:
        assert math.isclose(float(optimizer.learning_rate), rate, rel_tol=1e-6)
    for key, value in before.items():
        same = math.isclose(now[key], value, rel_tol=1e-6) if type(value) is float else None
        assert same or now[key] == value, key


@pytest.mark.parametrize(
    "load", [keras.optimizers.deserialize, keras.saving.deserialize_keras_object]
)
@pytest.mark.parametrize(("version", "old"), PLAIN)
@on_one
def test_plain_optimizers_load(version: str, old: Json, load: Any) -> None:
    config = convert(old, kind="optimizer", tf_version=version).config
    assert_built(load(copy.deepcopy(config)), old)


@pytest.mark.parametrize(("version", "old"), PLAIN)
def test_plain_configs_are_what_keras_writes(version: str, old: Json) -> None:
    config: Json = convert(old, kind="optimizer", tf_version=version).config
    again = keras.optimizers.serialize(keras.optimizers.deserialize(copy.deepcopy(config)))
    assert again["class_name"] == config["class_name"]
    ours = config["module"] == "keras_mp.compat.optimizers"
    if ours or keras.backend.backend() != "torch":  # where Keras writes its private subclasses
        assert {**again, "config": None} == {**config, "config": None}
    assert again["config"].keys() >= config["config"].keys()
    assert not convert(again, kind="optimizer").changed


@pytest.mark.parametrize(
    "load",
    [keras.optimizers.deserialize, keras.saving.deserialize_keras_object],
)
@pytest.mark.parametrize(("version", "old"), WRAPPED)
@on_one
def test_loss_scaled_optimizers_load(version: str, old: Json, load: Any) -> None:
    config: Json = convert(old, kind="optimizer", tf_version=version).config
    optimizer = load(copy.deepcopy(config))
    assert type(optimizer) is keras_mp.LossScaleOptimizer
    inner = inner_of(old)
    assert inner is not None
    assert_built(optimizer.inner_optimizer, inner)
    settings, now = config["config"], optimizer.get_config()
    for key in settings.keys() - {"inner_optimizer"}:
        assert now[key] == settings[key], key


@pytest.mark.parametrize(("version", "old"), WRAPPED)
@on_one
def test_loss_scaled_configs_are_what_keras_writes(version: str, old: Json) -> None:
    config: Json = convert(old, kind="optimizer", tf_version=version).config
    loaded = keras.optimizers.deserialize(copy.deepcopy(config))
    again = keras.optimizers.serialize(loaded)
    assert {**again, "config": None} == {**config, "config": None}
    assert again["config"].keys() >= config["config"].keys()
    assert not convert(again, kind="optimizer").changed


@pytest.mark.filterwarnings("ignore:Argument `decay`")
@pytest.mark.parametrize("name", ["RMSprop", "Nadam", "SGD"])
def test_keras_without_keras_mp_refuses_classes_of_ours(name: str) -> None:
    """Keras alone would take `decay` with a warning, and train otherwise."""
    old = {"class_name": name, "config": {"learning_rate": 0.1, "decay": 0.01}}
    config: Json = convert(old, kind="optimizer").config
    public = {**config, "module": "keras.optimizers", "registered_name": None}
    with pytest.raises(ValueError, match="sparse_variables"):
        keras.saving.deserialize_keras_object(public)


@pytest.mark.parametrize(("version", "old"), WRAPPED)
@on_one
def test_from_config_takes_the_old_config_itself(version: str, old: Json) -> None:
    before = copy.deepcopy(old)
    optimizer = keras_mp.LossScaleOptimizer.from_config(old["config"])
    assert old == before
    expected = convert_loss_scale_config(old["config"]).config
    now = optimizer.get_config()
    assert {key: now[key] for key in expected.keys() - {"inner_optimizer"}} == {
        key: expected[key] for key in expected.keys() - {"inner_optimizer"}
    }
    inner = inner_of(old)
    assert inner is not None
    assert_built(optimizer.inner_optimizer, inner)


def test_decay_trains_as_it_did() -> None:
    """SGD with decay, against its rule written out: w -= lr / (1 + decay * iterations) * g."""
    old = {"class_name": "SGD", "config": {"learning_rate": 0.5, "decay": 0.25}}
    optimizer = keras.optimizers.deserialize(convert(old, kind="optimizer").config)
    weight = keras.Variable([1.0])
    optimizer.build([weight])
    expected = 1.0
    for step in range(5):
        optimizer.apply([keras.ops.ones(1)], [weight])
        expected -= 0.5 / (1 + 0.25 * step)
    assert math.isclose(float(keras.ops.convert_to_numpy(weight)[0]), expected, rel_tol=1e-5)
