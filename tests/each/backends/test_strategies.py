"""`tf.distribute` strategies: what works on one device, and what is refused, with the reason."""

import functools

import keras
import numpy as np
import pytest

import keras_mp

if keras.backend.backend() != "tensorflow":
    pytest.skip("tf.distribute is TensorFlow's", allow_module_level=True)

import tensorflow as tf


def stand_in(*bases):
    """Returns a strategy that is an instance of `bases`, and runs on this machine's CPU."""
    real = tf.distribute.OneDeviceStrategy("CPU:0")

    class StandIn(*bases):
        def __init__(self):
            tf.distribute.Strategy.__init__(self, real.extended)

    strategy = StandIn()
    strategy._real = real  # which its extension refers to weakly
    return strategy


class OfOthers(tf.distribute.Strategy):
    num_replicas_in_sync = 2


REFUSED = {
    "TPU": ((tf.distribute.TPUStrategy,), "TPUs compute in bfloat16"),
    "TPU, older": ((tf.distribute.experimental.TPUStrategy,), "TPUs compute in bfloat16"),
    "parameter server": (
        (tf.distribute.ParameterServerStrategy,),
        "without waiting for each.* CentralStorageStrategy, OneDeviceStrategy",
    ),
    "unknown": ((OfOthers,), "does not know the strategy StandIn"),
}


@pytest.mark.parametrize(("bases", "why"), REFUSED.values(), ids=REFUSED)
def test_refused_where_it_is_made(bases, why):
    with stand_in(*bases).scope(), pytest.raises(ValueError, match=why):
        keras_mp.LossScaleOptimizer(keras.optimizers.SGD())


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize(("bases", "why"), REFUSED.values(), ids=REFUSED)
def test_refused_at_its_first_step(bases, why, skip):
    variable = keras.Variable([1.0])
    settings = {} if skip else {"dynamic": False, "initial_scale": 8.0, "skip_nonfinite": False}
    optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(), **settings)
    optimizer.build([variable])
    with stand_in(*bases).scope(), pytest.raises(ValueError, match=why):
        optimizer.apply_gradients([(tf.constant([1.0]), variable)], gradients_scaled=True)
    assert float(variable.value[0]) == 1.0


class OfOthersOneReplica(tf.distribute.Strategy):
    pass


TAKEN = {
    "none": tf.distribute.get_strategy,
    "one device": lambda: tf.distribute.OneDeviceStrategy("CPU:0"),
    "mirrored": lambda: tf.distribute.MirroredStrategy(["CPU:0"]),
    "central": lambda: tf.distribute.experimental.CentralStorageStrategy(["CPU:0"], "CPU:0"),
    "unknown, one replica": lambda: stand_in(OfOthersOneReplica),
}


def trained(strategy, way, **arguments):
    random = np.random.RandomState(0)
    x = random.randn(24, 4).astype("float32")
    y = x.sum(1, keepdims=True)
    x[9] = np.nan
    with strategy.scope():
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        optimizer = keras_mp.LossScaleOptimizer(
            keras.optimizers.Adam(0.1, clipnorm=0.5, gradient_accumulation_steps=2),
            initial_scale=8.0,
        )
        model.compile(optimizer, keras.losses.MeanSquaredError(), **arguments)
        optimizer.build(model.trainable_variables)

    @tf.function
    def step(x, y):
        def each(x, y):
            with tf.GradientTape() as tape:
                loss = optimizer.scale_loss(tf.reduce_mean((model(x) - y) ** 2))
            variables = model.trainable_variables
            gradients = tape.gradient(loss, [v.value for v in variables])
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

        strategy.run(each, args=(x, y))

    if way == "fit":
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    else:
        for begin in range(0, len(x), 4):
            step(tf.constant(x[begin : begin + 4]), tf.constant(y[begin : begin + 4]))
    state = [keras.ops.convert_to_numpy(v) for v in (*model.variables, *optimizer.variables)]
    assert float(optimizer.loss_scale) == 4.0
    return state


@functools.cache
def without_a_strategy():
    return trained(tf.distribute.get_strategy(), "loop")


@pytest.mark.parametrize("way", ["fit", "loop"])
@pytest.mark.parametrize("make", TAKEN.values(), ids=TAKEN)
def test_one_device_as_without_a_strategy(make, way):
    for found, value in zip(trained(make(), way), without_a_strategy(), strict=True):
        np.testing.assert_allclose(found, value, rtol=0, atol=1e-6)


@pytest.mark.parametrize("arguments", [{"steps_per_execution": 2}, {"jit_compile": True}])
def test_fit_on_one_device(arguments):
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    for found, value in zip(
        trained(strategy, "fit", **arguments), without_a_strategy(), strict=True
    ):
        np.testing.assert_allclose(found, value, rtol=0, atol=1e-6)
