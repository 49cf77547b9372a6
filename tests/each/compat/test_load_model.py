"""Models that TF 1.15 to 2.15 saved, in Keras 3: every bit that the file holds where it was."""

import json
import zipfile

import h5py
import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.restoring.models import load_weights
from tests.fixtures import FIXTURES
from tests.legacy_cases import OWN, Case, divided
from tests.loaded_models import load

# One layer of some models has the policy float64, and JAX has no float64 unless asked to.
pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")

MODELS = {"h5m": "model.h5", "sm": "saved_model", "kv3": "model.keras"}
WEIGHTS = {"h5w": "weights.h5", "wh5": "model.weights.h5", "h5m": "model.h5", "kv3": "model.keras"}
# Files of TF 1.15 and 2.11 whose writing failed, as their oracles say; they hold no config.
FAILED = "error"


def artefacts(names):
    for path in sorted(FIXTURES.glob("tf*/*/oracle.json")):
        folder = path.parent
        for flavour, name in names.items():
            if (folder / name).exists():
                case = f"{folder.parent.name}/{folder.name}/{flavour}"
                yield pytest.param(folder, flavour, id=case)


def version(case):
    return tuple(map(int, case.version.split(".")[:2]))


def loaded(case, flavour, **options):
    # A class of one's own makes its layers under the global policy, as it did then; a SavedModel
    # says which it was.
    is_own = case.recipe.get("model") == "subclassed" and flavour != "sm"
    with keras_mp.policy_scope(case.policy if is_own else "float32"):
        return load(case.folder / MODELS[flavour], OWN, **options)


def holds_state(case, flavour):
    """Whether the file has the slots and the step count, by what TensorFlow is known to write."""
    with_v3 = case.oracle["optimizer_class"].endswith("LossScaleOptimizerV3")
    if flavour == "h5m":
        return not (with_v3 and version(case) == (2, 10))
    inside = str(case.oracle.get("optimizer_config"))
    is_zip = flavour == "kv3" and zipfile.is_zipfile(case.folder / "model.keras")
    return not (is_zip and "is_legacy_optimizer" not in inside)


@pytest.mark.parametrize(("folder", "flavour"), divided(list(artefacts(MODELS))))
def test_every_model_is_loaded_bit_for_bit(folder, flavour):
    case = Case(folder)
    if FAILED in case.oracle["artefacts"][flavour]:
        with pytest.raises(Unreadable, match="holds neither a Keras model"):
            loaded(case, flavour)
        return
    if case.refused():
        with pytest.raises(LegacyError, match=r"^\$\.optimizer_config\.config\.loss_scale\."):
            loaded(case, flavour)
        found = loaded(case, flavour, compile=False)
        case.assert_weights(found.model)
        assert getattr(found.model, "optimizer", None) is None
        return
    found = loaded(case, flavour)
    model, report, lost = found.model, found.report, " ".join(found.report.lost)
    assert report.missing == report.unused == ()
    case.assert_weights(model)
    assert_config(case, flavour, model.optimizer)
    scaled = case.loss_scale() is not None
    if not holds_state(case, flavour):
        assert "no state of the optimizer" in lost
        assert int(model.optimizer.iterations) == 0
    elif case.product() is not None and "Nadam's momenta" in lost:
        assert_product(case, inner_of(model.optimizer))
    else:
        case.assert_optimizer(model, model.optimizer, scale=flavour == "sm")
    if flavour == "sm" or not scaled:
        assert "loss scale" not in lost.replace("if the loss scale never skipped", "")
    else:
        assert "neither the current loss scale nor its counter" in lost
        assert float(model.optimizer.loss_scale) == model.optimizer.initial_scale
    assert json.loads(json.dumps(report.to_dict()))["lost"] == list(report.lost)


def assert_product(case, inner):
    """Asserts what is computed anew: as good as nothing, as it was."""
    found = float(ops.convert_to_numpy(inner._u_product))
    factors = [0.9 * (1 - 0.5 * 0.96**t) for t in range(1, case.saved["iterations"] + 1)]
    trained = sum(row["trainable"] for row in case.rows)
    assert found == pytest.approx(np.prod(factors) ** trained, rel=1e-5)
    assert found < float(case.product()) < 1e-8


def inner_of(optimizer):
    return getattr(optimizer, "inner_optimizer", optimizer)


