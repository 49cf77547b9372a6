"""Layers in a dict, which Keras 2 listed by their keys, by tests/data/dict_of_layers."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_mp.compat import load_weights

FOLDER = Path(__file__).parents[2] / "data" / "dict_of_layers"
RECORDED = np.load(FOLDER / "expected.npz")
Dense = keras.layers.Dense


class Net(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first = Dense(3)
        self.heads = {"policy": Dense(2), "critic": Dense(2), "actor": [Dense(2), Dense(2)]}

    def call(self, x: Any) -> Any:
        x, heads = self.first(x), self.heads
        return heads["policy"](x) - 2 * heads["critic"](x) + heads["actor"][1](heads["actor"][0](x))


@pytest.mark.parametrize("name", ["net.h5", "net.weights.h5"])
def test_each_has_its_own_weights(name: str) -> None:
    model, x = Net(), RECORDED["x"]
    model.compile(keras.optimizers.Adam(0.1), "mse", auto_scale_loss=False)
    model(x)
    load_weights(FOLDER / name, model, strict=name != "net.h5")  # which has no optimizer
    np.testing.assert_allclose(
        model.predict(x, verbose=0), RECORDED["before"], rtol=1e-5, atol=1e-6
    )
    if name == "net.weights.h5":
        model.train_on_batch(x, x[:, :2])
        np.testing.assert_allclose(
            model.predict(x, verbose=0), RECORDED["after"], rtol=1e-4, atol=1e-5
        )
