"""MirroredStrategy: no replica takes a step that another one skips, and all take that of the sum.

In a process for all programs of this file, see `tests/engines/tensorflow_programs.py`.
"""

import multiprocessing

import keras
import numpy as np
import pytest

from tests import programs
from tests.engines import tensorflow_programs
from tests.engines.tensorflow_replicas import cases_of

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        keras.backend.backend() != "tensorflow", reason="MirroredStrategy is TensorFlow's"
    ),
]


@pytest.fixture(scope="module")
def run():
    """A function that runs a program in the process of all, with `strategy`, of two replicas."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(1, tensorflow_programs.begin) as pool:
        yield lambda program: pool.apply_async(tensorflow_programs.run, (program,)).get(200)


def test_one_replica(run):
    """A machine with one GPU; `fit`, and an overflow."""
    run(
        """
strategy = tf.distribute.MirroredStrategy(["CPU:0"])
x = np.ones((8, 2), "float32")
weight = np.ones(8)
for bad in (False, True):
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        opt = LossScaleOptimizer(keras.optimizers.Adam(0.1), initial_scale=8.0)
        model.compile(opt, "mse")
    before = [w.copy() for w in model.get_weights()]
    weight[3] = np.inf if bad else 1.0
    model.fit(x, x[:, :1], sample_weight=weight, batch_size=8, verbose=0)
    same = all((a == b).all() for a, b in zip(before, model.get_weights()))
    assert (same, float(opt.loss_scale)) == ((True, 4.0) if bad else (False, 8.0))
"""
    )


@pytest.mark.parametrize("build", ["opt.build([variable])", "pass"], ids=["built", "unbuilt"])
def test_a_bad_replica_stops_them_all(run, build):
    """Each replica in turn has the nan; Keras' own class applies all but the first's.

    Unbuilt, it fails there: the optimizer is built while the function is traced.
    """
    run(
        """
with strategy.scope():
    variable = keras.Variable([1.0, 1.0])
    opt = LossScaleOptimizer(keras.optimizers.SGD(0.25, momentum=0.5), initial_scale=8.0)
    BUILD

@tf.function
def step(bad):
    def each():
        here = tf.distribute.get_replica_context().replica_id_in_sync_group
        factor = tf.where(tf.equal(here, bad), np.nan, 1.0)
        with tf.GradientTape() as tape:
            loss = opt.scale_loss(factor * tf.reduce_sum(variable.value))
        opt.apply_gradients([(tape.gradient(loss, variable.value), variable)])
    strategy.run(each)

def found():
    weights = [v.numpy().tolist() for v in strategy.experimental_local_results(variable.value)]
    assert weights[0] == weights[1], weights
    return weights[0][0], float(opt.loss_scale), int(tf.identity(opt.iterations.value))

seen = []
for bad in (-1, 0, 1, -1):
    step(tf.constant(bad))
    seen.append(found())
# The gradients of two replicas are summed: 0.25 * 2, then 0.5 * 0.5 + 0.25 * 2.
assert seen == [(0.5, 8.0, 1), (0.5, 4.0, 2), (0.5, 2.0, 3), (-0.25, 2.0, 4)], seen
""".replace("BUILD", build)
    )


def test_an_average_begins_with_the_first_step_that_is_taken(run):
    run("""
with strategy.scope():
    variable = keras.Variable([1.0, 1.0])
    inner = keras.optimizers.SGD(0.25, use_ema=True)
    opt = LossScaleOptimizer(inner, initial_scale=8.0)
    opt.build([variable])

@tf.function
def step(factor):
    def each():
        opt.apply([factor * opt.loss_scale * tf.ones(2)], [variable])
    opt.scale_loss(1.0)
    strategy.run(each)

for factor in (np.inf, np.nan, 1.0):
    step(tf.constant(factor, "float32"))
average = inner._model_variables_moving_average[0]
for values in map(strategy.experimental_local_results, (variable.value, average.value)):
    assert [v.numpy().tolist() for v in values] == [[0.5, 0.5]] * 2, values
assert int(tf.identity(opt.iterations.value)) == 1
step(tf.constant(np.inf, "float32"))
assert int(tf.identity(opt.iterations.value)) == 2
""")


def test_fit(run):
    run("""
x = np.random.RandomState(0).randn(64, 4).astype("float32")
y = x.sum(1, keepdims=True)
x[12] = np.nan  # of the second replica, in the second batch
with strategy.scope():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    optimizer = LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=256.0)
    model.compile(optimizer, keras.losses.MeanSquaredError())
start = [w.copy() for w in model.get_weights()]
model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
assert all(np.isfinite(w).all() for w in model.get_weights())
assert any(not np.array_equal(a, b) for a, b in zip(start, model.get_weights()))
assert (float(optimizer.loss_scale), int(tf.identity(optimizer.iterations.value))) == (128.0, 8)
""")


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A function that returns what so many replicas, and one, ended with: "case/who/what/copy"."""
    done = {}

    def once(replicas):
        if replicas not in done:
            out = tmp_path_factory.mktemp("replicas") / "found.npz"
            program = ("-m", "tests.engines.tensorflow_replicas")
            programs.run(*program, replicas, out, timeout=250, imported=True)
            with np.load(out) as arrays:
                done[replicas] = dict(arrays)
        return done[replicas]

    return once


