"""The names of Keras: the table is what was recorded, and names are found in it."""

import json
import re
import runpy
from pathlib import Path

import pytest

from keras_mp.compat.names import NAMES
from keras_mp.migration.keras3 import advice, names

ROOT = Path(__file__).resolve().parents[4]
COMPARE = runpy.run_path(str(ROOT / "tests" / "data" / "scripts" / "keras_names" / "compare.py"))
RECORDED = sorted((ROOT / "tests" / "data" / "keras_names").glob("*.json"))
OF_MIXED_PRECISION = tuple(name.removeprefix("tf.keras.") for name in NAMES)


def gone(root):
    """Returns what is gone, but for mixed precision, which other rules rewrite."""
    table = names.table()
    of_keras = table["not in keras"] if root == "keras" else ()
    every = {*table["gone"], *of_keras} - names.today(root)
    return sorted(name for name in every if not name.startswith("mixed_precision"))


def test_the_table_is_made_of_the_recordings():
    table = ROOT / "migration" / "keras3" / "changes.json"
    assert table.read_text(encoding="utf-8") == COMPARE["text"](COMPARE["compare"]())


def test_the_recordings_are_of_the_versions_that_are_compared():
    versions = {path.stem: json.loads(path.read_text())["versions"] for path in RECORDED}
    assert set(versions) == {*COMPARE["THEN"], *COMPARE["TODAY"], *COMPARE["TODAY_KERAS"]}
    for name, of in versions.items():
        tensorflow = re.search(r"tf-([\d.]+\d)", name)
        keras = re.search(r"keras-([\d.]+\d)", name)
        assert tensorflow is None or of["tensorflow"] == tensorflow.group(1)
        assert keras is None or of["keras"] == keras.group(1)


@pytest.mark.parametrize("root", ["tf.keras", "keras"])
def test_all_that_is_gone_has_another_name_or_advice(root):
    assert len(gone(root)) > 100
    lacking = [
        n for n in gone(root) if not names.place_today(root, n) and not names.advice(root, n)
    ]
    assert lacking == []


def test_the_tables_of_advice_name_what_was_there():
    table = names.table()
    was = {*table["gone"], *table["not in keras"], *table["today"]}
    was |= {name.rpartition(".")[0] for name in was}
    assert [name for name in (*advice.ADVICE, *advice.MOVED) if name not in was] == []


def test_what_is_to_be_written_is_there():
    """Every name of keras in the advice is one of today."""
    texts = " ".join(advice.ADVICE.values())
    named = set(re.findall(r"(?<![\w.])keras\.((?:\w+\.)*\w+)", texts))
    there = names.today("keras")
    lacking = {name for name in named if name not in there}
    assert (
        lacking
        <= {"saving.deserialize_keras_object"} - there | {"distribution.DataParallel"} - there
    )
    assert len(named) > 30


@pytest.mark.parametrize("root", ["tf.keras", "keras"])
def test_where_names_moved_to_is_there(root):
    moved = {**advice.MOVED_IN[root]}
    assert moved
    for old, new in moved.items():
        assert names.place_today(root, old) == new or old in names.today(root), old


KNOWN = {
    "tensorflow.keras": ("there", ""),
    "tensorflow.keras.layers.Dense": ("there", "layers.Dense"),
    "tensorflow.compat.v1.keras.layers.Dense": ("there", "layers.Dense"),
    "tensorflow_core.python.keras.layers.Dense": ("private", "layers.Dense"),
    "keras.api._v2.keras.layers.Dense": ("private", "layers.Dense"),
    "keras.losses.MSE": ("moved", "losses.mean_squared_error"),
    "tensorflow.keras.losses.MSE": ("there", "losses.MSE"),
    "tensorflow.keras.optimizers.legacy.Adam": ("gone", None),
    "keras.optimizers.rmsprop": ("private", None),
    "keras.src.backend": ("private", "backend"),
    "keras.__version__": ("there", ""),
}


@pytest.mark.parametrize(("full", "expected"), KNOWN.items(), ids=KNOWN)
def test_known(full, expected):
    found = names.keras_name(full)
    assert (found.status, found.new) == expected


@pytest.mark.parametrize("full", ["kerastuner.Tuner", "tensorflow.nn.relu", "tf_keras.layers", "k"])
def test_what_is_not_keras(full):
    assert names.keras_name(full) is None


def test_the_length_is_that_of_what_is_spelled():
    found = names.keras_name("tensorflow.keras.layers.experimental.preprocessing.Rescaling.build.x")
    assert found.length == 6
    assert str(found) == "tf.keras.layers.experimental.preprocessing.Rescaling"


KINDS = {
    "models.Sequential": "Sequential",
    "Model": "Model",
    "experimental.LinearModel": "Model",
    "layers.LSTM": "layers.RNN",
    "layers.CuDNNLSTM": "layers.RNN",
    "layers.experimental.preprocessing.Rescaling": "layers.Layer",
    "metrics.MeanIoU": "metrics.Metric",
    "losses.Huber": "losses.Loss",
    "optimizers.legacy.SGD": "optimizers.Optimizer",
    "optimizers.legacy": None,
    "losses.mse": None,
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items(), ids=KINDS)
def test_kinds(name, kind):
    assert names.kind(name) == kind
