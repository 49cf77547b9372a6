"""`audit` of what Keras 3 itself writes: nothing in models, and code where it is."""

import json

import keras
import pytest

import keras_mp
from keras_mp.backends.common.late_values import late_values
from keras_mp.compat.inspecting import audit


def assert_nothing(path):
    found = audit(path)
    assert (found.findings, found.errors) == ([], []), path.name


def test_a_config(tmp_path):
    with late_values():
        x = keras.Input((8, 8, 3), name="x")
        y = keras.ops.relu(keras.layers.Conv2D(4, 3, dtype="mixed_float16")(x) * 2 + 1)
        y = keras.layers.Reshape((36, 4))(y)
        y = keras.layers.MultiHeadAttention(2, 2)(y, y)
        y = keras.layers.Bidirectional(keras.layers.LSTM(3, kernel_regularizer="l2"))(y)
        y = keras.layers.Dense(2, activation=keras.activations.gelu)(y)
        words = keras.layers.TextVectorization(vocabulary=["a", "/etc/passwd", "https://a.b"])
        text = keras.layers.serialize(words)
        (tmp_path / "model.json").write_text(keras.Model(x, y).to_json())
    (tmp_path / "words.json").write_text(json.dumps(text))
    for file in tmp_path.iterdir():
        assert_nothing(file)


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_a_model_with_its_training(name, tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10**9)
    optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.AdamW(schedule))
    model.compile(optimizer, keras.losses.BinaryCrossentropy(), metrics=["auc", "mse"])
    model.save(tmp_path / name)
    assert_nothing(tmp_path / name)


@keras.saving.register_keras_serializable("mine")
class Mine(keras.layers.Layer):
    def call(self, x):
        return x


@pytest.mark.filterwarnings("ignore:The object being serialized includes a `lambda`")
@pytest.mark.parametrize(
    ("layer", "sort"),
    [
        (lambda: keras.layers.Lambda(lambda x: x + 1), "code"),
        (lambda: keras.layers.Dense(1, activation=lambda x: x), "code"),
        (Mine, "class"),
    ],
    ids=["lambda", "activation", "class"],
)
def test_layers(layer, sort, tmp_path):
    model = keras.Sequential([keras.Input((1,)), layer()])
    model.save(tmp_path / "model.keras")
    assert {one.sort for one in audit(tmp_path / "model.keras").findings} == {sort}
