"""Model configs that TF 1.15 to 2.15 wrote; that they load and predict is tested beside keras."""

import copy
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from keras_mp.compat.configs.kinds import KINDS, convert, kind_of
from keras_mp.compat.configs.models import LOST_POLICY, SHARED
from keras_mp.compat.configs.report import Converted
from keras_mp.compat.errors import LegacyError
from tests.fixtures import DATA
from tests.fuzzing import examples

Json = dict[str, Any]


def read(path: Path) -> Json:
    document: Json = json.loads(path.read_text(encoding="utf-8"))
    return document


RECORDED = {
    (path.stem[9:], name): record["json"]
    for path in sorted(DATA.glob("models/recorded_tf*.json"))
    for name, record in read(path)["models"].items()
    if "error" not in record and name not in ("operation", "function")
}
TRAININGS = {
    (path.stem[9:], name): record
    for path in sorted(DATA.glob("models/recorded_tf*.json"))
    for name, record in read(path)["trainings"].items()
}


def layer(kind: str, name: str, *calls: Any, **config: Any) -> Json:
    inside = {"name": name} | config
    return {"class_name": kind, "config": inside, "name": name, "inbound_nodes": list(calls)}


def entrance(name: str = "in") -> Json:
    return layer("InputLayer", name, batch_input_shape=[None, 3], dtype="float32")


def functional(*layers: Json, ends: Any = None, starts: Any = None, **more: Any) -> Json:
    config = {
        "name": "model",
        "layers": list(layers),
        "input_layers": starts or [["in", 0, 0]],
        "output_layers": ends or [[layers[-1]["name"], 0, 0]],
    }
    return {"class_name": "Functional", "config": config | more}


def tensor(name: str, node: int = 0, index: int = 0) -> Json:
    config = {"shape": [], "dtype": "float32", "keras_history": [name, node, index]}
    return {"class_name": "__keras_tensor__", "config": config}


def called(model: Json, name: str) -> Any:
    """Returns the calls of a layer of the converted model."""
    layers: Any = convert(model, kind="model").config["config"]
    (found,) = [layer for layer in layers["layers"] if layer["name"] == name]
    return found["inbound_nodes"]


MASK = ["x", 0, 0]
A, B = ["a", 0, 0, {}], ["b", 0, 0, {}]
NODES = {
    "one tensor": ([A], [tensor("a")], {}),
    "bare": (A, [tensor("a")], {}),
    "three entries": ([["a", 0, 0]], [tensor("a")], {}),
    "two": ([A, B], [[tensor("a"), tensor("b")]], {}),
    "by name": ({"p": A, "q": B}, [{"p": tensor("a"), "q": tensor("b")}], {}),
    "nested": ([[A, B], A], [[[tensor("a"), tensor("b")], tensor("a")]], {}),
    "arguments": (
        [["a", 0, 0, {"training": False, "mask": None, "n": [1, 2, 3]}]],
        [tensor("a")],
        {"training": False, "n": [1, 2, 3]},
    ),
    "a tensor as argument": (
        [["a", 0, 0, {"value": ["b", 0, 0], "rest": [["a", 0, 0], "b"]}]],
        [tensor("a")],
        {"value": tensor("b"), "rest": [tensor("a"), "b"]},
    ),
    "tensors by name as argument": (
        [["a", 0, 0, {"values": {"p": ["b", 0, 0], "q": 1}}]],
        [tensor("a")],
        {"values": {"p": tensor("b"), "q": 1}},
    ),
    "as Keras 3 writes it": ({"args": [tensor("a")], "kwargs": {}}, [tensor("a")], {}),
    "a number": ([A, ["_CONSTANT_VALUE", -1, 2.5, {}]], [[tensor("a"), 2.5]], {}),
}


@pytest.mark.parametrize("case", NODES)
def test_calls(case: str) -> None:
    old, args, kwargs = NODES[case]
    model = functional(
        entrance("a"), entrance("b"), layer("Add", "x", old), starts=[["a", 0, 0], ["b", 0, 0]]
    )
    assert called(model, "x") == [{"args": args, "kwargs": kwargs}]


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN", "Bidirectional", "ConvLSTM2D"])
def test_states_are_no_further_inputs(kind: str) -> None:
    inside = {"class_name": "LSTM", "config": {"units": 2}}
    more = {"layer": inside} if kind == "Bidirectional" else {}
    model = functional(
        entrance("a"),
        entrance("b"),
        layer(kind, "x", [A, B, B], **more),
        starts=[["a", 0, 0], ["b", 0, 0]],
    )
    states = {"initial_state": [tensor("b"), tensor("b")]}
    assert called(model, "x") == [{"args": [tensor("a")], "kwargs": states}]


