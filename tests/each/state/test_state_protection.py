"""`protect_state`: moving statistics, and what else layers keep, after a skipped step."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp import LossScaleOptimizer
from tests import programs
from tests.compiled_steps import settled


@pytest.fixture
def run(fit, with_nan):
    def run(guard, **compile):
        keras.utils.set_random_seed(1)
        norm = keras.layers.BatchNormalization()
        model = keras.Sequential([keras.Input((4,)), norm, keras.layers.Dense(1)])
        if guard:
            assert keras_mp.protect_state(model) is model
        optimizer = LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=256.0)
        fit(optimizer, *with_nan[0], model=model, **compile)
        return model, norm

    return run


def test_without_it_they_are_nan_for_ever(run):
    """What the guard is for; plain Keras, any optimizer."""
    assert np.isnan(run(False)[1].moving_mean.numpy()).any()


@pytest.mark.parametrize("compile", [{}, {"run_eagerly": True}], ids=["default", "eager"])
def test_they_are_put_back_on_a_skipped_step(run, compile, data):
    model, norm = run(True, **compile)
    assert np.isfinite(norm.moving_mean.numpy()).all()
    assert np.isfinite(norm.moving_variance.numpy()).all()
    assert np.abs(norm.moving_mean.numpy()).max() > 0
    assert np.isfinite(model.predict(data[0], verbose=0)).all()
    assert float(model.optimizer.loss_scale) == 128.0


def test_steps_per_execution(run, backend):
    if backend == "torch":
        pytest.skip("Keras refuses steps_per_execution > 1 on torch")
    _, norm = run(True, steps_per_execution=4)
    assert np.isfinite(norm.moving_mean.numpy()).all()


def test_a_skip_is_bit_identical_and_a_good_step_is_not(make_model, data, state):
    norm = keras.layers.BatchNormalization(dtype="float32")
    model = keras_mp.protect_state(make_model("float32", norm))
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.01)), "mse")
    x, y = (a[:8] for a in data)
    model.train_on_batch(x, y)
    before = state(model.non_trainable_variables)
    model.train_on_batch(x, y * np.inf)
    assert state(model.non_trainable_variables) == before
    model.train_on_batch(x, y)
    assert state(model.non_trainable_variables) != before


def test_another_optimizer_is_refused(make_model, data):
    model = keras_mp.protect_state(make_model())
    model.compile("sgd", "mse", run_eagerly=True)
    with pytest.raises(TypeError, match=r"is keras\.optimizers\.SGD: wrap it"):
        model.train_on_batch(*data)


def test_asked_for_after_training_has_begun(data):
    norm = keras.layers.BatchNormalization()
    model = keras.Sequential([keras.Input((4,)), norm, keras.layers.Dense(1)])
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.01)), "mse")
    model.train_on_batch(*data)
    keras_mp.protect_state(model)
    model.train_on_batch(data[0] * np.nan, data[1])
    assert np.isfinite(norm.moving_mean.numpy()).all()


def test_a_second_compile_trains_with_its_own_optimizer_and_loss(data):
    """Where the state is alike: JAX compiles an object once."""
    ended = []
    for guard in (keras_mp.protect_state, lambda model: model):
        keras.utils.set_random_seed(1)
        norm = keras.layers.BatchNormalization()
        model = guard(keras.Sequential([keras.Input((4,)), norm, keras.layers.Dense(1)]))
        for beta, loss in ((0.9, "mse"), (0.1, "mae")):
            adam = keras.optimizers.Adam(0.1, beta_1=beta)
            model.compile(LossScaleOptimizer(adam), loss)
            history = model.fit(*data, epochs=2, shuffle=False, verbose=0).history
        ended.append(
            [*history["loss"], *(keras.ops.convert_to_numpy(w).sum() for w in model.weights)]
        )
    assert np.allclose(*ended, rtol=1e-5)


def test_a_new_policy_is_compiled(data):
    class Layer(keras.layers.Dense):
        computed_in = ()

        def call(self, inputs, training=None):
            self.computed_in = (*self.computed_in, self.compute_dtype)
            return super().call(inputs)

    layer = Layer(1, dtype="mixed_bfloat16")
    model = keras_mp.protect_state(keras.Sequential([keras.Input((4,)), layer]))
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.01)), "mse")
    model.train_on_batch(*data)
    layer.dtype_policy = "float32"
    model.make_train_function(force=True)
    model.train_on_batch(*data)
    assert layer.computed_in[-1] == "float32"


def test_seeds_go_on(data, backend):
    if backend == "torch":
        pytest.skip("Keras' seeds on torch are torch's own generator")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    keras_mp.protect_state(model)
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.01)), "mse")
    seed = model.layers[0].seed_generator.state
    before = seed.numpy().tolist()
    model.train_on_batch(data[0], data[1] * np.inf)
    assert seed.numpy().tolist() != before


class Keeps(keras.layers.Layer):
    """A layer with state of several kinds: a count of calls, the last input; and a table."""

    def build(self, shape):
        self.calls = self.add_weight(
            shape=(), dtype="int32", initializer="zeros", trainable=False, name="calls"
        )
        self.last = self.add_weight(
            shape=shape[1:], initializer="zeros", trainable=False, name="last"
        )
        self.table = self.add_weight(shape=(2, 2), name="table")

    def call(self, x):
        self.calls.assign(self.calls + 1)
        self.last.assign(ops.mean(x, axis=0))
        return x + ops.mean(self.table)


def kept(layer):
    return int(layer.calls.numpy()), layer.last.numpy().tolist()


@pytest.mark.parametrize("compile", [{}, {"run_eagerly": True}], ids=["default", "eager"])
def test_any_state_of_a_layer(make_model, data, compile):
    layer = Keeps()
    model = keras_mp.protect_state(make_model("float32", layer))
    layer.trainable = False
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.01)), "mse", **compile)
    x, y = (a[:8] for a in data)
    model.train_on_batch(x, y)
    first = kept(layer)
    assert first[0] == 1
    assert any(first[1])
    model.train_on_batch(x, y * np.inf)
    assert kept(layer) == first
    model.train_on_batch(x * 2, y)
    assert kept(layer)[0] == 2
    assert kept(layer)[1] != first[1]


def test_frozen_weights_are_not_copied(make_model):
    from keras_mp.state.state_protection import assigned_variables

    layer = Keeps()
    model = make_model("float32", layer)
    layer.trainable = False
    written = {id(v) for v in assigned_variables(model)}
    assert {id(layer.calls), id(layer.last)} == written
    assert id(layer.table) in {id(v) for v in model.non_trainable_variables} - written


def test_a_model_that_is_built_while_it_is_traced(data):
    norm = keras.layers.BatchNormalization()

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.norm, self.dense = norm, keras.layers.Dense(1)

        def call(self, x, training=False):
            return self.dense(self.norm(x, training=training))

    model = keras_mp.protect_state(Model())
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.01)), "mse")
    x, y = data
    model.fit(x * np.nan, y, batch_size=8, verbose=0)
    assert norm.moving_mean.numpy().tolist() == [0.0] * 4


def test_a_step_of_another_optimizer(data, backend):
    if backend == "jax":
        pytest.skip("a stateless train_step steps with the state of one optimizer only")

    class Model(keras.Model):
        """Steps with the optimizer it is compiled with, and with another one."""

        def __init__(self):
            super().__init__()
            self.norm, self.dense = keras.layers.BatchNormalization(), keras.layers.Dense(1)
            self.other = LossScaleOptimizer(keras.optimizers.SGD(0.01), name="other")

        def call(self, x, training=False):
            return self.dense(self.norm(x, training=training))

        def train_step(self, batch):
            x, y = batch[:2]
            self(x, training=True)  # writes the statistics
            for optimizer, factor in ((self.optimizer, 1.0), (self.other, y[0, 0])):
                variables = self.dense.trainable_variables
                pairs = [(factor * ops.ones_like(v), v) for v in variables]
                optimizer.apply_gradients(pairs, gradients_scaled=True)
            return {}

    model = Model()
    model(data[0][:1])
    keras_mp.protect_state(model, model.other)
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.01)), run_eagerly=True)
    x, y = (a[:8] for a in data)
    model.train_on_batch(x, y)
    first = model.norm.moving_mean.numpy().tolist()
    assert any(first)
    model.train_on_batch(x, y * np.nan)
    assert model.norm.moving_mean.numpy().tolist() == first
    model.train_on_batch(x, y)
    assert model.norm.moving_mean.numpy().tolist() != first


def test_a_loop_of_ones_own(data, backend):
    if backend == "jax":
        pytest.skip("the docstring's example; a loop of JAX has the state in its hands")
    norm, dense = keras.layers.BatchNormalization(), keras.layers.Dense(1)
    model = keras.Sequential([keras.Input((4,)), norm, dense])
    opt = LossScaleOptimizer(keras.optimizers.SGD(0.01))
    opt.build(model.trainable_variables)

    def step(x, factor):
        with keras_mp.protect_state_scope(model, opt):
            pairs = opt.compute_gradients(
                lambda: factor * ops.mean(model(x, training=True) ** 2), model.trainable_variables
            )
            opt.apply_gradients(pairs)

    if backend == "tensorflow":
        import tensorflow as tf

        step = tf.function(step)
    x = ops.array(data[0][:8])
    step(x, ops.array(1.0))
    first = norm.moving_mean.numpy().tolist()
    step(x, ops.array(float("nan")))
    assert norm.moving_mean.numpy().tolist() == first
    step(x, ops.array(1.0))
    assert norm.moving_mean.numpy().tolist() != first


def test_a_step_inside_another_function(data, backend):
    """The optimizer steps in a function that the train step calls, and that is traced already."""
    if backend == "torch":
        pytest.skip("about tf.function and jax.jit")

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.norm, self.dense = keras.layers.BatchNormalization(), keras.layers.Dense(1)

        def call(self, x, training=False):
            return self.dense(self.norm(x, training=training))

    if backend == "tensorflow":
        import tensorflow as tf

        class Model(Model):
            @tf.function
            def inner(self, gradients):
                self.optimizer.apply(gradients, self.dense.trainable_variables)

            def train_step(self, batch):
                x, y = batch[:2]
                self(x, training=True)
                factor = tf.reduce_sum(y)
                self.inner([factor * tf.ones_like(v) for v in self.dense.trainable_variables])
                return {}

    else:
        import jax

        class Model(Model):
            def train_step(self, state, batch):
                trainable, other, optimizer, metrics = state
                x, y = batch[:2]
                _, other = self.stateless_call(trainable, other, x, training=True)
                gradients = [y.sum() * jax.numpy.ones_like(v) for v in trainable]
                inner = jax.jit(self.optimizer.stateless_apply)
                trainable, optimizer = inner(optimizer, gradients, trainable)
                return {}, (trainable, other, optimizer, metrics)

    model = Model()
    x, y = data[0][:8], data[1][:8]
    model(x)
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.01))
    optimizer.scale_loss(1.0)
    model.compile(optimizer)
    variables = model.dense if backend == "tensorflow" else model
    optimizer.build(variables.trainable_variables)
    model.train_on_batch(x, y)
    keras_mp.protect_state(model)
    first = model.norm.moving_mean.numpy().tolist()
    model.train_on_batch(x, y * np.nan)
    assert model.norm.moving_mean.numpy().tolist() == first
    model.train_on_batch(x, y)
    assert model.norm.moving_mean.numpy().tolist() != first


def test_scopes_in_scopes():
    """Each is of its own optimizer."""
    norm = keras.layers.BatchNormalization()
    norm.build((None, 4))
    opts = [LossScaleOptimizer(keras.optimizers.SGD()) for _ in range(2)]
    with keras_mp.protect_state_scope(norm, opts[0]), keras_mp.protect_state_scope(norm, opts[1]):
        norm.moving_mean.assign([1.0] * 4)
        pairs = [(ops.full((4,), np.nan), v) for v in norm.trainable_variables]
        opts[0].apply_gradients(pairs, gradients_scaled=True)
    assert norm.moving_mean.numpy().tolist() == [0.0] * 4


def test_nothing_to_go_by_is_refused(make_model, data):
    model = keras_mp.protect_state(make_model())
    fixed = LossScaleOptimizer(keras.optimizers.SGD(), False, 8.0, skip_nonfinite=False)
    model.compile(fixed, "mse", run_eagerly=True)
    with pytest.raises(ValueError, match="skip_nonfinite=False"):
        model.train_on_batch(*data)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (keras.optimizers.SGD, TypeError, r"is keras\.optimizers\.SGD: wrap it"),
        (
            lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()),
            TypeError,
            r"is keras\.optimizers\.LossScaleOptimizer, which Keras",
        ),
        (
            lambda: LossScaleOptimizer(keras.optimizers.SGD(), False, 8.0, skip_nonfinite=False),
            ValueError,
            "skip_nonfinite=False",
        ),
    ],
)
def test_an_optimizer_that_is_handed_over_is_refused_at_once(make_model, make, error, message):
    model, stepped = make_model(), []
    with pytest.raises(error, match=message):
        keras_mp.protect_state(model, make())
    with pytest.raises(error, match=message), keras_mp.protect_state_scope(model, make()):
        stepped.append(True)
    assert not stepped


def test_on_jax_the_optimizer_of_compile_is_the_only_one(make_model, backend):
    optimizer = LossScaleOptimizer(keras.optimizers.SGD())
    model = make_model()
    if backend != "jax":
        assert keras_mp.protect_state(model, optimizer) is model
        return
    with pytest.raises(ValueError, match="of no other: leave the optimizers out"):
        keras_mp.protect_state(model, optimizer)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch.compile, of itself
def test_torch_compile(make_model, data, backend, quick_compile, compiled_once):
    """The layer's own assignments break the graph on Keras; this breaks it nowhere else."""
    if backend != "torch":
        pytest.skip("about torch.compile")
    from torch._dynamo import reset
    from torch._dynamo.utils import counters

    x, y = (a[:8] for a in data)

    def breaks(protect):
        reset()
        counters.clear()
        layer = Keeps()
        model = make_model("float32", layer)
        if protect:
            keras_mp.protect_state(model)
        optimizer = settled(LossScaleOptimizer(keras.optimizers.SGD(0.01)))
        model.compile(optimizer, "mse", jit_compile=True)
        found = []
        for factor in (1.0, np.inf, 2.0):
            model.train_on_batch(x, y * factor)
            found.append(kept(layer))
        return sum(counters["graph_break"].values()), found

    (without, _), (number, (first, skipped, last)) = breaks(False), breaks(True)
    assert number == without
    assert skipped == first
    assert (first[0], last[0]) == (1, 2)


MIRRORED = """
import keras, numpy as np, tensorflow as tf, keras_mp
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(3)])
x = np.random.RandomState(0).randn(24, 4).astype("float32")
y = x.sum(1, keepdims=True)
with strategy.scope():
    norm = keras.layers.BatchNormalization()
    model = keras.Sequential([keras.Input((4,)), norm, keras.layers.Dense(1)])
    model.compile(keras_mp.LossScaleOptimizer(keras.optimizers.SGD(0.01)), "mse")
keras_mp.protect_state(model)

def found():
    return [v.numpy().tolist() for v in strategy.experimental_local_results(norm.moving_mean.value)]

model.fit(x, y, batch_size=24, verbose=0)
first = found()
assert any(first[0]), first
bad = x.copy()
bad[20] = np.nan  # of the last replica
model.fit(bad, y, batch_size=24, verbose=0)
assert found() == first, (found(), first)
model.fit(x, y, batch_size=24, verbose=0)
assert found() != first
"""


@pytest.mark.processes
def test_under_a_strategy(backend):
    if backend != "tensorflow":
        pytest.skip("MirroredStrategy is TensorFlow's")
    programs.run("-c", MIRRORED, imported=True)
