"""`find_overflow` names what was planted, and changes nothing."""

import contextlib
import json
import logging
import random
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_mp import LossScaleOptimizer, graph_rewrite, range_report
from keras_mp.backends.common.compiling import without_optimization
from keras_mp.diagnosis.dry_run.observers import Observer, observed_by
from keras_mp.diagnosis.overflow_search.report import Finding, OverflowReport
from keras_mp.diagnosis.overflow_search.search import find_overflow
from keras_mp.graph_rewrite import hooks, rewritten
from tests.backends import not_on

MIXED = {"dtype": "mixed_float16"}
# What is replaced while it looks, and as it was before.
LOOKED_INTO = (layers.Layer, keras.Operation, keras.losses.Loss)
CALLS = [each.__dict__["__call__"] for each in LOOKED_INTO]
constant = keras.initializers.Constant


# NumPy says so, where JAX has it make -1e9 a float16.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")


def net(*stack, shape=(4,), loss="mse", optimizer="sgd", **kwargs):
    model = keras.Sequential([keras.Input(shape), *stack], name="net")
    model.compile(optimizer, loss, **kwargs)
    return model


def head(**kwargs):
    return layers.Dense(1, kernel_initializer="ones", name="head", **kwargs)


def dense(value, name="planted", units=3, **kwargs):
    return layers.Dense(units, kernel_initializer=constant(value), name=name, **{**MIXED, **kwargs})


ONES, ZEROS = np.ones((2, 4), "float32"), np.zeros((2, 1), "float32")
ZEROS_4 = np.zeros((2, 4), "float32")


class Ops(layers.Layer):
    """A custom layer that runs a function of keras ops, or of what it is given."""

    def __init__(self, function, name="planted", **kwargs):
        super().__init__(name=name, **kwargs)
        self.function = function

    def call(self, *args):
        return self.function(*args)


class Planted(layers.Layer):
    """Layers within a layer."""

    def __init__(self, name="outer", **kwargs):
        super().__init__(name=name, **kwargs)
        self.first = dense(0.5, "first")
        self.second = dense(40000.0, "planted")

    def call(self, x):
        return self.second(self.first(x))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__(name="net")
        self.block = Planted()
        self.out = head()

    def call(self, x):
        return self.out(self.block(x))


# -- the forward pass ------------------------------------------------------------------------------


def test_a_layer_that_overflows_in_the_forward_pass():
    model = net(dense(0.5, "before"), dense(60000.0), dense(1.0, "after"), head())
    found = find_overflow(model, ONES, ZEROS, loss_scale=1.0)
    first = found.first
    assert (first.where, first.layer, first.layer_class) == ("forward", "planted", "Dense")
    assert (first.op, first.dtype, first.kind, first.cause) == ("matmul", "float16", "inf", True)
    assert first.largest == pytest.approx(3 * 2.0 * np.float32(60000.0))
    assert " ".join(str(found).split()).startswith(
        "overflow in the forward pass: planted (Dense), op matmul, float16: largest magnitude "
        "3.6e+05 (limit 65504)"
    )
    assert found.loss_finite_at_scale_1 is False
    assert "no loss scale can cure" in str(found)
    later = [place.layer for place in found.findings if not place.cause]
    assert later.index("after") < later.index("head")
    assert json.loads(json.dumps(found.to_dict()))["first"]["layer"] == "planted"


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="only JAX compiles each operation")
def test_a_second_search_compiles_little_again(caplog):
    """The backward pass, which is longer than the forward pass, not at all."""
    import jax

    model, compiled = net(dense(0.5, units=11), head()), []  # shapes of no other test
    for _ in range(2):
        caplog.clear()
        with jax.log_compiles(), caplog.at_level(logging.WARNING):
            find_overflow(model, ONES, ZEROS)
        compiled.append(sum(record.message.startswith("Compiling") for record in caplog.records))
    assert compiled[0] > 0, "nothing is heard of compiling"
    assert compiled[1] < 20


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="only JAX compiles each operation")
def test_what_a_search_compiles_in_haste_is_its_own(caplog):
    import jax

    def in_haste():
        return jax.config.read("jax_disable_most_optimizations")

    def compiled(function, *args):
        caplog.clear()
        with jax.log_compiles(), caplog.at_level(logging.WARNING):
            function(*args)
        return sum(record.message.startswith("Compiling") for record in caplog.records)

    seen = []

    def planted(x):
        seen.append(in_haste())
        return ops.cosh(ops.reshape(x, (-1, 13, 2)))  # a shape of no other test

    def failing(x):
        seen.append(in_haste())
        raise RuntimeError("planted")

    model = net(Ops(lambda x: ops.sum(planted(x), axis=2)), shape=(26,), loss=None)
    seen.clear()  # of the symbolic call
    find_overflow(model, np.ones((1, 26), "float32"))
    hastes = jax.default_backend() == "cpu" and hasattr(jax, "make_user_context")
    assert set(seen) == {hastes}
    assert not in_haste()
    x = ops.convert_to_tensor(np.ones((1, 13, 2), "float32"))
    with without_optimization():
        assert compiled(ops.sinh, x) == 1
        assert compiled(ops.sinh, x) == 0
    assert compiled(ops.sinh, x) == hastes  # anew, optimized
    assert compiled(ops.cosh, x) == hastes
    assert compiled(ops.cosh, x) == 0
    layer = model.layers[0]
    layer.function = failing
    with pytest.raises(RuntimeError, match="planted"):
        find_overflow(model, np.ones((1, 26), "float32"))
    assert set(seen) == {hastes}
    assert not in_haste()


