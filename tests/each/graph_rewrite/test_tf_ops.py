"""The graph rewrite on TensorFlow's own functions, beside Grappler and beside float32."""

import collections
import inspect
import sys
import warnings
from importlib import import_module

import keras
import numpy as np
import pytest
from keras import layers

if keras.backend.backend() != "tensorflow":
    pytest.skip("about functions of TensorFlow", allow_module_level=True)

import tensorflow as tf

from keras_mp import graph_rewrite
from keras_mp.backends.tensorflow import calls
from keras_mp.graph_rewrite.hooks import own_ops
from tests import private_names, tf_functions
from tests.graph_rewrite_cases import SCRIPTS, cases, shim
from tests.graph_rewrite_decisions import Comparison, compare, recorded, used_rows

sys.path.insert(0, str(SCRIPTS))
RECORDED = cases(import_module("tensorflow_ops").models(shim.Shim(keras)))
sys.path.pop(0)


@pytest.fixture(autouse=True)
def restored():
    yield
    graph_rewrite.disable()


def data(size=64):
    x = np.random.default_rng(0).normal(size=(size, tf_functions.WIDTH)).astype("float32")
    return x, x[:, :3]


def rows(model, layer="own", **options):
    """Returns op -> dtypes, of the ops of TensorFlow itself."""
    found = collections.defaultdict(set)
    for row in graph_rewrite.report(model, **options).layer(layer).rows:
        if row.op.startswith("tf."):
            found[row.op.removeprefix("tf.")].add(row.dtype)
    return dict(found)


# -- decisions, beside Grappler's ------------------------------------------------------------------

# Found at first sight, with TF 1.15: 151 of 151 forward and 148 of 148 in training; with TF 2.21:
# 157 of 159 and 153 of 156, none unsafe.
LEAST = {"tf1.15": 1.0, "tf2.21": 0.98}


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("version", LEAST)
def test_agrees_with_grappler(version, training):
    result = Comparison()
    for name, case in RECORDED.items():
        report = graph_rewrite.report(case.build().model, training=training, lists=version)
        theirs = recorded("tensorflow_ops", name, training, version)
        result += compare(theirs, used_rows(report))
    print(result)  # noqa: T201 - shown where it fails
    assert result.unexplained == []
    assert len(result.triples) > 150
    assert result.agreement >= LEAST[version]
    assert result.unsafe == []


# In float32 its loss moves by 2 % if its weights start as float16 rounds them; the others' do not.
STARTS = {"elementwise": 8}


def trained(name, enabled=False, seed=0):
    """Returns the loss after 200 steps; a seed moves weights by up to half a float16 ulp."""
    built, draw = RECORDED[name].build(), np.random.RandomState(seed)
    for weight in built.model.trainable_variables:
        shift = 2.0**-11 * draw.uniform(-1, 1, weight.shape) if seed else 0.0
        weight.assign(weight * (1 + shift))
    optimizer = keras.optimizers.SGD(0.05)
    built.model.compile(graph_rewrite.enable(optimizer) if enabled else optimizer, built.loss)
    x, y = (np.concatenate([each] * 200) for each in (built.inputs, built.targets))
    built.model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    loss = built.model.evaluate(built.inputs, built.targets, batch_size=8, verbose=0)
    graph_rewrite.disable()
    return loss


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_model_learns_as_in_float32(name):
    """Within 1 % of float32; where `STARTS` has more than one, of the range of their losses."""
    loss, found = trained(name, enabled=True), []
    for seed in range(STARTS.get(name, 1)):
        found.append(trained(name, seed=seed))
        if min(found) - 0.01 * max([*found, 0.1]) <= loss <= max(found) + 0.01 * max([*found, 0.1]):
            return
    pytest.fail(f"{loss} in float16, {found} in float32")


# -- values, beside float32 ------------------------------------------------------------------------

MODES = {
    "eager": lambda function: function,
    "graph": tf.function,
    "XLA": lambda function: tf.function(function, jit_compile=True),
}


def value_and_gradients(model, x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x, training=True) ** 2)
    return loss, *tape.gradient(loss, [v.value for v in model.trainable_variables])


