"""`keras-mp migrate` of SavedModels compares predictions with the graph in the file."""

import json
import shutil

import keras
import pytest

from keras_mp.migration.cli import main
from keras_mp.migration.fleet import migrate_folder
from tests import graph_recordings
from tests.fixtures import DATA

MLP = DATA / "tf215/legacy_mlp_sgdm_decay/saved_model"

SCRIPT = """
import keras

class Dense(keras.layers.Dense):
    def call(self, x):
        found = super().call(x)
        return 0.4 * found if self.name == "own" else found
"""


@pytest.fixture
def own():
    return str(graph_recordings.folder("named_like_keras"))


def test_the_largest_difference_is_in_the_report(tmp_path, capsys):
    out = str(tmp_path / "model.keras")
    assert main(["migrate", str(MLP), "-o", out, "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)["results"]
    found = said["report"]["comparison"]
    assert 0 <= found["predictions"]["largest"] <= found["predictions"]["allowed"]
    assert found["training"] is not None
    assert main(["migrate", str(MLP), "-o", str(tmp_path / "again.keras")]) == 0
    assert (
        "predictions agree with the graph in the file, with and without training:"
        in capsys.readouterr().err
    )


def test_a_model_that_predicts_otherwise_is_refused(own, tmp_path, capsys):
    out = tmp_path / "model.keras"
    assert main(["migrate", own, "-o", str(out)]) == 2
    said = capsys.readouterr().err
    assert "predictions differ from the graph in the file" in said
    assert "own (Dense)" in said
    assert "--accept-differences writes the model anyway" in said
    assert not out.exists()
    assert main(["migrate", own, "-o", str(out), "--accept-differences"]) == 0
    assert "predictions differ from the graph in the file" in capsys.readouterr().err
    assert out.exists()


def test_it_is_written_with_its_class(own, tmp_path, capsys):
    script, out = tmp_path / "layers.py", tmp_path / "model.keras"
    script.write_text(SCRIPT)
    assert main(["migrate", own, "-o", str(out), "--model", str(script)]) == 0
    assert "predictions agree with the graph in the file" in capsys.readouterr().err


def test_a_ledger_tells_that_nothing_was_compared(own, tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(own, runs / "a")
    counts = migrate_folder(runs, tmp_path / "out")
    assert counts == {"refused": 1}
    rows = [json.loads(one) for one in (tmp_path / "out/migration.jsonl").read_text().splitlines()]
    row = next(one for one in rows if one.get("name") == "a")
    assert row["reason"] == "predicts otherwise"
    assert migrate_folder(runs, tmp_path / "out", compare=False) == {"done": 1}
    rows = [json.loads(one) for one in (tmp_path / "out/migration.jsonl").read_text().splitlines()]
    row = [one for one in rows if one.get("name") == "a"][-1]
    assert row["options"]["compare"] is False
    assert keras.saving.load_model(tmp_path / "out/a.keras") is not None
