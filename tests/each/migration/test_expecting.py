"""`keras-mp migrate --expect`: a model against predictions that its own TensorFlow recorded."""

import contextlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_mp.compat import load_model
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.restoring.expecting import expect
from keras_mp.migration import record_script
from keras_mp.migration.cli import main

FOLDER = Path(__file__).parents[2] / "data/recorded_predictions"
VERSIONS = ("tf115", "tf23", "tf215")


@pytest.mark.parametrize("version", VERSIONS)
def test_models_predict_as_recorded(version, capsys):
    path, recorded = str(FOLDER / f"{version}.h5"), str(FOLDER / f"{version}.npz")
    assert main(["migrate", path, "--expect", recorded, "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)["results"]
    found = said["report"]["comparison"]
    assert found["predictions"]["largest"] < 1e-5
    assert found["source"] == "the recording"


def test_the_first_layer_that_differs_is_named(tmp_path, capsys):
    path, recorded = FOLDER / "tf215.h5", FOLDER / "tf215.npz"
    model = load_model(path)
    assert not expect(recorded, model).differs
    norm = model.get_layer("norm")
    norm.epsilon *= 300
    found = expect(recorded, model)
    assert found.predictions.layer == "norm (BatchNormalization)"
    arrays = dict(np.load(recorded))
    arrays["y0/0"] = arrays["y0/0"] * 1.5
    arrays["layer2/0"] = arrays["layer2/0"] * 1.5
    np.savez(tmp_path / "other.npz", **arrays)
    out = tmp_path / "model.keras"
    asked = ["migrate", str(path), "-o", str(out), "--expect", str(tmp_path / "other.npz")]
    assert main(asked) == 2
    said = capsys.readouterr().err
    assert "predictions differ from the recording" in said
    assert "first in last (Dense)" in said
    assert not out.exists()
    assert main([*asked, "--accept-differences"]) == 0
    assert out.exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda arrays: arrays.pop("format"), "is none that keras-mp record-script writes"),
        (lambda arrays: arrays.update({"format": np.array([1, 2])}), "is none that keras-mp"),
        (lambda arrays: arrays.update({"y0/0": np.array(["a"])}), "y0/0: holds <U1: numbers"),
        (lambda arrays: arrays.pop("y1/0"), "x1, y1: are missing"),
        (lambda arrays: arrays.update({"x0/0": arrays["x0/0"][:, :2]}), "do not fit the model"),
        (lambda arrays: arrays.update({"x0/0": np.array(["a", None], object)}), "is no recording"),
    ],
)
def test_recordings_that_are_none(change, why, tmp_path):
    arrays = dict(np.load(FOLDER / "tf23.npz"))
    change(arrays)
    np.savez(tmp_path / "recorded.npz", **arrays)
    with pytest.raises(Unreadable, match=why):
        expect(tmp_path / "recorded.npz", load_model(FOLDER / "tf23.h5"))


def test_a_damaged_recording_is_refused_or_read(tmp_path):
    data = (FOLDER / "tf23.npz").read_bytes()
    model = load_model(FOLDER / "tf23.h5")
    draw = random.Random(1)
    for _ in range(100):
        changed = bytearray(data)
        for _ in range(8):
            changed[draw.randrange(len(data))] = draw.randrange(256)
        (tmp_path / "recorded.npz").write_bytes(changed)
        with contextlib.suppress(Unreadable):
            expect(tmp_path / "recorded.npz", model)


def test_no_recording_at_all(tmp_path, capsys):
    (tmp_path / "recorded.npz").write_bytes(b"text")
    path = str(FOLDER / "tf23.h5")
    assert main(["migrate", path, "--expect", str(tmp_path / "recorded.npz")]) == 2
    assert "is no recording" in capsys.readouterr().err


def test_the_program_is_for_old_pythons(capsys):
    assert main(["record-script"]) == 0
    text = capsys.readouterr().out
    assert text == record_script.PROGRAM.read_text()
    compile(text, "record.py", "exec")
    for new in ('f"', "f'", ":=", "match ", " | None", "-> "):
        assert new not in text


def test_the_program_records_what_is_expected(tmp_path):
    """On the TensorFlow of today, whose models are of Keras 3: the calls are the same."""
    pytest.importorskip("tensorflow", reason="it records with TensorFlow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("tf.keras is of the backend in use")
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="out")])
    model.save(tmp_path / "model.keras")
    (tmp_path / "record.py").write_text(record_script.PROGRAM.read_text())
    done = subprocess.run(
        [sys.executable, "record.py", "model.keras", "recorded.npz"],
        cwd=tmp_path,
        env=os.environ | {"KERAS_BACKEND": "tensorflow"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not expect(tmp_path / "recorded.npz", model).differs
