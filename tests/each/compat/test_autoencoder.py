"""An autoencoder whose loss reads inner tensors of its encoder, by tests/data/autoencoder."""

import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp.migration.cli import main
from tests.loaded_models import load

FOLDER = Path(__file__).parents[2] / "data" / "autoencoder"
RECORDED = np.load(FOLDER / "expected.npz")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with zipfile.ZipFile(FOLDER / "saved.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path


def assert_as_then(model: Any, optimizer: Any) -> None:
    y = model.predict(RECORDED["x"], verbose=0)
    np.testing.assert_allclose(y, RECORDED["y"], rtol=1e-5, atol=1e-5)
    assert int(optimizer.iterations) == 2
    twice = [one for one in model.trainable_variables if one.path.startswith(("hidden/", "mean/"))]
    assert len(twice) == 8
    slots: dict[str, list[np.ndarray[Any, Any]]] = {}
    for variable in twice:
        momentum = optimizer._momentums[optimizer._get_variable_index(variable)]
        slots.setdefault(variable.path, []).append(ops.convert_to_numpy(momentum))
    for one, other in slots.values():
        assert np.any(one)
        np.testing.assert_array_equal(one, other)


def test_a_savedmodel(saved: Path) -> None:
    loaded = load(saved / "saved")
    assert_as_then(loaded.model, loaded.model.optimizer)
    (note,) = [note for note in loaded.report.notes if "trained apart" in note]
    for name in ("hidden/kernel", "mean/kernel", "spread/bias"):
        assert name in note
    assert "out/kernel" not in note


def test_a_checkpoint_with_its_config(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", str(saved / "ckpt"), "-o", str(saved / "out.keras")]) == 0
    said = capsys.readouterr().err
    assert "trained apart" in said
    assert "Adam(learning_rate=0.001, beta_1=0.9, beta_2=0.999)" in said
    model = keras.saving.load_model(saved / "out.keras")
    assert_as_then(model, model.optimizer)
