"""What `find_overflow` tells beside the layer: remedies that it tried, lines, steps, scales."""

import json
from dataclasses import replace

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_mp import LossScaleOptimizer
from keras_mp.diagnosis.overflow_search.search import find_overflow

MIXED = {"dtype": "mixed_float16"}
constant = keras.initializers.Constant
ONES, ZEROS = np.ones((2, 4), "float32"), np.zeros((2, 1), "float32")


class Ops(layers.Layer):
    """A custom layer that runs a function of keras ops."""

    def __init__(self, function, **kwargs):
        super().__init__(name="planted", **{**MIXED, **kwargs})
        self.function = function

    def call(self, x):
        return self.function(x)


def net(*stack, shape=(4,), loss="mse", scale=None, metrics=None):
    model = keras.Sequential([keras.Input(shape), *stack], name="net")
    optimizer = keras.optimizers.SGD(0.0)
    if scale is not None:
        optimizer = LossScaleOptimizer(optimizer, initial_scale=scale)
    model.compile(optimizer, loss, metrics=metrics)
    return model


def dense(value=0.5, name="first", units=3, **kwargs):
    return layers.Dense(units, kernel_initializer=constant(value), name=name, **{**MIXED, **kwargs})


def head(**kwargs):
    given = {"dtype": "float32", "kernel_initializer": "ones", **kwargs}
    return layers.Dense(1, name="head", **given)


def texts(report):
    return " ".join(str(report).split())


# -- the loss scale --------------------------------------------------------------------------------


def test_the_scale_that_would_be_too_high():
    model = net(dense(), head(), scale=2.0**10)
    found = find_overflow(model, ONES, ZEROS)
    assert found.first is None
    scale = found.next_scale
    assert find_overflow(model, ONES, ZEROS, loss_scale=scale / 2).first is None
    first = find_overflow(model, ONES, ZEROS, loss_scale=scale).first
    assert (first.where, first.layer) == ("backward", "first")
    assert replace(found.at_next_scale, largest=None) == replace(first, largest=None)
    assert f"At a loss scale of {scale:.0f}: overflow in the backward pass: first" in texts(found)
    assert float(model.optimizer.loss_scale) == 2.0**10


@pytest.mark.parametrize(
    ("dtype", "scale"), [("float32", 2.0**10), ("bfloat16", 2.0**10), ("float16", None)]
)
def test_no_other_scale_is_tried_where_there_is_none(dtype, scale):
    stack = dense(dtype="float32" if dtype == "float32" else f"mixed_{dtype}"), head()
    assert find_overflow(net(*stack, scale=scale), ONES, ZEROS).next_scale is None


def test_the_scale_that_fits():
    model = net(dense(), head(), scale=2.0**20)
    found = find_overflow(model, ONES, ZEROS)
    fits = found.fitting_scale
    assert find_overflow(model, ONES, ZEROS, loss_scale=fits).first is None
    assert find_overflow(model, ONES, ZEROS, loss_scale=fits * 2).first is not None
    (remedy,) = found.remedies
    assert (remedy.kind, remedy.then, remedy.what) == ("loss scale", None, f"{fits:.0f}")
    assert f"begins there with initial_scale={fits:.0f}" in texts(found)
    assert found.float32_layers is None


def test_layers_where_no_scale_fits():
    """Its gradient is too large for float16 at a scale of 1, which the loss scale would come to."""
    model = net(dense(1e-6), head(kernel_initializer=constant(1e5)), scale=8.0)
    found = find_overflow(model, ONES, ZEROS + 100)
    assert (found.first.where, found.first.layer) == ("backward", "first")
    assert found.fitting_scale is None
    assert found.float32_layers.layers == ("first",)
    assert found.then is None


# -- losses and metrics ----------------------------------------------------------------------------


