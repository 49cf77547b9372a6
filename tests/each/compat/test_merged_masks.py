"""Merging layers have the masks of tf.keras."""

import json
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest
from keras import ops

from keras_mp.compat import layers
from keras_mp.compat.layers.merging import LAYERS
from keras_mp.compat.restoring.differences import NO_MASKS, OTHER_MASKS
from tests.loaded_models import load

A = np.array([[True, True, False, False]])
B = np.array([[True, False, True, False]])
X = np.ones((1, 4, 2), "float32")


def mask_of(layer: Any, *masks: Any) -> Any:
    """Returns the mask of a layer in numbers, as TF 2.10 reckoned it."""
    given = [None if mask is None else ops.array(mask) for mask in masks]
    found = layer.compute_mask([ops.array(X)] * len(masks), given)
    return None if found is None else ops.convert_to_numpy(found)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(
    ("masks", "expected"),
    [((A, B), A & B), ((A, None), A), ((None, B), B), ((A, A, B), A & B), ((None, None), None)],
    ids=["both", "first", "second", "three", "none"],
)
def test_masks(kind: Any, masks: tuple[Any, ...], expected: Any) -> None:
    found = mask_of(kind(), *masks)
    assert (found is None) == (expected is None)
    assert found is None or np.array_equal(found, expected)


def test_steps_one_behind_another() -> None:
    found = mask_of(layers.Concatenate(axis=1), A, B)
    np.testing.assert_array_equal(found, np.concatenate([A, B], axis=1))


def row(kind: str, name: str, inbound: list[str], **config: Any) -> dict[str, Any]:
    nodes = [[[one, 0, 0, {}] for one in inbound]] if inbound else []
    options = {"name": name, **config}
    return {"class_name": kind, "name": name, "config": options, "inbound_nodes": nodes}


def saved(path: Path, kind: str, inputs: list[str]) -> Path:
    rows = [
        row("InputLayer", "i", [], batch_input_shape=[None, 4]),
        row("InputLayer", "x", [], batch_input_shape=[None, 4, 2]),
        row("Embedding", "e", ["i"], input_dim=5, output_dim=2, mask_zero=True),
        row(kind, "merged", inputs),
    ]
    places = {
        "input_layers": [["i", 0, 0], ["x", 0, 0]],
        "output_layers": [["merged", 0, 0]],
    }
    net = {"class_name": "Functional", "config": {"name": "net", "layers": rows, **places}}
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(net)
        file.create_group("model_weights").attrs["layer_names"] = []
    return path


@pytest.mark.parametrize("kind", [layer.__name__ for layer in LAYERS])
def test_a_model_has_ours_where_masks_differ(kind: str, tmp_path: Path) -> None:
    loaded = load(saved(tmp_path / "m.h5", kind, ["e", "x"]), strict=False)
    merged = loaded.model.get_layer("merged")
    assert type(merged) is getattr(layers, kind)
    assert loaded.model.outputs[0]._keras_mask is not None
    assert [c.path for c in loaded.report.changes if c.what == OTHER_MASKS] == ["$: merged"]
    loaded.model.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    assert type(again.get_layer("merged")) is getattr(layers, kind)


@pytest.mark.parametrize("inputs", [["e", "e"], ["x", "x"]])
def test_it_is_that_of_keras_where_they_do_not(inputs: list[str], tmp_path: Path) -> None:
    loaded = load(saved(tmp_path / "m.h5", "Add", inputs), strict=False)
    assert type(loaded.model.get_layer("merged")) is keras.layers.Add


def test_names_of_what_keras_concatenates(tmp_path: Path) -> None:
    """It makes operations for masks, which it may call as a layer of the file is called."""
    path = saved(tmp_path / "m.h5", "Concatenate", ["e", "x"])
    with h5py.File(path, "r+") as file:
        text = file.attrs["model_config"].replace('"merged"', '"concatenate"')
        config = json.loads(text)
        config["config"]["layers"].append(row("LSTM", "lstm", ["concatenate"], units=2))
        config["config"]["output_layers"] = [["lstm", 0, 0]]
        file.attrs["model_config"] = json.dumps(config)
    keras.utils.clear_session()
    model = load(path, strict=False).model
    assert model.predict([np.ones((1, 4)), X], verbose=0).shape == (1, 2)


@pytest.mark.parametrize(
    ("version", "kind"),
    [("2.4.0", layers.MultiHeadAttention), ("2.10.0", keras.layers.MultiHeadAttention)],
)
def test_attention_of_an_hdf5_file_ignores_masks_where_tensorflow_did(
    version: str, kind: type, tmp_path: Path
) -> None:
    rows = [
        row("InputLayer", "i", [], batch_input_shape=[None, None]),
        row("Embedding", "e", ["i"], input_dim=5, output_dim=2, mask_zero=True),
        row("MultiHeadAttention", "attended", ["e"], num_heads=1, key_dim=2),
    ]
    rows[2]["inbound_nodes"] = [[["e", 0, 0, {"value": ["e", 0, 0]}]]]
    places = {"input_layers": [["i", 0, 0]], "output_layers": [["attended", 0, 0]]}
    net = {"class_name": "Functional", "config": {"name": "net", "layers": rows, **places}}
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.attrs["model_config"] = json.dumps(net)
        file.attrs["keras_version"] = version
        file.create_group("model_weights").attrs["layer_names"] = []
    loaded = load(tmp_path / "m.h5", strict=False)
    assert type(loaded.model.get_layer("attended")) is kind
    is_ours = kind is layers.MultiHeadAttention
    assert [c.path for c in loaded.report.changes if c.what == NO_MASKS] == [
        "$: attended"
    ] * is_ours
    ids = np.array([[1, 2, 0, 0]])
    masked, whole = (np.asarray(loaded.model.predict(one, verbose=0)) for one in (ids, ids[:, :2]))
    assert np.allclose(masked[:, :2], whole, atol=1e-6) != is_ours
