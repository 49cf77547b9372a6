"""Numbers of a rewritten model beside those of the plain one, where float16 could not hold them."""

import random

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_mp import graph_rewrite
from tests.backends import not_on
from tests.gradients import gradients
from tests.graph_rewrite_kinds import BACKEND, Compute, numpy


def sequential(shape, *more):
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input(shape), *more])


def between(function, width=4, after=True):
    """Returns a model that multiplies by the identity before the function, and after it."""

    def identity(name):
        return layers.Dense(width, kernel_initializer="identity", name=name)

    more = [identity("last")] if after else []
    return sequential((width,), identity("first"), Compute(function), *more)


def both(model, *args, **kwargs):
    """Returns what the model computes, plain and rewritten."""
    plain = numpy(model(*args, **kwargs))
    graph_rewrite.apply(model)
    return plain, numpy(model(*args, **kwargs))


def low_ops(model, training=False):
    rows = graph_rewrite.report(model, training=training).rows
    return {row.op for row in rows if row.dtype == "float16"}


pytestmark = pytest.mark.usefixtures("rewrite_ends")


# -- gradients of what was broadcast ---------------------------------------------------------------


def gate(x):
    """Multiplies an image by one number a channel."""
    return ops.multiply(x, ops.reshape(ops.sigmoid(x[:, :1, :1]), (-1, 1, 1, x.shape[-1])))


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        pytest.param(lambda: [layers.Dense(4), layers.ReLU()], (4,), id="Dense"),
        pytest.param(lambda: [layers.Dense(4), layers.ReLU()], (2, 4), id="Dense of steps"),
        pytest.param(lambda: [layers.Conv2D(4, 1), layers.ReLU()], (2, 2, 4), id="Conv2D"),
        pytest.param(lambda: [layers.Conv1D(4, 1), layers.ReLU()], (2, 4), id="Conv1D"),
        pytest.param(
            lambda: [layers.EinsumDense("abc,cd->abd", (2, 4), bias_axes="d")],
            (2, 4),
            id="EinsumDense",
        ),
    ],
)
def test_the_gradient_of_a_bias_does_not_overflow(make, shape):
    """4096 times 16 is 65536: inf in float16."""
    model = sequential(shape, *make(), layers.Dense(4, kernel_initializer="identity", name="last"))
    first = model.layers[0]
    first.kernel.assign(ops.abs(first.kernel) / 4096)
    first.bias.assign(np.ones(4))
    x = np.random.RandomState(0).rand(4096, *shape).astype("float32")
    plain = gradients(model, x, 16.0)
    graph_rewrite.apply(model)
    rewritten = gradients(model, x, 16.0)
    assert "add" in low_ops(model, training=True)
    for path in (first.bias.path, model.layers[-1].bias.path):
        assert np.all(plain[path] >= 4096 * 16)
        np.testing.assert_allclose(rewritten[path], plain[path], rtol=1e-3)