def test_nothing_is_found_where_nothing_overflows():
    found = find_overflow(net(dense(0.5), head()), ONES, ZEROS, loss_scale=16.0)
    assert found.first is None
    assert found.findings == ()
    assert found.loss_finite_at_scale_1 is True
    assert str(found).startswith("no overflow")


def test_what_is_not_finite_is_never_said_to_be():
    harmless = Finding(
        "forward", "mask", "Ops", "where", "output", "float16", "inf", None, harmless=True
    )
    assert str(OverflowReport((harmless,), 1.0, 8.0, True)).splitlines()[0] == (
        "no overflow that does harm at a loss scale of 8"
    )
    for report in (
        OverflowReport((replace(harmless, harmless=False, cause=False),), None, 1.0, None),
        OverflowReport((), float("nan"), 1.0, False),
    ):
        assert str(report).startswith("not everything is finite")
        assert repr(report) == str(report)


def test_many_findings_are_counted():
    causes = [
        Finding("forward", f"layer_{i}", "Dense", "matmul", "output", "float16", "inf", 1e5)
        for i in range(15)
    ]
    report = OverflowReport(tuple(causes), None, 1.0, None)
    lines = str(report).splitlines()
    assert lines[-1] == "  and 2 more: findings", "the first stands above"
    assert len(report.to_dict()["findings"]) == 15


@pytest.mark.parametrize("seen_after", [lambda loss: loss, lambda loss: ops.add(loss, 1.0)])
def test_a_loss_that_nobody_saw_being_computed(seen_after):
    class Unseen(keras.Sequential):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return seen_after(_framework_nan(y_pred))

    model = Unseen([keras.Input((4,)), layers.Dense(1)])
    model.compile("sgd")
    found = find_overflow(model, ONES, ZEROS)
    assert (found.first.where, found.first.kind, found.first.largest) == ("loss", "nan", None)
    assert found.loss_finite_at_scale_1 is False


def test_forward_only_needs_no_compile():
    model = keras.Sequential([keras.Input((4,)), dense(60000.0)])
    found = find_overflow(model, ONES)
    assert found.first.layer == "planted"
    assert found.loss is None
    assert found.loss_finite_at_scale_1 is None


def attention_logits():
    return net(
        Ops(lambda x: ops.softmax(ops.matmul(x, ops.transpose(x, (0, 2, 1)))), **MIXED),
        layers.Flatten(),
        head(),
        shape=(3, 64),
    ), np.full((2, 3, 64), 40.0)


def multi_head_attention():
    x = keras.Input((3, 8))
    attention = layers.MultiHeadAttention(
        1, 8, kernel_initializer=constant(1.0), name="planted", flash_attention=False, **MIXED
    )
    y = head()(layers.Flatten()(attention(x, x)))
    model = keras.Model(x, y, name="net")
    model.compile("sgd", "mse")
    return model, np.full((2, 3, 8), 40.0)


def average_pooling():
    pool = layers.AveragePooling2D(64, name="planted", **MIXED)
    return net(pool, layers.Flatten(), head(), shape=(64, 64, 1)), np.full((1, 64, 64, 1), 60.0)


def masked_softmax():
    def attend(x):
        mask = ops.cast(ops.array([0, 0, 0, 0]), x.dtype)  # a sample of padding
        return ops.softmax(x + (1 - mask) * -1e9)

    return net(dense(0.5, "before", 4), Ops(attend, **MIXED), head()), ONES


def unit_normalization():
    return net(
        Ops(lambda x: ops.sqrt(ops.sum(ops.square(x), -1, keepdims=True)), **MIXED), head()
    ), (ONES * 300)


def nested():
    inner = keras.Sequential([keras.Input((4,)), dense(1.0, "fine"), dense(30000.0)], name="inner")
    return net(inner, head()), ONES


def subclassed():
    model = Subclassed()
    model(ONES)
    model.compile("sgd", "mse")
    return model, ONES


def activation():
    return net(
        dense(4.0, "before"), layers.Activation("exponential", name="planted", **MIXED), head()
    ), ONES


def input_cast():
    return net(dense(1e-6), head()), ONES * 1e5


def bfloat16_is_fine_and_float16_is_not():
    fine = dense(60000.0, "fine", dtype="mixed_bfloat16")
    return net(fine, dense(1e-4), head()), ONES


def dtype_of_an_op():
    return net(Ops(lambda x: ops.full_like(x, 1e5, dtype="float16")), head()), ONES


def tokens():
    table = layers.Embedding(3, 4, embeddings_initializer="ones")
    return net(table, layers.Flatten(), dense(60000.0), head(), shape=(2,)), np.ones(
        (2, 2), "int32"
    )


def array_of_the_call():
    class Outer(Planted):
        def call(self, x):
            return self.first(x) + self.second(np.full((1, 3), 1e6, "float32"))

    return net(Outer(), head()), ONES


