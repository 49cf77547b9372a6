"""Layers with dots in their names load on every backend, and train on."""

import json
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest

from keras_mp.compat.configs.dotted_names import RENAMED, without_dots
from keras_mp.migration.cli import main
from tests.loaded_models import load

IS_TORCH = keras.backend.backend() == "torch"
KERNEL, BIAS = np.ones((3, 2), "float32"), np.full(2, 5.0, "float32")


def old_layer(kind: str, name: str, inbound: list[Any], **config: Any) -> dict[str, Any]:
    return {
        "class_name": kind,
        "name": name,
        "config": {"name": name, **config},
        "inbound_nodes": [[[one, 0, 0, {}] for one in inbound]] if inbound else [],
    }


def old_config() -> dict[str, Any]:
    layers = [
        old_layer("InputLayer", "in.put", [], batch_input_shape=[None, 3]),
        old_layer("Dense", "block.1", ["in.put"], units=2),
        old_layer("Dense", "block_1", ["in.put"], units=2),
        old_layer("Add", "out.put", ["block.1", "block_1"]),
    ]
    places = {"input_layers": [["in.put", 0, 0]], "output_layers": [["out.put", 0, 0]]}
    return {"class_name": "Functional", "config": {"name": "net.1", "layers": layers, **places}}


TRAINING = {
    "loss": {"out.put": "mse"},
    "metrics": {"out.put": ["mae"]},
    "optimizer_config": {"class_name": "SGD", "config": {"learning_rate": 0.1}},
}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(old_config())
        file.attrs["training_config"] = json.dumps(TRAINING)
        weights = file.create_group("model_weights")
        weights.attrs["layer_names"] = ["in.put", "block.1", "block_1", "out.put"]
        for name in ("in.put", "block.1", "block_1", "out.put"):
            group = weights.create_group(name)
            group.attrs["weight_names"] = np.array([], "S1")
            if "block" in name:
                group.attrs["weight_names"] = [f"{name}/kernel:0", f"{name}/bias:0"]
                group[f"{name}/kernel:0"] = KERNEL * (2 if "." in name else 3)
                group[f"{name}/bias:0"] = BIAS
    return path


def test_a_model(saved: Path) -> None:
    loaded = load(saved)
    model, x = loaded.model, np.ones((4, 3), "float32")
    np.testing.assert_allclose(model.predict(x, verbose=0), np.full((4, 2), 25.0))
    names = ["in_put", "block_1_2", "block_1", "out_put"] if IS_TORCH else None
    assert [layer.name for layer in model.layers] == (
        names or ["in.put", "block.1", "block_1", "out.put"]
    )
    told = [change.path for change in loaded.report.changes if change.what.endswith("of a weight")]
    assert told == (["$: block.1", "$: in.put", "$: net.1", "$: out.put"] if IS_TORCH else [])
    logs = model.fit(x, x[:, :2], verbose=0).history
    assert logs["loss"][0] == pytest.approx(576.0)


def test_weights_with_a_config(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, weights, out = saved.with_name("c.json"), saved.with_name("w.h5"), saved.with_name("o")
    config.write_text(json.dumps(old_config()))
    with h5py.File(saved) as whole, h5py.File(weights, "w") as file:
        for name in whole["model_weights"]:
            whole.copy(whole["model_weights"][name], file, name)
        file.attrs["layer_names"] = whole["model_weights"].attrs["layer_names"]
    out = out.with_suffix(".keras")
    assert main(["migrate", str(weights), "--model", str(config), "-o", str(out)]) == 0
    assert (RENAMED.format("block_1_2") in capsys.readouterr().err) == IS_TORCH
    x = np.ones((4, 3), "float32")
    y = keras.saving.load_model(out).predict(x, verbose=0)
    np.testing.assert_allclose(y, np.full((4, 2), 25.0))


def test_operations_keep_their_names() -> None:
    layer = {"class_name": "Operation", "config": {"name": "tf.math.add"}}
    net = {"class_name": "Functional", "config": {"name": "net", "layers": [layer]}}
    assert without_dots(net) == (net, {})
