"""What a rewritten model really computes, in the lowered step beside that of the plain model.

Counted in what the framework is given, not in what was decided: see `tests/lowered.py`.
"""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import graph_rewrite
from tests.graph_rewrite_cases import ALL, BATCH
from tests.lowered import (
    exponentials,
    fits,
    float16_on_cpu,
    inference,
    parse_stablehlo,
    products,
    sums,
    training_step,
)

pytestmark = pytest.mark.usefixtures("rewrite_ends")

BACKEND = keras.backend.backend()
LOW = frozenset({"float16"})
NO_CONVOLUTION = "torch has no gradient of a float16 convolution to one filter on the CPU"
# Keras' torch backend hands attention to one op of torch; the rewrite multiplies and sums apart.
ATTENTION = {"mha_block": 2} if BACKEND == "torch" else {}
# Keras' own loop of torch ops multiplies all inputs at once; the rewrite runs that of keras ops.
LOOPS = {"recurrent"} if BACKEND == "torch" else set()

# What is computed with an exponential, or whose gradient is.
EXPONENTIAL = {
    "jax": {"sigmoid", "silu", "erf", "gelu"},
    "tensorflow": {"erf", "gelu"},
    "torch": {"erf"},
}[BACKEND]
# The most numbers that are added up in float16; there are none in the other models.
LOW_SUMS = {
    "autoencoder": 2,  # the gradient of UpSampling2D, one axis after the other
    # Keras' einsum broadcasts a kernel; TensorFlow sums the products, as MatMul would inside.
    **({"mha_block": BATCH} if BACKEND == "tensorflow" else {}),
}


def models(*but, training=True):
    """Returns the names of the models, with marks on those that cannot do it."""
    params = []
    for name in ALL:
        marks = []
        if name == "autoencoder" and training and BACKEND == "torch":
            marks.append(pytest.mark.skip(reason=NO_CONVOLUTION))
        params += [] if name in but else [pytest.param(name, marks=marks)]
    return params


def trained(name, dtype=None, optimizer=None):
    """Returns the lowered training step of a model, and the model."""
    built = ALL[name].build()
    optimizer = optimizer or keras.optimizers.SGD(0.01)
    if dtype is not None:
        optimizer = graph_rewrite.enable(optimizer, dtype=dtype)
    built.model.compile(optimizer, built.loss, jit_compile=False)
    with float16_on_cpu():
        return training_step(built.model, built.inputs, built.targets), built


@functools.cache
def both_steps(name):
    """Returns the training steps of the plain and the rewritten model, and the rows of a report."""
    plain, _ = trained(name)
    rewritten, built = trained(name, "float16")
    rows = graph_rewrite.report(built.model, built.inputs, training=True).rows
    return plain, rewritten, rows


def has_loop(name):
    return any(isinstance(x, keras.layers.RNN) for x in ALL[name].build().model._flatten_layers())


def dtypes(found):
    return {op.dtypes for op in found}


# -- the measure -----------------------------------------------------------------------------------


def test_counts_what_is_computed_in_float16():
    x = keras.Input((4,))
    h = keras.layers.Dense(4, dtype="float16", name="low")(x)
    y = keras.layers.Dense(4, activation="softmax", dtype="float32", name="high")(h)
    z = keras.layers.Lambda(lambda x: ops.log(ops.cast(ops.exp(x), "float16")), dtype="float16")(h)
    with float16_on_cpu():
        step = inference(keras.Model(x, [y, z]), np.ones((BATCH, 4), "float32"))
    assert [op.dtypes for op in products(step)] == [{"float16"}, {"float32"}]
    assert dtypes(exponentials(step)) == {LOW, frozenset({"float32"})}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_counts_what_is_summed(dtype):
    layer = keras.layers.Lambda(lambda x: ops.max(ops.exp(x), axis=(0, 2)), dtype=dtype)
    inputs = keras.Input((3, 5), dtype=dtype)
    y = layer(keras.layers.Dense(5, dtype=dtype, name="d")(inputs))
    model = keras.Model(inputs, y)
    model.compile("sgd", lambda y, p: ops.sum(ops.cast(p, "float32")))
    step = training_step(model, np.ones((BATCH, 3, 5), dtype), np.ones((3,), "float32"))
    assert {op.dtypes for op in exponentials(step)} == {frozenset({dtype})}
    assert BATCH * 5 in {op.summed for op in sums(step)} or BACKEND == "torch"


def test_reads_stablehlo():
    text = """
    %3 = stablehlo.convert %2 : (tensor<8x4xi1>) -> tensor<8x4xf16>
    %4 = stablehlo.reduce(%3 init: %c) applies stablehlo.add across dimensions = [0] : (tensor<8x4xf16>, tensor<f16>) -> tensor<4xf16>
    %5 = "stablehlo.reduce"(%3, %c) <{dimensions = array<i64: 0>}> ({
    %6 = stablehlo.convolution(%a, %b) {batch_group_count = 1 : i64, feature_group_count = 3 : i64} : (tensor<8x4x4x3xf32>, tensor<3x3x1x3xf32>) -> tensor<8x2x2x3xf32>
    """  # noqa: E501
    _, summed, other, grouped = parse_stablehlo(text)
    assert (summed.name, summed.summed, summed.of_booleans) == ("reduce_add", 8, True)
    assert other.name == "reduce_other"
    assert (grouped.grouped, grouped.dtypes) == (True, frozenset({"float32"}))
    assert products([summed, grouped]) == []