@pytest.mark.parametrize(
    ("replicas", "case"), [(replicas, case) for replicas in (2, 3) for case in cases_of(replicas)]
)
def test_as_one_device(ended, replicas, case):
    """Clipping, sparse rows that several replicas name, accumulation, with and without bad steps.

    Gradients are summed over the replicas before any of it.
    """
    found = {key: value for key, value in ended(replicas).items() if key.startswith(f"{case}/")}
    many = {key: value for key, value in found.items() if "/many/" in key}
    assert len(many) == replicas * (len(found) - len(many)) > 0
    for key, value in many.items():
        _, _, which, _ = key.split("/")
        np.testing.assert_array_equal(value, many[f"{case}/many/{which}/0"], "replicas differ")
        one = found[f"{case}/one/{which}/0"]
        np.testing.assert_allclose(value, one, rtol=1e-6, atol=1e-6, err_msg=key)


CLIPPED = """
def moved():
    with strategy.scope():
        variable = keras.Variable([0.0, 0.0])
        opt = LossScaleOptimizer(keras.optimizers.SGD(1.0, clipnorm=0.1), initial_scale=8.0)
        opt.build([variable])

    @tf.function
    def step(bad):
        def each():
            i = tf.distribute.get_replica_context().replica_id_in_sync_group
            wrong = tf.where(tf.equal(i, 1), bad, 1.0)
            gradient = tf.cond(tf.equal(i, 0), lambda: [6.0, 0.0], lambda: [0.0, 8.0])
            opt.apply_gradients([(8.0 * tf.stack(gradient) * wrong, variable)])
        strategy.run(each)

    step(tf.constant(np.nan))
    step(tf.constant(1.0))
    assert float(opt.loss_scale) == 4.0
    return -keras.ops.convert_to_numpy(variable)
"""


def test_the_sum_is_clipped_not_its_terms(run):
    """By hand: the norm of (6, 8) is 10; each replica's own, clipped, is (.1, 0) or (0, .1)."""
    run(f"""{CLIPPED}
np.testing.assert_allclose(moved(), [0.06, 0.08], rtol=1e-6)
""")


def test_an_optimizer_that_cannot_be_told_of_the_sum(run):
    """As in Keras: each replica clips, then they sum. They still skip together."""
    run(f"""{CLIPPED}
import unittest.mock
from keras_mp.backends.tensorflow import strategies
with unittest.mock.patch.object(strategies, "_SUMS", "_all_reduce_sum_gradients_of_some_day"):
    np.testing.assert_allclose(moved(), [0.1, 0.1], rtol=1e-6)
""")


def test_what_is_checked_is_the_sum(run):
    """Two terms of 2e38 overflow float32; two of 2**127 do not, once 2**10 is taken out."""
    run("""
for scaled, skipped in ((2e38, True), (2.0**127, False)):
    with strategy.scope():
        variable = keras.Variable([0.0])
        scale = 1.0 if skipped else 2.0**10
        opt = LossScaleOptimizer(keras.optimizers.SGD(2.0**-117), initial_scale=scale)
        opt.build([variable])
    tf.function(lambda: strategy.run(
        lambda: opt.apply_gradients([(tf.constant([scaled]), variable)], gradients_scaled=True)
    ))()
    taken = [0.0] if skipped else [-2.0]
    for copy in strategy.experimental_local_results(variable.value):
        assert copy.numpy().tolist() == taken
    assert int(keras.ops.convert_to_numpy(opt.step_counter)) == (0 if skipped else 1)
""")


def test_gradients_that_are_values_are_not_summed(run):
    """As for float8: each replica assigns its own; a bad one stops all."""
    run("""
with strategy.scope():
    variables = keras.Variable([0.0]), keras.Variable([0.0])
    variables[1].overwrite_with_gradient = True
    opt = LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=8.0)
    opt.build(variables)

@tf.function
def step(bad):
    def each():
        i = tf.distribute.get_replica_context().replica_id_in_sync_group
        value = tf.where(tf.equal(i, bad), np.inf, 3.0)
        opt.apply(list(map(tf.reshape, (tf.constant(8.0), value), ([1], [1]))), variables)
    strategy.run(each)

for bad, ended in ((-1, (-2.0, 3.0, 8.0)), (0, (-2.0, 3.0, 4.0)), (1, (-2.0, 3.0, 2.0))):
    step(tf.constant(bad))
    copies = [strategy.experimental_local_results(v.value) for v in variables]
    for first, second in zip(*copies):
        assert (float(first[0]), float(second[0]), float(opt.loss_scale)) == ended, ended
""")


