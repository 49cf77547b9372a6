"""What an error says of a model that Keras cannot make: its innermost reason, and the layer."""

import json
import zipfile

import h5py
import keras
import pytest

from keras_mp.compat import load_model
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.restoring.reasons import reason_of
from keras_mp.migration import building

UNITS = r"Dense 'out': ValueError: Received an invalid value for `?units.*units=-1$"


def of_keras_3(path, **config):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="out")])
    model.save(path.with_name("before.keras"))
    with zipfile.ZipFile(path.with_name("before.keras")) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "config.json":
                given = json.loads(data)
                given["config"]["layers"][1]["config"].update(config)
                data = json.dumps(given).encode()
            new.writestr(name, data)
    return path


def of_old_keras(path, **config):
    inner = {"name": "out", "units": 1, "batch_input_shape": [None, 2], **config}
    layers = [{"class_name": "Dense", "config": inner}]
    with h5py.File(path, "w") as file:
        config = {"class_name": "Sequential", "config": {"name": "net", "layers": layers}}
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["keras_version"] = "2.6.0"
        file.create_group("model_weights")
    return path


@pytest.mark.parametrize(
    ("make", "name"), [(of_keras_3, "a.keras"), (of_old_keras, "a.h5")], ids=["today", "then"]
)
def test_the_innermost_reason_is_kept(make, name, tmp_path):
    with pytest.raises(Unreadable, match=UNITS):
        load_model(make(tmp_path / name, units=-1))


def test_another_reason(tmp_path):
    with pytest.raises(Unreadable, match=r"Dense 'out': ValueError: .* identifier: nothing$"):
        load_model(of_keras_3(tmp_path / "a.keras", activation="nothing"))


def test_the_model_of_a_checkpoint(tmp_path):
    layer = {"name": "out", "units": -1, "batch_input_shape": [None, 2]}
    config = {"name": "net", "layers": [{"class_name": "Dense", "config": layer}]}
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"class_name": "Sequential", "config": config}))
    with pytest.raises(building.Refused, match=UNITS):
        building.model_of_config(str(path), None)


class Failing(keras.layers.Layer):
    def call(self, x):
        raise ValueError("the first line\nand the last")


def test_a_call():
    with pytest.raises(ValueError, match="first") as caught:
        Failing()(keras.ops.ones((1, 2)))
    assert reason_of(caught.value).endswith("ValueError: the first line and the last")
    assert "\x1b" not in reason_of(caught.value)


def test_what_was_caught_on_the_way_is_no_reason():
    error = TypeError("it has no name")
    error.__context__ = KeyError("name")
    assert reason_of(error) == "TypeError: it has no name"
