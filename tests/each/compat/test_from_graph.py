"""Models around the graph of a SavedModel, of classes that nobody has."""

import json
import shutil
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp.compat import load_model
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.layers import SavedFunction
from keras_mp.migration import artefacts
from keras_mp.migration.cli import main
from keras_mp.migration.requests import Request
from tests import graph_recordings
from tests.fixtures import DATA

# As in tests/data/saved_graphs/record.py.
RATES = {"crf": 0.01, "module": 0.01, "resnet": 0.0001}
TRAINED = [name for name in graph_recordings.NAMES if "losses" in graph_recordings.recorded(name)]
OF_CLASSES = ("attention", "crf", "generator", "mixed", "normalized", "pictures", "resnet")


def close(found, expected, name="", tolerance=1e-5):
    tolerance = 1e-2 if name == "mixed" else tolerance
    found = np.asarray(ops.convert_to_numpy(found), "float64")
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", TRAINED)
def test_predicts_saves_and_trains_as_tensorflow(name, tmp_path):
    recorded = graph_recordings.recorded(name)
    model = load_model(graph_recordings.folder(name), from_graph=True)
    close(model.predict(recorded["x0"], verbose=0), recorded["y0"], name)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    close(again.predict(recorded["x0"], verbose=0), recorded["y0"], name)
    # The deepest takes a minute for fifty steps, and compiling it as long again.
    steps, compiled = (3, False) if name == "resnet" else (50, "auto")
    optimizer = keras.optimizers.SGD(RATES.get(name, 0.05))
    again.compile(optimizer, loss="mse", jit_compile=compiled)
    losses = [again.train_on_batch(recorded["x0"], recorded["target"]) for _ in range(steps)]
    expected = recorded["losses"][:steps]
    rounding = 3e-3 if name == "mixed" else 1e-4
    np.testing.assert_allclose(np.array(losses, "float64"), expected, rtol=rounding)
    if steps == 50:
        close(again.predict(recorded["x0"], verbose=0), recorded["trained"], name, 1e-3)


def test_conditions_and_loops_on_numbers_run_compiled():
    recorded = graph_recordings.recorded("branches")
    model = load_model(graph_recordings.folder("branches"), from_graph=True)
    for i in range(2):
        close(model.predict(recorded[f"x{i}"], verbose=0), recorded[f"y{i}"])
    kept = next(one for one in model.weights if not one.trainable)
    before = int(kept.numpy())
    model(recorded["x0"])
    assert int(ops.convert_to_numpy(kept)) == before + 1  # as the function in the file does


def test_a_signature_is_chosen_by_name():
    path, recorded = graph_recordings.folder("coder"), graph_recordings.recorded("coder")
    with pytest.raises(Unreadable, match=r"from_graph= takes one of encode, decode"):
        load_model(path, from_graph=True)
    with pytest.raises(Unreadable, match=r"other: is no function of it: from_graph= takes one of"):
        load_model(path, from_graph="other")
    encode = load_model(path, from_graph="encode")
    found = encode.predict(recorded["x0"], verbose=0)
    assert found.keys() == {"code", "norm"}
    close(found["code"], recorded["y0"])
    decode = load_model(path, from_graph="decode")
    found = decode({"code": ops.array(recorded["y0"]), "gain": ops.array(0.5)})
    close(found, recorded["decoded0"])


@pytest.mark.parametrize("name", OF_CLASSES)
def test_the_refusal_of_an_unknown_class_names_the_way(name):
    with pytest.raises(LegacyError, match="from_graph=True runs the graph in the file"):
        load_model(graph_recordings.folder(name))


def test_no_keras_model_names_the_way():
    with pytest.raises(Unreadable, match="from_graph=True runs the graph in the file"):
        load_model(graph_recordings.folder("module"))


def test_only_saved_models_have_graphs(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save(tmp_path / "model.h5")
    with pytest.raises(ValueError, match="from_graph= is for SavedModels"):
        load_model(tmp_path / "model.h5", from_graph=True)


def test_what_is_trained_is_what_the_file_says():
    model, report = load_model(
        graph_recordings.folder("normalized"), from_graph=True, return_report=True
    )
    kinds = {one.name.rpartition("_")[2]: one.trainable for one in model.weights}
    assert kinds["kernel"]
    assert kinds["gamma"]
    assert not kinds["mean"]
    assert len(report.rows) == len(model.weights)
    assert any("is not compiled" in note for note in report.notes)


def test_float16_stays_as_saved_and_a_loss_scale_works():
    recorded = graph_recordings.recorded("mixed")
    model = load_model(graph_recordings.folder("mixed"), from_graph=True)
    assert {str(one.dtype) for one in model.weights} == {"float32"}
    optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(0.05), initial_scale=1024.0)
    model.compile(optimizer, loss="mse", auto_scale_loss=False)
    first = float(model.train_on_batch(recorded["x0"], recorded["target"]))
    last = [float(model.train_on_batch(recorded["x0"], recorded["target"])) for _ in range(9)][-1]
    assert last < first
    assert abs(first - recorded["losses"][0]) < 5e-3