def test_the_gradient_of_a_gate_is_summed_in_float32():
    """Over the image: 4096 numbers of about 6, where a sum in float16 stops at some thousands."""
    keras.utils.set_random_seed(0)
    image, squeezed = keras.Input((64, 64, 2)), keras.Input((3,))
    h = layers.Conv2D(2, 1, use_bias=False, kernel_initializer="ones", name="conv")(image)
    opened = layers.Dense(2, activation="sigmoid", name="gate")(squeezed)
    product = Compute(lambda h, g: h * ops.expand_dims(ops.expand_dims(g, 1), 1), name="product")
    y = layers.Conv2D(3, 1, kernel_initializer="ones", name="last")(product(h, opened))
    model = keras.Model([image, squeezed], y)
    x = [np.ones((2, 64, 64, 2), "float32"), np.ones((2, 3), "float32")]
    plain = gradients(model, x, 1.0)
    graph_rewrite.apply(model)
    rewritten = gradients(model, x, 1.0)
    assert {"multiply", "sigmoid", "expand_dims"} <= low_ops(model, training=True)
    assert np.min(np.abs(plain["gate/bias"])) > 4096
    np.testing.assert_allclose(rewritten["gate/bias"], plain["gate/bias"], rtol=2e-3)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x, w: x * w, id="scale"),
        pytest.param(lambda x, w: w - x, id="from the left"),
        pytest.param(lambda x, w: ops.where(x > 0, x, w * 1.0), id="where"),
        pytest.param(lambda x, w: ops.maximum(x, ops.reshape(w, (1, 4))), id="reshaped weight"),
    ],
)
def test_the_gradient_of_a_weight_of_ones_own_does_not_overflow(function):
    class Own(layers.Layer):
        def build(self, shape):
            self.w = self.add_weight(shape=(4,), initializer="ones", name="w")

        def call(self, x):
            return function(x, self.w)

    own = Own(name="own")
    model = sequential((4,), layers.Dense(4, name="a"), own, layers.Dense(4, name="b"))
    model.layers[-1].kernel.assign(np.eye(4))
    x = np.random.RandomState(0).randn(8192, 4).astype("float32")
    plain = gradients(model, x, 32.0)
    graph_rewrite.apply(model)
    rewritten = gradients(model, x, 32.0)
    (path,) = [v.path for v in own.trainable_variables]
    assert np.all(np.isfinite(rewritten[path]))
    np.testing.assert_allclose(rewritten[path], plain[path], rtol=5e-3, atol=1.0)


# -- what float16 cannot hold ----------------------------------------------------------------------

EXTREME = {
    "softmax": lambda x: ops.softmax(x),
    "log_softmax": lambda x: ops.log_softmax(x),
    "logsumexp": lambda x: x - ops.logsumexp(x, axis=-1, keepdims=True),
    "exp": lambda x: ops.log(ops.exp(x / 4.0)),
    "log1p": lambda x: ops.log1p(ops.exp(x / 4.0)),
    "softplus": lambda x: ops.softplus(x),
    "softmax by hand": lambda x: (lambda e: e / ops.sum(e, axis=-1, keepdims=True))(ops.exp(x / 4)),
    "sum of squares": lambda x: ops.sqrt(ops.sum(ops.square(x), axis=-1, keepdims=True)),
    "mean": lambda x: ops.mean(x * 128.0, axis=-1, keepdims=True) / 128.0,
    "norm": lambda x: ops.norm(x * 4.0, axis=-1, keepdims=True),
    "variance": lambda x: x / ops.std(x * 4.0, axis=-1, keepdims=True),
    "silu": lambda x: ops.silu(x),
    "gelu": lambda x: ops.gelu(x, approximate=False),
    "tanh": lambda x: ops.tanh(x),
    "elu": lambda x: ops.elu(x),
    "log_sigmoid": lambda x: ops.log_sigmoid(x),
}
if hasattr(ops, "layer_normalization"):
    EXTREME["layer normalization"] = lambda x: ops.layer_normalization(x)
NARROW = ("sum of squares", "mean", "norm")  # one column


@pytest.mark.parametrize(
    ("name", "after"),
    [
        pytest.param(name, after, id=f"{name}-{'between' if after else 'last'}")
        for name in EXTREME
        for after in ((False,) if name in NARROW else (False, True))
    ],
)
def test_inputs_of_200(name, after):
    model = between(EXTREME[name], after=after)
    x = np.array([[200, -200, 0.5, 3], [-200, -200, -1, -7], [200, 200, 200, 199]], "float32")
    plain, rewritten = both(model, x)
    assert np.all(np.isfinite(plain))
    np.testing.assert_allclose(rewritten, plain, rtol=1e-2, atol=1e-6)
    assert "matmul" in low_ops(model)