@pytest.mark.parametrize("way", ["values", "sums by itself"])
def test_a_nan_of_one_replica_is_one_for_all(run, way):
    """Also where gradients are not summed before they are looked at."""
    run(
        """
class Own(keras.optimizers.SGD):
    def _all_reduce_sum_gradients(self, grads_and_vars):
        return super()._all_reduce_sum_gradients(grads_and_vars)

with strategy.scope():
    variable = keras.Variable([0.0])
    variable.overwrite_with_gradient = VALUES
    opt = LossScaleOptimizer((keras.optimizers.SGD if VALUES else Own)(1.0), initial_scale=8.0)
    opt.build([variable])

@tf.function
def step(replica):
    def each():
        i = tf.distribute.get_replica_context().replica_id_in_sync_group
        value = tf.where(tf.equal(i, replica), np.nan, np.inf)
        opt.apply([tf.reshape(value, [1])], [variable])
        return opt.nonfinite_kind, opt.check_finite([tf.reshape(value, [1])])
    return [strategy.experimental_local_results(each) for each in strategy.run(each)]

for replica in (0, 1):
    kinds, finite = step(tf.constant(replica))
    assert [int(kind) for kind in kinds] == [2, 2], kinds
    assert not any(map(bool, finite))
""".replace("VALUES", str(way == "values"))
    )


def test_accumulation_that_cannot_be_had(run):
    run("""
class Own(keras.optimizers.SGD):
    def _all_reduce_sum_gradients(self, grads_and_vars):
        return super()._all_reduce_sum_gradients(grads_and_vars)

SGD = keras.optimizers.SGD
with strategy.scope():
    part = SGD(0.1, gradient_accumulation_steps=2)
    made = {
        "with an optimizer that sums over replicas by itself":
            Own(0.1, gradient_accumulation_steps=2),
        "together with ema_overwrite_frequency":
            SGD(0.1, gradient_accumulation_steps=2, use_ema=True, ema_overwrite_frequency=2),
    }
    if hasattr(keras.optimizers, "MultiOptimizer"):
        made["in a part of a MultiOptimizer"] = keras.optimizers.MultiOptimizer(lambda _: part)
for reason, inner in made.items():
    with strategy.scope():
        variable = keras.Variable([0.0])
        opt = LossScaleOptimizer(inner)
        opt.build([variable])
    try:
        strategy.run(lambda: opt.apply([tf.constant([1.0])], [variable]))
    except ValueError as error:
        found = f"gradient_accumulation_steps is not supported {reason} under MirroredStrategy"
        assert found in str(error), error
    else:
        raise AssertionError(f"nothing was said of {reason}")
""")


ALONE = "from tests.engines.tensorflow_programs import begin, run; begin(); run({!r})"


def test_training_goes_on_with_another_number_of_replicas(tmp_path):
    """All numbers are small multiples of a power of 2, so that sums are exact in any order.

    In a process of its own: one has no sums over one, and over two replicas.
    """
    program = f"""
file = {str(tmp_path / "saved.weights.h5")!r}
x = np.random.RandomState(0).randint(-2, 3, (12, 4, 2)).astype("float32")
x[1, 3] = x[7, 3] = np.nan

def made(replicas):
    strategy = tf.distribute.MirroredStrategy([f"CPU:{{i}}" for i in range(replicas)])
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="dense")])
        opt = LossScaleOptimizer(
            keras.optimizers.SGD(0.25, momentum=0.5, clipvalue=2.0),
            initial_scale=8.0, dynamic_growth_steps=3,
        )
        model.compile(opt, keras.losses.MeanSquaredError())
        opt.build(model.trainable_variables)
        model.layers[0].set_weights([np.array([[1.0], [2.0]]), np.zeros(1)])

    @tf.function
    def step(x):
        def each():
            i = tf.distribute.get_replica_context().replica_id_in_sync_group
            mine = x[i * 4 // replicas : (i + 1) * 4 // replicas]
            with tf.GradientTape() as tape:
                loss = opt.scale_loss(tf.reduce_sum(model(mine)) / 4)
            variables = model.trainable_variables
            gradients = tape.gradient(loss, [v.value for v in variables])
            opt.apply_gradients(zip(gradients, variables))
        strategy.run(each)

    def state():
        variables = [*model.variables, *opt.variables]
        copies = [strategy.experimental_local_results(v.value) for v in variables]
        for each in copies:
            assert len(each) == replicas
            assert all((copy.numpy() == each[0].numpy()).all() for copy in each)
        return [each[0].numpy() for each in copies]

    return model, step, state

for before, after in ((2, 1), (1, 2), (2, 2)):
    _, step, state = made(before)
    for rows in x:
        step(tf.constant(rows))
    whole = state()

    model, step, state = made(before)
    for rows in x[:5]:
        step(tf.constant(rows))
    model.save_weights(file)
    saved = state()

    model, step, state = made(after)
    model.load_weights(file)
    for found, expected in zip(state(), saved, strict=True):
        np.testing.assert_array_equal(found, expected)
    for rows in x[5:]:
        step(tf.constant(rows))
    for found, expected in zip(state(), whole, strict=True):
        np.testing.assert_array_equal(found, expected)
    # Halved at the steps 1 and 7, doubled at 4 and 10; one finite step since.
    assert float(model.optimizer.loss_scale) == 8.0
    assert int(model.optimizer.dynamic_counter) == 1
"""
    programs.run("-c", ALONE.format(program), imported=True)
