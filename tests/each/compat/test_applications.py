"""Some architectures of tf.keras.applications, as TF 2.3 to 2.15 wrote them, predict as they did.

Their weights are made by a rule, in TensorFlow then and here now; see tests/data/applications.
"""

import keras
import numpy as np
import pytest

from keras_mp.compat import load_model
from keras_mp.compat.layers import applications
from tests.applications import bound
from tests.data.applications import reading

# What each adds to the others: operations, Lambdas, layers of its own, names with a slash.
FEW = (
    *("tf23/InceptionResNetV2", "tf24/MobileNetV3Small", "tf210/ConvNeXtTiny"),
    *("tf210/RegNetY002", "tf215/EfficientNetV2B0", "tf215/DenseNet121", "tf215/NASNetMobile"),
    *("tf215/ConvNeXtTiny-mixed_float16", "tf215/InceptionResNetV2", "tf24/ResNet50"),
)
# JAX compiles up to a minute for each of the others.
FAST = ("tf24/MobileNetV3Small",)
SMALL = (
    "EfficientNetB0",
    "EfficientNetV2B0",
    "MobileNet",
    "NASNetMobile",
    "RegNetX002",
    "RegNetY002",
)
# Every third, of which there are enough; tests/applications.py measures all.
SOME = [
    f"{version}/{name}"
    for version in reading.VERSIONS
    for name in reading.names(version)
    if name.startswith(SMALL)
][::3]


def cases():
    mine = {"torch": {*FEW, *SOME}, "tensorflow": FEW, "jax": FAST}[keras.backend.backend()]
    return [pytest.param(*case.split("/", 1), id=case) for case in sorted(mine)]


@pytest.mark.parametrize(("version", "name"), cases())
def test_predicts_as_recorded(version, name, tmp_path):
    recorded = reading.read(version, name)
    reading.write_hdf5(tmp_path / "model.h5", version, name)
    model = load_model(tmp_path / "model.h5")
    predicted = model.predict(recorded["input"], verbose=0)
    expected = recorded["predictions"]
    assert np.abs(predicted - expected).max() / np.abs(expected).max() <= bound(
        recorded["policy"], recorded["condition"]
    )


@pytest.mark.parametrize(
    ("cls", "arguments"),
    [
        (applications.LayerScale, {"init_values": 0.5, "projection_dim": 3}),
        (applications.StochasticDepth, {"drop_path_rate": 0.25}),
        (applications.CustomScaleLayer, {"scale": 0.5}),
    ],
)
def test_layers_come_back_from_their_configs(cls, arguments):
    layer = cls(**arguments, name="one", dtype="mixed_float16")
    again = keras.layers.deserialize(keras.layers.serialize(layer))
    assert type(again) is cls
    config = again.get_config()
    assert {key: config[key] for key in arguments} == arguments
    assert (again.name, again.dtype_policy.name) == ("one", "mixed_float16")
