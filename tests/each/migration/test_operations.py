"""`keras-mp migrate` and `inspect` of models with operations: what they compute, and programs."""

import json

import h5py
import keras
import numpy as np
import pytest

from keras_mp.compat import model_code
from keras_mp.migration.cli import main
from tests import programs
from tests.fixtures import DATA

OPERATIONS = DATA / "operations"
HEADS = OPERATIONS / "tf215" / "scaled_products.h5"
ROOT = OPERATIONS / "tf215" / "lambda_square_root.h5"


def migrate(*arguments):
    return main(["migrate", *map(str, arguments)])


def test_it_says_what_layers_compute(tmp_path, capsys):
    out = tmp_path / "out.keras"
    assert migrate(HEADS, "-o", out) == 0
    said = capsys.readouterr()
    assert "layer               computes" in said.out
    assert "tf.linalg.matmul    ops.matmul(q, k, transpose_b=True)" in said.out
    assert "`import keras_mp` before Keras loads it" in said.err


def test_it_says_what_lambdas_compute_before_anything_is_written(capsys):
    assert migrate(ROOT) == 0
    said = capsys.readouterr().out
    assert "lambda  ops.sqrt(" in said
    assert "(read from its byte code; nothing was run)" in said


def test_json_has_it(capsys):
    assert migrate(ROOT, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    (change,) = [one for one in row["report"]["changes"] if one["kind"] == "computes"]
    assert change["what"].startswith("lambda = ops.sqrt(")
    assert change["path"] == "$.config.layers[1]"


def test_inspect_has_it(capsys):
    assert main(["inspect", str(ROOT)]) == 0
    assert "operations    lambda = ops.sqrt(" in capsys.readouterr().out


def test_the_new_file_opens_with_keras_mp_only(tmp_path):
    out = tmp_path / "out.keras"
    assert migrate(HEADS, "-o", out) == 0
    program = (
        "import keras_mp, keras, sys; model = keras.saving.load_model(sys.argv[1]); "
        "print([layer.expression for layer in model.layers if hasattr(layer, 'expression')])"
    )
    said = programs.run("-c", program, out, timeout=120, imported=True)
    assert "ops.matmul(x[0], x[1], transpose_b=True)" in said


def test_the_program(tmp_path, capsys):
    out, code = tmp_path / "out.keras", tmp_path / "model.py"
    assert migrate(HEADS, "-o", out, "--as-code", code) == 0
    assert f"{code}: written: `build()` in it makes the model" in capsys.readouterr().err
    text = code.read_text(encoding="utf-8")
    assert 'model.load_weights("out.keras")' in text
    assert "ops.sum(" in text
    scope = {}
    exec(compile(text, str(code), "exec"), scope)
    model = scope["build"]()
    model.load_weights(out)
    with np.load(HEADS.with_suffix(".npz")) as recorded:
        predicted = model.predict(recorded["x0"], verbose=0)
        np.testing.assert_allclose(predicted, recorded["p"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("there.py", "there.py exists already: choose another file, or remove it"),
        ("model.txt", "the name must end in .py"),
        ("there.py/model.py", "does not exist and cannot be created"),
    ],
)
def test_where_no_program_is_written(name, why, tmp_path, capsys):
    (tmp_path / "there.py").write_text("", encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    assert migrate(HEADS, "-o", tmp_path / "out.keras", "--as-code", tmp_path / name) == 2
    assert why in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_has_no_program(tmp_path, capsys):
    assert migrate(HEADS.parent, "--as-code", tmp_path / "model.py") == 2
    assert "writes one model: name one artefact" in capsys.readouterr().err


def test_a_model_without_a_program_is_not_written_either(tmp_path, monkeypatch, capsys):
    def none(*_args, **_options):
        raise model_code.NoCode("net is of the class Net, which is not in the file: no code")

    monkeypatch.setattr(model_code, "model_code", none)
    out, code = tmp_path / "out.keras", tmp_path / "model.py"
    assert migrate(HEADS, "-o", out, "--as-code", code) == 2
    assert "--as-code: net is of the class Net" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_config_shows_what_it_computes(tmp_path, capsys):
    config = tmp_path / "model.json"
    with h5py.File(HEADS) as file:
        config.write_text(file.attrs["model_config"], encoding="utf-8")
    assert main(["inspect", str(config)]) == 0
    assert "tf.linalg.matmul = ops.matmul(q, k, transpose_b=True)" in capsys.readouterr().out
    assert migrate(config, "-o", tmp_path / "today.json") == 0
    today = json.loads((tmp_path / "today.json").read_text(encoding="utf-8"))
    model = keras.saving.deserialize_keras_object(today)
    assert model.get_layer("tf.linalg.matmul").expression.startswith("ops.matmul(")