FORWARD = {
    "attention logits": (attention_logits, "planted", "matmul"),
    "MultiHeadAttention": (multi_head_attention, "planted", None),
    "a mask of -1e9": (masked_softmax, "planted", "multiply"),
    "a norm": (unit_normalization, "planted", "square"),
    "nested": (nested, "inner/planted", "matmul"),
    "subclassed": (subclassed, "outer/planted", "matmul"),
    "an activation": (activation, "planted", "exp"),
    "the cast of what it is given": (input_cast, "planted", "cast"),
    "an op that is told its dtype": (dtype_of_an_op, "planted", "full_like"),
    "after tokens, which are whole numbers": (tokens, "planted", "matmul"),
    "the cast of an array that a call makes": (array_of_the_call, "outer/planted", "cast"),
    "a cast between dtypes": (bfloat16_is_fine_and_float16_is_not, "planted", "cast"),
}


@pytest.mark.parametrize("case", FORWARD)
def test_forward(case):
    make, layer, op = FORWARD[case]
    model, x = make()
    y = np.zeros((len(x), 1))
    first = find_overflow(model, x, y).first
    assert (first.where, first.layer) == ("forward", layer)
    if op is not None:
        assert first.op == op
    assert first.dtype == "float16"
    assert first.largest > 65504


def test_average_pooling_sums_in_float16():
    model, x = average_pooling()
    found = find_overflow(model, x, np.zeros((1, 1)))
    if keras.backend.backend() == "torch":  # which sums in float32
        assert found.first is None
    else:
        assert (found.first.layer, found.first.op) == ("planted", "average_pool")


def test_a_cast_of_a_cast_that_nobody_showed():
    """The call casts to bfloat16, which holds it, and Keras to float16, which does not."""

    class Narrows(keras.Model):
        def __init__(self):
            super().__init__(name="net")
            self.before = layers.Dense(2, kernel_initializer="ones", name="before")
            self.planted = dense(1e-6)

        def call(self, x):
            return self.planted(ops.cast(self.before(x), "bfloat16"))

    model = Narrows()
    model(ONES)
    first = find_overflow(model, ONES * 65536).first
    assert (first.layer, first.op, first.dtype, first.largest) == (
        "planted", "cast", "float16", 4 * 65536.0,
    )  # fmt: skip


def test_the_constant_of_a_mask_is_named():
    model, x = masked_softmax()
    first = find_overflow(model, x, ZEROS).first
    assert first.largest == pytest.approx(1e9)
    assert "-1e+09 is -inf in float16" in first.note


def test_a_mask_that_does_no_harm_is_not_the_first():
    def attend(x):
        return ops.softmax(ops.where(ops.array([True, False, True, True]), x, -1e9))

    model = net(dense(0.5, "before", 4), Ops(attend, "mask", **MIXED), dense(60000.0), head())
    found = find_overflow(model, ONES, ZEROS)
    assert found.first.layer == "planted"
    model = net(dense(0.5, "before", 4), Ops(attend, "mask", **MIXED), head())
    found = find_overflow(model, ONES, ZEROS)
    assert found.first is None
    assert [(place.layer, place.harmless) for place in found.findings if place.cause] == [
        ("mask", True)
    ]


@pytest.mark.parametrize(
    ("result", "harmless"),
    [
        (lambda: float("nan"), True),
        (lambda: 0.5, True),
        (lambda: _framework_square(ops.ones(())), True),
        (lambda: _framework_nan(ops.ones(())), False),
    ],
    ids=["nan", "a number", "a tensor", "a tensor that is nan"],
)
def test_a_metric_that_nobody_saw_being_computed(result, harmless):
    """Whatever has overflowed may have a part in it, if it is a tensor that is not finite."""

    class Unseen(keras.metrics.Metric):
        def update_state(self, *args, **kwargs):
            pass

        def result(self):
            return result()

    def attend(x):
        return ops.softmax(ops.where(ops.array([True, False, True, True]), x, -1e9))

    stack = dense(0.5, "before", 4), Ops(attend, "mask", **MIXED), head()
    model = net(*stack, metrics=[Unseen(name="unseen")])
    found = find_overflow(model, ONES, ZEROS)
    (mask,) = [place for place in found.findings if place.layer == "mask" and place.cause]
    # Keras 3.10 makes numbers of all results.
    result = model.compute_metrics(ONES, ZEROS, ZEROS)["unseen"]
    assert mask.harmless == (harmless or isinstance(result, float))


def test_lists_of_numbers_are_arrays():
    found = find_overflow(net(dense(60000.0), head()), ONES.tolist(), ZEROS.tolist())
    assert found == find_overflow(net(dense(60000.0), head()), ONES, ZEROS)


def test_an_infinity_on_purpose_is_no_overflow():
    def attend(x):
        return ops.softmax(ops.where(ops.array([True, False, True, True]), x, -np.inf))

    model = net(dense(0.5, "before", 4), Ops(attend, "mask", **MIXED), head())
    found = find_overflow(model, ONES, ZEROS)
    assert not [place for place in found.findings if place.cause]


def test_what_is_computed_past_keras_is_found_as_the_layer():
    def past(x):  # no op of Keras: the framework's own
        return _framework_square(x)

    model = net(dense(300.0, "before"), Ops(past, **MIXED), head())
    first = find_overflow(model, ONES, ZEROS).first
    assert (first.where, first.layer, first.op) == ("forward", "planted", None)


