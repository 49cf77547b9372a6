"""Converted models load in Keras 3 and predict what the TensorFlow that wrote them predicted."""

import copy
import json
import warnings
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest
from keras import ops

from keras_mp.compat import activations
from keras_mp.compat.configs import convert
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.restoring import building
from tests.backends import on_one
from tests.fixtures import DATA, FIXTURES, HAS_ALL, oracles
from tests.legacy_cases import OWN, Net

Json = dict[str, Any]


# One layer of some models has the policy float64, and JAX has no float64 unless asked to.
pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")

# The last one is a unit in the last place of bfloat16, which other kernels round otherwise.
FLOAT32, FLOAT16, BFLOAT16 = 1e-6, 2e-3, 2.0**-7


def read(path: Path) -> Json:
    document: Json = json.loads(path.read_text(encoding="utf-8"))
    return document


def attribute(path: Path, name: str) -> Json | None:
    with h5py.File(path, "r") as file:
        return json.loads(file.attrs[name]) if name in file.attrs else None


def is_zip(path: Path) -> bool:
    return path.read_bytes()[:2] == b"PK"


def in_files() -> Iterator[tuple[str, Json]]:
    """Yields (where it was, config) of every recorded model."""
    for path in sorted(FIXTURES.glob("configs/model_configs_tf*.json")):
        for record in read(path)["configs"]:
            if "json" in record:
                yield f"{path.stem[14:]}/{record['id']}", record["json"]
    for folder, oracle in oracles():
        if isinstance(oracle.get("model_json"), dict):
            yield f"{folder}/json", oracle["model_json"]
    for path in sorted([*FIXTURES.glob("tf*/*/model.h5"), *FIXTURES.glob("tf*/*/model.keras")]):
        name = "/".join(path.parts[-3:])
        if is_zip(path):
            yield name, json.loads(zipfile.ZipFile(path).read("config.json"))
        elif model := attribute(path, "model_config"):
            yield name, model


MODELS = dict(in_files())
RECORDED = {
    (path.stem[9:], name): record
    for path in sorted(DATA.glob("models/recorded_tf*.json"))
    for name, record in read(path)["models"].items()
    if "error" not in record
}


def load(config: Json, **own: Any) -> Any:
    return keras.saving.deserialize_keras_object(copy.deepcopy(config), custom_objects=OWN | own)


def test_nothing_recorded_is_left_out() -> None:
    assert {version for version, _ in RECORDED} == {"tf115", "tf215", "tf23"}
    assert len(RECORDED) == 3 * 31 - 2 - 1
    if HAS_ALL:
        kinds = [name.rpartition("/")[2] for name in MODELS]
        assert sum(name in ("model.h5", "model.keras", "json") for name in kinds) == 188
        assert len(MODELS) == 106 + 188
        assert kinds.count("json") == 64
        assert sum("model.keras" in name and is_zip(FIXTURES / name) for name in MODELS) == 25


@pytest.mark.parametrize("name", MODELS)
@on_one
def test_every_model_loads(name: str) -> None:
    old = MODELS[name]
    before = copy.deepcopy(old)
    done = convert(old, kind="model")
    assert old == before
    assert done.changed
    again = convert(done.config, kind="model")
    assert (again.config, again.changed) == (done.config, False)
    model = load(done.config)
    assert isinstance(model, keras.Model)
    if "compile_config" in old:
        assert model.compiled
    if old["class_name"] == "Net":
        return
    loaded = keras.models.model_from_json(json.dumps(done.config))
    assert [layer.name for layer in loaded.layers] == [layer.name for layer in model.layers]
    names = [layer["config"]["name"] for layer in old["config"]["layers"]]
    found = [layer.name for layer in model.layers]
    assert found == names if old["class_name"] != "Sequential" else set(found) <= set(names)


@pytest.mark.parametrize("name", [n for n in MODELS if MODELS[n]["class_name"] != "Net"])
@on_one
def test_what_keras_writes_of_it_is_of_today(name: str) -> None:
    config = {**convert(MODELS[name], kind="model").config, "compile_config": {}}
    again = json.loads(load(config).to_json())
    assert not convert(again, kind="model").changed