# -- the training step -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", models())
def test_products_compute_in_float16_forward_and_backward(name):
    plain, rewritten, rows = both_steps(name)
    assert dtypes(products(plain)) == {frozenset({"float32"})}
    assert dtypes(products(rewritten)) == {LOW}
    if name not in LOOPS:
        assert len(products(rewritten)) == len(products(plain)) + 3 * ATTENTION.get(name, 0)
    forward = [row for row in rows if row.list == "allow" and row.dtype == "float16"]
    assert len(products(rewritten)) >= 2 * len(forward) > 0


@pytest.mark.parametrize("name", models("recurrent"))
def test_no_exponential_computes_in_float16_but_of_a_painted_op(name):
    plain, rewritten, rows = both_steps(name)
    low = [op for op in exponentials(rewritten) if op.dtypes & LOW]
    painted = [row for row in rows if row.dtype == "float16" and row.op in EXPONENTIAL]
    assert len(low) == len(painted)
    assert len(exponentials(rewritten)) == len(exponentials(plain)) + (name in ATTENTION)


@pytest.mark.parametrize("name", models("recurrent"))
def test_no_sum_computes_in_float16(name):
    """Neither losses nor the gradients of what was broadcast; the maximum counts its equals."""
    plain, rewritten, _ = both_steps(name)
    low = [op.summed for op in sums(rewritten) if op.dtypes & LOW and not op.of_booleans]
    assert max(low, default=1) <= LOW_SUMS.get(name, 1)
    # torch sums the gradient of a bias in a loop once, after its steps.
    if BACKEND != "torch" or not has_loop(name):
        assert len(sums(rewritten)) >= len(sums(plain)) > 0


@pytest.mark.parametrize("name", ["two_output", "subclassed"])
def test_weights_and_slots_stay_float32(name):
    optimizer = keras.optimizers.Adam(0.01, amsgrad=True)
    _, built = trained(name, "float16", optimizer)
    built.model.train_on_batch(built.inputs, built.targets)
    variables = [*built.model.variables, *built.model.optimizer.variables]
    kinds = {keras.backend.standardize_dtype(v.value.dtype) for v in variables}
    assert kinds <= {"float32", "int32", "int64", "uint32", "bool"}
    of_weights = {v.shape for v in built.model.trainable_variables}
    slots = [v for v in optimizer.variables if v.shape in of_weights and len(v.shape) > 0]
    assert len(slots) >= 3 * len(built.model.trainable_variables)
    assert {v.dtype for v in slots} == {"float32"}


@pytest.mark.skipif(BACKEND != "torch", reason="about Keras' torch backend")
@pytest.mark.parametrize("name", ["mlp_softmax", "transformer_block", "nested"])
def test_on_cpu_keras_multiplies_rounded_numbers_in_float32(name):
    """Keras casts operands up where the device is the CPU; they were rounded before."""
    built = ALL[name].build()
    optimizer = graph_rewrite.enable(keras.optimizers.SGD(0.01), loss_scale=8.0)
    built.model.compile(optimizer, built.loss)
    found = products(training_step(built.model, built.inputs, built.targets))
    assert dtypes(found) == {frozenset({"float32"})}
    assert [op for op in found if not op.fits] == []
    built.model.zero_grad()
    loss = built.model.compute_loss(
        built.inputs, built.targets, built.model(built.inputs, training=True)
    )
    loss.backward()
    kernels = [v for v in built.model.trainable_variables if len(v.shape) == 2]
    assert len(kernels) >= 3
    assert all(fits(v.value.grad, "float16") for v in kernels)


# -- inference -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", models(training=False))
def test_inference_computes_in_float16(name):
    built = ALL[name].build()
    with float16_on_cpu():
        plain = inference(built.model, built.inputs)
        graph_rewrite.apply(built.model)
        rewritten = inference(built.model, built.inputs)
        outputs = keras.tree.flatten(built.model(built.inputs))
    assert dtypes(products(plain)) == {frozenset({"float32"})}
    assert dtypes(products(rewritten)) == {LOW}
    if name not in LOOPS:
        assert len(products(rewritten)) == len(products(plain)) + ATTENTION.get(name, 0)
    assert {keras.backend.standardize_dtype(x.dtype) for x in outputs} == {"float32"}


# -- bfloat16 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp_softmax", "convnet_bn"])
def test_bfloat16_forward_and_backward(name):
    step, built = trained(name, "bfloat16")
    assert dtypes(products(step)) == {frozenset({"bfloat16"})}
    assert len(products(step)) == len(products(both_steps(name)[0]))
    assert "bfloat16" not in {dtype for op in exponentials(step) for dtype in op.dtypes}
    low = [op.summed for op in sums(step) if "bfloat16" in op.dtypes and not op.of_booleans]
    assert max(low, default=1) == 1
    assert {v.dtype for v in built.model.trainable_variables} == {"float32"}
