"""Without what keeps an old model right, comparing it with its graph tells, and where it begins."""

import re
import zipfile

import keras
import numpy as np
import pytest

from keras_mp.compat import load_model
from keras_mp.compat.configs import layer_tables, layers, models
from keras_mp.compat.configs.serialized import of_keras
from keras_mp.compat.restoring import graph_flags, keras_layers
from keras_mp.compat.restoring.comparing import LOST_MASKS, compare
from keras_mp.compat.restoring.comparison import Comparison, Differs, Part
from tests.fixtures import DATA

NOTHING = {"with_graph_flags": lambda config, *_: (dict(config), [])}
KERAS_OWN = {"_replaced": lambda *_: None}
NO_CALLS = {"_of_calls": lambda config, *_: of_keras("keras", "Model", config)}
# Model -> (where the mend is, what it is without it, the layer that is the first to differ).
MENDS = {
    "cropped": (layers, KERAS_OWN, r"cropped \(RandomCrop\)"),
    "pooled": (layers, KERAS_OWN, r"pooled \(AveragePooling2D\)"),
    "resized": (layers, KERAS_OWN, r"resized \(Resizing\)"),
    "gated": (
        layer_tables,
        {"ACTIVATIONS": [*layer_tables.ACTIVATIONS, "hard_sigmoid"]},
        r"gated \(LSTM\)",
    ),
    "merged": (keras_layers, {"_merges_masks": lambda _: False}, r"simple_rnn\S* \(SimpleRNN\)"),
    "ignores_masks": (
        keras_layers,
        {"is_masked": lambda _: False},
        r"multi_head\S* \(EinsumDense\)",
    ),
    "called_without_training": (models, NO_CALLS, r"\S+/batch_norm\S+ \(BatchNormalization\)"),
    "called_with_training": (models, NO_CALLS, r"\S+/batch_norm\S+ \(BatchNormalization\)"),
    "inverted": (graph_flags, NOTHING, r"inverted \(Normalization\)"),
}
# The backends where Keras 3 computes otherwise, of layers that are right on others.
DIFFERS_ON = {"pooled": ("torch",), "resized": ("jax", "torch")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    to = tmp_path_factory.mktemp("silent")
    for path in (DATA.parent / "silent_differences").glob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            archive.extractall(to)
    return to


def test_each_recording_is_tested(folder):
    others = {"attentive", "halved", "cudnn_lstm", "cudnn_gru"}
    assert {path.name for path in folder.iterdir()} == MENDS.keys() | others


@pytest.mark.parametrize("name", MENDS)
def test_what_is_mended_agrees_and_is_refused_without(name, folder, monkeypatch):
    found = load_model(folder / name, return_report=True)[1].comparison
    assert found.why == ""
    assert found.predictions is not None
    assert found.training is not None
    assert not found.differs
    where, without, layer = MENDS[name]
    for key, value in without.items():
        monkeypatch.setattr(where, key, value)
    backend = keras.backend.backend()
    if backend not in DIFFERS_ON.get(name, (backend,)):
        assert not load_model(folder / name, return_report=True)[1].comparison.differs
        return
    with pytest.raises(Differs, match=f", first in {layer}, by "):
        load_model(folder / name)


def test_masks_that_tensorflow_lost_in_its_functions_are_no_difference(folder):
    model, report = load_model(folder / "attentive", return_report=True)
    found = report.comparison
    assert found.predictions.largest <= 1e-5
    assert found.training is None
    assert found.why == f"training was not compared: {LOST_MASKS}"
    kernel = model.layers[-1].cell.kernel
    kernel.assign(kernel * 1.1)
    assert re.match(r"simple_rnn\S* ", compare(folder / "attentive", model).predictions.layer)


@pytest.mark.parametrize("name", ["cudnn_lstm", "cudnn_gru"])
def test_layers_of_cudnn_compute_as_those_of_keras(name, folder):
    model, report = load_model(folder / name, return_report=True)
    assert report.comparison.why == ""
    assert report.comparison.predictions.largest <= 1e-5
    cell = model.layers[-1].cell
    cell.recurrent_kernel.assign(cell.recurrent_kernel * 1.1)
    assert compare(folder / name, model).differs
    x = np.random.default_rng(0).normal(size=(2, 4, 3)).astype("float32")
    graph = load_model(folder / name, from_graph=True)
    np.testing.assert_allclose(
        graph.predict(x, verbose=0), load_model(folder / name).predict(x, verbose=0), atol=1e-6
    )


def test_outputs_are_told_apart_by_name(folder):
    model, report = load_model(folder / "halved", return_report=True)
    assert report.comparison.in_float32 is not None
    assert report.comparison.training is not None
    assert model.output_names == ["second", "first"]
    kernel = model.get_layer("first").kernel
    kernel.assign(kernel * 1.1)
    assert compare(folder / "halved", model).predictions.layer == "first (Dense)"


def test_what_agrees_in_float32_differs_by_rounding():
    coarse = Comparison((), Part(0.1, 1e-2), in_float32=Part(1e-6, 1e-4))
    assert not coarse.differs
    assert "by at most 0.1 of the largest value" in coarse.agreement()
    assert Comparison((), Part(1e-3, 1e-2), in_float32=Part(1e-3, 1e-4)).differs
