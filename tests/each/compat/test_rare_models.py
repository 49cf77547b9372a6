"""What few models have: Adafactor, bins in HDF5, a causal SeparableConv1D, by tests/data/rare."""

import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_mp.compat import layers, load_model, restore
from keras_mp.compat.errors import LegacyError
from tests.loaded_models import load

DATA = Path(__file__).parents[2] / "data" / "rare" / "rare.zip"
LAYERS = ("bins", "bins_inside", "causal_plain", "causal_dilated", "causal_strided")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rare")
    with zipfile.ZipFile(DATA) as archive:
        archive.extractall(folder)
    return folder


def expected(folder: Path, name: str) -> Any:
    return np.load(folder / "expected.npz")[name]


@pytest.mark.parametrize("form", ["h5", "keras"])
@pytest.mark.parametrize("name", LAYERS)
def test_it_predicts_as_tensorflow(name: str, form: str, recorded: Path, tmp_path: Path) -> None:
    model = load_model(recorded / f"{name}.{form}")
    x, y = (expected(recorded, f"{name}/{each}") for each in "xy")
    np.testing.assert_allclose(model.predict(x, verbose=0), y, rtol=1e-5, atol=1e-6)
    model.save(tmp_path / "again.keras")
    again = keras.saving.load_model(tmp_path / "again.keras")
    np.testing.assert_allclose(again.predict(x, verbose=0), y, rtol=1e-5, atol=1e-6)


def test_a_causal_layer_in_float16(recorded: Path) -> None:
    loaded = load(recorded / "causal_float16.h5")
    model = loaded.model
    assert isinstance(model.layers[-1], layers.SeparableConv1D)
    assert any("takes causal padding" in change.what for change in loaded.report.changes)
    x, y = (expected(recorded, f"causal_float16/{each}") for each in "xy")
    predicted = model.predict(x, verbose=0)
    assert predicted.shape == y.shape
    np.testing.assert_allclose(predicted, y, rtol=1e-2, atol=1e-2)


def test_channels_may_come_first() -> None:
    x = keras.random.normal((2, 8, 3), seed=1)
    last = layers.SeparableConv1D(4, 3, padding="causal", dilation_rate=2)
    first = layers.SeparableConv1D.from_config(
        {**last.get_config(), "data_format": "channels_first"}
    )
    assert first.compute_output_shape((2, 3, 8)) == (2, 4, 8)
    if keras.config.backend() == "tensorflow":
        pytest.skip("TensorFlow convolves with channels first on GPUs only")
    as_last = keras.ops.convert_to_numpy(last(x))
    first.build((2, 3, 8))
    first.set_weights(last.get_weights())
    as_first = keras.ops.convert_to_numpy(first(keras.ops.transpose(x, (0, 2, 1))))
    np.testing.assert_allclose(as_first.transpose(0, 2, 1), as_last, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", [".h5", ".keras", "", "_checkpoint"])
def test_adafactor_goes_on(form: str, recorded: Path) -> None:
    path = recorded / f"adafactor{form}"
    if form == "_checkpoint":
        model = load_model(recorded / "adafactor.keras", compile=False)
        model.compile(keras.optimizers.Adafactor(), "mse")
        restore(path, model)
    else:
        model = load_model(path)
    assert int(model.optimizer.iterations) == 6
    x, targets = (expected(recorded, f"adafactor/{each}") for each in ("x", "targets"))
    model.fit(x, targets, batch_size=4, shuffle=False, verbose=0)
    after = expected(recorded, "adafactor/after")
    np.testing.assert_allclose(model.predict(x, verbose=0), after, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["h5", "keras"])
def test_lambdas_are_given(form: str, recorded: Path) -> None:
    path = recorded / f"lambdas.{form}"
    with pytest.raises(LegacyError, match=r"custom_objects=\{'<lambda>': \.\.\.\}"):
        load_model(path)

    def squared(y: Any, predicted: Any) -> Any:
        return keras.ops.mean((y - predicted) ** 2)

    model = load_model(path, {"<lambda>": squared})
    x = expected(recorded, "lambdas/x")
    loss, metric = model.evaluate(x, x[:, :1], verbose=0)
    assert loss == metric == pytest.approx(expected(recorded, "lambdas/evaluated")[0], rel=1e-5)


def test_metrics_of_masked_steps_are_as_then_or_told(recorded: Path) -> None:
    loaded = load(recorded / "masked_metrics.h5")
    x, y, then = (
        expected(recorded, f"masked_metrics/{each}") for each in ("x", "targets", "evaluated")
    )
    now = loaded.model.evaluate(x, y, verbose=0, return_dict=True)
    names = expected(recorded, "masked_metrics/names").tolist()
    differ = {name for name, was in zip(names, then, strict=True) if abs(now[name] - was) > 1e-4}
    (told,) = (change.what for change in loaded.report.changes if change.path == "$.metrics")
    assert differ
    assert {name for name in names if name in told} >= differ