def test_a_layer_that_takes_no_float32_has_no_largest_number():
    def past(x):
        if keras.backend.standardize_dtype(x.dtype) != "float16":
            raise TypeError("float16 only")
        return _framework_square(x)

    model = net(dense(300.0, "before"), Ops(past, **MIXED), head())
    first = find_overflow(model, ONES, ZEROS).first
    assert (first.layer, first.kind, first.largest) == ("planted", "inf", None)


def _framework_nan(x):
    match keras.backend.backend():
        case "jax":
            import jax

            return jax.numpy.log(jax.numpy.sum(x) * 0 - 1)
        case "tensorflow":
            import tensorflow as tf

            return tf.math.log(tf.reduce_sum(x) * 0 - 1)
    import torch

    return torch.log(torch.sum(x) * 0 - 1)


def _framework_square(x):
    match keras.backend.backend():
        case "jax":
            import jax

            return jax.lax.square(x)
        case "tensorflow":
            import tensorflow as tf

            return tf.math.square(x)
    import torch

    return torch.square(x)


def test_a_shared_layer_is_found_in_its_second_call():
    x = keras.Input((4,))
    shared = dense(200.0, units=4)
    model = keras.Model(x, head()(shared(shared(x))), name="net")
    model.compile("sgd", "mse")
    first = find_overflow(model, ONES, ZEROS).first
    assert (first.layer, first.op, first.largest) == ("planted", "matmul", 4 * 800.0 * 200.0)


@pytest.mark.parametrize("cell", [layers.LSTM, layers.GRU, layers.SimpleRNN])
def test_recurrent_layers(cell):
    big = constant(60000.0)
    planted = cell(3, activation="linear", kernel_initializer=big, name="planted", **MIXED)
    model = net(planted, head(), shape=(5, 4))
    first = find_overflow(model, np.ones((2, 5, 4)), ZEROS).first
    assert first.where == "forward"
    assert first.layer.startswith("planted")


def test_several_inputs_and_outputs():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    one = head()(dense(1.0, "fine")(a))
    two = layers.Dense(1, name="other")(dense(60000.0)(b))
    model = keras.Model([a, b], [one, two], name="net")
    model.compile("sgd", ["mse", "mae"])
    first = find_overflow(model, [ONES, ONES], [ZEROS, ZEROS]).first
    assert first.layer == "planted"
    named = keras.Model({"a": a, "b": b}, {"head": one, "other": two}, name="net")
    named.compile("sgd", {"head": "mse", "other": "mae"}, metrics={"head": ["mae"]})
    y = {"head": ZEROS, "other": ZEROS}
    assert find_overflow(named, {"a": ONES, "b": ONES}, y).first.layer == "planted"


# -- the data --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_the_input_is_named(bad):
    x = ONES.copy()
    x[1, 2] = bad
    found = find_overflow(net(dense(0.5), head()), x, ZEROS)
    assert (found.first.where, found.first.layer) == ("input", "the input: x")
    assert found.first.kind == str(bad)
    assert "in the input: x" in str(found)
    assert "1 of 8 values" in str(found)
    assert not [place for place in found.findings[1:] if place.cause]


def test_targets_and_one_of_several_inputs_are_named():
    model = net(dense(0.5), head())
    assert find_overflow(model, ONES, ZEROS * np.nan).first.layer == "the input: y"
    weight = np.array([1.0, np.inf])
    assert find_overflow(model, ONES, ZEROS, weight).first.layer == "the input: sample_weight"
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    model = keras.Model([a, b], head()(layers.Add()([a, b])))
    model.compile("sgd", "mse")
    assert find_overflow(model, [ONES, ONES * np.nan], ZEROS).first.layer == "the input: x[1]"


def test_a_weight_that_is_nan_already_is_named():
    model = net(dense(0.5), head())
    kernel = model.get_layer("planted").kernel
    kernel.assign(kernel.numpy() * np.nan)
    first = find_overflow(model, ONES, ZEROS).first
    assert (first.where, first.layer, first.kind) == ("weights", kernel.path, "nan")


# -- the loss, regularizers, metrics ---------------------------------------------------------------


def test_a_loss_in_float16():
    loss = keras.losses.MeanSquaredError(dtype="float16", name="planted")
    found = find_overflow(net(dense(75.0), head(), loss=loss), ONES, ZEROS)
    assert (found.first.where, found.first.layer, found.first.op) == ("loss", "planted", "square")
    assert found.first.largest == pytest.approx(900.0**2)
    assert found.loss_finite_at_scale_1 is False


def test_a_finite_loss_that_the_scale_takes_beyond_float32():
    found = find_overflow(net(head(), loss="mse"), ONES * 1e15, ZEROS, loss_scale=2.0**30)
    assert (found.first.where, found.first.layer) == ("loss", "loss scale")
    assert found.first.largest == pytest.approx(found.loss * 2.0**30)
    assert found.loss_finite_at_scale_1 is True


def test_a_function_metric_in_float16():
    model = net(dense(75.0), head(**MIXED), loss="mae", metrics=["mse"])
    found = find_overflow(model, ONES, ZEROS)
    assert (found.first.where, found.first.op) == ("metric", "square")
    assert found.first.layer == "mse"
    assert found.loss_finite_at_scale_1 is True


