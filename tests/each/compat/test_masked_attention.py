"""MultiHeadAttention of masked steps, whose gradient PyTorch computes otherwise."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp.compat.restoring.differences import ATTENTION, changes

IS_TORCH = keras.backend.backend() == "torch"
X, Y = np.array([[1, 2, 0], [3, 0, 0], [1, 2, 3]]), np.ones((3, 2), "float32")
L = keras.layers


def net(*, masked: bool) -> Any:
    inputs = keras.Input((3,))
    embedded = L.Embedding(5, 2, mask_zero=masked)(inputs)
    attended = L.MultiHeadAttention(1, 2)(embedded, embedded) + embedded
    model = keras.Model(inputs, L.GlobalAveragePooling1D()(attended))
    model.compile(keras.optimizers.SGD(0.1), "mse", auto_scale_loss=False)
    random = np.random.RandomState(1)
    for weight in model.weights:
        weight.assign(random.standard_normal(weight.shape) * 0.5)
    return model


@pytest.mark.parametrize("masked", [True, False])
def test_it_is_told_on_pytorch(masked: bool) -> None:
    told = [change.what for change in changes(net(masked=masked), [], "2.15")]
    assert told == ([ATTENTION] if masked and IS_TORCH else [])


@pytest.mark.parametrize("masked", [True, False])
def test_the_gradient_of_its_values(masked: bool) -> None:
    """That of a step, and that of finite differences of the loss."""
    model = net(masked=masked)
    (bias,) = [weight for weight in model.weights if weight.path.endswith("value/bias")]
    start = ops.convert_to_numpy(bias).copy()

    def loss(place: int, step: float) -> float:
        moved = start.copy()
        moved.flat[place] += step
        bias.assign(moved)
        return float(np.square(model.predict(X, verbose=0) - Y).mean())

    expected = [(loss(i, 0.01) - loss(i, -0.01)) / 0.02 for i in range(start.size)]
    bias.assign(start)
    model.train_on_batch(X, Y)
    found = (start - ops.convert_to_numpy(bias)).ravel() / 0.1
    assert np.allclose(found, expected, atol=1e-3) == (not (masked and IS_TORCH))
