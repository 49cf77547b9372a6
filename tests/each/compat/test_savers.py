"""Files of `tf.compat.v1.train.Saver` and of estimators, with optimizers of Keras."""

import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_mp.compat import restore
from keras_mp.compat.restoring.plan import RestoreError

FOLDER = Path(__file__).parents[2] / "data" / "savers"
VERSIONS = ("tf1.15.0", "tf2.10.1")
OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(),
    "momentum": lambda: keras.optimizers.SGD(momentum=0.9),
    "sgd": lambda: keras.optimizers.SGD(),
    "rmsprop": lambda: keras.optimizers.RMSprop(momentum=0.5),
}


def model_of(optimizer: Any) -> keras.Model:
    inputs = keras.Input((3,), name="x")
    x = keras.layers.Dense(4, activation="tanh", name="fc0")(inputs)
    x = keras.layers.BatchNormalization(name="bn")(x)
    model = keras.Model(inputs, keras.layers.Dense(1, name="fc1")(x))
    model.compile(optimizer, "mse")
    return model


@pytest.fixture(params=VERSIONS)
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Returns a folder with what one TensorFlow wrote."""
    with zipfile.ZipFile(FOLDER / f"{request.param}.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on(name: str, recorded: Path) -> None:
    expected = np.load(recorded / "expected.npz")
    model = model_of(OPTIMIZERS[name]())
    restore(recorded / name, model)
    assert int(model.optimizer.iterations) == 6
    model.fit(expected["x"], expected["targets"], batch_size=4, shuffle=False, verbose=0)
    after = model.predict(expected["x"], verbose=0)
    np.testing.assert_allclose(after, expected[f"{name}/after"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", ["checkpoint", "saver"])
def test_an_estimator_is_restored(form: str, recorded: Path) -> None:
    expected = np.load(recorded / "expected.npz")
    model = model_of(keras.optimizers.Adam())
    restore(recorded / f"estimator_{form}", model)
    assert int(model.optimizer.iterations) == 4
    assert float(model.optimizer.learning_rate) == pytest.approx(0.02)
    assert model.optimizer.beta_1 == pytest.approx(0.8)
    predicted = model.predict(expected["x"], verbose=0)
    np.testing.assert_allclose(predicted, expected[f"estimator_{form}/y"], rtol=1e-5, atol=1e-5)


def test_another_optimizer_is_refused(recorded: Path) -> None:
    with pytest.raises(RestoreError, match="training/RMSprop/fc0/kernel/rms"):
        restore(recorded / "rmsprop", model_of(keras.optimizers.Adam()))
