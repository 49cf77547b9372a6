"""All layers of the recordings, in one model, come over in each format that tf.keras had.

tests/data/layers has the models and what each layer predicted. `test_layers_of_tf.py` has each
layer in a model of its own, and runs on each backend in `make release-check`. The model of all
layers takes three times as long on PyTorch, where Keras flattens all its inputs again for each
layer, and on JAX, which compiles each operation.
"""

import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.backends import on
from tests.loaded_models import load

pytestmark = on("tensorflow")
FOLDER = Path(__file__).parents[2] / "data" / "layers"
CASES = [
    *(("2.15.1", name) for name in ("model.keras", "model.h5", "saved")),
    *((version, name) for version in ("2.10.1", "2.4.4") for name in ("model.h5", "saved")),
]
# TF 2.10 did not write invert=True into configs, and this SavedModel has no functions.
UNKNOWN = {("2.10.1", "Normalization_3")}


@pytest.mark.parametrize(("version", "name"), CASES)
def test_predictions(version, name, tmp_path):
    with zipfile.ZipFile(FOLDER / f"formats-{version}.zip") as archive:
        archive.extractall(tmp_path, [n for n in archive.namelist() if n.startswith(name)])
    recorded = np.load(FOLDER / f"tf{version}.npz")
    loaded = load(tmp_path / name, tf_version=version)
    assert loaded.report.unused == loaded.report.missing == ()
    layers = [one for one in loaded.model.layers if not isinstance(one, keras.layers.InputLayer)]
    assert len(layers) == len({key.split("/")[0] for key in recorded})
    model = keras.Model([one.input for one in layers], [one.output for one in layers])
    outputs = model([recorded[f"{one.name}/x"] for one in layers], training=False)
    for layer, output in zip(layers, outputs, strict=True):
        found, expected = keras.ops.convert_to_numpy(output), recorded[f"{layer.name}/y"]
        near = 1e-5 * max(1.0, np.max(np.abs(expected)))
        is_same = found.shape == expected.shape and np.allclose(found, expected, rtol=0, atol=near)
        assert is_same == ((version, layer.name) not in UNKNOWN), (layer.name, found, expected)