@pytest.mark.parametrize("name", [name for name in EXTREME if name not in NARROW])
def test_gradients_at_inputs_of_200(name):
    model = between(EXTREME[name])
    x = np.array([[200, -200, 0.5, 3], [-200, -200, -1, -7], [150, 200, 200, 199]], "float32")
    upstream = np.array([[1, -2, 0.5, 1]], "float32")
    plain = gradients(model, x, upstream)
    graph_rewrite.apply(model)
    rewritten = gradients(model, x, upstream)
    for path, expected in plain.items():
        assert np.all(np.isfinite(expected))
        largest = np.max(np.abs(expected))
        np.testing.assert_allclose(rewritten[path], expected, rtol=1e-2, atol=4e-3 * largest)


MASK = np.array([1, 1, 0, 0], "float32")
UNIT = layers.UnitNormalization()
CONSTANTS = {
    "divided by a sum and 1e-7": lambda x: x / (ops.sum(ops.abs(x), -1, keepdims=True) + 1e-7),
    "x / (x + 1e-7)": lambda x: x / (ops.relu(x) + 1e-7),
    "log(x + 1e-12)": lambda x: ops.log(ops.relu(x) + 1e-12),
    "times -1e9": lambda x: ops.softmax(x + (1.0 - ops.convert_to_tensor(MASK)) * -1e9),
    "where -1e9": lambda x: ops.softmax(ops.where(MASK > 0, x, -1e9)),
    "where, all -1e9": lambda x: ops.softmax(ops.where(MASK > 1, x, -1e9)),
    "where of a float32": lambda x: ops.softmax(ops.where(MASK > 1, x, np.float32(-1e9))),
    "at least 1e-12": lambda x: x / ops.maximum(ops.abs(x), 1e-12),
    "clipped": lambda x: ops.log(ops.clip(x, 1e-7, 1.0)),
    "times 1e6": lambda x: ops.tanh(x * 1e6 * 1e-6),
    "1e5 - x": lambda x: (1e5 - x) - 1e5,
    "rsqrt": lambda x: x * ops.rsqrt(ops.square(x) + 1e-12),
    "normalize": lambda x: ops.normalize(x, axis=-1),
    "unit normalization": UNIT,
    "keras tensor": lambda x: ops.softmax(x + ops.full((4,), -1e9)),
    "numpy array": lambda x: ops.softmax(ops.add(x, np.full((4,), -1e9, "float32"))),
    "power": lambda x: ops.power(ops.abs(x) + 1e-7, 0.5),
}


if hasattr(ops, "layer_normalization"):
    CONSTANTS["layer normalization"] = lambda x: ops.layer_normalization(x, epsilon=1e-12)
BEYOND = {"x / (x + 1e-7)"}  # the result is beyond float16 itself
CASES = [
    *(pytest.param(name, False, id=f"{name}, last") for name in CONSTANTS),
    *(pytest.param(name, True, id=f"{name}, between") for name in CONSTANTS if name not in BEYOND),
]


@pytest.mark.parametrize(("name", "after"), CASES)
def test_constants_that_float16_cannot_hold(name, after):
    model = between(CONSTANTS[name], after=after)
    x = np.array([[0, 0, 0, 0], [1, -0.5, 0, 0.25], [-1, -2, -3, -4]], "float32")
    plain, rewritten = both(model, x)
    assert np.all(np.isfinite(plain))
    np.testing.assert_allclose(rewritten, plain, rtol=1e-2, atol=1e-6)


# -- random numbers --------------------------------------------------------------------------------


