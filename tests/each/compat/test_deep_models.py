"""Models of more layers in a row than Python's stack has room for when Keras builds them."""

import json
import sys

import h5py
import keras
import numpy as np
import pytest

from keras_mp.compat import load_model
from keras_mp.migration.cli import main

LAYERS, LIMIT = 400, 380


@pytest.fixture
def path(tmp_path):
    """A model of TF 2.10 with a Dense layer behind many that add 1."""
    rows = [
        {
            "class_name": "InputLayer",
            "name": "x",
            "config": {"batch_input_shape": [None, 2], "dtype": "float32", "name": "x"},
            "inbound_nodes": [],
        }
    ]
    for i in range(LAYERS):
        config = {"name": f"a{i}", "trainable": True, "dtype": "float32"}
        call = [rows[-1]["name"], 0, 0, {"y": 1.0, "name": None}]
        row = {"class_name": "TFOpLambda", "name": f"a{i}", "inbound_nodes": [call]}
        rows.append(row | {"config": config | {"function": "__operators__.add"}})
    dense = {"name": "out", "trainable": True, "dtype": "float32", "units": 1, "use_bias": False}
    call = [[[rows[-1]["name"], 0, 0, {}]]]
    rows.append({"class_name": "Dense", "name": "out", "config": dense, "inbound_nodes": call})
    inside = {"name": "deep", "layers": rows}
    inside |= {"input_layers": [["x", 0, 0]], "output_layers": [["out", 0, 0]]}
    with h5py.File(tmp_path / "deep.h5", "w") as file:
        file.attrs["keras_version"], file.attrs["backend"] = "2.10.0", "tensorflow"
        file.attrs["model_config"] = json.dumps({"class_name": "Functional", "config": inside})
        weights = file.create_group("model_weights")
        weights.attrs["layer_names"] = [row["name"].encode() for row in rows]
        for row in rows:
            weights.create_group(row["name"]).attrs["weight_names"] = []
        weights["out"].attrs["weight_names"] = [b"out/kernel:0"]
        weights["out"]["out/kernel:0"] = np.array([[1.0], [2.0]], "float32")
    return tmp_path / "deep.h5"


@pytest.fixture
def shallow():
    """A stack with less room than Keras needs; the usual one ends at some 900 layers."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(LIMIT)
    yield
    sys.setrecursionlimit(before)


def test_loads(path, shallow):
    model = load_model(path)
    assert sys.getrecursionlimit() == LIMIT
    sys.setrecursionlimit(1000)
    predicted = model.predict(np.zeros((1, 2), "float32"), verbose=0)
    np.testing.assert_allclose(predicted, [[3.0 * LAYERS]], rtol=1e-6)


def test_is_migrated(path, tmp_path, shallow):
    assert main(["migrate", str(path), "-o", str(tmp_path / "deep.keras")]) == 0
    with pytest.raises(Exception, match=r"recursion|deserialized"):
        keras.saving.load_model(tmp_path / "deep.keras")
    sys.setrecursionlimit(1000)
    assert len(keras.saving.load_model(tmp_path / "deep.keras").layers) == LAYERS + 2
