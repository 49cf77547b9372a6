"""Layers that only keras.applications has come back from their configs."""

import keras
import pytest

from keras_mp.compat.layers import applications


@pytest.mark.parametrize(
    ("cls", "arguments"),
    [
        (applications.LayerScale, {"init_values": 0.5, "projection_dim": 3}),
        (applications.StochasticDepth, {"drop_path_rate": 0.25}),
        (applications.CustomScaleLayer, {"scale": 0.5}),
    ],
)
def test_they_come_back(cls, arguments):
    layer = cls(**arguments, name="one", dtype="mixed_float16")
    again = keras.layers.deserialize(keras.layers.serialize(layer))
    assert type(again) is cls
    config = again.get_config()
    assert {key: config[key] for key in arguments} == arguments
    assert (again.name, again.dtype_policy.name) == ("one", "mixed_float16")
