"""A search that runs the step as one program finds what one that runs it op by op finds."""

from dataclasses import replace

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_mp.diagnosis.dry_run import program as programs_of_steps
from keras_mp.diagnosis.dry_run.program import run_as_program
from keras_mp.diagnosis.dry_run.step import DryRun
from keras_mp.diagnosis.overflow_search import search
from keras_mp.graph_rewrite import hooks
from keras_mp.graph_rewrite.hooks import operators

pytestmark = [
    pytest.mark.skipif(
        keras.backend.backend() != "jax" or not programs_of_steps.compiling.makes_programs(),
        reason="only JAX, a later one, on a CPU",
    ),
    pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning"),
]
MIXED = {"dtype": "mixed_float16"}
constant = keras.initializers.Constant


class Custom(layers.Layer):
    """Runs a function that was given."""

    def __init__(self, function, **kwargs):
        super().__init__(name="custom", **{**MIXED, **kwargs})
        self.function = function

    def call(self, x):
        return self.function(x)


class Scaled(layers.Layer):
    """Assigns to a weight, then multiplies by it; adds a loss."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(), initializer="ones", trainable=False, name="scale")

    def call(self, x, training=False):
        self.scale.assign(self.scale * 300.0)
        self.add_loss(ops.sum(ops.square(x)))
        return x * ops.cast(self.scale, x.dtype) * 300.0


def compiled(*stack, shape=(4,), **kwargs):
    model = keras.Sequential([keras.Input(shape), *stack], name="net")
    model.compile(**{"optimizer": "sgd", "loss": "mse", "metrics": ["mae"], **kwargs})
    return model


def head():
    return layers.Dense(1, name="head", dtype="float32")


def dense(value, name="planted", **kwargs):
    return layers.Dense(3, kernel_initializer=constant(value), name=name, **{**MIXED, **kwargs})


def attention():
    inputs = keras.Input((5, 8))
    x = layers.LayerNormalization(**MIXED)(inputs)
    x = layers.MultiHeadAttention(2, 4, dropout=0.3, **MIXED)(x, x, use_causal_mask=True)
    x = layers.Add(**MIXED)([x, layers.Dropout(0.5, **MIXED)(layers.Dense(8, **MIXED)(x))])
    model = keras.Model(inputs, head()(layers.GlobalAveragePooling1D()(x)), name="net")
    model.compile("sgd", "mse")
    return model


def convnet():
    stack = (
        layers.Conv2D(4, 3, kernel_regularizer="l2", bias_initializer="normal", **MIXED),
        layers.BatchNormalization(**MIXED),
        layers.Activation("relu", **MIXED),
        layers.MaxPooling2D(**MIXED),
        layers.Flatten(**MIXED),
        dense(900.0),
        head(),
    )
    return compiled(*stack, shape=(8, 8, 2))


def past_keras(x):
    return x if isinstance(x, keras.KerasTensor) else (x.astype("float32") * 1e5).astype("float16")


MODELS = {
    "finite": lambda: compiled(dense(0.1), head()),
    "forward": lambda: compiled(dense(0.5, "first"), dense(60000.0), dense(1.0, "after"), head()),
    "float16": lambda: compiled(dense(0.5, dtype="float16"), dense(3e4, "b", dtype="float16")),
    "backward": lambda: compiled(dense(1e-6, "first"), dense(9000.0), head()),
    "weight": lambda: compiled(dense(1e6), head()),
    "weight that is inf": lambda: compiled(dense(np.inf), head()),
    "attention": attention,
    "convnet": convnet,
    "LSTM": lambda: compiled(
        layers.LSTM(3, kernel_initializer=constant(3e4), **MIXED), head(), shape=(2, 4)
    ),
    "GRU, bidirectional": lambda: compiled(
        layers.Bidirectional(layers.GRU(3, **MIXED)), head(), shape=(3, 4)
    ),
    "spectral": lambda: compiled(layers.SpectralNormalization(dense(5.0)), head()),
    "assigns": lambda: compiled(Scaled(**MIXED), head()),
    "past keras": lambda: compiled(Custom(past_keras), head()),
    "mask": lambda: compiled(
        Custom(lambda x: ops.where(x > 9, x, -np.inf)), layers.Softmax(**MIXED), head()
    ),
    "no loss": lambda: compiled(dense(60000.0), loss=None, metrics=None),
}


def searched(model, how, monkeypatch, **kwargs):
    shape = model.input_shape[1:]
    x = np.random.RandomState(0).uniform(0.5, 2, (4, *shape)).astype("float32")
    y = np.ones((4, *model.output_shape[1:]), "float32") if model.loss is not None else None
    programs = []

    def run(dry_run, *args):
        programs.append(run_as_program(dry_run, *args) if how == "program" else None)
        return programs[-1]

    before = [keras.ops.convert_to_numpy(v) for v in model.variables]
    monkeypatch.setattr(programs_of_steps, "run_as_program", run)
    found = search.find_overflow(model, x, y, **kwargs)
    after = [keras.ops.convert_to_numpy(v) for v in model.variables]
    assert all(map(np.array_equal, before, after)) or np.isinf(before[0]).any()
    assert all((program is not None) == (how == "program") for program in programs)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_finds_the_same(name, monkeypatch):
    model = MODELS[name]()
    loss_scale = 2.0**20 if name in ("backward", "attention", "spectral") else 1.0
    eager, program = (
        searched(model, how, monkeypatch, loss_scale=loss_scale) for how in ("eager", "program")
    )
    if eager.loss is not None:
        assert program.loss == pytest.approx(eager.loss, rel=1e-4, nan_ok=True)
    assert program.loss_finite_at_scale_1 == eager.loss_finite_at_scale_1
    # What comes of an inf going back may differ: 0 * inf, where XLA knows the 0.
    assert [at(place) for place in forward(program)] == [at(place) for place in forward(eager)]
    assert at(program.first) == at(eager.first)
    if eager.first is not None and eager.first.largest is not None:
        assert program.first.largest == pytest.approx(eager.first.largest, rel=1e-2)
    assert program.float32_layers == eager.float32_layers


def at(place):
    return place and replace(place, largest=None)


def forward(report):
    return [place for place in report.findings if place.where != "backward"]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("its value", lambda x: x * 1e5 if float(ops.sum(x)) > 0 else x),
        ("a gradient of its own", lambda x: _doubled(x) * 1e5),
    ],
)
def test_what_needs_its_values_runs_op_by_op(name, function, monkeypatch):
    class Late(layers.Layer):
        def call(self, x):
            return function(x)

        def compute_output_spec(self, x):
            return keras.KerasTensor(x.shape, self.compute_dtype)

    model = compiled(Late(name="late", **MIXED), dense(0.5), head())
    x, y = np.ones((4, 4), "float32"), np.ones((4, 1), "float32")
    assert run_as_program(DryRun(model, x, y)) is None
    first = search.find_overflow(model, x, y).first
    assert (first.layer, first.op) == ("late", "multiply")


@ops.custom_gradient
def _doubled(x):
    return ops.multiply(x, 2), lambda upstream: upstream * 2


def test_hooks_that_are_put_while_jax_traces_are_those_of_arrays():
    import jax

    assert not hooks.is_installed()
    classes = []
    jax.eval_shape(lambda: classes.extend(operators.tensor_classes()))
    assert classes == list(operators.tensor_classes())
    assert type(jax.numpy.ones(2)) in classes