class Squares(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return ops.mean(ops.square(y_true - y_pred), -1)


@pytest.mark.parametrize("built", [True, False])
def test_a_loss_and_a_metric_of_float16(built):
    metric = keras.metrics.MeanSquaredError(name="squares", dtype="float16")
    loss = Squares(name="planted", dtype="float16")
    model = net(head(dtype="float32"), loss=loss, metrics=[metric])
    if built:
        model.evaluate(ONES, ZEROS + 1000, verbose=0)
    found = find_overflow(model, ONES, ZEROS + 1000)
    assert [f.where for f in found.findings if f.cause] == ["loss", "metric"]
    assert [(r.kind, r.what, r.then) for r in found.remedies] == [
        ("dtype", "planted", None), ("dtype", "squares", None),
    ]  # fmt: skip
    assert 'Give planted (Squares) dtype="float32" where you make it' in texts(found)
    assert (loss.dtype, metric.dtype) == ("float16", "float16")
    assert all(v.dtype == "float16" for v in metric.variables)


@pytest.mark.skipif(
    keras.backend.backend() == "tensorflow", reason="Keras itself takes what is before the sigmoid"
)
def test_from_logits():
    """In float16, 1 minus the epsilon of Keras is 1."""
    planted = dense(5.0, "planted", 1, activation="sigmoid")
    loss = keras.losses.BinaryCrossentropy(dtype="float16", name="entropy")
    found = find_overflow(net(planted, loss=loss), ONES, ZEROS)
    # torch has one function for it, whose loss is finite.
    torch = keras.backend.backend() == "torch"
    assert (found.first.where, found.first.layer) == ("backward" if torch else "loss", "entropy")
    by_kind = {remedy.kind: remedy for remedy in found.remedies}
    assert by_kind["from_logits"].then is None
    assert by_kind["dtype"].then is None
    assert "Make planted without its activation" in texts(found)
    assert "BinaryCrossentropy(from_logits=True)" in texts(found)
    assert planted.activation is keras.activations.sigmoid
    assert loss._fn_kwargs["from_logits"] is False


def test_a_cast_in_the_code_of_a_layer_that_is_float32():
    def narrow(x):
        return ops.square(ops.cast(x, "float16"))

    model = net(Ops(narrow, dtype="float32"), head())
    found = find_overflow(model, ONES * 300, ZEROS)
    (remedy,) = found.remedies
    assert (remedy.kind, remedy.then) == ("source line", None)
    assert remedy.source.code == 'return ops.square(ops.cast(x, "float16"))'
    assert found.float32_layers is None


# -- what has no answer ----------------------------------------------------------------------------


def divided(x):
    return (x - x) / ops.sum(x - x, -1, keepdims=True)


@pytest.mark.parametrize(
    ("function", "op", "note"),
    [
        (divided, ("divide", "true_divide"), "0 / 0 in 8 of 8 values"),
        (lambda x: x / (x - x), ("divide", "true_divide"), "division by 0 in 8 of 8 values"),
        (lambda x: ops.log(x - x), ("log",), "log(0) in 8 of 8 values"),
        (lambda x: ops.log(-x), ("log",), "log of a negative number in 8 of 8 values"),
        (lambda x: ops.sqrt(-x), ("sqrt",), "sqrt of a negative number in 8 of 8 values"),
        (lambda x: ops.rsqrt(x - x), ("rsqrt",), "rsqrt(0) in 8 of 8 values"),
        (lambda x: ops.power(x - x, -1.0), ("power",), "0 to a negative power in 8 of 8 values"),
    ],
)
def test_what_no_dtype_would_answer_is_told_as_such(function, op, note):
    first = find_overflow(net(Ops(function), head()), ONES, ZEROS).first
    assert first.op in op
    assert (first.note, first.largest) == (note, None)
    assert "largest magnitude" not in str(first)


def test_a_slope_that_has_no_end():
    model = net(dense(0.0), Ops(ops.sqrt), head())
    first = find_overflow(model, ONES, ZEROS + 1).first
    assert (first.where, first.op, first.largest) == ("backward", "sqrt", None)
    assert first.note == "the gradient of sqrt at 0 in 6 of 6 values"


def test_what_float16_rounded_before_a_layer_in_float32():
    """The layer that takes the log is float32; its input was rounded to 0 by the one before."""
    tiny = dense(1e-4, "tiny", 1, use_bias=False, activation=lambda x: x * x * x)
    model = net(tiny, Ops(ops.log, dtype="float32"), head())
    found = find_overflow(model, ONES, ZEROS)
    assert found.first.note == "log(0) in 2 of 2 values"
    assert found.float32_layers.layers == ("tiny",)
    assert found.then is None


# -- lines and time steps --------------------------------------------------------------------------


def test_the_line_of_the_user():
    def lifted(x):
        y = x * 2
        return ops.exp(y * 100)

    found = find_overflow(net(Ops(lifted), head()), ONES, ZEROS)
    source = found.first.source
    assert (source.file, source.function, source.is_of_user) == (__file__, "lifted", True)
    assert source.code == "return ops.exp(y * 100)"
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))["first"]["source"]
    assert (told["line"], told["code"]) == (source.line, source.code)
    assert source.code in str(found)
    assert f"line {source.line}, in lifted" in found._repr_html_()