def inner(name: str, *calls: Any) -> Json:
    dense = layer("Dense", "d", [["i", 0, 0, {}]], units=3)
    model = functional(entrance("i"), dense, starts=[["i", 0, 0]])
    model["config"]["name"] = name
    return model | {"name": name, "inbound_nodes": list(calls)}


@pytest.mark.parametrize(
    ("first", "calls", "ends"),
    [
        pytest.param(1, (0, 1), 2, id="a model began with a node of its own"),
        pytest.param(0, (0, 1), 2, id="it did not"),
    ],
)
def test_calls_of_a_model_inside(first: int, calls: tuple[int, int], ends: int) -> None:
    model = functional(
        entrance(),
        inner("m", [["in", 0, 0, {}]], [["m", first, 0, {}]]),
        layer("Add", "sum", [["m", first, 0, {}], ["m", first + 1, 0, {}]]),
        starts=[["in", 0, 0]],
        ends=[["sum", 0, 0], ["m", first + 1, 0]],
    )
    assert called(model, "sum")[0]["args"] == [[tensor("m", calls[0]), tensor("m", calls[1])]]
    config: Any = convert(model, kind="model").config["config"]
    # Where outputs are named, Keras 3 counts that node, too.
    assert config["output_layers"] == [["sum", 0, 0], ["m", ends, 0]]
    assert config["input_layers"] == ["in", 0, 0]


def test_a_deferred_sequential_began_without_a_node() -> None:
    dense = {"class_name": "Dense", "config": {"name": "d", "units": 3}}
    sequential = {
        "class_name": "Sequential",
        "config": {"name": "s", "layers": [dense]},
        "name": "s",
        "inbound_nodes": [[["in", 0, 0, {}]], [["s", 0, 0, {}]]],
    }
    model = functional(entrance(), sequential, ends=[["s", 1, 0]])
    assert called(model, "s")[1]["args"] == [tensor("s", 0)]
    config: Any = convert(model, kind="model").config["config"]
    assert config["output_layers"] == ["s", 1, 0]


SHAPELESS = {"class_name": "Dense", "config": {"name": "d", "units": 3}}
SHAPED = {"class_name": "Dense", "config": {"name": "d", "batch_input_shape": [None, 3]}}
ENTRANCE = {"class_name": "InputLayer", "config": {"name": "i", "batch_input_shape": [None, 3]}}
BEGINNINGS = {
    "a functional model": (inner("m")["config"], 0),
    "a Sequential with an input": ({"name": "m", "layers": [ENTRANCE, SHAPELESS]}, 0),
    "a Sequential with a shape": ({"name": "m", "layers": [SHAPED]}, 0),
    "a Sequential without an input": ({"name": "m", "layers": [SHAPELESS]}, 1),
    "an empty Sequential": ({"name": "m", "layers": []}, 1),
}


@pytest.mark.parametrize("case", BEGINNINGS)
def test_where_neither_the_first_nor_the_last_call_is_used_the_kind_tells(case: str) -> None:
    config, call = BEGINNINGS[case]
    kind = "Functional" if "output_layers" in config else "Sequential"
    calls = [[["in", 0, 0, {}]], [["in", 0, 0, {}]]]
    model = {"class_name": kind, "config": config, "name": "m", "inbound_nodes": calls}
    added = layer("Add", "sum", [["m", 1, 0, {}], ["in", 0, 0, {}]])
    assert called(functional(entrance(), model, added), "sum")[0]["args"][0][0] == tensor("m", call)


def test_slashes_are_renamed_everywhere() -> None:
    model = functional(
        entrance("in"),
        layer("Dense", "a/b", [["in", 0, 0, {}]], units=3),
        layer("Dense", "c/d", [["a/b", 0, 0, {}]], units=3),
    )
    assert called(model, "c_d")[0]["args"] == [tensor("a_b")]
    done = convert(model, kind="model")
    assert [change.what[:4] for change in done.changes if change.matters] == ["a_b:", "c_d:"]


