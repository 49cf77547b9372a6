"""Every kind of model that is rewritten, and every way to run it."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_mp import graph_rewrite
from keras_mp.graph_rewrite import rewritten
from tests.gradients import gradients
from tests.graph_rewrite_kinds import (
    BACKEND,
    KINDS,
    ROWS,
    assert_close,
    dense,
    differs,
    floats,
    functional,
    low_ops,
    numpy,
    rows,
    sequential,
    targets,
    trained,
)

pytestmark = pytest.mark.usefixtures("rewrite_ends")


# -- kinds of models -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_trains_as_in_float32(kind):
    _, plain_said, plain_predictions = trained(KINDS[kind], rewrite=False)
    model, said, predictions = trained(KINDS[kind], rewrite=True)
    assert_close(said, plain_said)
    assert_close(predictions, plain_predictions)
    assert {p.dtype for p in keras.tree.flatten(predictions)} == {np.dtype("float32")}
    assert {v.dtype for v in model.trainable_variables} == {"float32"}
    assert {"matmul", "einsum", "conv"} & low_ops(model)
    assert not all(map(np.array_equal, *map(keras.tree.flatten, (predictions, plain_predictions))))


LOW_WITH_NUMBERS = {
    "x + 2": lambda x: x + 2.0,
    "2 - x": lambda x: 2.0 - x,
    "x / 3": lambda x: x / 3.0,
    "3 / (x + 9)": lambda x: 3.0 / (x + 9.0),
    "maximum": lambda x: ops.maximum(x, 0.5),
    "minimum": lambda x: ops.minimum(0.5, x),
    "-abs(x)": lambda x: -abs(x),
    "where, x first": lambda x: ops.where(x > 0.5, x, 0.5),
    "where, x second": lambda x: ops.where(x > 0.5, 0.5, x),
    "subtract": lambda x: ops.subtract(1.0, x),
    "multiply": lambda x: ops.multiply(2, x),
    "clip": lambda x: ops.clip(x, 0.0, 1.0),
    "concatenate": lambda x: ops.concatenate([x, x]),
    "stack": lambda x: ops.stack([x, x], 1)[:, 0],
}
HIGH_WITH_NUMBERS = {
    "mod": lambda x: ops.mod(x, 2.0),
    "square": ops.square,
    "x**2": lambda x: x**2,
    "power of x": lambda x: ops.power(x, 2.0),
    "power of 2": lambda x: ops.power(2.0, x),
}
# Python's operators that Keras has no op for: a function of torch, an op of TensorFlow, several
# primitives of JAX.
WALLS = {
    "x // 2": (
        lambda x: x // 2.0,
        {"tensorflow": {"float16"}, "torch": {"float16"}, "jax": {"float16", "float32"}}[BACKEND],
    ),
    "x % 2": (
        lambda x: x % 2.0,
        {"tensorflow": {"float32"}, "torch": {"float32"}, "jax": {"float16", "float32"}}[BACKEND],
    ),
}


@pytest.mark.parametrize(
    ("function", "dtypes"),
    [
        pytest.param(function, dtypes, id=name)
        for of_these, dtypes in (
            (LOW_WITH_NUMBERS, {"float16"}),
            (HIGH_WITH_NUMBERS, {"float32"}),
        )
        for name, function in of_these.items()
    ]
    + [pytest.param(*each, id=name) for name, each in WALLS.items()],
)
def test_ops_with_numbers_are_painted_with_their_gradients(function, dtypes):
    class Own(layers.Layer):
        def call(self, x):
            return function(x)

    model = keras.Sequential([keras.Input((4,)), dense(), Own(name="own"), layers.Dense(2)])
    found = rows(model, floats(4), training=True)
    assert {row.dtype for row in found if row.layer == "own"} == dtypes
    assert [row.dtype for row in found if row.op == "matmul"] == ["float16"] * 2


@pytest.mark.parametrize("kind", ["functional", "subclassed", "LSTM"])
def test_stateful_calls_in_a_row(kind):
    keras.utils.set_random_seed(0)
    model, x = KINDS[kind]()
    model(x)
    plain = numpy([model(x[:n]) for n in (1, 7, ROWS)])
    graph_rewrite.apply(model)
    assert_close(numpy([model(x[:n]) for n in (1, 7, ROWS)]), plain)
    assert len(rewritten.state_of(model).plans) == 1


def test_a_stateful_rnn_keeps_its_state():
    def make():
        keras.utils.set_random_seed(0)
        x = inputs = keras.Input((3, 4), batch_size=4)
        x = layers.LSTM(4, stateful=True)(dense(4)(x))
        return keras.Model(inputs, layers.Dense(2)(x))

    x = floats(3, 4)[:4]
    plain, model = make(), make()
    graph_rewrite.apply(model)
    for _ in range(3):
        assert_close(numpy(model(x)), numpy(plain(x)))
    states = next(layer for layer in model.layers if isinstance(layer, layers.LSTM)).states
    assert len(states) == 2
    assert {v.dtype for v in states} == {"float32"}
    assert all(np.any(numpy(v.value)) for v in states)


def test_attention_drops_other_weights_at_each_call():
    keras.utils.set_random_seed(0)
    x = inputs = keras.Input((5, 4))
    x = layers.MultiHeadAttention(2, 4, dropout=0.5, flash_attention=False, seed=1)(x, x)
    model = keras.Model(inputs, layers.Dense(2)(x))
    plain = [numpy(model(floats(5, 4), training=True)) for _ in range(2)]
    assert not np.allclose(*plain)
    keras.utils.set_random_seed(0)
    twin = keras.models.clone_model(model)
    twin.set_weights(model.get_weights())
    graph_rewrite.apply(twin)
    ours = [numpy(twin(floats(5, 4), training=True)) for _ in range(2)]
    assert all(np.all(np.isfinite(y)) for y in ours)
    assert not np.allclose(*ours)


# -- ways to run -----------------------------------------------------------------------------------

OPTIONS = {
    "run_eagerly": {"run_eagerly": True},
    "jit_compile": {"jit_compile": True},
    "steps_per_execution": {"steps_per_execution": 2},
}


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch.compile, of itself
@pytest.mark.parametrize(
    "option",
    [
        pytest.param(
            option,
            marks=pytest.mark.skipif(
                option == "steps_per_execution" and BACKEND == "torch",
                reason="Keras refuses steps_per_execution > 1 on torch",
            ),
        )
        for option in OPTIONS
    ],
)
def test_options_of_compile(option, quick_compile):
    _, plain_said, plain = trained(sequential, rewrite=False, **OPTIONS[option])
    model, said, ours = trained(sequential, rewrite=True, **OPTIONS[option])
    assert_close(said, plain_said)
    assert_close(ours, plain)
    assert {"matmul", "add", "tanh"} <= low_ops(model)


def test_a_smaller_last_batch():
    x, y = floats(4)[:11], targets(np.zeros((11, 2)))
    found = []
    for rewrite in (False, True):
        model, _, _ = trained(sequential, rewrite)
        loss = model.fit(x, y, batch_size=4, shuffle=False, verbose=0).history["loss"]
        found.append([loss, model.evaluate(x, y, batch_size=4, verbose=0)])
        found[-1] += [model.predict(x, batch_size=4, verbose=0)]
    assert_close(found[1], found[0])
    assert len(rewritten.state_of(model).plans) == 2  # for training and inference


def test_batches_by_hand():
    found = []
    for rewrite in (False, True):
        model, said, _ = trained(sequential, rewrite)
        x, y = floats(4), targets(np.zeros((ROWS, 2)))
        said = [model.train_on_batch(x, y), model.train_on_batch(x[:3], y[:3])]
        said += [model.test_on_batch(x, y), *model.predict_on_batch(x[:2])]
        found.append(said)
    assert_close(found[1], found[0])


def test_accumulated_gradients():
    found = []
    for rewrite in (False, True):
        keras.utils.set_random_seed(0)
        model, x = sequential()
        optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
        if rewrite:
            optimizer = graph_rewrite.enable(optimizer, loss_scale=64.0)
        model.compile(optimizer, "mse")
        y = targets(np.zeros((ROWS, 2)))
        model.fit(x, y, batch_size=5, epochs=2, shuffle=False, verbose=0)
        found.append(model.get_weights())
    assert_close(found[1], found[0])


class OwnStep(keras.Model):
    """Trains with the targets doubled, in a train_step of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.last = dense(), layers.Dense(2)

    def call(self, x, training=None):
        return self.last(self.first(x))

    if BACKEND == "jax":

        def train_step(self, state, data):
            x, y = data
            return super().train_step(state, (x, 2.0 * y))

    else:

        def train_step(self, data):
            x, y = data[:2]
            return super().train_step((x, 2.0 * y))