def test_a_gradient_has_the_line_of_the_forward_pass():
    def thrice(x):
        return ops.matmul(x, ops.full((3, 3), 3000.0, x.dtype))

    model = net(dense(1e-5), Ops(thrice), head())
    first = find_overflow(model, ONES, ZEROS + 1, loss_scale=2.0**10).first
    assert (first.where, first.op) == ("backward", "matmul")
    assert first.source.code == "return ops.matmul(x, ops.full((3, 3), 3000.0, x.dtype))"


def test_the_line_of_keras_where_the_user_wrote_none():
    source = find_overflow(net(dense(60000.0), head()), ONES, ZEROS).first.source
    assert not source.is_of_user
    assert source.file.replace("\\", "/").endswith("keras/src/layers/core/dense.py")


@pytest.mark.parametrize("steps", [6, 14])
def test_time_steps_are_one_finding(steps):
    """Of a loop that JAX traces, too."""
    planted = layers.SimpleRNN(
        2, activation="relu", recurrent_initializer=keras.initializers.Identity(8.0),
        kernel_initializer="ones", return_sequences=True, name="planted", **MIXED,
    )  # fmt: skip
    model = net(planted, layers.Flatten(dtype="float32"), head(), shape=(steps, 4))
    found = find_overflow(model, np.ones((2, steps, 4)), ZEROS)
    first = found.first
    assert (first.where, first.layer) == ("forward", "planted/simple_rnn_cell")
    assert first.time_step == (6, steps)  # 4 * (1 + 8 + ... + 8**5)
    assert f"time step 6 of {steps}" in texts(found)
    assert first.source.file.replace("\\", "/").endswith("keras/src/layers/rnn/simple_rnn.py")
    assert sum(f.cause for f in found.findings) <= 3
    assert found.then is None


def test_gradients_of_time_steps_are_one_finding():
    planted = layers.SimpleRNN(
        2, recurrent_initializer="identity", kernel_initializer="ones", name="planted", **MIXED
    )
    model = net(planted, head(), shape=(5, 4))
    found = find_overflow(model, np.full((2, 5, 4), 1e-3), ZEROS + 1, loss_scale=2.0**24)
    causes = [f for f in found.findings if f.cause]
    places = [(f.layer, f.op, f.tensor, f.source) for f in causes]
    assert len(set(places)) == len(places)
    assert found.first.where == "backward"


def test_a_line_that_runs_several_times_is_one_finding():
    def three(x):
        parts = [ops.exp(part) for part in ops.split(x, 2, axis=1)]
        return ops.concatenate(parts, axis=1)

    found = find_overflow(net(Ops(three), head()), ONES * 20, ZEROS)
    assert [(f.op, f.times) for f in found.findings if f.cause] == [("exp", 2)]
    assert "op exp, 2 times" in texts(found)