def test_the_first_layer_of_a_sequential_had_its_shape() -> None:
    policy = {"class_name": "Policy", "config": {"name": "mixed_float16"}}
    dense = {
        "class_name": "Dense",
        "config": {"name": "d/1", "units": 3, "batch_input_shape": [2, 3], "dtype": policy},
    }
    config: Any = convert(
        {"class_name": "Sequential", "config": {"name": "s", "layers": [dense]}}, kind="model"
    ).config["config"]
    assert config["layers"][0] == {
        "module": "keras.layers",
        "class_name": "InputLayer",
        "config": {
            "batch_shape": [2, 3],
            "dtype": "float32",
            "sparse": False,
            "name": "d_1_input",
        },
        "registered_name": None,
    }


def test_a_class_of_ones_own() -> None:
    done = convert(
        {"class_name": "Net", "keras_version": "2.11.0", "backend": "tensorflow"}, kind="model"
    )
    assert done.config == {
        "module": None,
        "class_name": "Net",
        "config": {},
        "registered_name": "Net",
    }
    assert any("custom_objects={'Net': ...}" in note for note in done.notes)
    assert not convert(done.config, kind="model").changed


def test_a_model_of_ones_own_may_have_a_policy() -> None:
    old = {"class_name": "Net", "config": {"dtype": SEEDS[9]}, "keras_version": "2.6.0"}
    config: Any = convert(old, kind="model").config["config"]
    assert config["dtype"]["class_name"] == "DTypePolicy"


def test_keys_of_inner_models() -> None:
    part = functional(entrance(), DENSE, dtype=SEEDS[9], batch_input_shape=[None, 3])
    part |= {"name": "model", "inbound_nodes": [[["in", 0, 0, {}]]], "shared_object_id": 7}
    done: Any = convert(functional(entrance(), part), kind="model")
    inner = done.config["config"]["layers"][1]
    assert inner["shared_object_id"] == 7
    assert inner["config"]["dtype"]["config"] == {"name": "mixed_float16"}
    assert ("$.config.layers[1].config.batch_input_shape", "dropped") in {
        (change.path, change.kind) for change in done.changes
    }


def test_a_model_of_ones_own_inside_another_is_converted_inside() -> None:
    inner = functional(entrance(), DENSE) | {"class_name": "Net", "name": "model"}
    outer = functional(entrance(), inner | {"inbound_nodes": [[["in", 0, 0, {}]]]})
    config: Any = convert(outer, kind="model").config["config"]
    net = config["layers"][1]
    assert (net["class_name"], net["registered_name"]) == ("Net", "Net")
    assert net["config"]["layers"][1]["inbound_nodes"] == [{"args": [tensor("in")], "kwargs": {}}]


def test_a_layer_of_two_models_is_told() -> None:
    shared = layer("Dense", "d", [["in", 0, 0, {}]], units=3) | {"shared_object_id": 4}
    part = functional(entrance(), shared) | {"name": "part", "inbound_nodes": [[["in", 0, 0, {}]]]}
    part["config"]["name"] = "part"
    whole = functional(entrance(), part, shared, ends=[["part", 1, 0], ["d", 0, 0]])
    done = convert(whole, kind="model")
    assert SHARED in done.notes
    layers: Any = done.config["config"]
    assert layers["layers"][2]["shared_object_id"] == 4
    assert SHARED not in convert(part, kind="model").notes


@pytest.mark.parametrize(
    ("keras_version", "dtype", "tf_version", "told"),
    [
        ("2.2.4-tf", "float32", None, True),
        ("2.2.4-tf", "float32", "1.15", True),
        ("2.2.4-tf", "float32", "2.1", False),
        ("2.2.4-tf", {"class_name": "Policy", "config": {"name": "mixed_float16"}}, None, False),
        ("2.3.0-tf", "float32", None, False),
    ],
)
def test_tf_1_15_lost_the_policy(
    keras_version: str, dtype: Any, tf_version: str | None, told: bool
) -> None:
    dense = layer("Dense", "d", [["in", 0, 0, {}]], units=3, dtype=dtype)
    model = functional(entrance(), dense) | {"keras_version": keras_version}
    assert (LOST_POLICY in convert(model, kind="model", tf_version=tf_version).notes) == told


def test_an_explicit_loss_scale_is_told_once() -> None:
    policy = {"class_name": "Policy", "config": {"name": "mixed_float16", "loss_scale": None}}
    layers = [layer("Dense", f"d{i}", [["in", 0, 0, {}]], units=3, dtype=policy) for i in range(3)]
    done = convert(functional(entrance(), *layers), kind="model")
    told = [change for change in done.changes if change.kind == "dropped" and change.matters]
    assert [change.path for change in told] == ["$.config.layers[1].config.dtype.config.loss_scale"]


