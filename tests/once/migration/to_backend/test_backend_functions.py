"""KMP214: functions of tf.keras.backend that Keras 3 has not."""

import pytest

from keras_mp.migration.to_backend.backend_functions import OF_KERAS_3
from tests.obstacles import found, messages

ADVICE = {
    "K.sum(x, axis=1)": "keras.backend.sum: write keras.ops.sum",
    "K.concatenate([x, x])": (
        "keras.backend.concatenate: write keras.ops.concatenate (give axis=-1)"
    ),
    "tf.keras.backend.gather(x, i)": "keras.backend.gather: write keras.ops.take (give axis=0)",
    "keras.backend.mean(x)": "keras.backend.mean: write keras.ops.mean",
    "K.permute_dimensions(x, pattern=p)": (
        "keras.backend.permute_dimensions: write keras.ops.transpose (pattern= is axes= there)"
    ),
    "K.set_value(v, 1)": "keras.backend.set_value: write x.assign(value)",
    "K.learning_phase()": "keras.backend.learning_phase: use the argument training of call",
    "map(K.abs, xs)": "keras.backend.abs: write keras.ops.abs",
    "K.foldl(f, x)": "keras.backend.foldl: removed in Keras 3: compute it with keras.ops",
}


@pytest.mark.parametrize("target", ["jax", "torch"])
@pytest.mark.parametrize(("call", "message"), ADVICE.items(), ids=ADVICE)
def test_what_to_write(call, message, target):
    assert messages(f"y = {call}\n", "KMP214", target) == [message]


def test_the_recipe():
    assert found("K.sum(x)\n", "KMP214")[1].endswith("leave-tensorflow.md#backend-functions")


@pytest.mark.parametrize("name", sorted(OF_KERAS_3))
def test_what_keras_3_has(name):
    assert found(f"K.{name}(x)\nkeras.backend.{name}(x)\n", "KMP214") == {}


@pytest.mark.parametrize(
    "source",
    ["import torch.backends as K2\nK2.sum(x)\n", "from mine import backend\nbackend.sum(x)\n"],
)
def test_left_alone(source):
    assert found(source, "KMP214") == {}