def test_an_activity_regularizer_in_float16():
    planted = dense(1.0, units=64, activity_regularizer=keras.regularizers.L2(1e-4))
    found = find_overflow(net(planted, head()), np.full((8, 4), 4.0 * 16), np.zeros((8, 1)))
    assert (found.first.where, found.first.layer) == ("regularizer", "planted")


def test_a_weight_regularizer_in_float16():
    planted = layers.Dense(
        64, kernel_initializer=constant(300.0), kernel_regularizer="l2", name="planted",
        dtype="float16",
    )  # fmt: skip
    found = find_overflow(net(planted, head()), ONES, ZEROS)
    assert found.first.where == "regularizer"
    assert found.first.layer == "planted/kernel"


@pytest.mark.parametrize("loss", ["mse", None])
def test_a_regularizer_is_told_once(loss):
    planted = layers.Dense(
        1, kernel_initializer=constant(1e25), kernel_regularizer="l2", name="planted"
    )
    found = find_overflow(net(planted, loss=loss), ZEROS_4, None if loss is None else ZEROS)
    causes = [(place.where, place.layer, place.harmless) for place in found.findings if place.cause]
    assert causes == [("regularizer", "planted/kernel", False)]


def test_add_loss_in_float16():
    class Adds(layers.Layer):
        def call(self, x):
            self.add_loss(ops.sum(x * x))
            return x

    found = find_overflow(net(Adds(name="planted", **MIXED), head()), ONES * 200, ZEROS)
    assert (found.first.layer, found.first.op) == ("planted", "sum")
    assert found.loss_finite_at_scale_1 is False


# -- the backward pass -----------------------------------------------------------------------------


def test_only_the_backward_pass_overflows():
    model = net(dense(1e-3, "before"), dense(3000.0), head(dtype="float32"))
    x = ONES * 1e-3
    assert find_overflow(model, x, ZEROS, loss_scale=1.0).first is None
    found = find_overflow(model, x, ZEROS, loss_scale=2.0**15)
    first = found.first
    assert (first.where, first.layer, first.op) == ("backward", "planted", "matmul")
    assert first.tensor == "gradient of its input"
    # d mse / d head = 2 * 0.108 / 2, times the scale, over three units.
    assert first.largest == pytest.approx(3 * 3000 * 2**15 * 0.108, rel=2e-2)
    assert found.loss_finite_at_scale_1 is True
    assert {place.tensor for place in found.findings if not place.cause} == {
        "gradient of net/before/kernel"
        if "net/" in model.variables[0].path
        else "gradient of before/kernel",
        "gradient of net/before/bias"
        if "net/" in model.variables[0].path
        else "gradient of before/bias",
    }


def test_a_scale_that_is_too_high_for_the_output_of_a_layer():
    found = find_overflow(net(dense(1.0), head(dtype="float32")), ONES, ZEROS, loss_scale=2.0**20)
    first = found.first
    assert (first.where, first.layer, first.op) == ("backward", "planted", "cast")
    assert (first.tensor, first.dtype) == ("gradient of its output", "float16")
    assert first.largest == 12 * 2.0**20


def test_two_gradients_that_only_their_sum_takes_beyond_float16():
    def twice(x):
        return ops.add(ops.relu(x), ops.relu(x))

    model = net(dense(1e-3, "before"), Ops(twice, "twice", **MIXED), head(dtype="float32"))
    assert find_overflow(model, ONES, ZEROS, loss_scale=2.0**19).first is None
    first = find_overflow(model, ONES, ZEROS, loss_scale=2.0**21).first
    assert (first.where, first.layer, first.kind) == ("backward", "before", "inf")
    assert (first.tensor, first.note) == ("gradient of its output", "sum of 2 gradients")


def test_the_gradient_of_a_weight_that_is_given_to_a_layer():
    class Table(layers.Layer):
        def __init__(self):
            super().__init__(name="table", dtype="float32")
            self.planted = dense(3000.0)

        def build(self, shape):
            self.rows = self.add_weight(shape=(2, 4), name="rows", initializer=constant(1e-5))
            self.planted.build((2, 4))

        def call(self, x):
            made = ops.mean(ops.cast(self.planted(self.rows), "float32"), axis=0)
            return ops.sum(x, axis=-1, keepdims=True) + made

    model = net(Table(), head())
    first = find_overflow(model, ONES, ZEROS, loss_scale=2.0**10).first
    assert (first.where, first.layer, first.dtype) == ("backward", "table/planted", "float16")
    assert "rows" in first.tensor or first.tensor == "gradient of its input"


def test_the_gradient_of_a_float16_prediction():
    found = find_overflow(net(dense(1.0), head(**MIXED)), ONES, ZEROS, loss_scale=2.0**20)
    assert (found.first.where, found.first.layer) == ("backward", "head")
    assert found.first.largest == 12 * 2.0**20


def test_the_gradient_of_a_weight():
    model = net(dense(1e-4, units=1), shape=(4,))
    found = find_overflow(model, ONES * 30000.0, ZEROS, loss_scale=8.0)
    first = found.first
    assert (first.where, first.layer, first.op) == ("backward", "planted", "matmul")
    assert first.tensor.endswith("planted/kernel")
    assert first.largest == pytest.approx(12 * 30000 * 8 * 2, rel=1e-2)