def assert_config(case, flavour, optimizer):
    """Asserts that an optimizer is that of the recorded config."""
    expected = case.oracle["optimizer_config"]
    inside = expected["config"]
    inner_config = inside.get("inner_optimizer") or inside.get("optimizer") or expected
    inner = inner_of(optimizer)
    name = inner_config["class_name"].rpartition(">")[2]
    assert type(inner).__name__ == name
    if (inner_config is expected) == isinstance(optimizer, keras_mp.LossScaleOptimizer):
        pytest.fail("scaled, and should not be, or the other way round")
    rate = inner_config["config"]["learning_rate"]
    if isinstance(rate, float):
        assert float(inner.learning_rate) == pytest.approx(rate, rel=1e-7)
    if not isinstance(optimizer, keras_mp.LossScaleOptimizer):
        return
    settings = optimizer.get_config()
    scale = case.recipe["loss_scale"]
    match scale:
        case {"fixed": value}:
            assert (settings["dynamic"], settings["initial_scale"]) == (False, value)
        case {"dynamic": {"initial_loss_scale": first, "increment_period": period}}:
            found = (settings["initial_scale"], settings["dynamic_growth_steps"])
            assert found == (first, period)
    if optimizer.dynamic:
        assert settings["count_skipped_steps"] == (version(case) >= (2, 3))


# Of a compute dtype: how far a prediction may be off.
TOLERANCES = {"float32": 1e-6, "mixed_float16": 2e-3, "mixed_bfloat16": 2.0**-7}


def test_compile_by_name_was_scaled(tmp_path):
    """Such a file names the optimizer as compile() was given it, before it was wrapped."""
    case = Case(FIXTURES / "tf213" / "lstm_adam")
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(case.folder / "model.keras") as old, zipfile.ZipFile(path, "w") as new:
        config = json.loads(old.read("config.json"))
        config["compile_config"]["optimizer"] = "adam"
        for name in old.namelist():
            is_config = name == "config.json"
            new.writestr(name, json.dumps(config) if is_config else old.read(name))
    model, report = load(path).model, load(path).report
    assert isinstance(model.optimizer, keras_mp.LossScaleOptimizer)
    case.assert_optimizer(model, model.optimizer, scale=False)
    assert "compile() wrapped it" in str(report.changes)


def test_compile_of_an_embedding_was_scaled(tmp_path):
    """Its rule for sparse gradients is that of the optimizer inside."""
    adam = {"class_name": "Adam", "config": {"name": "Adam", "learning_rate": 0.01}}
    policy = {"class_name": "Policy", "config": {"name": "mixed_float16"}}
    layers = [
        {"class_name": "InputLayer", "config": {"batch_input_shape": [None, 3], "dtype": "int32"}},
        {"class_name": "Embedding", "config": {"name": "e", "input_dim": 5, "output_dim": 2}},
        {"class_name": "Flatten", "config": {"name": "f"}},
        {"class_name": "Dense", "config": {"name": "d", "units": 1}},
    ]
    for layer in layers[1:]:
        layer["config"]["dtype"] = policy
    config = {"class_name": "Sequential", "config": {"name": "net", "layers": layers}}
    config["compile_config"] = {"optimizer": adam, "loss": "mse"}
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        file.create_group("vars")
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as new:
        new.writestr("metadata.json", json.dumps({"keras_version": "2.13.1"}))
        new.writestr("config.json", json.dumps(config))
        new.write(tmp_path / "weights.h5", "model.weights.h5")
    found = load(tmp_path / "model.keras", strict=False)
    assert isinstance(found.model.optimizer, keras_mp.LossScaleOptimizer)
    inner = found.model.optimizer.inner_optimizer.get_config()
    assert inner["sparse_variables"] == ["(^|/)e/embeddings$"]
    assert "sparse_variables=" in str(found.report.changes)


def test_a_sequential_embedding_is_saved_and_loaded_again(tmp_path):
    """Keras builds the layers of a Sequential before it puts them in: their paths are others."""
    layers = [
        {
            "class_name": "Embedding",
            "config": {
                "name": "e",
                "input_dim": 5,
                "output_dim": 2,
                "batch_input_shape": [None, 3],
            },
        },
        {"class_name": "Flatten", "config": {"name": "f"}},
        {"class_name": "Dense", "config": {"name": "d", "units": 1}},
    ]
    config = {"class_name": "Sequential", "config": {"name": "net", "layers": layers}}
    training = {
        "loss": "mean_squared_error",
        "optimizer_config": {"class_name": "Adam", "config": {"learning_rate": 0.5}},
    }
    with h5py.File(tmp_path / "old.h5", "w") as file:
        file.attrs["keras_version"] = "2.4.0"
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["training_config"] = json.dumps(training)
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = []
    model = load(tmp_path / "old.h5", strict=False).model
    x, y = np.array([[0, 1, 1], [1, 0, 0]]), np.ones((2, 1))
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "new.keras")
    again = keras.saving.load_model(tmp_path / "new.keras")
    before = again.layers[0].get_weights()[0]
    for each in (model, again):
        each.fit(x, y, verbose=0)
    rows, others = (each.layers[0].get_weights()[0] for each in (again, model))
    np.testing.assert_array_equal(rows, others)
    np.testing.assert_array_equal(rows[2:], before[2:])
    assert not np.array_equal(rows[:2], before[:2])


