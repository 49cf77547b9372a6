"""Models as programs: what is written builds the same model, or nothing is written."""

import ast
import inspect
import sys

import keras
import numpy as np
import pytest
from keras import layers

from keras_mp.compat.layers import Operation
from keras_mp.compat.model_code import NoCode, model_code
from keras_mp.compat.operations.expressions import operation
from keras_mp.compat.recursion import enough_for


def built(model):
    scope = {}
    exec(compile(model_code(model), "model.py", "exec"), scope)
    return scope["build"]()


def assert_same(model, inputs, tmp_path):
    """Asserts that a model's program, with its weights by file, predicts the same."""
    made = built(model)
    model.save_weights(tmp_path / "w.weights.h5")
    made.load_weights(tmp_path / "w.weights.h5")
    expected = model.predict(inputs, verbose=0)
    np.testing.assert_allclose(made.predict(inputs, verbose=0), expected, rtol=1e-6, atol=1e-7)


IMAGES = np.linspace(-1, 1, 2 * 8 * 8 * 2, dtype="float32").reshape(2, 8, 8, 2)
ROWS = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)


@pytest.mark.parametrize(
    "layer",
    [
        # Their strides are the size of the pool, where none are given.
        layers.AveragePooling2D(3, strides=2, padding="same"),
        layers.MaxPooling2D(2, strides=1),
        layers.AveragePooling2D((4, 2)),
        layers.Conv2D(3, 3, strides=2, dilation_rate=1, activation="relu", kernel_regularizer="l2"),
        layers.SeparableConv2D(3, 3, padding="same", depth_multiplier=2, use_bias=False),
        layers.ZeroPadding2D(((0, 1), (2, 0))),
        layers.BatchNormalization(axis=2, scale=False),
        layers.ReLU(6.0, negative_slope=0.1),
        layers.TimeDistributed(layers.Dense(3, kernel_initializer=keras.initializers.Zeros())),
        layers.GlobalAveragePooling2D(keepdims=True),
        layers.Reshape((4, -1)),
        layers.Permute((3, 1, 2)),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layers(layer, tmp_path):
    made = layer.__class__.from_config(layer.get_config())
    assert_same(keras.Sequential([keras.Input((8, 8, 2)), made]), IMAGES, tmp_path)


def test_weights_are_found_though_operations_have_parts(tmp_path):
    """Keras orders layers by their depth: keras.ops inside one another would swap "a" and "b"."""
    x = keras.Input((4,))
    a, b = (layers.Dense(4, name=name)(x) for name in "ab")
    both = Operation(
        "add",
        {"x1": {"tensor": 0}, "x2": {"operation": "square", "arguments": {"x": {"tensor": 1}}}},
    )([a, b])
    model = keras.Model(x, both)
    assert "ops.square" not in model_code(model)
    assert_same(model, ROWS, tmp_path)
    model = keras.Model(x, layers.Dense(2)(both))
    assert_same(model, ROWS, tmp_path)


def test_parts_of_operations_are_seen(tmp_path):
    x = keras.Input((4,))
    square = {"operation": "square", "arguments": {"x": {"tensor": 0}}}
    y = Operation("sum", {"x": square, "axis": 1, "keepdims": True})(layers.Dense(4)(x))
    model = keras.Model(x, y)
    assert "ops.sum(ops.square(" in model_code(model)
    assert_same(model, ROWS, tmp_path)


def test_shared_layers_and_submodels(tmp_path):
    x = keras.Input((4,), name="x")
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4, name="in")], name="inner")
    shared = layers.Dense(4, name="shared")
    y = layers.Concatenate()([shared(inner(x)), shared(x), inner(shared(x))])
    assert_same(keras.Model(x, y, name="outer"), ROWS, tmp_path)


@pytest.mark.parametrize("name", ['a"b', "a\\", "a'''b", 'x"""\nraise SystemExit\n"""', "é\u2028ß"])
def test_names_are_text(name):
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(2, name=name.replace("/", ""))(x), name="m")
    text = model_code(model, title=name, weights=name)
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)]
    assert "SystemExit" not in {node.id for node in calls}
    assert built(model).layers[-1].name == name


def test_a_model_of_a_class_has_no_code():
    class Own(keras.Model):
        def call(self, x):
            return x

    with pytest.raises(NoCode, match="Own"):
        model_code(Own(name="mine"))


def test_a_layer_of_a_class_has_no_code():
    class Twice(keras.layers.Layer):
        def call(self, x):
            return 2 * x

    x = keras.Input((4,))
    with pytest.raises(NoCode, match="Twice is a class that is not in the file"):
        model_code(keras.Model(x, Twice()(x)))


def test_what_builds_another_model_is_not_returned(monkeypatch):
    from keras_mp.compat import model_code as module

    monkeypatch.setattr(module, "_weights", lambda made: id(made))
    x = keras.Input((4,))
    with pytest.raises(NoCode, match="weights in another order"):
        model_code(keras.Model(x, layers.Dense(2)(x), name="m"))


@pytest.mark.parametrize("name", ["step_0", "step_7", "y_0", "ops"])
def test_names_of_steps_are_names_of_layers(name, tmp_path):
    x = keras.Input((4,), name=name)
    steps = [operation("exp", {"tensor": 0}), operation("tanh", {"step": 0})]
    sum_of = {"x1": {"step": 0}, "x2": {"step": 1}}
    y = Operation("add", sum_of, steps=steps, name="y")(x)
    assert_same(keras.Model(x, y), ROWS, tmp_path)


def test_many_operations_in_a_row(monkeypatch):
    monkeypatch.setattr("keras_mp.compat.model_code._DEEP", 100)
    count = 120
    with enough_for(count):
        x = y = keras.Input((4,), name="x")
        for _ in range(count):
            y = Operation("negative", {"x": {"tensor": 0}})(y)
        model = keras.Model(x, y)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        assert len(built(model).operations) == count + 1
    finally:
        sys.setrecursionlimit(before)