def test_the_gradient_of_the_data_is_nobodys():
    # By x it would overflow, but no training computes it.
    model = net(dense(3000.0), head(dtype="float32"))
    assert find_overflow(model, ONES * 1e-5, ZEROS, loss_scale=2.0**10).first is None


def test_nan_of_a_gradient():
    model = net(dense(0.0, "before"), Ops(ops.sqrt, **MIXED), head(dtype="float32"))
    first = find_overflow(model, ONES, ZEROS + 1).first
    assert (first.where, first.layer, first.op) == ("backward", "planted", "sqrt")


def test_backward_through_a_recurrent_layer():
    planted = layers.LSTM(
        3, kernel_initializer=constant(3000.0), name="planted", unit_forget_bias=False,
        use_bias=False, **MIXED
    )  # fmt: skip
    model = net(
        layers.TimeDistributed(dense(1e-6, "before", 4)),
        planted,
        head(dtype="float32"),
        shape=(2, 4),
    )
    x = np.full((2, 2, 4), 1e-2)
    assert find_overflow(model, x, ZEROS + 1, loss_scale=1.0).first is None
    first = find_overflow(model, x, ZEROS + 1, loss_scale=2.0**14).first
    assert first.where == "backward"
    assert first.layer.startswith("planted")


# -- gradients of somebody's own -------------------------------------------------------------------


def doubling(factor):
    """Doubles; the gradient is that times `factor`."""

    @ops.custom_gradient
    def doubled(x):
        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            return ops.multiply(upstream, 2.0 * factor)

        return ops.multiply(x, 2.0), gradient

    return doubled


def decorated_in_call(x):
    return doubling(1.0)(x)


@pytest.mark.parametrize("function", [doubling(1.0), decorated_in_call])
def test_a_gradient_of_its_own(function):
    planted = Ops(function, **MIXED)

    def found(before, after, scale=1.0):
        model = net(dense(before, "before", dtype="float32"), planted, dense(after, "after", 1))
        return find_overflow(model, ONES, ZEROS, loss_scale=scale)

    assert found(0.1, 0.1).findings == ()
    first = found(1e4, 1e-4).first
    assert (first.where, first.layer, first.op) == ("forward", "planted", "multiply")
    assert first.largest == pytest.approx(8e4, rel=1e-3)
    first = found(1e-4, 3000.0, 64.0).first
    assert (first.where, first.layer, first.op) == ("backward", "after", "matmul")
    assert first.tensor == "gradient of its input"


def test_a_gradient_of_its_own_that_overflows():
    model = net(dense(0.1, "before"), Ops(doubling(1e4), **MIXED), head(dtype="float32"))
    places = find_overflow(model, ONES, ZEROS, loss_scale=2.0**10).findings
    assert (places[0].where, places[0].dtype) == ("backward", "float16")
    assert (places[0].layer, places[0].tensor) in (
        ("planted", "gradient of its input"),  # where what the layer is given was cast for it
        ("before", "gradient of its output"),
    )


def test_a_number_in_bfloat16():
    model = net(Ops(lambda x: x / ops.max(x), dtype="mixed_bfloat16"), head(dtype="float32"))
    assert find_overflow(model, ONES, ZEROS).findings == ()
    first = find_overflow(model, ZEROS_4, ZEROS).first
    assert (first.layer, first.dtype, first.kind) == ("planted", "bfloat16", "nan")


NO_FLOAT8 = not_on("tensorflow", "run_eagerly=True of Keras itself computes no float8 there")


@pytest.mark.parametrize("mode", ["int8", pytest.param("float8", marks=NO_FLOAT8)])
def test_a_quantized_model(mode):
    model = net(layers.Dense(3, activation="relu"), layers.EinsumDense("ab,bc->ac", 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the InputLayer
        model.quantize(mode)
    model.compile("sgd", "mse")
    before = [np.array(value) for value in model.get_weights()]
    found = find_overflow(model, ONES, ZEROS)
    assert found.first is None, str(found)
    assert np.isfinite(found.loss)
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)


# -- the loss scale, and what stays ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "scale"),
    [
        (lambda: LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=2.0**20), 2.0**20),
        (lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), 2.0**20), 2.0**20),
        (lambda: keras.optimizers.SGD(loss_scale_factor=2.0**20), 2.0**20),
        (lambda: keras.optimizers.SGD(), 1.0),
    ],
    ids=["keras_mp", "keras", "loss_scale_factor", "plain"],
)
def test_the_scale_of_the_optimizer(make, scale):
    model = net(dense(1.0), head(dtype="float32"), optimizer=make())
    found = find_overflow(model, ONES, ZEROS)
    assert found.loss_scale == scale
    assert (found.first is None) == (scale == 1.0)


