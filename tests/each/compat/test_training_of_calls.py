"""`layer(x, training=...)` in the functional models of tf.keras: what the call said holds."""

import keras
import numpy as np
import pytest

from keras_mp.compat.configs import convert
from keras_mp.compat.layers import Functional
from keras_mp.compat.model_code import model_code

# Keras 3.10 warns of lists of one input.
pytestmark = pytest.mark.filterwarnings("ignore:The structure of")

X = np.random.RandomState(0).standard_normal((64, 4)).astype("float32") * 5 + 3


def layer(class_name, name, *calls, **config):
    """A layer as TF 2.4 wrote it; `calls` are pairs of what it is called on, and keywords."""
    return {
        "class_name": class_name,
        "config": {"name": name, "trainable": True, "dtype": "float32", **config},
        "name": name,
        "inbound_nodes": [[[source, 0, 0, keywords]] for source, keywords in calls],
    }


def functional(*layers, shape=(None, 4)):
    first = layer("InputLayer", "input", sparse=False, ragged=False, batch_input_shape=list(shape))
    return {
        "class_name": "Functional",
        "config": {
            "name": "net",
            "layers": [first, *layers],
            "input_layers": [["input", 0, 0]],
            "output_layers": [[layers[-1]["name"], 0, 0]],
        },
    }


def loaded(config):
    return keras.saving.deserialize_keras_object(convert(config, kind="model").config)


def dropping(training):
    return loaded(functional(layer("Dropout", "drop", ("input", training), rate=0.5)))


def is_random(model, x=X):
    return not np.array_equal(model.predict(x, verbose=0), model.predict(x, verbose=0))


@pytest.mark.parametrize("true", [True, 1])
def test_dropout_that_always_drops(true):
    assert is_random(dropping({"training": true}))


@pytest.mark.parametrize("keywords", [{}, {"training": None}])
def test_calls_that_say_nothing_follow_the_model(keywords):
    model = dropping(keywords)
    assert type(model) is not Functional
    assert np.array_equal(model.predict(X, verbose=0), X)
    assert not np.array_equal(model(X, training=True), X)


def base_model(training):
    """A base with batch normalization and dropout, called with `training`, and a head."""
    base = {
        "class_name": "Sequential",
        "config": {
            "name": "base",
            "layers": [
                {
                    "class_name": "BatchNormalization",
                    "config": {"name": "norm", "axis": [1], "batch_input_shape": [None, 4]},
                },
                {"class_name": "Dropout", "config": {"name": "drop", "rate": 0.5}},
            ],
        },
        "name": "base",
        "inbound_nodes": [[["input", 0, 0, {"training": training}]]],
    }
    head = layer("Dense", "head", ("base", {}), units=1)
    head["inbound_nodes"] = [[["base", 1, 0, {}]]]
    return loaded(functional(base, head))


def moving_mean(model):
    return keras.ops.convert_to_numpy(model.get_layer("base").get_layer("norm").moving_mean)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_base_that_is_frozen_by_its_call(jit_compile):
    if jit_compile and keras.backend.backend() == "torch":
        pytest.skip("torch.compile takes a minute, and traces the same calls")
    model = base_model(False)
    model.compile("sgd", "mse", jit_compile=jit_compile)
    model.fit(X, X[:, :1], epochs=2, verbose=0)
    assert not moving_mean(model).any()


def two_layers():
    """The first call says something; what Keras notes for the second is the layer's default."""
    first = layer("Dropout", "a", ("input", {"training": False}), rate=0.5)
    second = layer("Dropout", "b", ("a", {}), rate=0.5)
    return loaded(functional(first, second))


def follows(model):
    trained = model(X, training=True)
    return not np.array_equal(trained, X) and np.array_equal(model(X, training=False), X)


def test_calls_that_say_nothing_follow_the_model_beside_those_that_do(tmp_path):
    model = two_layers()
    assert follows(model)
    for copy in copies(model, tmp_path):
        assert follows(copy), type(copy)


def test_augmentation_that_says_nothing_rests_in_predict():
    first = layer("Dropout", "a", ("input", {"training": True}), rate=0.0)
    second = layer("RandomFlip", "b", ("a", {}), mode="horizontal")
    model = loaded(functional(first, second, shape=(None, 8, 8, 3)))
    images = np.random.RandomState(0).uniform(size=(16, 8, 8, 3)).astype("float32")
    assert np.array_equal(model.predict(images, verbose=0), images)
    assert not np.array_equal(model(images, training=True), images)


def test_a_base_that_always_trains():
    model = base_model(True)
    model.predict(X, verbose=0)
    assert moving_mean(model).any()


def copies(model, folder):
    model.save(folder / "model.keras")
    yield keras.models.load_model(folder / "model.keras")
    yield keras.models.clone_model(model)
    yield keras.Sequential([keras.Input(model.input_shape[1:]), model])
    inputs = keras.Input(model.input_shape[1:])
    yield keras.Model(inputs, model(inputs))
    yield type(model).from_config(model.get_config())


def test_copies_keep_it(tmp_path):
    for copy in copies(dropping({"training": True}), tmp_path):
        assert is_random(copy), type(copy)


@pytest.mark.parametrize("wrapper", ["Bidirectional", "TimeDistributed"])
def test_wrappers_keep_it(wrapper):
    inner = {"class_name": "LSTM", "config": {"name": "inner", "units": 3, "dropout": 0.5}}
    if wrapper == "TimeDistributed":
        inner = {"class_name": "Dropout", "config": {"name": "inner", "rate": 0.5}}
    outer = layer(wrapper, "outer", ("input", {"training": True}), layer=inner)
    assert is_random(loaded(functional(outer, shape=(None, 6, 4))), X[:48].reshape(8, 6, 4))


def test_the_conversion_tells_it():
    config = functional(layer("Dropout", "drop", ("input", {"training": True}), rate=0.5))
    (note,) = convert(config, kind="model").notes
    assert "drop" in note
    assert "training" in note


def test_as_code():
    for model, holds in ((dropping({"training": True}), is_random), (two_layers(), follows)):
        scope = {}
        exec(model_code(model), scope)
        assert holds(scope["build"]())