def test_ops_that_cannot_be_evaluated_are_named(tmp_path):
    shutil.copytree(graph_recordings.folder("module"), tmp_path / "own")
    path = tmp_path / "own/saved_model.pb"
    path.write_bytes(path.read_bytes().replace(b"\x12\x06MatMul", b"\x12\x06PyFunc"))
    with pytest.raises(LegacyError, match=r"__call__ has the ops PyFunc \(has no counterpart"):
        load_model(tmp_path / "own", from_graph=True)


def config_of(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("config.json"))


def test_what_is_saved_names_operations_and_holds_no_code(tmp_path):
    model = load_model(graph_recordings.folder("module"), from_graph=True)
    model.save(tmp_path / "model.keras")
    layer = config_of(tmp_path / "model.keras")["config"]["layers"][1]
    assert layer["registered_name"] == "keras_mp>SavedFunction"
    assert {"MatMul", "AddV2", "ReadVariableOp"} <= {
        step["op"] for program in layer["config"]["programs"] for step in program["steps"]
    }


SPEC = {"spec": ["x", [None, 2], "float32"]}
CALLED = {"function": "f", "captured": [], "inputs": SPEC, "results": SPEC}


VARIABLE = {"name": "v", "shape": [], "dtype": "float32", "trainable": True}


def program(op="Abs", **attributes):
    step = {"name": "a", "op": op, "inputs": [[-1, 0]], "attributes": attributes}
    return {"name": "f", "arguments": ["float32"], "steps": [step], "results": [[0, 0]]}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (([{}], [], [], CALLED), "it is no program"),
        (([program()], [["float32", [2], ""]], [], CALLED), "a constant of 0 bytes"),
        (([program()], [["object", [1], "AAAA"]], [], CALLED), "a constant of the dtype object"),
        (([program()], [["x", [1], "AAAA"]], [], CALLED), "'x' is no dtype"),
        (([program()], [["float32", [-1], ""]], [], CALLED), "is no shape"),
        (([program()], [], [VARIABLE | {"shape": None}], CALLED), "None is no shape"),
        (([program()], [], [], CALLED | {"function": "g"}), "lacks 'g'"),
        (([program()], [], [], CALLED | {"captured": [["variable", 0]]}), "neither a variable"),
        (([program()], [], [], CALLED | {"inputs": []}), "takes 1 arguments, not 0"),
        (([program(f={"function": "g"})], [], [], CALLED), "calls 'g', which is not among"),
    ],
)
def test_configs_that_are_none_are_refused(arguments, why):
    with pytest.raises(ValueError, match=why):
        SavedFunction(*arguments)


def test_no_op_without_a_name_here_runs():
    with pytest.raises(Exception, match="WriteFile: the op has no counterpart"):
        SavedFunction([program("WriteFile")], [], [], CALLED)(ops.ones((1, 2)))


def test_the_command_writes_it(tmp_path, capsys):
    out = tmp_path / "model.keras"
    path = str(graph_recordings.folder("pictures"))
    assert main(["migrate", path, "-o", str(out)]) == 2
    assert "--from-graph runs the graph in the file without its classes" in capsys.readouterr().err
    assert main(["migrate", path, "-o", str(out), "--from-graph"]) == 0
    recorded = graph_recordings.recorded("pictures")
    model = keras.saving.load_model(out)
    close(model.predict(recorded["x0"], verbose=0), recorded["y0"])
    assert main(["migrate", str(DATA / "tf24"), "--from-graph"]) == 2


def test_the_command_chooses_a_function(tmp_path, capsys):
    out, path = tmp_path / "model.keras", str(graph_recordings.folder("coder"))
    assert main(["migrate", path, "-o", str(out), "--from-graph"]) == 2
    assert "--function takes one of encode, decode" in capsys.readouterr().err
    assert main(["migrate", path, "-o", str(out), "--from-graph", "--function", "encode"]) == 0
    assert out.exists()
    assert main(["migrate", path, "--function", "encode"]) == 2
    assert "--function goes with --from-graph" in capsys.readouterr().err


def test_a_folder_takes_it_for_its_saved_models():
    request = Request(str(graph_recordings.folder("module")), from_graph="encode")
    assert artefacts.without_unneeded_options(request, "saved_model").from_graph == "encode"
    assert not artefacts.without_unneeded_options(request, "checkpoint").from_graph


def test_the_evaluator_can_be_imported_before_keras():
    program = "import keras_mp.compat.saved_graphs.functions, keras_mp.compat.restoring.comparing"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