def state(model):
    kept = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return [np.array(variable.numpy()) for variable in kept], len(model.losses)


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("scale", [1.0, 2.0**24])
def test_nothing_changes(trained, scale):
    x, y = np.random.RandomState(0).normal(size=(8, 4)), np.ones((8, 1))
    model = net(
        dense(1.0, "before"),
        layers.BatchNormalization(),
        layers.Dropout(0.5),
        dense(1.0, kernel_regularizer="l2"),
        head(activity_regularizer="l2"),
        optimizer=LossScaleOptimizer(keras.optimizers.Adam()),
        metrics=["mse", keras.metrics.MeanAbsoluteError()],
    )
    if trained:
        model.fit(x, y, verbose=0)
    before, losses = state(model)
    kernel = model.get_layer("planted").kernel
    regularizer, numbers = (
        kernel.regularizer,
        (random.getstate(), np.random.get_state()[1].tolist()),
    )
    metrics = [metric.name for metric in model.metrics]
    found = find_overflow(model, x, y, loss_scale=scale)
    assert (found.first is None) == (scale == 1.0)
    after, losses_after = state(model)
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    assert losses == losses_after
    assert kernel.regularizer is regularizer
    assert [metric.name for metric in model.metrics] == metrics
    assert (random.getstate(), np.random.get_state()[1].tolist()) == numbers
    assert model.optimizer.built == trained
    assert [each.__dict__["__call__"] for each in LOOKED_INTO] == CALLS