WITH_XLA = ("perceptron", "cond", "while_loop")


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        (name, mode)
        for name in tf_functions.ALL
        for mode in MODES
        if mode != "XLA" or name in WITH_XLA
    ],
)
def test_loss_and_gradients_are_as_in_float32(name, mode):
    model, x = tf_functions.model(tf_functions.ALL[name]), data()[0]
    plain = value_and_gradients(model, x)
    graph_rewrite.apply(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = MODES[mode](value_and_gradients)(model, x)
    for a, b in zip(found, plain, strict=True):
        assert a.dtype == "float32"
        largest = float(tf.reduce_max(tf.abs(b)))
        np.testing.assert_allclose(a, b, rtol=0, atol=0.01 * largest)
    assert any(not np.array_equal(a, b) for a, b in zip(found, plain, strict=True))


def products(graph):
    """Returns the dtypes of the matrix products of a graph and its functions, backward too."""
    found = {
        (node.op, tf.as_dtype(node.attr["T"].type).name)
        for nodes in (graph.node, *(each.node_def for each in graph.library.function))
        for node in nodes
        if node.op in ("MatMul", "BatchMatMulV2", "Einsum")
    }
    return {dtype for _, dtype in found}


@pytest.mark.parametrize("name", [name for name in tf_functions.ALL if name != "graph"])
def test_products_are_float16_forward_and_backward(name):
    model = tf_functions.model(tf_functions.ALL[name])
    graph_rewrite.apply(model)
    step = tf.function(lambda x: value_and_gradients(model, x))
    graph = step.get_concrete_function(tf.TensorSpec((64, 16))).graph.as_graph_def()
    of_weights = {"float32"} if name == "vectorized_map" else set()  # it is kept whole
    assert products(graph) == {"float16"} | of_weights


def test_gradients_of_a_session_graph_are_float16():
    model = tf_functions.model(tf_functions.perceptron)
    graph_rewrite.apply(model)

    @tf.function
    def step(x):
        loss = tf.reduce_mean(model(x, training=True) ** 2)
        return tf.gradients(loss, x)

    graph = step.get_concrete_function(tf.TensorSpec((64, 16))).graph.as_graph_def()
    assert products(graph) == {"float16"}


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        ("float16", {"jit_compile": False}),
        ("float16", {"jit_compile": True}),
        ("float16", {"run_eagerly": True}),
        ("bfloat16", {"jit_compile": False}),
    ],
    ids=str,
)
def test_it_trains(dtype, options):
    x, y = data(32)
    losses = []
    for enabled in (False, True):
        model = tf_functions.model(tf_functions.perceptron)
        optimizer = keras.optimizers.SGD(0.05)
        if enabled:
            optimizer = graph_rewrite.enable(optimizer, dtype=dtype)
        model.compile(optimizer, "mse", **options)
        losses.append(model.fit(x, y, epochs=3, verbose=0, shuffle=False).history["loss"][-1])
        graph_rewrite.disable()
    np.testing.assert_allclose(losses[1], losses[0], rtol=0.01)


def test_a_bias_has_its_gradient_summed_in_float32():
    def compute(x, w, v):
        return tf.nn.bias_add(tf.matmul(x, w), v[0])

    model = tf_functions.model(compute)
    graph_rewrite.apply(model)
    step = tf.function(lambda x: value_and_gradients(model, x))
    operations = step.get_concrete_function(tf.TensorSpec((64, 16))).graph.get_operations()
    sums = {each.inputs[0].dtype.name for each in operations if each.type == "BiasAddGrad"}
    assert sums <= {"float32"}
    reduced = [each for each in operations if each.type == "Sum" and "own" in each.name]
    assert {each.inputs[0].dtype.name for each in reduced} == {"float32"}


def test_a_matrix_that_multiplies_a_batch_has_its_gradient_from_one_product():
    model = tf_functions.model(tf_functions.batch)
    graph_rewrite.apply(model)
    step = tf.function(lambda x: value_and_gradients(model, x))
    graph = step.get_concrete_function(tf.TensorSpec((64, 16))).graph
    assert "BatchMatMulV2" not in {each.type for each in graph.get_operations()}
    found = graph_rewrite.report(model).layer("own").rows
    assert [row.dtype for row in found if row.op == "tf.BatchMatMulV2"] == ["float16"]


# -- what is seen ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("function", {"cond": {"float16"}, "MatMul": {"float16"}, "Tanh": {"float16"}}),
        ("cond", {"cond": {"float16"}, "MatMul": {"float16"}, "Exp": {"float32"}}),
        ("while_loop", {"MatMul": {"float16"}, "Tanh": {"float16"}}),
        ("custom_gradient", {"custom_gradient _own_gradient": {"float32"}, "MatMul": {"float16"}}),
        ("vectorized_map", {"vectorized_map": {"float32"}, "MatMul": {"float16"}}),
        ("graph", {"function": {"float32"}}),
        ("silu", {"nn.silu": {"float16"}, "MatMul": {"float16"}}),
        ("batch_normalized", {"FusedBatchNormV3": {"float16"}, "MatMul": {"float16"}}),
    ],
)
def test_the_report_shows_them(name, expected):
    found = rows(tf_functions.model(tf_functions.ALL[name]))
    assert {op: found[op] for op in expected} == expected


