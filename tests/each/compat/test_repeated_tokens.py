"""Embeddings whose tokens a batch repeats train as in TF 2.15.1, by tests/data/embeddings."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_mp.compat.configs.inner_optimizers import REPEATED
from tests.loaded_models import load

FOLDER = Path(__file__).parents[2] / "data" / "embeddings"
EXPECTED = np.load(FOLDER / "expected.npz")
NAMES = sorted(path.stem for path in FOLDER.glob("*.keras"))


@pytest.mark.parametrize("name", NAMES)
def test_training_goes_on(name, tmp_path):
    loaded = load(FOLDER / f"{name}.keras")
    told = [change for change in loaded.report.changes if REPEATED in change.what]
    assert bool(told) == (name != "momentum")
    if name == "nadam":  # whose product of momenta is in no file
        assert told[0].kind == "differs"
        return
    model = loaded.model
    for _ in range(3):
        model.train_on_batch(EXPECTED["x"], EXPECTED["y"])
    for i, weight in enumerate(model.get_weights()):
        np.testing.assert_allclose(weight, EXPECTED[f"{name}/{i}"], rtol=1e-4, atol=1e-5)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for each in (model, again):
        each.train_on_batch(EXPECTED["x"], EXPECTED["y"])
    np.testing.assert_array_equal(again.get_weights()[0], model.get_weights()[0])