DENSE = layer("Dense", "d", [["in", 0, 0, {}]], units=3)
FUNCTIONAL = functional(entrance(), DENSE)["config"]
BROKEN = {
    "no list of calls": (
        functional(entrance(), DENSE | {"inbound_nodes": {}}),
        "$.config.layers[1].inbound_nodes",
        "expected a list of calls",
    ),
    "no list of layers": (
        functional(entrance(), DENSE) | {"config": FUNCTIONAL | {"layers": {}}},
        "$.config.layers",
        "expected a list of layers",
    ),
    "no such layer": (
        functional(entrance(), layer("Dense", "d", [["x", 0, 0, {}]])),
        "$.config.layers[1].inbound_nodes[0][0][0]",
        "no such layer",
    ),
    "no such call": (
        functional(entrance(), layer("Dense", "d", [["in", 3, 0, {}]])),
        "$.config.layers[1].inbound_nodes[0][0][1]",
        "no such call",
    ),
    "no tensor": (
        functional(entrance(), layer("Dense", "d", [["in", 0, -1, {}]])),
        "$.config.layers[1].inbound_nodes[0][0][2]",
        "expected [layer",
    ),
    "no list": (
        functional(entrance(), layer("Dense", "d", "in")),
        "$.config.layers[1].inbound_nodes[0]",
        "expected [layer",
    ),
    "a loop": (
        functional(entrance(), layer("Dense", "d", [["d", 0, 0, {}]])),
        "$.config.layers",
        "its own output",
    ),
    "twice": (functional(entrance(), DENSE, DENSE), "$.config.layers[2].name", "has this name"),
    "twice by renaming": (
        functional(entrance(), layer("Dense", "a/b"), layer("Dense", "a_b")),
        "$.config.layers[2].name",
        "has this name",
    ),
    "two names": (
        functional(entrance(), DENSE | {"config": {"name": "e", "units": 1}}),
        "$.config.layers[1].config.name",
        "should be the same",
    ),
    "output": (
        functional(entrance(), DENSE, ends=[["e", 0, 0]]),
        "$.config.output_layers[0]",
        "no such layer",
    ),
    "constant": (
        functional(entrance(), layer("Add", "d", [["_CONSTANT_VALUE", -1, [1.0], {}]])),
        "$.config.layers[1].inbound_nodes[0][0][2]",
        "in code",
    ),
    "ragged": (
        functional(
            entrance(), layer("Dense", "d", [["in", 0, 0, {"x": ["_COMPOSITE_TYPE", "{}"]}]])
        ),
        "$.config.layers[1].inbound_nodes[0][0][3].x",
        "call it in code",
    ),
    "no layers": (
        {"class_name": "Functional", "config": {"name": "m"}},
        "$.config",
        "class of your own",
    ),
    "unknown key": (functional(entrance(), DENSE, wings=2), "$.config.wings", "no functional"),
    "unknown key outside": (functional(entrance(), DENSE) | {"wings": 2}, "$.wings", "no tf.keras"),
    "unknown key of a Sequential": (
        {"class_name": "Sequential", "config": {"name": "s", "layers": [], "wings": 1}},
        "$.config.wings",
        "no Sequential",
    ),
    "layers of a Sequential": (
        {"class_name": "Sequential", "config": {"name": "s", "layers": {}}},
        "$.config.layers",
        "expected a list",
    ),
    "layer of a Sequential that is called once more than is seen": (
        functional(
            entrance(),
            layer("Sequential", "d", [["in", 0, 0, {}]], [["in", 0, 0, {}]], layers=["e"]),
            ends=[["d", 1, 0]],
        ),
        "$.config.layers[1].config.layers[0]",
        "expected",
    ),
    "policy of a first layer": (
        {
            "class_name": "Sequential",
            "config": {
                "name": "s",
                "layers": [layer("Dense", "d", batch_input_shape=[None, 2], dtype="int7")],
            },
        },
        "$.config.layers[0].config.dtype",
        "a dtype that Keras 3 has",
    ),
    "time_major inside": (
        functional(entrance(), layer("LSTM", "d", [["in", 0, 0, {}]], time_major=True)),
        "$.config.layers[1].config.time_major",
        "batch-major",
    ),
    "a model of Keras 1": (
        {
            "class_name": "Sequential",
            "config": [
                {
                    "class_name": "Convolution2D",
                    "config": {"name": "a", "nb_filter": 3, "border_mode": "valid"},
                }
            ],
        },
        "$.config[0].config.border_mode",
        "load and save it with Keras 2.0 to 2.3",
    ),
    "no config of a layer": (
        functional(
            entrance(),
            layer("Mine", "d", [["in", 0, 0, {}]])
            | {"config": {"layer was saved without config": True}},
        ),
        "$.config.layers[1].config",
        "Mine, a class of your own, has no get_config",
    ),
    "what TensorFlow saved without its tensors": (  # as tf.einsum of TF 2.4 to 2.15
        functional(
            entrance(),
            layer("TFOpLambda", "d", ["_CONSTANT_VALUE", -1, "bi->ib", {}], function="einsum"),
        ),
        "$.config.layers[1].config.function",
        "was saved without its tensors, by a fault of TensorFlow",
    ),
    "a set": ({"class_name": "Net", "config": {"a": {1}}}, "$.config.a", "expected JSON"),
    "a number as key": ({"class_name": "Net", "config": {3: 1}}, "$.config", "as keys"),
    "not finite": ({"class_name": "Net", "config": {"a": float("nan")}}, "$.config.a", "JSON"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_refused(case: str) -> None:
    model, path, why = BROKEN[case]
    with pytest.raises(LegacyError) as caught:
        convert(model, kind="model")
    assert caught.value.path == path
    assert why in caught.value.why
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("kind", ["model", "layer", None])
def test_a_version_that_is_none_is_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match="'new' is not a TensorFlow version such as"):
        convert(functional(entrance(), DENSE), kind=kind, tf_version="new")


def test_deep_nesting_is_refused() -> None:
    model: Json = {"class_name": "Net", "config": {}}
    for _ in range(5000):
        model = {"class_name": "Net", "config": {"inside": model}}
    with pytest.raises(LegacyError, match="nested too deeply"):
        convert(model, kind="model")
    wrapped: Json = {"class_name": "Dense", "config": {"units": 1}}
    for _ in range(40):
        wrapped = {"class_name": "TimeDistributed", "config": {"layer": wrapped}}
    assert convert(wrapped).changed


@pytest.mark.parametrize(("version", "name"), RECORDED)
def test_recorded_models(version: str, name: str) -> None:
    old = RECORDED[version, name]
    before = copy.deepcopy(old)
    done = convert(old)
    assert old == before
    assert done.changed
    assert json.loads(json.dumps(done.config)) == done.config
    assert '"Policy' not in json.dumps(done.config)
    again = convert(done.config)
    assert (again.config, again.changed, again.changes) == (done.config, False, ())


# One of each kind, for what holds whatever is given.
SEEDS: list[Json] = [
    RECORDED["tf215", "multi_head_attention"],
    RECORDED["tf23", "nested"],
    RECORDED["tf115", "initial_state"],
    RECORDED["tf23", "mixed"],
    RECORDED["tf115", "embedding_first"],
    RECORDED["tf23", "named_inputs"],
    TRAININGS["tf215", "objects"]["training_config"],
    TRAININGS["tf215", "by_output"]["keras"],
    TRAININGS["tf115", "weighted"]["training_config"],
    {"class_name": "Policy", "config": {"name": "mixed_float16", "loss_scale": 128}},
    {"class_name": "Net", "config": {}, "keras_version": "2.6.0"},
]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=3),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Returns where something could be put instead, in a config."""
    members: Any = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    return [path, *(place for key, item in members for place in places(item, (*path, key)))]


PLACES = [places(seed) for seed in SEEDS]


def mutate(seed: Any, path: tuple[Any, ...], kind: str, junk: Any) -> Any:
    if not path:
        return junk
    result = copy.deepcopy(seed)
    inside = result
    for key in path[:-1]:
        inside = inside[key]
    if kind == "drop":
        del inside[path[-1]]
    elif kind == "add" and isinstance(inside, dict):
        inside[repr(junk)[:9]] = junk
    else:
        inside[path[-1]] = junk
    return result


def check(config: Any) -> Converted | None:
    """Whatever is given: converted once and for all, unmutated, or a LegacyError."""
    before, path, done = copy.deepcopy(config), "$", None
    try:
        done = convert(config)
    except LegacyError as error:
        path = error.path
    assert repr(config) == repr(before)
    assert path.startswith("$")
    if done is None:
        return None
    assert done.changed == (done.config != config)
    again = convert(done.config)
    assert (again.config, again.changed) == (done.config, False)
    return done


@pytest.mark.parametrize("name", ["", ">", "Custom>"])
def test_a_name_of_no_class_is_refused(name: str) -> None:
    layer = {"class_name": name, "config": {"name": "a", "dtype": "float32"}}
    config = {"class_name": "Sequential", "config": {"name": "m", "layers": [layer]}}
    with pytest.raises(LegacyError, match=re.escape("$.config.layers[0].class_name is")):
        convert(config)


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_mutation_is_converted_or_refused(data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(SEEDS) - 1))
    config: Any = SEEDS[number]
    path = data.draw(st.sampled_from(PLACES[number]))
    kind = data.draw(st.sampled_from(["drop", "replace", "add"]))
    check(mutate(config, path, kind, data.draw(JUNK)))


@settings(max_examples=examples(200), deadline=None)
@given(JUNK)
def test_junk_is_refused(junk: Any) -> None:
    assert check(junk) is None


def test_the_mutations_are_of_both_kinds() -> None:
    """Checks the test above: nothing changed is converted, something changed is refused."""
    assert all(check(seed) is not None for seed in SEEDS)
    assert check(mutate(SEEDS[1], ("config", "layers", 0, "name"), "replace", 3)) is None


KIND_OF = {
    "model": [SEEDS[1], {"class_name": "Sequential", "config": {}}, SEEDS[-1]],
    "layer": [
        {"class_name": "Dense", "config": {"units": 3}},
        {"class_name": "Block", "config": {"name": "b", "trainable": True}},
        {"class_name": "Lambda", "config": {}},
        {"class_name": "Hashing", "module": "keras.layers", "config": {}},
        {"class_name": "Gate", "module": "proj.losses", "config": {"trainable": True}},
    ],
    "optimizer": [
        {"class_name": "adam", "config": {}},
        {"class_name": "Custom>SGD", "config": {}},
        {"class_name": "LossScaleOptimizerV3", "config": {}},
        {"class_name": "Mine", "config": {"learning_rate": 0.5}},
        {"class_name": "Mine", "module": "keras.optimizers.legacy", "config": {}},
    ],
    "policy": [SEEDS[9], {"class_name": "PolicyV1", "config": {}}],
    "training": [SEEDS[6], {"loss": "mse"}],
    "loss": [
        {"class_name": "MeanSquaredError", "config": {"reduction": "auto"}},
        {"class_name": "Own", "module": "keras.losses", "config": {}},
        {"class_name": "Own", "module": "proj.losses", "config": {"reduction": "sum"}},
    ],
    "metric": [
        {"class_name": "MeanSquaredError", "config": {"dtype": "float32"}},
        {"class_name": "MeanSquaredError", "module": "keras.metrics", "config": {}},
        {"class_name": "AUC", "config": {}},
        {"class_name": "MeanMetricWrapper", "config": {"fn": "mse"}},
    ],
}


@pytest.mark.parametrize(
    ("kind", "config"), [(kind, config) for kind, configs in KIND_OF.items() for config in configs]
)
def test_kinds(kind: str, config: Json) -> None:
    assert kind_of(config) == kind
    assert KIND_OF.keys() == set(KINDS)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"class_name": "Own", "config": {}},
        {"class_name": 3},
        {"inner_optimizer": {}, "dynamic": True},
        [],
    ],
)
def test_what_has_no_kind(config: Any) -> None:
    with pytest.raises(LegacyError):
        kind_of(config)


def test_nothing_is_imported_for_it() -> None:
    program = (
        "import sys; from keras_mp.compat.configs import kinds; "
        "kinds.convert({'class_name': 'Policy', 'config': {'name': 'float32'}}); "
        "sys.exit(bool({'keras', 'numpy', 'jax', 'torch', 'tensorflow'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_kind_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="kind is 'net': expected one of model, layer, "):
        convert({}, kind="net")  # type: ignore[arg-type]


def test_sparse_variables_are_of_optimizers() -> None:
    with pytest.raises(ValueError, match="sparse_variables is for optimizers, but this is a layer"):
        convert(DENSE, sparse_variables=["embeddings"])


def test_the_name_of_a_policy_needs_its_kind() -> None:
    assert convert("mixed_float16", kind="policy").config["class_name"] == "DTypePolicy"
    with pytest.raises(LegacyError, match=r'\$ is "mixed_float16": expected'):
        convert("mixed_float16")