def test_an_eager_call_has_the_ops_that_were_recorded():
    def compute(x, w, v):
        ones = tf.ones_like(x) * tf.ones(tf.shape(x)[1])
        return tf.matmul(tf.nn.dropout(tf.matmul(x + ones, w), 0.1), v) + tf.zeros_like(x)

    model = tf_functions.model(compute)
    graph_rewrite.apply(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(data()[0], training=True)
    assert graph_rewrite.report(model).missed == {}


def test_what_adds_to_a_loop_state_is_float32():
    found = graph_rewrite.report(tf_functions.model(tf_functions.while_loop)).layer("own").rows
    sums = [row for row in found if row.why.startswith("it adds to a state step by step")]
    assert [row.dtype for row in sums] == ["int32", "float32"]  # the counter is one, too


def test_an_op_that_nobody_knows_is_float32_and_named():
    def compute(x, w, v):
        return tf.matmul(tf.math.digamma(tf.abs(tf.matmul(x, w)) + 1.0), v)

    found = rows(tf_functions.model(compute))
    assert found["Digamma"] == {"float32"}
    assert found["MatMul"] == {"float16"}


def test_a_constant_that_float16_cannot_hold_denies_an_op():
    def compute(x, w, v):
        return tf.matmul(tf.divide(x, tf.add(tf.abs(x), tf.constant(1e-9))), v)

    found = {row.op: row for row in graph_rewrite.report(tf_functions.model(compute)).rows}
    assert found["tf.AddV2"].dtype == "float32"
    assert found["tf.AddV2"].why.startswith("float16 cannot hold its constant")


def test_names_of_tensorflow_change_the_lists():
    model = tf_functions.model(tf_functions.perceptron)
    graph_rewrite.apply(model, infer_remove=["Tanh"], deny_add=["Tanh"])
    model(data()[0])
    assert rows(model)["Tanh"] == {"float32"}


def test_shapes_and_integers_are_no_rows():
    def compute(x, w, v):
        size = tf.shape(x)[0] * 2 // 2
        x = tf.reshape(tf.matmul(x, w), tf.stack([size, tf_functions.WIDTH]))
        return tf.matmul(x, tf.identity(v))

    found = rows(tf_functions.model(compute))
    assert found.keys() == {"MatMul", "Reshape", "Identity"}
    assert found["Reshape"] == {"float16"}


@pytest.mark.parametrize("kind", ["keras.ops.cond", "recompute_grad"])
def test_other_ways_in(kind):
    def compute(x, w, v):
        if kind == "keras.ops.cond":
            h = keras.ops.cond(
                keras.ops.sum(x) < 0.0, lambda: tf.exp(x), lambda: tf.tanh(tf.matmul(x, w))
            )
        else:
            h = tf.recompute_grad(lambda x: tf.tanh(tf.matmul(x, w)))(x)
        return tf.matmul(h, v)

    model, x = tf_functions.model(compute), data()[0]
    plain = model(x)
    graph_rewrite.apply(model)
    for run in (model, tf.function(model)):
        np.testing.assert_allclose(run(x), plain, atol=0.01)


class Decorated(tf_functions.Own):
    @tf.function
    def call(self, x):
        if tf.reduce_sum(x * x) > 0.0:
            x = tf.matmul(x, tf.convert_to_tensor(self.w))
        return x


def recomputed():
    with keras.RematScope(mode="full"):
        return tf_functions.Own(tf_functions.perceptron, name="own")


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("layer", [lambda: Decorated(None, name="own"), recomputed])
def test_a_layer_whose_call_is_a_function_or_computed_again(layer, mode):
    inputs = keras.Input((tf_functions.WIDTH,))
    model = keras.Model(inputs, layers.Dense(3)(layer()(layers.Dense(tf_functions.WIDTH)(inputs))))
    assert rows(model)["MatMul"] == {"float16"}
    x = data()[0]
    plain = value_and_gradients(model, x)
    graph_rewrite.apply(model)
    found = MODES[mode](value_and_gradients)(model, x)
    for a, b in zip(found, plain, strict=True):
        if b is not None:  # plain Keras finds no gradient in a function that it traced before
            largest = float(tf.reduce_max(tf.abs(b)))
            np.testing.assert_allclose(a, b, rtol=0, atol=0.01 * largest)


# -- that they leave no trace ----------------------------------------------------------------------


@pytest.mark.parametrize("name", tf_functions.ALL)
def test_disable_leaves_no_trace(name):
    model, x = tf_functions.model(tf_functions.ALL[name]), data(8)[0]
    before = model.predict(x, verbose=0)
    names = [(owner, attribute) for owner, attribute, _ in calls.hooks()]
    held = [getattr(owner, attribute) for owner, attribute in names]
    graph_rewrite.apply(model)
    changed = model.predict(x, verbose=0)
    graph_rewrite.disable()
    assert not np.array_equal(changed, before)
    np.testing.assert_array_equal(model.predict(x, verbose=0), before)
    assert [getattr(owner, attribute) for owner, attribute in names] == held


def test_an_exception_in_a_layer_leaves_nothing_behind():
    def compute(x, w, v):
        if raises:
            raise RuntimeError("of the layer")
        return tf_functions.perceptron(x, w, v)

    raises = False
    model, x = tf_functions.model(compute), data()[0]
    graph_rewrite.apply(model)
    model(x)
    raises = True
    for run in (model, tf.function(model)):
        with pytest.raises(RuntimeError, match="of the layer"):
            run(x)
        assert calls._active.handle is None
        assert tf.matmul(x, x, transpose_b=True).dtype == "float32"


def test_a_model_without_them_has_the_ops_that_it_had(monkeypatch):
    def operations():
        keras.utils.set_random_seed(0)
        inputs = keras.Input((5, 8))
        x = layers.MultiHeadAttention(2, 4, dropout=0.1)(inputs, inputs)
        x = layers.LSTM(4)(layers.GaussianNoise(0.1)(layers.LayerNormalization()(x)))
        model = keras.Model(inputs, layers.Dense(2)(layers.Dropout(0.1)(x)))
        graph_rewrite.apply(model)
        step = tf.function(lambda x: value_and_gradients(model, x))
        graph = step.get_concrete_function(tf.TensorSpec((2, 5, 8))).graph.as_graph_def()
        graph_rewrite.disable()
        functions = (each.node_def for each in graph.library.function)
        return collections.Counter(node.op for nodes in (graph.node, *functions) for node in nodes)

    found = operations()
    monkeypatch.setattr(calls, "hooks", lambda: iter(()))
    assert found == operations()


def test_it_does_not_warn_that_nothing_was_found():
    model = tf_functions.model(tf_functions.perceptron)
    only_own = keras.Sequential([keras.Input((16,)), tf_functions.Own(tf_functions.perceptron)])
    for each in (model, only_own):
        graph_rewrite.apply(each)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            each(data()[0])


def test_it_warns_where_nothing_was_found():
    model = keras.Sequential([keras.Input((16,)), tf_functions.Own(lambda x, w, v: tf.exp(x))])
    graph_rewrite.apply(model)
    with pytest.warns(UserWarning, match="no op of the allow list"):
        model(data()[0])


def test_of_a_tensorflow_without_the_names_only_ops_of_keras_are_seen(monkeypatch):
    monkeypatch.setattr(calls, "hooks", lambda: iter([calls.pywrap_tfe.NoSuchName]))
    own_ops._has_hooked_names.cache_clear()
    try:
        model = keras.Sequential(
            [keras.Input((16,)), tf_functions.Own(lambda x, w, v: tf.matmul(x, w))]
        )
        graph_rewrite.apply(model)
        with pytest.warns(UserWarning, match="no op of the allow list"):
            model(data()[0])
    finally:
        graph_rewrite.disable()
        own_ops._has_hooked_names.cache_clear()


# -- private names ---------------------------------------------------------------------------------


def test_private_names_of_tensorflow_are_in_the_table():
    table = private_names.TABLE.read_text(encoding="utf-8")
    for owner, attribute, _ in calls.hooks():
        module = owner.__name__ if inspect.ismodule(owner) else f"{owner.__module__}"
        assert f"`{module.rpartition('.')[2]}.{attribute}`" in table or attribute.startswith("__")


def test_every_op_passes_the_hooks():
    seen = []

    def handle(signature, attributes, run, args):
        seen.append(signature.name)
        return run(*args)

    def compute():
        x = tf.ones((2, 2))
        return tf.nn.bias_add(tf.tanh(tf.matmul(x, x)), tf.ones(2))

    none = (lambda *_: None,) * 3
    undo = [(owner, name, getattr(owner, name)) for owner, name, _ in calls.hooks()]
    try:
        for owner, name, hook in [*calls.hooks()]:
            setattr(owner, name, hook)
        for run in (compute, tf.function(lambda: inside())):

            def inside():
                with calls.watched(handle, *none, lambda: True):
                    return compute()

            seen.clear()
            (inside if run is compute else run)()
            assert [name for name in seen if name != "Fill"] == ["MatMul", "Tanh", "BiasAdd"]
    finally:
        for owner, name, original in undo:
            setattr(owner, name, original)