def test_training_goes_on_as_it_would_have():
    def train(look):
        keras.utils.set_random_seed(1)
        model = net(dense(1.0), layers.Dropout(0.5, seed=3), head(), metrics=["mse"])
        model.fit(ONES, ZEROS, verbose=0)
        if look:
            find_overflow(model, ONES, ZEROS)
        return model.fit(ONES, ZEROS, verbose=0).history, model.get_weights()

    (logs, weights), (logs_after, weights_after) = train(False), train(True)
    assert logs == logs_after
    for old, new in zip(weights, weights_after, strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("rewritten_meanwhile", [False, True])
def test_who_ends_first_leaves_the_hooks_to_the_others(monkeypatch, rewritten_meanwhile):
    """To watchers in other threads, and to models that the graph rewrite has changed meanwhile."""
    model = net(head())
    plain = ops.convert_to_numpy(model(ONES))
    assert not hooks.is_installed()
    with contextlib.ExitStack() as others:
        with observed_by(Observer(), model):
            np.testing.assert_array_equal(ops.convert_to_numpy(model(ONES)), plain)
            thread = ThreadPoolExecutor(1)
            others.enter_context(thread)
            other = observed_by(Observer(), model)
            thread.submit(other.__enter__).result()
        assert hooks.is_installed()
        np.testing.assert_array_equal(ops.convert_to_numpy(model(ONES)), plain)
        if rewritten_meanwhile:
            monkeypatch.setattr(rewritten, "all_models", lambda: [model])
        thread.submit(other.__exit__, None, None, None).result()
    assert hooks.is_installed() == rewritten_meanwhile
    hooks.uninstall()


def framework_state():
    """Where the framework's own random numbers are; those of Keras are among the variables."""
    if keras.backend.backend() != "torch":
        return None
    import torch

    return torch.random.get_rng_state().tolist()


def test_layers_without_a_seed_draw_the_same_numbers_after_it():
    model = net(layers.Dropout(0.5), dense(20000.0), head(dtype="float32"))
    before = framework_state()
    seen = find_overflow(model, ONES, ZEROS).findings
    assert framework_state() == before
    assert find_overflow(model, ONES, ZEROS).findings == seen


def test_dropout_is_the_mask_that_the_next_step_has():
    model = net(layers.Dropout(0.5, seed=3), dense(20000.0), head(dtype="float32"))
    seen = find_overflow(model, ONES, ZEROS).findings
    assert find_overflow(model, ONES, ZEROS).findings == seen
    assert find_overflow(model, ONES, ZEROS, training=False).first.largest == 80000.0


# -- errors ----------------------------------------------------------------------------------------


def test_errors():
    model = net(dense(1.0), head())
    with pytest.raises(TypeError, match=r"model must be a keras\.Model"):
        find_overflow(layers.Dense(1), ONES)
    with pytest.raises(ValueError, match="is not built"):
        find_overflow(keras.Sequential([layers.Dense(1)]), ONES)
    with pytest.raises(ValueError, match="is not compiled"):
        find_overflow(keras.Sequential([keras.Input((4,)), head()]), ONES, ZEROS)
    with pytest.raises(ValueError, match="x has 2, y has 3"):
        find_overflow(model, ONES, np.zeros((3, 1)))
    with pytest.raises(ValueError, match="empty"):
        find_overflow(model, ONES[:0], ZEROS[:0])
    with pytest.raises(ValueError, match="loss_scale must be a positive"):
        find_overflow(model, ONES, ZEROS, loss_scale=0)
    zero = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    model = net(head(), optimizer=zero)
    zero.build(model.trainable_variables)
    zero.dynamic_scale.assign(0.0)
    with pytest.raises(ValueError, match=r"model's optimizer is 0\.0: pass loss_scale="):
        find_overflow(model, ONES, ZEROS)


@pytest.mark.parametrize("inside", [False, True])
def test_a_rewritten_model_is_refused(inside):
    """Watched, it would compute in float32, and say that nothing overflows."""
    inner = net(dense(30000.0, dtype="float32"), head())
    model = net(inner) if inside else inner
    graph_rewrite.apply(inner)
    try:
        assert not np.isfinite(ops.convert_to_numpy(model(ONES))).any()
        with pytest.raises(ValueError, match=r"'net' is rewritten .*graph_rewrite\.disable\(\)"):
            find_overflow(model, ONES, ZEROS)
        rows = range_report(model, (ONES, ZEROS)).rows
        assert next(row["infs"] for row in rows if row["path"].endswith("planted")) == 6
    finally:
        graph_rewrite.disable()
    assert find_overflow(model, ONES, ZEROS).first is None


def test_in_a_callback_of_fit():
    frozen = LossScaleOptimizer(keras.optimizers.SGD(0.0), initial_scale=2.0**20)
    model = net(dense(1.0), head(dtype="float32"), optimizer=frozen)
    found, scales = [], []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            found.append(find_overflow(self.model, ONES, ZEROS))
            scales.append(float(self.model.optimizer.loss_scale))

    logs = model.fit(ONES, ZEROS, batch_size=1, callbacks=[Look()], verbose=0)
    assert [one.first.layer for one in found] == ["planted", "planted"]
    assert [one.loss_scale for one in found] == scales
    # Each step has overflowed, too, but where JAX 0.4 keeps in float32 what it fuses.
    if keras.backend.backend() != "jax" or not version("jax").startswith("0.4."):
        assert scales == [2.0**19, 2.0**18]
    assert np.isfinite(logs.history["loss"][0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("number", [4.0, np.inf])
def test_numbers_of_16_bits_without_a_shape(dtype, number):
    """NumPy takes none of bfloat16 from TensorFlow."""

    class Scaled(keras.layers.Layer):
        def call(self, x):
            return x * ops.cast(ops.cast(number, "float32"), x.dtype)

    model = keras.Sequential([keras.Input((4,)), Scaled(dtype=dtype)])
    found = find_overflow(model, np.ones((2, 4), "float32"))
    assert bool(found.findings) == np.isinf(number)


# -- metrics that hold something already -----------------------------------------------------------


class Own(keras.metrics.Metric):
    """Keeps its state in Python, too."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.lowest = self.add_variable((), "zeros", name="lowest")
        self.seen, self.count, self.kept = [], 0, np.zeros(2)

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.lowest.assign(ops.minimum(self.lowest.value, ops.min(ops.cast(y_pred, "float32"))))
        self.seen.append(1)
        self.count += 1
        self.kept += 1

    def result(self):
        return ops.copy(self.lowest.value)

    def reset_state(self):
        self.lowest.assign(100.0)
        self.seen.clear()
        self.count, self.kept = 0, np.zeros(2)


class Watching(layers.Layer):
    """A layer with a metric of its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.mean = keras.metrics.Mean(name="watched")

    def call(self, x):
        self.mean.update_state(x)
        return x


def with_metrics():
    inputs = keras.Input((4,))
    x = inputs
    if keras.backend.backend() != "jax":  # whose fit fails where a call updates a metric
        inner = keras.Sequential([keras.Input((4,)), Watching(name="watching")], name="inner")
        x = Watching(name="outer")(inner(inputs))
    outputs = [layers.Dense(1, name="a")(x), layers.Dense(1, name="b")(x)]
    model = keras.Model(inputs, outputs, name="net")
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.01))
    model.compile(optimizer, ["mse", "mae"], metrics=[["mae", Own(name="own")], ["mse"]])
    return model, [ZEROS, ZEROS]


def of_a_single_output():
    return net(head(), optimizer=LossScaleOptimizer(keras.optimizers.SGD(0.01))), ZEROS


@pytest.mark.parametrize("after", ["fit", "evaluate"])
@pytest.mark.parametrize("make", [of_a_single_output, with_metrics])
def test_what_metrics_hold_is_no_part_of_the_search(make, after):
    """A step was skipped, or a batch was bad: the mean loss of that epoch is nan."""
    model, y = make()
    bad = ONES.copy()
    bad[0] = np.nan
    model.fit(ONES, y, verbose=0)
    getattr(model, after)(bad, y, batch_size=1, verbose=0)
    metrics = [m for layer in (model, *model._flatten_layers()) for m in layer.metrics]
    metrics += [] if model._compile_metrics is None else model._compile_metrics.metrics
    own = [m for m in metrics if isinstance(m, Own)]
    before = [np.array(v) for m in metrics for v in m.variables]
    assert any(np.isnan(value).any() for value in before)
    kept = [(list(m.seen), m.count, m.kept.copy()) for m in own]
    held = [(m.seen, m.kept) for m in own]
    found = find_overflow(model, ONES, y)
    assert found.first is None, str(found)
    assert found.findings == ()
    for old, variable in zip(before, (v for m in metrics for v in m.variables), strict=True):
        np.testing.assert_array_equal(old, np.array(variable))
    for one, (seen, count, numbers), (list_before, array) in zip(own, kept, held, strict=True):
        assert one.seen is list_before
        assert one.kept is array
        assert (list(one.seen), one.count) == (seen, count)
        np.testing.assert_array_equal(one.kept, numbers)


def test_a_remedy_is_not_condemned_for_what_metrics_hold():
    """The step of before was skipped because of what the remedy mends."""
    model = net(
        dense(60000.0), head(dtype="float32"), optimizer=LossScaleOptimizer(keras.optimizers.SGD())
    )
    model.fit(ONES, ZEROS, verbose=0)
    assert not np.isfinite(model.metrics[0].variables[0].numpy())
    found = find_overflow(model, ONES, ZEROS)
    assert found.float32_layers.layers == ("planted",)
    assert found.then is None or found.then.where != "metric"
