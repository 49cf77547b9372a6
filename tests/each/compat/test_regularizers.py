"""Regularizers of activities in 16 bits, whose losses Keras on TensorFlow does not add up."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp.compat.configs import convert
from keras_mp.compat.configs.layers import IN_FLOAT32
from keras_mp.compat.regularizers import InFloat32

Json = dict[str, Any]
POLICIES = ["mixed_float16", "float16", "mixed_bfloat16", "bfloat16", "float32"]
L2 = {"class_name": "L2", "config": {"l2": 0.5}}
X = np.linspace(-2.0, 2.0, 12, dtype="float32").reshape(4, 3)


def old_layer(kind: str, policy: str, **config: Any) -> Json:
    policies = {"class_name": "Policy", "config": {"name": policy}}
    return {"class_name": kind, "config": {"name": "layer", "dtype": policies, **config}}


def is_ours(config: Json) -> bool:
    given: Json = config["config"]["activity_regularizer"]
    return given["registered_name"] == "keras_mp>InFloat32"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_layer(policy: str) -> None:
    done = convert(old_layer("Dense", policy, units=2, activity_regularizer=L2), kind="layer")
    told = [change.what for change in done.changes if change.matters]
    assert is_ours(done.config) == (policy != "float32")
    assert (IN_FLOAT32 in told) == (policy != "float32")
    none = convert(old_layer("Dense", policy, units=2, activity_regularizer=None), kind="layer")
    assert none.config["config"]["activity_regularizer"] is None


@pytest.mark.parametrize("policy", POLICIES)
def test_the_layer_that_does_nothing_else(policy: str) -> None:
    done = convert(old_layer("ActivityRegularization", policy, l1=0.25, l2=0.5), kind="layer")
    layer = keras.saving.deserialize_keras_object(done.config)
    assert isinstance(layer, keras.layers.Activation) == (policy != "float32")
    layer(X)
    (loss,) = layer.losses
    divisor = 1 if float(loss) > 10 else len(X)  # Keras divides by the batch size from 3.14 on
    expected = (0.25 * np.abs(X).sum() + 0.5 * np.square(X).sum()) / divisor
    assert float(loss) == pytest.approx(expected, rel=1e-2)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"


@pytest.mark.parametrize("policy", ["mixed_float16", "float32"])
def test_a_model_trains(policy: str) -> None:
    dense = old_layer(
        "Dense",
        policy,
        units=1,
        use_bias=False,
        kernel_initializer={"class_name": "Ones", "config": {}},
        activity_regularizer=L2,
        batch_input_shape=[None, 3],
    )
    net = {"class_name": "Sequential", "config": {"name": "net", "layers": [dense]}}
    model = keras.saving.deserialize_keras_object(convert(net, kind="model").config)
    model.compile("sgd", "mse", auto_scale_loss=False)
    x = X / 4
    found = model.evaluate(x, x[:, :1], verbose=0)
    y = x.sum(axis=1, keepdims=True)
    error, penalty = np.square(y - x[:, :1]).mean(), 0.5 * np.square(y).sum()
    ends = [error + penalty, error + penalty / len(x)]
    assert min(abs(found - end) for end in ends) < 1e-2 * max(ends)
    model.fit(x, x[:, :1], epochs=2, verbose=0)
    again = keras.Sequential.from_config(model.get_config())
    ours = policy == "mixed_float16"
    assert isinstance(again.layers[-1].activity_regularizer, InFloat32) == ours


def test_a_sum_beyond_float16() -> None:
    penalty = InFloat32(keras.regularizers.L2(0.01))(ops.full((512,), 128.0, "float16"))
    assert float(penalty) == pytest.approx(0.01 * 512 * 128.0**2)


def test_what_is_no_regularizer() -> None:
    with pytest.raises(TypeError, match=r"such as keras\.regularizers\.L2\(\), but got 'l2'"):
        InFloat32("l2")