class OfKeras(layers.Layer):
    """Draws from the global generator."""

    def call(self, x, training=False):
        return keras.random.dropout(x, 0.5) if training else x


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: layers.Dropout(0.5, seed=3), id="Dropout"),
        pytest.param(lambda: layers.Dropout(0.5), id="Dropout without a seed"),
        pytest.param(lambda: layers.Dropout(0.5, noise_shape=(None, 1, 4), seed=3), id="noise"),
        pytest.param(lambda: layers.SpatialDropout1D(0.5, seed=3), id="SpatialDropout1D"),
        pytest.param(lambda: layers.GaussianDropout(0.5, seed=3), id="GaussianDropout"),
        pytest.param(lambda: layers.AlphaDropout(0.5, seed=3), id="AlphaDropout"),
        pytest.param(lambda: layers.GaussianNoise(0.5, seed=3), id="GaussianNoise"),
        pytest.param(OfKeras, id="keras.random.dropout"),
    ],
)
def test_draws_the_same_numbers(make):
    def run(rewrite):
        keras.utils.set_random_seed(0)
        x = keras.Input((3, 4))
        h = layers.Dense(4, kernel_initializer="identity", bias_initializer="ones")(x)
        dropped = make()(h)
        model = keras.Model(x, [dropped, layers.Dense(4)(dropped)])
        if rewrite:
            graph_rewrite.apply(model)
        found = []
        for _ in range(3):
            dropped, last = numpy(model(np.ones((16, 3, 4), "float32"), training=True))
            found.append((dropped, last))
        return found

    plain, again, rewritten = run(False), run(False), run(True)
    if not np.array_equal(plain, again):
        pytest.skip("this Keras does not seed its global generator anew")
    for (dropped, last), (our_dropped, our_last) in zip(plain, rewritten, strict=True):
        assert 0 < np.mean(dropped != 2.0) < 1 or np.std(dropped) > 0
        np.testing.assert_allclose(our_dropped, dropped, rtol=2e-3, atol=2e-3)
        np.testing.assert_allclose(our_last, last, rtol=1e-2, atol=1e-2)
    assert not np.array_equal(rewritten[0][0], rewritten[1][0])


def random_states(model):
    states = [numpy(v.value) for v in model.non_trainable_variables]
    generator = keras.src.backend.common.global_state.get_global_attribute("global_seed_generator")
    states.append(None if generator is None else numpy(generator.state.value))
    states += [random.getstate(), np.random.get_state()]
    if BACKEND == "torch":
        import torch

        states.append(torch.get_rng_state())
    if BACKEND == "tensorflow":
        import tensorflow as tf

        states.append(tf.random.get_global_generator().state.numpy())
    return repr(states)


class Draws(layers.Layer):
    """Draws from every generator that there is, when it is called."""

    def call(self, x):
        x = x + random.random() * float(np.random.rand())
        if BACKEND != "jax":  # where Keras asks for a seed in what is traced
            x = x + keras.random.uniform((4,))
        if BACKEND == "torch":
            import torch

            x = x + torch.rand(4)
        return x


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: layers.Dropout(0.5), id="Dropout"),
        pytest.param(OfKeras, id="keras.random"),
        pytest.param(Draws, id="every generator"),
    ],
)
def test_recording_draws_no_number(make):
    model = sequential((4,), layers.Dense(4), make(), layers.Dense(4))
    keras.random.uniform((1,))
    before = random_states(model)
    graph_rewrite.report(model, np.ones((2, 4), "float32"), training=True)
    assert random_states(model) == before


# -- what a call leaves behind ---------------------------------------------------------------------


