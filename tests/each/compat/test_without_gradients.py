"""Weights that never had a gradient: TF 2.0 to 2.10 made no slots for them.

tests/data/legacy/without_gradients has models with an output that has no loss.
"""

import shutil

import h5py
import keras
import numpy as np
import pytest

from keras_mp.compat import load_model, optimizers, restore
from keras_mp.compat.restoring.plan import RestoreError
from tests.fixtures import DATA

pytestmark = pytest.mark.filterwarnings("ignore:Gradients do not exist:UserWarning")
FOLDERS = sorted((DATA / "without_gradients").glob("tf*/*"))
OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01, amsgrad=True),
    "sgd": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "rmsprop": lambda: optimizers.RMSprop(0.01, centered=True),
}


def cases(folders):
    return [pytest.param(folder, id=f"{folder.parent.name}/{folder.name}") for folder in folders]


def goes_on(model, folder):
    with np.load(folder / "arrays.npz") as arrays:
        first, second = model.predict(arrays["x"], verbose=0)
        np.testing.assert_allclose(first, arrays["first"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(second, arrays["second"], rtol=1e-5, atol=1e-6)
        model.train_on_batch(arrays["x"], arrays["y"])
        later = model.predict(arrays["x"], verbose=0)[0]
        np.testing.assert_allclose(later, arrays["later"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("folder", cases(FOLDERS))
def test_goes_on_from_hdf5(folder):
    goes_on(load_model(folder / "model.h5"), folder)


@pytest.mark.parametrize("folder", cases(f for f in FOLDERS if f.name == "adam"))
def test_goes_on_from_a_saved_model(folder):
    goes_on(load_model(folder / "saved_model"), folder)


@pytest.mark.parametrize("folder", cases(FOLDERS))
def test_goes_on_from_a_checkpoint(folder):
    image = keras.Input((4,), name="image")
    hidden = keras.layers.Dense(3, activation="tanh", name="hidden")(image)
    outputs = [
        keras.layers.Dense(n, name=name)(hidden) for name, n in (("first", 2), ("second", 3))
    ]
    model = keras.Model(image, outputs)
    model.compile(OPTIMIZERS[folder.name](), loss=["mse", None])
    report = restore(folder / "ckpt", model=model, optimizer=model.optimizer)
    goes_on(model, folder)
    (kernel, bias) = [note for note in report.notes if "no slots of" in note]
    assert kernel.startswith("the file has no slots of second/kernel: TensorFlow made those")
    assert "second/bias" in bias


def test_a_slot_of_two_is_missed(tmp_path):
    shutil.copy(DATA / "without_gradients" / "tf210" / "adam" / "model.h5", tmp_path / "model.h5")
    with h5py.File(tmp_path / "model.h5", "r+") as file:
        group = file["optimizer_weights"]
        names = [name for name in group.attrs["weight_names"] if "first/bias/v:" not in name]
        assert len(names) == len(group.attrs["weight_names"]) - 1
        group.attrs["weight_names"] = names
    with pytest.raises(RestoreError, match="not in the file") as error:
        load_model(tmp_path / "model.h5")
    assert error.value.missing == ["Adam/first_bias_velocity"]