def test_a_name_in_what_keras_3_wrote_stays() -> None:
    """Keras wraps the optimizer itself when it loads this."""
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, dtype="mixed_float16")])
    made.compile("adam", "mse")
    config = keras.saving.serialize_keras_object(made)
    config["compile_config"]["optimizer"] = "adam"
    assert not convert(config, kind="model").changed


@pytest.mark.parametrize(
    ("version", "record"),
    [
        pytest.param(path.stem[14:], record, id=f"{path.stem[14:]}/{record['id']}")
        for path in sorted(FIXTURES.glob("configs/model_configs_tf*.json"))
        for record in read(path)["configs"]
        if "json" in record and "dtype_of_a" in record
    ],
)
@on_one
def test_layers_compute_in_the_dtype_that_they_had(version: str, record: Json) -> None:
    model = load(convert(record["json"], kind="model").config)
    (layer,) = [layer for path, layer in arrays_of(model).items() if path.rpartition(":")[2] == "a"]
    if version == "tf115" and record["compute_dtype"] != record["dtype_of_a"]:
        # Only the dtype of its variables was written: the policy is nowhere in the file.
        record = {**record, "compute_dtype": record["dtype_of_a"]}
        assert any("TF 1.15" in note for note in convert(record["json"], kind="model").notes)
    assert layer.compute_dtype == record["compute_dtype"]
    assert layer.variable_dtype == record["variable_dtype"]
    # JAX has no float64 unless asked to.
    had = {"float64": "float32"}.get(record["variable_dtype"], record["variable_dtype"])
    assert ops.dtype(layer.kernel.value) == had


def arrays_of(model: Any, prefix: str = "") -> dict[str, Any]:
    """Returns every layer with weights by the path that the recording program gave it."""
    found = {}
    for layer in model.layers:
        if hasattr(layer, "layers"):
            found |= arrays_of(layer, f"{prefix}{layer.name}:")
        elif layer.weights:
            found[prefix + layer.name] = layer
    return found


def difference(found: Any, expected: Any) -> float:
    found = ops.convert_to_numpy(ops.cast(found, "float32"))
    expected = np.asarray(expected, "float32")
    assert found.shape == expected.shape
    return float(np.max(np.abs(found - expected) / np.maximum(1.0, np.abs(expected))))


def with_weights(model: Any, rows: list[Any]) -> Any:
    layers = arrays_of(model)
    assert {name.replace("/", "_") for name, _ in rows} == set(layers)
    for name, values in rows:
        layer = layers[name.replace("/", "_")]
        assert [tuple(w.shape) for w in layer.weights] == [np.shape(value) for value in values]
        layer.set_weights([np.asarray(value, "float32") for value in values])
    return model


@pytest.mark.parametrize(("version", "name"), RECORDED)
def test_recorded_models_predict_the_same(version: str, name: str) -> None:
    record = RECORDED[version, name]
    done = convert(record["json"], kind="model")
    model = with_weights(keras.models.model_from_json(json.dumps(done.config)), record["weights"])
    xs = [np.asarray(x, "float32") for x in record["x"]]
    given: Any = xs if len(xs) > 1 else xs[0]
    if name == "named_inputs":
        given = {"a": xs[0], "b": xs[1]}
    predicted = keras.tree.flatten(model(given, training=False))
    assert len(predicted) == len(record["y"])
    tolerance = FLOAT16 if name == "mixed" else FLOAT32
    for found, expected in zip(predicted, record["y"], strict=True):
        assert difference(found, expected) < tolerance
    frozen = [layer.name for layer in model.layers if not layer.trainable]
    assert frozen == record["frozen"]


def test_one_output_is_no_list() -> None:
    record = RECORDED["tf23", "frozen"]
    model = load(convert(record["json"], kind="model").config)
    assert not isinstance(model(np.ones((2, 4), "float32")), list | tuple)