@pytest.mark.parametrize(("folder", "flavour"), divided(list(artefacts(MODELS))))
def test_every_model_predicts_as_it_did(folder, flavour):
    case = Case(folder)
    if FAILED in case.oracle["artefacts"][flavour]:
        pytest.skip("the file was not written: see the test above")
    model = loaded(case, flavour, compile=False).model
    found = ops.convert_to_numpy(model(case.inputs(), training=False)).astype("float64")
    expected = case.arrays["fixed/pred"].astype("float64")
    names = {layer.dtype_policy.name for layer in model._flatten_layers(include_self=False)}
    worst = max(TOLERANCES.get(name, 2e-3) for name in names)
    assert np.abs(found - expected).max() <= worst * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize(("folder", "flavour"), divided(list(artefacts(WEIGHTS))))
def test_every_file_gives_a_model_its_weights(folder, flavour):
    case = Case(folder)
    if FAILED in case.oracle["artefacts"][flavour]:
        pytest.skip("the file was not written: see the test above")
    model, optimizer = case.model(), case.optimizer()
    # Beside the model, for what a weights-only file does not have.
    report = load_weights(folder / WEIGHTS[flavour], model, optimizer)
    assert report.missing == report.unused == ()
    lost = " ".join(report.lost)
    if "the model's own" in lost:
        assert version(case) < (2, 8)
        assert flavour == "h5w"
        assert case.recipe["model"] == "subclassed"
        case.rows = [row for row in case.rows if row["name"] != "calls:0"]
        model.by_old_name = dict_without(model.by_old_name, "calls:0")
    case.assert_weights(model)
    if "no state of the optimizer" in lost:
        assert int(optimizer.iterations) == 0
    elif "Nadam's momenta" not in lost:
        case.assert_optimizer(model, optimizer, scale=False)


def dict_without(make, name):
    return lambda: {key: value for key, value in make().items() if key != name}


def resumed():
    for folder, flavour in (
        ("tf213/lstm_adam", "kv3"),
        ("tf213/mlp_ftrl", "h5m"),
        ("tf215/mlp_adamw_ema", "kv3"),
        ("tf215/mlp_lion", "kv3"),
        ("tf215/mlp_nadam", "kv3"),
        ("tf22/embed_sgd_momentum", "h5m"),
        ("tf22/mlp_sgd_piecewise", "h5m"),
        ("tf22/twobranch_rmsprop_centered", "h5m"),
        ("tf23/embed_adam", "h5m"),
        ("tf23/embed_sgd_momentum", "h5m"),
        ("tf23/mlp_nadam", "h5m"),
        ("tf23/mlp_amsgrad_fixed64", "h5m"),
        ("tf24/cnn_adam_2048_500", "sm"),
        ("tf26/nested_sgdm", "h5m"),
        ("tf211/subclassed_adam", "sm"),
        ("tf215/legacy_mlp_sgdm_decay", "sm"),
    ):
        if (FIXTURES / folder / MODELS[flavour]).exists():
            yield pytest.param(FIXTURES / folder, flavour, id=f"{folder}/{flavour}")


@pytest.mark.parametrize(("folder", "flavour"), divided(list(resumed())))
def test_training_goes_on_as_it_did(folder, flavour):
    """Gradients that TensorFlow recorded, through the optimizer that was loaded."""
    case = Case(folder)
    model = loaded(case, flavour).model
    optimizer, variables = model.optimizer, case.by_old_name(model)
    if getattr(optimizer, "dynamic", False):
        # What only a SavedModel holds.
        optimizer.dynamic_scale.assign(case.loss_scale()[0])
        optimizer.step_counter.assign(case.loss_scale()[1])
    trained = [row for row in case.rows if row.get("trainable", True)]
    ours = [variables[row["name"]] for row in trained]
    start = [ops.convert_to_numpy(variable).astype("float64") for variable in ours]
    error = movement = 0.0
    for number, step in enumerate(case.oracle["continuation"]):
        gradients = [case.arrays[f"cont/{number}/grad/{i}"] for i in range(len(trained))]
        gradients = [ops.array(gradient, "float32") for gradient in gradients]
        if isinstance(optimizer, keras_mp.LossScaleOptimizer):
            gradients = [optimizer.scale_loss(gradient) for gradient in gradients]
        optimizer.apply(gradients, ours)
        assert int(optimizer.iterations) == step["iterations_after"]
        for row, variable, first in zip(trained, ours, start, strict=True):
            expected = case.arrays[f"cont/{number}/weight/{row['index']}"].astype("float64")
            found = ops.convert_to_numpy(variable).astype("float64")
            error = max(error, float(np.abs(found - expected).max()))
            movement = max(movement, float(np.abs(expected - first).max()))
    assert error <= 1e-5 * movement  # as in test_replay.py
