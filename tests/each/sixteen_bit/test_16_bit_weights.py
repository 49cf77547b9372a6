"""Weights of 16 bits (policies float16, bfloat16): their accumulators, and what does not fit."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp import LossScaleOptimizer

BACKEND = keras.backend.backend()
o = keras.optimizers
DTYPES = ["float16", "bfloat16"]
SHAPES = [(3, 4), (4,), ()]
SCALE = 1024.0
OPTIONS = {
    "alone": {},
    "averages": {"use_ema": True, "ema_overwrite_frequency": 2},
    "clipnorm": {"clipnorm": 0.5},
    "all": {"global_clipnorm": 0.5, "weight_decay": 0.1, "use_ema": True},
}
CLASSES = ("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lamb", "Lion")
CASES = [
    *(("Adam", options) for options in OPTIONS),
    *((name, "alone") for name in (*CLASSES, "RMSprop", "SGD") if name != "Adam"),
]
# PyTorch adds up what was divided in float32, and rounds once where Keras rounds twice.
TOLERANCE = {"float16": 2.0**-6, "bfloat16": 2.0**-3}


def stepped(make, dtype, wrapped, scale=SCALE):
    """Returns all state after five steps, as float32."""
    random = np.random.RandomState(0)
    variables = [
        keras.Variable(np.asarray(random.randn(*s), "float32"), dtype=dtype) for s in SHAPES
    ]
    inner = optimizer = make()
    if wrapped:
        optimizer = LossScaleOptimizer(inner, initial_scale=scale)
        optimizer.scale_loss(1.0)
    optimizer.build(variables)
    factor = scale if wrapped else 1.0
    for _ in range(5):
        gradients = [np.asarray(random.randn(*s), "float32") for s in SHAPES]
        gradients = [ops.cast(ops.cast(g, dtype) * factor, dtype) for g in gradients]
        optimizer.apply(gradients, variables)
    return [ops.convert_to_numpy(ops.cast(v, "float32")) for v in [*variables, *inner.variables]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "options"), CASES)
def test_accumulated_gradients(name, options, dtype):
    def make():
        return getattr(o, name)(0.01, gradient_accumulation_steps=2, **OPTIONS[options])

    for ours, plain in zip(stepped(make, dtype, True), stepped(make, dtype, False), strict=True):
        if BACKEND == "torch":
            near = TOLERANCE[dtype]
            np.testing.assert_allclose(ours, plain, rtol=near, atol=near * np.max(abs(plain)))
        else:
            np.testing.assert_array_equal(ours, plain)


@pytest.mark.parametrize("other", ["float16", "float64"])
@pytest.mark.parametrize("one", ["float32", "int32"])
def test_gradients_of_several_dtypes_that_were_unscaled_before_are_clipped(one, other, backend):
    """Integers become float32, by whose norm TensorFlow multiplies nothing else in a graph."""
    if other == "float64" and backend == "jax":
        pytest.skip("without jax_enable_x64 there is no float64")
    weights = [keras.Variable([1.0]), keras.Variable([1.0])]
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(1.0, global_clipnorm=1.0))
    optimizer.build(weights)

    def step():
        gradients = [ops.array([3.0], other), ops.array([4], one)]
        optimizer.apply_gradients(zip(gradients, weights, strict=True), gradients_scaled=False)

    if backend == "tensorflow":
        import tensorflow as tf

        step = tf.function(step)
    step()
    assert np.allclose([float(w.numpy()[0]) for w in weights], [0.4, 0.2], atol=1e-3)


def test_gradients_of_16_bits_for_a_variable_of_64(backend):
    if backend == "jax":
        pytest.skip("without jax_enable_x64 there is no float64")
    weight = keras.Variable(np.ones(3), dtype="float64")
    optimizer = LossScaleOptimizer(o.SGD(0.5, gradient_accumulation_steps=2), initial_scale=8.0)
    optimizer.build([weight])

    def step():
        optimizer.apply([ops.cast(ops.ones(3) * 8, "float16")], [weight])

    if backend == "tensorflow":
        import tensorflow as tf

        step = tf.function(step)
    optimizer.scale_loss(1.0)
    step()
    step()
    np.testing.assert_array_equal(ops.convert_to_numpy(weight), np.full(3, 0.5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_accumulated_gradients_that_were_unscaled_before(dtype):
    """As in loops of Keras 2, where they come back in float32."""
    weight = keras.Variable(np.ones(3), dtype=dtype)
    optimizer = LossScaleOptimizer(o.SGD(0.5, gradient_accumulation_steps=2), initial_scale=8.0)
    for _ in range(2):
        optimizer.get_scaled_loss(1.0)
        gradients = optimizer.get_unscaled_gradients([ops.full((3,), 8.0, dtype)])
        optimizer.apply_gradients(zip(gradients, [weight], strict=True))
    assert ops.convert_to_numpy(ops.cast(weight, "float32")).tolist() == [0.5] * 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_16_bits_are_accumulated_in_float32(dtype):
    """JAX and TensorFlow take none from plain Keras."""
    weight = keras.Variable(np.ones(3), dtype="float32")
    optimizer = LossScaleOptimizer(o.SGD(0.5, gradient_accumulation_steps=2))
    for _ in range(2):
        gradients = [ops.full((3,), 1.0, dtype)]
        optimizer.apply_gradients(zip(gradients, [weight], strict=True), gradients_scaled=False)
    assert ops.convert_to_numpy(weight).tolist() == [0.5] * 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_auto_wrap_trains_on(dtype, data, fit, weights):
    """The plain script goes on as it was: float16 is wrapped, bfloat16 needs no loss scaling."""

    def trained():
        options = {"use_ema": True, "global_clipnorm": 1.0, "gradient_accumulation_steps": 2}
        return fit(o.SGD(0.01, **options), *data, policy=dtype, jit_compile=False)

    plain = trained()
    with keras_mp.auto_wrap():
        ours = trained()
    assert isinstance(ours.optimizer, LossScaleOptimizer) == (dtype == "float16")
    np.testing.assert_allclose(weights(ours), weights(plain), rtol=0.05, atol=5e-3)


LARGE = float(np.finfo("float32").max)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize(
    ("number", "given", "taken", "skipped"),
    [
        pytest.param(LARGE, "float32", "bfloat16", True, id="above bfloat16"),
        pytest.param(3.397e38, "float32", "bfloat16", True, id="rounded up"),
        pytest.param(3.39e38, "float32", "bfloat16", False, id="rounded down"),
        pytest.param(3.38e38, "bfloat16", "bfloat16", False, id="bfloat16"),
        pytest.param(LARGE, "float32", "float32", False, id="float32"),
        pytest.param(7e4, "bfloat16", "float16", True, id="bfloat16 to float16"),
        pytest.param(6e4, "float16", "bfloat16", False, id="float16 to bfloat16"),
    ],
)
def test_what_is_applied_is_looked_at(number, given, taken, skipped, scaled):
    weight = keras.Variable(np.ones(2), dtype=taken)
    optimizer = LossScaleOptimizer(o.SGD(0.0), initial_scale=1.0)
    gradient = ops.cast(ops.array([1.0, number], "float32"), given)
    optimizer.apply_gradients([(gradient, weight)], gradients_scaled=scaled)
    assert bool(optimizer.last_step_applied) == (not skipped)
    assert np.isfinite(ops.convert_to_numpy(ops.cast(weight, "float32"))).all()


def test_a_scale_below_one_takes_numbers_out_of_bfloat16():
    weight = keras.Variable(np.ones(1), dtype="bfloat16")
    optimizer = LossScaleOptimizer(o.SGD(0.0), initial_scale=2.0**-8, min_scale=2.0**-10)
    for number, skipped in ((2.0**119, 0), (2.0**120, 1)):
        gradient = ops.cast(ops.array([number], "float32"), "bfloat16")
        optimizer.apply_gradients([(gradient, weight)], gradients_scaled=True)
        assert int(optimizer.skipped_steps) == skipped
