"""`protect_state(model, metrics=True)`: logs are those of a run that never saw the bad batches."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_mp
from keras_mp import LossScaleOptimizer
from keras_mp.state import state_protection
from tests import programs
from tests.compiled_steps import settled
from tests.each.conftest import BATCH

COMPILED = {"default": {}, "eager": {"run_eagerly": True}, "steps": {"steps_per_execution": 4}}


def optimizer():
    return LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=256.0)


def compiled_metrics():
    return {"metrics": ["mae", keras.metrics.R2Score()], "weighted_metrics": ["mse"]}


class BatchLogs(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append({name: np.asarray(value).tolist() for name, value in logs.items()})


def trained(make, batches, *, protect=True, epochs=2, callbacks=(), **options):
    """Returns the model, the logs of its epochs and of its batches."""
    keras.utils.set_random_seed(1)
    model = make()
    if protect:
        keras_mp.protect_state(model, metrics=True)
    model.compile(settled(optimizer()), loss=keras.losses.MeanSquaredError(), **options)
    logs = BatchLogs()
    history = model.fit(
        *batches,
        batch_size=BATCH,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[logs, *callbacks],
    )
    return model, history.history, logs.seen


class Watches(layers.Layer):
    """A metric that a layer updates."""

    def __init__(self):
        super().__init__()
        self.mean = keras.metrics.Mean(name="mean_input")

    def call(self, x):
        self.mean.update_state(ops.mean(x))
        return x


class Steps(keras.Model):
    """A train step of its own, with a metric of its own; and numbers that are none."""

    def __init__(self):
        super().__init__()
        self.dense, self.largest = layers.Dense(1), keras.metrics.Mean(name="largest")

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x)

    def train_step(self, *args):
        x = args[-1][0]
        done = super().train_step(*args)
        if keras.backend.backend() != "jax":
            self.largest.update_state(ops.max(x))
            return {**done, "largest": self.largest.result(), "ones": ops.ones(())}
        logs, (*state, measured) = done
        with keras.StatelessScope(zip(self.metrics_variables, measured, strict=True)) as scope:
            self.largest.update_state(ops.max(x))
            logs = {**logs, "largest": self.largest.result(), "ones": ops.ones(())}
        measured = [scope.get_current_value(v) for v in self.metrics_variables]
        return logs, (*state, measured)


def watching():
    return keras.Sequential([keras.Input((4,)), Watches(), layers.Dense(1)])


def nested():
    inner = keras.Sequential([keras.Input((4,)), Watches(), layers.Dense(4)])
    return keras.Sequential([keras.Input((4,)), inner, layers.Dense(1)])


def two_outputs():
    inputs = keras.Input((4,))
    outputs = {"a": layers.Dense(1, name="a")(inputs), "b": layers.Dense(1, name="b")(inputs)}
    return keras.Model(inputs, outputs)


MODELS = {"layers": watching, "submodel": nested, "step of its own": Steps}


@pytest.mark.parametrize("compile", COMPILED)
def test_logs_are_those_of_a_run_without_the_bad_batch(make_model, with_nan, backend, compile):
    if backend == "torch" and compile == "steps":
        pytest.skip("Keras refuses steps_per_execution > 1 on torch")
    ran = [
        trained(make_model, data, **compiled_metrics(), **COMPILED[compile]) for data in with_nan
    ]
    (model, logs, _), (_, expected, _) = ran
    assert int(model.optimizer.skipped_steps) == 2
    assert set(logs) == {"loss", "mae", "mse", "r2_score"}
    assert logs == expected


@pytest.mark.parametrize("make", MODELS)
def test_metrics_wherever_they_are(with_nan, make, backend):
    if backend == "jax" and make != "step of its own":
        pytest.skip("Keras on JAX has no metrics in a forward pass")
    (model, logs, _), (_, expected, _) = (trained(MODELS[make], data) for data in with_nan)
    assert int(model.optimizer.skipped_steps) == 2
    assert len(logs) > 1
    assert logs == expected


def test_several_outputs(with_nan):
    def data(x, y):
        return x, {"a": y, "b": 2 * y}

    options = {"metrics": {"a": ["mae"], "b": ["mae"]}}
    (_, logs, _), (_, expected, _) = (
        trained(two_outputs, data(*each), **options) for each in with_nan
    )
    assert {"loss", "a_loss", "b_loss", "a_mae", "b_mae"} <= set(logs)
    assert logs == expected


def test_batches_of_skipped_steps_have_the_means_so_far(make_model, with_nan):
    _, _, logs = trained(make_model, with_nan[0], **compiled_metrics())
    assert np.isfinite([each["loss"] for each in logs]).all()
    assert logs[3] == logs[2]
    assert logs[4] != logs[3]


def test_before_the_first_good_batch_metrics_say_what_empty_ones_say(make_model, data):
    x, y = data
    x = x.copy()
    x[:BATCH] = np.nan
    _, logs, batches = trained(make_model, (x, y), epochs=1)
    assert batches[0] == {"loss": 0.0}
    _, expected, _ = trained(make_model, (x[BATCH:], y[BATCH:]), epochs=1)
    assert logs == expected


def test_train_on_batch(make_model, data):
    """Keras empties the metrics before each."""
    x, y = (each[:BATCH] for each in data)
    model = keras_mp.protect_state(make_model(), metrics=True)
    model.compile(optimizer(), "mse", metrics=["mae"])
    first = model.train_on_batch(x, y, return_dict=True)
    assert model.train_on_batch(x * np.nan, y, return_dict=True) == {"loss": 0.0, "mae": 0.0}
    again = model.train_on_batch(x, y, return_dict=True)
    assert 0 < again["loss"] < first["loss"]


def test_terminate_on_nan(make_model, with_nan):
    """Ends the run without it; lets skipped steps pass with it."""
    calls = {"callbacks": [keras.callbacks.TerminateOnNaN()], "epochs": 1}
    _, _, without = trained(make_model, with_nan[0], protect=False, **calls)
    _, _, batches = trained(make_model, with_nan[0], **calls)
    assert (len(without), len(batches)) == (4, 8)


def test_callbacks_that_look_for_the_least_loss(make_model, with_nan):
    def run(data):
        early = keras.callbacks.EarlyStopping("loss", patience=1, min_delta=0.05)
        slower = keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=0.2)
        model, logs, _ = trained(make_model, data, epochs=9, callbacks=[early, slower])
        return logs, early.stopped_epoch, float(model.optimizer.learning_rate)

    found, expected = map(run, with_nan)
    assert found == expected
    assert found[1] > 0


def test_metrics_are_left_alone_unless_asked_for(make_model, with_nan):
    model = keras_mp.protect_state(make_model())
    model.compile(optimizer(), "mse")
    history = model.fit(*with_nan[0], batch_size=BATCH, shuffle=False, verbose=0)
    assert np.isnan(history.history["loss"]).all()


def test_logs_that_are_no_dictionary():
    assert state_protection._logs(True, None, {}) is None


@pytest.mark.parametrize("given", ["the model's", "a list"])
def test_in_a_loop_of_ones_own(data, backend, given):
    if backend == "jax":
        pytest.skip("a loop of JAX has the state in its hands")
    model, opt = watching(), optimizer()
    opt.build(model.trainable_variables)
    mine = keras.metrics.F1Score()  # makes its variables when it is updated
    metrics, watched = (True, model.layers[0].mean) if given == "the model's" else ([mine], mine)

    def step(x, factor):
        with keras_mp.protect_state_scope(model, opt, metrics=metrics):
            model(x, training=True)
            labels = ops.cast(x > 0, "float32")
            mine.update_state(labels, labels * factor)
            pairs = [(factor * ops.ones(v.shape), v) for v in model.trainable_variables]
            opt.apply_gradients(pairs, gradients_scaled=True)

    if backend == "tensorflow":
        import tensorflow as tf

        step = tf.function(step)
    x = ops.array(data[0][:BATCH])

    def found():
        return [v.numpy().tolist() for v in watched.variables]

    step(x, ops.array(float("nan")))
    assert not np.any(np.concatenate([np.ravel(each) for each in found()]))
    step(x, ops.array(1.0))
    first = found()
    assert first[0] != 0
    step(x, ops.array(float("nan")))
    assert found() == first
    step(x, ops.array(1.0))
    assert found() != first


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch.compile, of itself
def test_compiled(make_model, with_nan, backend, quick_compile, compiled_once):
    jits = [True, backend != "torch"]  # half a minute, for the same numbers
    ran = [
        trained(make_model, data, epochs=1, jit_compile=jit, metrics=["mae"])
        for data, jit in zip(with_nan, jits, strict=True)
    ]
    for name, value in ran[0][1].items():
        expected = ran[1][1][name]
        assert value == (pytest.approx(expected, rel=1e-6) if backend == "torch" else expected)


MIRRORED = """
import keras, numpy as np, tensorflow as tf, keras_mp
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
x = np.random.RandomState(0).randn(48, 4).astype("float32")
y = x.sum(1, keepdims=True)
bad = np.concatenate([x[:16], x[:16], x[16:]])
bad[30] = np.nan  # of the second batch, and there of the last replica

def run(x, y):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(0.01))
        model.compile(optimizer, "mse", metrics=["mae"])
    keras_mp.protect_state(model, metrics=True)
    logs = model.fit(x, y, batch_size=16, shuffle=False, verbose=0).history
    return logs, int(model.optimizer.skipped_steps)

logs, skipped = run(bad, np.concatenate([y[:16], y[:16], y[16:]]))
expected, _ = run(x, y)
assert skipped == 1, skipped
assert logs == expected, (logs, expected)
assert np.isfinite(logs["loss"]).all()
"""


@pytest.mark.processes
def test_under_a_strategy(backend):
    if backend != "tensorflow":
        pytest.skip("MirroredStrategy is TensorFlow's")
    programs.run("-c", MIRRORED, imported=True)
