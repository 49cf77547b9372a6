"""Layers in lists, tuples and dicts, by weights of TF 2.13 to 2.15: tests/data/lists_of_layers."""

import io
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_mp.compat import load_weights
from keras_mp.compat.restoring.plan import RestoreError
from tests.data.lists_of_layers.models import models

FOLDER = Path(__file__).parents[2] / "data" / "lists_of_layers"
MODELS = models(keras)
VERSIONS = ("tf213", "tf214", "tf215")


def loaded(name: str, version: str, folder: Path) -> tuple[keras.Model, np.ndarray, np.ndarray]:
    """Returns a model with recorded weights, an input, and what it then predicted from it."""
    with zipfile.ZipFile(FOLDER / f"{version}.zip") as archive:
        archive.extract(f"{name}.weights.h5", folder)
        x, expected = (np.load(io.BytesIO(archive.read(f"{each}.npy"))) for each in ("x", name))
    model = MODELS[name]()
    model(x)
    load_weights(folder / f"{name}.weights.h5", model)
    return model, x, expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", MODELS)
def test_each_layer_has_its_own_weights(name: str, version: str, tmp_path: Path) -> None:
    model, x, expected = loaded(name, version, tmp_path)
    predicted = keras.ops.convert_to_numpy(model(x))
    np.testing.assert_allclose(predicted, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_model_with_other_lists_is_refused(version: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(FOLDER / f"{version}.zip") as archive:
        archive.extract("shared.weights.h5", tmp_path)
    model = MODELS["parts_list_last"]()
    model(np.zeros((1, 4), "float32"))
    before = [np.array(weight) for weight in model.get_weights()]
    with pytest.raises(RestoreError, match=r"(?s)block.*not in the file"):
        load_weights(tmp_path / "shared.weights.h5", model)
    for was, weight in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, was)
