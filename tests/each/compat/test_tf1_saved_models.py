"""SavedModels of TF 1.15 load and predict as then, by tests/data/tf1."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from keras_mp.compat import load_model
from keras_mp.compat.inspecting import inspect
from keras_mp.compat.inspecting.auditing import audit
from keras_mp.compat.restoring import models
from keras_mp.migration import sources
from tests.loaded_models import load

FOLDER = Path(__file__).parents[2] / "data" / "tf1"
RECORDED = np.load(FOLDER / "expected.npz")
NAMES = [name for name in RECORDED.files if name != "x"]
EXPORTED = [name for name in NAMES if name.startswith("exported")]


def saved(name: str, folder: Path) -> Path:
    with zipfile.ZipFile(FOLDER / "saved.zip") as archive:
        archive.extractall(
            folder, [one for one in archive.namelist() if one.startswith(f"{name}/")]
        )
    return folder / name


@pytest.mark.parametrize("name", NAMES)
def test_it_predicts_as_then(name: str, tmp_path: Path) -> None:
    model = load_model(saved(name, tmp_path))
    np.testing.assert_allclose(
        model.predict(RECORDED["x"], verbose=0), RECORDED[name], rtol=1e-5, atol=1e-5
    )
    optimizer = getattr(model, "optimizer", None)
    assert (optimizer is None) == name.startswith("exported")
    assert optimizer is None or int(optimizer.iterations) == 2


@pytest.mark.parametrize("name", EXPORTED)
def test_an_exported_model_is_not_compiled(name: str, tmp_path: Path) -> None:
    folder = saved(name, tmp_path)
    assert models.NOT_COMPILED in load(folder).report.notes
    assert inspect(folder).model is not None
    config = folder / "assets" / "saved_model.json"
    before = sources.files_of(folder, "saved_model")
    assert config in before, "its checksum is one of the artefact"
    config.write_text(config.read_text().replace('"Dense"', '"Lambda"'), encoding="utf-8")
    assert audit(folder).findings