def test_hard_sigmoid_is_kept_when_saved_again(tmp_path: Path) -> None:
    record = RECORDED["tf23", "hard_sigmoid"]
    model = with_weights(load(convert(record["json"], kind="model").config), record["weights"])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[1].cell.recurrent_activation is activations.keras2_hard_sigmoid
    assert [layer.activation for layer in loaded.layers[2:]] == [
        activations.keras2_hard_sigmoid,
        activations.keras2_hard_sigmoid,
    ]
    x = np.asarray(record["x"][0], "float32")
    with warnings.catch_warnings():
        # Keras 3.10 writes a single input as a list of one, and warns of that when it is called.
        warnings.simplefilter("ignore", UserWarning)
        assert difference(loaded(x), record["y"][0]) < FLOAT32


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_hard_sigmoid_of_keras_2(dtype: str) -> None:
    x = np.linspace(-4, 4, 33, dtype="float32")
    found = activations.keras2_hard_sigmoid(ops.cast(x, dtype))
    assert keras.backend.standardize_dtype(found.dtype) == dtype
    tolerance = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-7}[dtype]
    assert difference(found, np.clip(0.2 * x + 0.5, 0, 1)) < tolerance


@cache
def oracle(folder: Path) -> tuple[Json, Json, Any]:
    """Returns (oracle.json, model config, oracle.npz)."""
    document = read(folder / "oracle.json")
    model = document["model_json"]
    if not isinstance(model, dict):
        path = folder / "model.h5"
        # What TF 2.2 to 2.4 wrote of a class of one's own, in a SavedModel only.
        model = attribute(path, "model_config") if path.exists() else {"class_name": "Net"}
    assert model is not None
    return document, model, np.load(folder / "oracle.npz")


def predicting() -> list[Path]:
    paths = sorted(path.parent for path in FIXTURES.glob("tf*/*/oracle.json"))
    return [
        path
        for path in paths
        if (path / "oracle.npz").exists()
        and "model_json" in read(path / "oracle.json")
        and (
            isinstance(read(path / "oracle.json")["model_json"], dict)
            or (path / "model.h5").exists()
            or read(path / "oracle.json")["case"].get("model") == "subclassed"
        )
    ]


PREDICTING = {f"{path.parent.name}/{path.name}": path for path in predicting()}


def policy_of(case: Json) -> str:
    """Returns the global policy that the recording program had."""
    policy = case.get("policy", "mixed_float16")
    name: str = policy["name"] if isinstance(policy, dict) else policy
    return name


def of_dense_layers(weights: Json) -> list[Json]:
    """What the recording program of TF 1.15 left out."""
    names = dict.fromkeys(name.partition("/")[0] for name in weights)
    return [{"name": name, "weights": [f"{name}/kernel:0", f"{name}/bias:0"]} for name in names]


@pytest.mark.parametrize("name", PREDICTING)
def test_fixtures_predict_the_same(name: str) -> None:
    document, old, arrays = oracle(PREDICTING[name])
    case = document["case"]
    rows = document["at_save"].get("weights") or document["weights"]
    weights = {row["name"]: arrays[f"weight/{row['index']}"] for row in rows}
    if case.get("model") == "subclassed":
        keras.config.set_dtype_policy(policy_of(case))  # no config of such a model has it
    model = load({**convert(old, kind="model").config, "compile_config": {}})
    xs = [arrays[key] for key in sorted(arrays.files) if key.startswith("fixed/x")]
    given = xs if len(xs) > 1 else xs[0]
    if isinstance(model, Net):
        model(given)
        for row, variable in model.by_old_name().items():
            variable.assign(weights[row])
    else:
        for layer in document["at_save"].get("layers") or of_dense_layers(weights):
            if layer["weights"]:
                values = [weights[weight] for weight in layer["weights"]]
                model.get_layer(layer["name"]).set_weights(values)
    computed = {layer.compute_dtype for layer in model.layers} | {
        policy_of(case).removeprefix("mixed_")
    }
    tolerance = FLOAT32
    for dtype, allowed in (("float16", FLOAT16), ("bfloat16", BFLOAT16)):
        tolerance = allowed if dtype in computed else tolerance
    found = difference(model(given, training=False), arrays["fixed/pred"])
    assert found < tolerance


TRAININGS = [
    pytest.param(record, form, id=f"{path.stem[9:]}/{name}/{form}")
    for path in sorted(DATA.glob("models/recorded_tf*.json"))
    for name, record in read(path)["trainings"].items()
    for form in ("h5", "keras")
    if form == "h5" or "keras" in record
]


def own_loss(true: Any, predicted: Any) -> Any:
    return ops.mean(ops.square(true - predicted), -1)


