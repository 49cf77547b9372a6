"""Tensors of a SavedModel that hold no weights: states of cells, generators of random numbers.

The models, and what TF 2.15.1 predicted next, are those of tests/data/stateful.
"""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_mp import compat
from keras_mp.compat.restoring.checkpoints import BEGINS_ANEW
from tests.loaded_models import load

FOLDER = Path(__file__).parents[2] / "data" / "stateful"
EXPECTED = np.load(FOLDER / "expected.npz")


@pytest.mark.parametrize("name", ["lstm", "gru", "augmented"])
def test_saved_models(name):
    loaded = load(FOLDER / name)
    found = loaded.model.predict(EXPECTED[f"{name}/x"], verbose=0)
    np.testing.assert_allclose(found, EXPECTED[f"{name}/y"], atol=1e-6)
    assert (BEGINS_ANEW in loaded.report.notes) == (name == "augmented")


def test_states_of_another_batch_size_begin_anew():
    layers = [keras.Input((4, 2), batch_size=5), keras.layers.LSTM(3, stateful=True)]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    report = compat.load_weights(FOLDER / "lstm", model)
    assert BEGINS_ANEW in report.notes
    assert not any(keras.ops.convert_to_numpy(state).any() for state in model.layers[0].states)
