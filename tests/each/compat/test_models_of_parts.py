"""Models with a compiled one inside, or with a lookup layer that counts: data/models_of_parts."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_mp.compat.restoring.keras_archives import INNER
from tests.loaded_models import load

FOLDER = Path(__file__).parents[2] / "data" / "models_of_parts"
RECORDED = np.load(FOLDER / "expected.npz")
pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with zipfile.ZipFile(FOLDER / "saved.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path


def loaded(path: Path) -> tuple[Any, Any]:
    """Returns a model, which predicts as then, and the report."""
    found, name = load(path), path.stem
    y = found.model.predict(RECORDED[f"{name}/x"], verbose=0)
    np.testing.assert_allclose(y, RECORDED[f"{name}/y"], rtol=1e-5, atol=1e-6)
    return found.model, found.report


@pytest.mark.parametrize("file", ["gan", "gan.keras"])
def test_the_optimizer_is_that_of_the_whole(file: str, saved: Path) -> None:
    model, report = loaded(saved / file)
    assert type(model.optimizer).__name__.endswith("Adam")
    assert int(model.optimizer.iterations) == 2
    assert all(np.any(np.asarray(slot)) for slot in model.optimizer.variables[2:4])
    assert INNER in report.notes


@pytest.mark.parametrize("file", ["counting", "counting.keras"])
def test_what_follows_a_lookup_has_its_size(file: str, saved: Path) -> None:
    model, _ = loaded(saved / file)
    assert model.get_layer("lookup").get_vocabulary() == [-1, 5, 9, 1]