@pytest.mark.parametrize(("record", "form"), TRAININGS)
def test_compiled_models_have_the_loss_that_they_had(record: Json, form: str) -> None:
    with keras.saving.custom_object_scope({"own_loss": own_loss}):
        if form == "h5":
            model = load(convert(record["model_config"], kind="model").config)
            model.compile_from_config(
                copy.deepcopy(convert(record["training_config"], kind="training").config)
            )
        else:
            model = load(convert(record["keras"], kind="model").config)
    assert type(model.optimizer).__name__ == "SGD"
    with_weights(model, record["weights"])
    targets = [np.asarray(target) for target in record["targets"]]
    x = np.asarray(record["x"], "float32")
    values = model.test_on_batch(x, targets if len(targets) > 1 else targets[0])
    loss = values[0] if isinstance(values, list) else values
    assert abs(float(loss) - record["loss"]) < 1e-6 * max(1.0, abs(record["loss"]))


class Own(keras.layers.Dense):  # type: ignore[misc]
    """A layer of a user's, whose config names functions of the user's, as that of Dense did."""


def halved(x: Any) -> Any:
    return x / 2


def test_functions_that_a_layer_of_ones_own_names() -> None:
    options = {"activation": "halved", "kernel_initializer": "halves", "kernel_regularizer": None}
    layer = {"class_name": "Own", "config": {"name": "own", "units": 2, **options}}
    layer["config"] |= {"batch_input_shape": [None, 3], "bias_initializer": "ones"}
    old = {"class_name": "Sequential", "config": {"name": "net", "layers": [layer]}}
    custom = {"Own": Own, "halved": halved, "halves": lambda shape, dtype=None: ops.ones(shape) / 2}
    model = building.model(__file__, convert(old, kind="model").config, custom, safe_mode=True)
    np.testing.assert_allclose(model.predict(np.ones((1, 3)), verbose=0), [[1.25, 1.25]])


LAYERS = [
    pytest.param(path.stem[9:], config, id=f"{path.stem[9:]}/{name}")
    for path in sorted(DATA.glob("models/recorded_tf*.json"))
    for name, config in read(path)["layers"].items()
    if "error" not in config
]
REFUSED = {
    "RandomFourierFeatures": r"^\$\.class_name is .*Keras 3 has no such layer",
    "CategoryCrossing": r"^\$\.class_name is .*Keras 3 has no such layer",
}
REFUSED_OF = {("tf23", "CategoryEncoding"): r"^\$\.config\.max_tokens is null: adapt\(\) found"}
# Not written where null (Keras 3.10: output_padding), a pair, or a number of Keras's own choice.
REWRITTEN_BY_KERAS = {"activity_regularizer", "factor", "output_padding", "seed", "trainable"}
# By layers of ours, which predict as then.
REPLACED = {
    *("LocallyConnected1D", "LocallyConnected2D", "RandomHeight", "RandomWidth", "RandomCrop"),
}
ABSTRACT = {"AbstractRNNCell", "PreprocessingLayer", "Wrapper", "RandomFourierFeatures"}


@pytest.mark.parametrize(("version", "old"), LAYERS)
@on_one
def test_every_layer_of_tf_keras_loads_or_is_refused(version: str, old: Json) -> None:
    name = old["class_name"]
    if refusal := REFUSED_OF.get((version, name), REFUSED.get(name)):
        with pytest.raises(LegacyError, match=refusal):
            convert(old, kind="layer")
        return
    done = convert(old, kind="layer")
    assert (done.config["registered_name"] is None) == (name not in {*ABSTRACT, *REPLACED})
    if name in ABSTRACT:
        return
    try:
        layer = load(done.config)
    except (ImportError, TypeError) as error:
        if "requires TensorFlow" not in str(error):
            raise
        pytest.skip(f"Keras has {name} only where TensorFlow is installed")
    assert type(layer).__module__.startswith("keras_mp." if name in REPLACED else "keras.")
    config = layer.get_config()
    for key, value in done.config["config"].items():
        if not isinstance(value, dict | list) and key not in REWRITTEN_BY_KERAS:
            assert config[key] == value, key
    assert not convert(keras.saving.serialize_keras_object(layer), kind="layer").changed
