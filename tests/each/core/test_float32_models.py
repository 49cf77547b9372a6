"""`as_float32`: the model that the same code makes in float32 is the oracle."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_mp
from keras_mp import LossScaleOptimizer, MasterWeights, as_float32, float32_weights_scope

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _no_global_policy():
    yield
    keras_mp.set_global_policy(None)


class Scaled(layers.Layer):
    def __init__(self, factor=2.0, **kwargs):
        super().__init__(**kwargs)
        self.factor, self.dense = factor, layers.Dense(4, dtype=self.dtype_policy)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return self.factor * self.dense(x)

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


class Narrow(layers.Layer):
    """Its code decides, whatever the policy."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(4, dtype="mixed_float16", name="hard")

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x)


class Subclassed(keras.Model):
    def __init__(self, units=3, **kwargs):
        super().__init__(**kwargs)
        self.units, self.inner, self.last = units, layers.Dense(units), layers.Dense(1)

    def build(self, shape):
        self.inner.build(shape)
        self.last.build((None, self.units))

    def call(self, x):
        return self.last(ops.tanh(self.inner(x)))

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def images():
    x = inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, activation="relu")(x)
    x = layers.BatchNormalization()(x)
    x = layers.GlobalAveragePooling2D()(x)
    outputs = layers.Dense(2, activation="softmax", dtype="float32")(x)
    return keras.Model(inputs, outputs), (8, 8, 3)


def sequence():
    stack = [layers.LSTM(4, return_sequences=True), layers.MultiHeadAttention, layers.Flatten()]
    x = inputs = keras.Input((5, 3))
    x = stack[0](x)
    x = stack[1](1, 2, flash_attention=False)(x, x)
    return keras.Model(inputs, layers.Dense(1)(stack[2](x))), (5, 3)


def nested():
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4, activation="gelu"), Scaled(0.5)])
    inputs = keras.Input((4,))
    return keras.Model(inputs, layers.Dense(1)(inner(inputs) + inner(inputs))), (4,)


def subclassed():
    model = Subclassed()
    model.build((None, 4))
    return model, (4,)


MODELS = {"images": images, "sequence": sequence, "nested": nested, "subclassed": subclassed}


def made(make, policy):
    keras.utils.set_random_seed(1)
    keras_mp.set_global_policy(policy)
    model, shape = make()
    keras_mp.set_global_policy(None)
    return model, RANDOM.normal(size=(8, *shape)).astype("float32")


def predicted(model, x):
    return ops.convert_to_numpy(model(x, training=False))


def dtypes(model):
    inputs = layers.InputLayer
    return {each.compute_dtype for each in model._flatten_layers() if not isinstance(each, inputs)}


@pytest.mark.parametrize("share", [False, True], ids=["copied", "shared"])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_it_is_the_float32_model(make, share, state):
    model, x = made(make, "mixed_bfloat16")
    before = state(model.variables)
    ready = as_float32(model, share_weights=share)
    oracle, _ = made(make, None)
    oracle.set_weights(model.get_weights())
    assert type(ready) is type(model)
    assert dtypes(ready) == {"float32"}
    assert "bfloat16" in dtypes(model)
    np.testing.assert_array_equal(predicted(ready, x), predicted(oracle, x))
    if make is not subclassed:  # whose constructor has Keras count
        assert [layer.name for layer in ready.layers] == [layer.name for layer in model.layers]
    assert state(model.variables) == before