class Notes(layers.Layer):
    """Adds a loss, updates a metric and counts its calls in a variable."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seen = keras.metrics.Sum(name="seen")

    def build(self, shape):
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, x):
        self.calls.assign_add(1.0)
        if BACKEND != "jax":  # there Keras hands no layer's metric to the step
            self.seen.update_state(ops.ones((2,)))
        self.add_loss(ops.mean(ops.square(x)) * self.scale)
        return x * self.scale


def noting():
    return sequential(
        (4,),
        layers.Dense(4, kernel_regularizer="l2", activity_regularizer="l2"),
        Notes(name="notes"),
        layers.BatchNormalization(momentum=0.5, name="norm"),
        layers.Dense(2),
    )


def test_recording_leaves_nothing(state):
    model = noting()
    before = state(model.variables)
    losses = len(model.losses)
    graph_rewrite.report(model, np.ones((2, 4), "float32"), training=True)
    assert state(model.variables) == before
    assert len(model.losses) == losses


def fitted(rewrite, **compile):
    model = noting()
    optimizer = keras.optimizers.SGD(0.1)
    if rewrite:
        optimizer = graph_rewrite.enable(optimizer, loss_scale=64.0)
    kinds = []

    def loss(y, p):
        kinds.append((y.dtype, p.dtype))
        return ops.mean(ops.square(y - p), axis=-1)

    model.compile(optimizer, loss, metrics=["mae"], **compile)
    random = np.random.RandomState(0)
    x, y = random.randn(16, 4).astype("float32"), random.randn(16, 2).astype("float32")
    history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
    return model, history, {keras.backend.standardize_dtype(k) for pair in kinds for k in pair}


@pytest.mark.parametrize(
    "compiled",
    [False, pytest.param(True, marks=not_on("torch", "it compiles the plain model for minutes"))],
)
def test_variables_are_updated_once_a_step(compiled):
    options = {"jit_compile": True} if compiled else {"run_eagerly": True}
    plain, plain_history, _ = fitted(False, **options)
    model, history, kinds = fitted(True, **options)
    notes = model.get_layer("notes")
    assert float(notes.calls) == float(plain.get_layer("notes").calls) == 4.0
    assert kinds == {"float32"}
    for ours, theirs in zip(model.variables, plain.variables, strict=True):
        np.testing.assert_allclose(numpy(ours.value), numpy(theirs.value), rtol=1e-2, atol=2e-3)
    assert history.keys() == plain_history.keys()
    for name, values in history.items():
        np.testing.assert_allclose(values, plain_history[name], rtol=1e-2)
    norm, plain_norm = model.get_layer("norm"), plain.get_layer("norm")
    for name in ("moving_mean", "moving_variance"):
        np.testing.assert_allclose(
            numpy(getattr(norm, name).value),
            numpy(getattr(plain_norm, name).value),
            rtol=5e-3,
            atol=1e-3,
        )


def test_losses_are_float32_and_as_many():
    model = noting()
    x = np.ones((2, 4), "float32")
    model(x)
    plain = numpy(model.losses)
    graph_rewrite.apply(model)
    for _ in range(2):
        model(x)
        assert {keras.backend.standardize_dtype(loss.dtype) for loss in model.losses} == {"float32"}
        np.testing.assert_allclose(numpy(model.losses), plain, rtol=5e-3)


# -- masks -----------------------------------------------------------------------------------------


def test_masks_survive():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5,), dtype="int32")
    x = layers.Embedding(9, 8, mask_zero=True)(inputs)
    x = layers.Dense(8, activation="relu", name="dense")(x)
    x = layers.Dropout(0.0)(x)
    x = layers.GlobalAveragePooling1D()(x)
    model = keras.Model(inputs, layers.Dense(2)(x))
    x = np.array([[1, 2, 0, 0, 0], [3, 0, 0, 0, 0], [1, 2, 3, 4, 5]])
    plain, rewritten = both(model, x)
    np.testing.assert_allclose(rewritten, plain, rtol=1e-2, atol=2e-3)
    unmasked = np.mean(numpy(model.get_layer("dense")(model.layers[1](x))), axis=1)
    assert not np.allclose(unmasked @ numpy(model.layers[-1].kernel), plain, rtol=0.1)


def test_masking_is_handed_on():
    model = sequential((5, 4), layers.Masking(), layers.Dense(4), layers.Dense(3))
    x = np.ones((2, 5, 4), "float32")
    x[:, 2:] = 0
    graph_rewrite.apply(model)
    mask = numpy(model(x)._keras_mask)
    assert mask.tolist() == [[True, True, False, False, False]] * 2