def test_a_train_step_of_ones_own():
    _, plain_said, plain = trained(lambda: (OwnStep(), floats(4)), rewrite=False)
    _, said, ours = trained(lambda: (OwnStep(), floats(4)), rewrite=True)
    assert_close(said, plain_said)
    assert_close(ours, plain)


@pytest.mark.parametrize("kind", ["functional", "subclassed", "masked", "convolutions"])
def test_a_training_loop_of_ones_own(kind):
    """tf.GradientTape, jax.grad of stateless_call in jax.jit, or torch's backward."""
    keras.utils.set_random_seed(0)
    model, x = KINDS[kind]()
    model(x)
    upstream = floats(2)
    plain = gradients(model, x, upstream)
    graph_rewrite.apply(model)
    for path, gradient in gradients(model, x, upstream).items():
        assert gradient.dtype == np.float32
        largest = np.max(np.abs(plain[path]))
        np.testing.assert_allclose(gradient, plain[path], rtol=2e-2, atol=1e-2 * largest + 2e-2)
    assert differs(model, x)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_function_of_the_frameworks_compiler(compiled, quick_compile):
    keras.utils.set_random_seed(0)
    model, x = functional()
    plain = numpy(model(x))
    graph_rewrite.apply(model)
    call = model
    if BACKEND == "jax":
        import jax

        call = jax.jit(lambda x: model(x)) if compiled else model
    elif BACKEND == "tensorflow":
        import tensorflow as tf

        call = tf.function(lambda x: model(x), jit_compile=compiled)
    elif compiled:
        import torch

        call = torch.compile(model)
    x = ops.convert_to_tensor(x)
    ours = numpy(call(x)), numpy(call(x[:5]))
    assert_close(ours[0], plain)
    assert_close(ours[1], plain[:5])
    assert not np.array_equal(ours[0], plain)