@pytest.mark.parametrize("share", [False, True], ids=["copied", "shared"])
def test_a_later_step_shows_where_weights_are_shared(share, tmp_path):
    model, x = made(images, "mixed_float16")
    ready = as_float32(model, share_weights=share)
    start = predicted(ready, x)
    model.compile(LossScaleOptimizer(keras.optimizers.Adam(0.1), initial_scale=16.0), "mse")
    model.fit(x, np.ones((8, 2), "float32"), batch_size=4, verbose=0)
    now = predicted(ready, x)
    assert np.array_equal(now, start) != share
    if share:
        np.testing.assert_allclose(now, model.predict(x, verbose=0), atol=2e-3)
        assert all(map(lambda a, b: a is b, ready.weights, model.weights))
    ready.save(tmp_path / "ready.keras")
    again = keras.saving.load_model(tmp_path / "ready.keras")
    np.testing.assert_allclose(predicted(again, x), now, rtol=1e-5)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="modules of torch have parameters")
def test_parameters_of_the_module_are_those_that_are_shared():
    model, _ = made(nested, "mixed_float16")
    ready = as_float32(model, share_weights=True)
    assert {id(p) for p in ready.parameters()} == {id(w.value) for w in model.weights}


def test_a_map_of_policies():
    policy = keras.dtype_policies.DTypePolicyMap(
        "mixed_float16", {".*dense.*": keras.DTypePolicy("mixed_bfloat16")}
    )
    model, x = made(nested, policy)
    ready = as_float32(model)
    assert dtypes(ready) == {"float32"}
    assert np.abs(predicted(ready, x) - predicted(model, x)).max() < 0.1


def test_it_can_be_quantized():
    """Which a model under mixed_float16 cannot."""
    model, x = made(nested, "mixed_float16")
    with pytest.raises(ValueError, match="doesn't work well with compute_dtype='float16'"):
        model.quantize("int8")
    ready = as_float32(made(nested, "mixed_float16")[0])
    expected = predicted(ready, x)
    with pytest.warns(UserWarning, match="does not have a `quantize` method"):
        ready.quantize("int8")
    assert 0 < np.abs(predicted(ready, x) - expected).max() < 0.2 * np.abs(expected).max()


@pytest.mark.parametrize("wrap", [MasterWeights, lambda o: LossScaleOptimizer(MasterWeights(o))])
def test_weights_in_16_bits_get_their_masters(wrap):
    model, x = made(nested, "bfloat16")
    model.compile(wrap(keras.optimizers.SGD(0.01)), "mse", auto_scale_loss=False)
    model.fit(x, np.ones((8, 1), "float32"), verbose=0)
    with float32_weights_scope(model):
        expected = model.get_weights()
    ready = as_float32(model)
    assert {weight.dtype for weight in ready.weights} == {"float32"}
    for one, other in zip(ready.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_weights_in_16_bits_without_masters():
    model, _ = made(nested, "bfloat16")
    expected = [ops.convert_to_numpy(ops.cast(w, "float32")) for w in model.weights]
    for one, other in zip(as_float32(model).get_weights(), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match=r"share_weights=True needs .* in 16 bits"):
        as_float32(model, share_weights=True)


def test_what_is_no_built_model():
    with pytest.raises(TypeError, match=r"must be a keras\.Model, but got Dense"):
        as_float32(layers.Dense(1))
    with pytest.raises(ValueError, match="is not built"):
        as_float32(keras.Sequential([layers.Dense(1)]))


def test_a_quantized_model():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, name="small")])
    model.layers[0].quantize("int8")
    with pytest.raises(ValueError, match=r"are quantized: small.* before quantize"):
        as_float32(model)


def test_layers_whose_code_says_16_bits():
    model = keras.Sequential([keras.Input((4,)), Narrow()])
    with pytest.raises(ValueError, match=r"whatever the policy: hard.*dtype=self\.dtype_policy"):
        as_float32(model)


def test_a_model_whose_config_does_not_make_it():
    class Needs(layers.Layer):
        def __init__(self, what, **kwargs):
            super().__init__(**kwargs)
            self.what = what

        def call(self, x):
            return x

        def get_config(self):
            return super().get_config()

    model = keras.Sequential([keras.Input((4,)), Needs(3)])
    with pytest.raises(ValueError, match=r"cannot be rebuilt from its config.*set_weights"):
        as_float32(model)
