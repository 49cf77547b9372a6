"""What a report says of a model, against what its ops compute in when it runs."""

import json
from collections import Counter

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_mp.graph_rewrite import hooks, replaying, rewritten
from keras_mp.graph_rewrite.lists import op_lists
from keras_mp.graph_rewrite.painted_graph import Edge
from keras_mp.graph_rewrite.recording import layer_of
from keras_mp.graph_rewrite.reporting import report
from keras_mp.graph_rewrite.tensors import dtype_of, tensors


@pytest.fixture(autouse=True)
def _without_hooks():
    yield
    for model in rewritten.all_models():
        rewritten.restore(model)
    hooks.uninstall()


@keras.saving.register_keras_serializable("keras_mp_tests")
class Subclassed(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden, self.out = layers.Dense(8, name="hidden"), layers.Dense(4, name="out")

    def call(self, x, training=False):
        x = self.hidden(x)
        x = ops.exp(-x * x) @ ops.ones((8, 6)) + 1.0
        return self.out(ops.relu(x)) / 2.0


class RawOps(layers.Layer):
    """Computes by operators only; none of its ops is a layer of Keras."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 8), name="kernel")
        self.offset = self.add_weight(shape=(8,), name="offset", initializer="ones")

    def call(self, x):
        y = x @ (self.kernel * 2.0) + self.offset
        return (y[:, :4] - y[:, 4:]) * abs(y[:, :4])


def convnet():
    x = a = keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, padding="same", name="conv")(x)
    x = layers.BatchNormalization(name="bn")(x)
    x = layers.ReLU(name="relu")(x)
    x = layers.Conv2D(4, 3, name="conv2")(layers.MaxPooling2D(name="pool")(x))
    x = layers.Dropout(0.5, name="drop")(layers.Flatten(name="flat")(x))
    return keras.Model(a, layers.Dense(3, activation="softmax", name="probs")(x))


def sequential():
    return keras.Sequential([keras.Input((6,)), layers.Dense(8), layers.Dense(2)])


def nested():
    a = keras.Input((6,))
    inner = keras.Sequential([layers.Dense(8, name="d"), layers.Dense(8, name="e")], name="inner")
    return keras.Model(a, layers.Dense(2, name="d")(inner(layers.Dense(6, name="f")(a))))


def shared():
    a, b = keras.Input((6,)), keras.Input((6,))
    dense = layers.Dense(6, name="shared")
    x = ops.log(ops.abs(dense(a)) + 1.0) * dense(b)
    return keras.Model([a, b], layers.Dense(2, name="out")(dense(x)))


def recurrent():
    a = keras.Input((5,), dtype="int32")
    x = layers.Embedding(10, 4, mask_zero=True, name="words")(a)
    x = layers.LSTM(4, return_sequences=True, name="first")(x)
    x = layers.GRU(4, name="second")(x)
    return keras.Model(a, layers.Dense(2, name="out")(x))


def attention():
    x = a = keras.Input((6, 8))
    x = layers.LayerNormalization(name="ln")(x)
    x = layers.MultiHeadAttention(2, 4, dropout=0.1, name="mha")(x, x)
    x = layers.Add(name="residual")([a, x])
    x = layers.Dense(8, activation="gelu", name="ff")(x)
    return keras.Model(a, layers.Dense(2, name="out")(layers.GlobalAveragePooling1D()(x)))


def two_outputs():
    a = keras.Input((6,), name="a")
    x = layers.Dense(8, activation="relu", name="trunk")(a)
    left, right = layers.Dense(2, name="left")(x), layers.Dense(3, name="right")(x)
    return keras.Model({"a": a}, {"left": left, "right": layers.Softmax(name="soft")(right)})


def raw_operators():
    a = keras.Input((6,))
    return keras.Model(a, layers.Dense(2, name="out")(RawOps(name="raw")(a)))


def no_allow_op():
    a = keras.Input((6,))
    return keras.Model(a, layers.Softmax(name="soft")(layers.ReLU(name="relu")(a)))


MODELS = {
    made.__name__: made
    for made in (
        convnet, sequential, nested, shared, recurrent, attention, two_outputs, raw_operators,
        no_allow_op, Subclassed,
    )
}  # fmt: skip


def example(model):
    """Returns a batch of 3 for `model`, in the structure that it was declared with."""
    random = np.random.RandomState(0)

    def array(x):
        shape = (3, *x.shape[1:])
        if x.dtype == "int32":
            return random.randint(0, 10, shape).astype("int32")
        return random.standard_normal(shape).astype("float32")

    if isinstance(model, Subclassed):
        return array(keras.KerasTensor((None, 6)))
    if isinstance(model, keras.Sequential):
        return array(model.inputs[0])
    return keras.tree.map_structure(array, model.input)


def ran(model, call):
    """Calls a rewritten model; returns what each op did, by (layer, op, occurrence).

    That is: the floating point dtypes that the op saw and made, the dtypes that were remembered
    beside its results, and the results.
    """
    found = {}

    class Watched(replaying.Replay):
        def __call__(self, name, original, args, kwargs):
            key = layer_of(self._plan.path), name
            occurrence = self._seen.get(key, 0)
            dtypes = set()

            def watched(*args, **kwargs):
                result = original(*args, **kwargs)
                for x in (*tensors(args, kwargs), *tensors((result,), {})):
                    dtypes.add(dtype_of(x))
                return result

            result = super().__call__(name, watched, args, kwargs)
            made = list(tensors((result,), {}))
            cached = [self._cache.get(x) for x in made]
            remembered = {dtype_of(x) for x in cached if x is not None}
            found[(*key, occurrence)] = (dtypes, remembered, made)
            return result

    with rewritten.replaying_by([model], Watched):
        call()
    return found


def is_traced(x):
    """Returns whether torch only traces: the memory of such a tensor is soon another's."""
    import torch

    return torch._is_functional_tensor(x)


def values(x):
    if keras.backend.backend() == "torch" and is_traced(x):
        return None
    try:
        return np.asarray(ops.convert_to_numpy(x))
    except Exception:  # noqa: BLE001  a tracer of a loop has none, and each backend says so differently
        return None


CALLS = {
    "training": lambda model, inputs: model(inputs, training=True),
    "inference": lambda model, inputs: model(inputs, training=False),
    "compiled": lambda model, inputs: model.predict_on_batch(inputs),
}


@pytest.mark.filterwarnings("ignore:The graph rewrite found no op of the allow list")
@pytest.mark.parametrize("how", CALLS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_row_says_what_runs(make, dtype, how):
    model = make()
    inputs = example(model)
    rewritten.rewrite(model, rewritten.Options(op_lists(), dtype))
    told = report(model, inputs, training=how == "training")
    assert told.dtype == dtype
    found = ran(model, lambda: CALLS[how](model, inputs))
    later = report(model, inputs, training=how == "training")
    assert later.rows == told.rows
    assert not later.missed
    rows = {(row.layer, row.op, row.occurrence): row for row in told.rows}
    recorded = Counter(key[:2] for key in rows)
    assert set(recorded) == {key[:2] for key in found}
    for (*key, occurrence), (dtypes, remembered, made) in found.items():
        row = rows[(*key, occurrence)]
        floats = {name for name in dtypes if "float" in name}
        if row.dtype != dtype:
            assert row.dtype in dtypes, (row, dtypes)
            assert dtype not in floats, (row, dtypes)
            assert not remembered, row
            continue
        # Around the first two replaying casts; a view of torch is one of both tensors.
        view = replaying._SPECIAL.get(row.op) is replaying._view
        if row.op not in ("batch_normalization", "dropout") and not view:
            assert floats == {dtype}, (row, dtypes)
        assert remembered == {dtype} or not any(dtype_of(x) == "float32" for x in made), row
        if view:
            continue
        for x in map(values, made):
            if x is not None and x.dtype == np.float32:
                low = ops.convert_to_numpy(ops.cast(ops.cast(x, dtype), "float32"))
                np.testing.assert_array_equal(low, x, err_msg=str(row))


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_model_that_is_not_rewritten_is_told_what_would_run(make):
    model = make()
    inputs = example(model)
    before = report(model, inputs)
    assert not hooks.is_installed()
    assert rewritten.state_of(model) is None
    assert "call" not in vars(model)
    rewritten.rewrite(model, rewritten.Options(op_lists(), "float16"))
    assert report(model, inputs) == before


@pytest.mark.parametrize("make", [convnet, shared, recurrent, two_outputs, sequential])
def test_declared_inputs_need_no_example(make):
    model = make()
    found = report(model)
    given = report(
        model, keras.tree.map_structure(lambda x: np.repeat(x, 2, 0)[:4], example(model))
    )
    assert found.rows == given.rows
    assert {edge.shape[0] for edge in found.edges if edge.source is None and not edge.unseen} == {4}


def test_sides_that_are_not_known():
    image, steps = keras.Input((None, None, 1)), keras.Input((None, 2))
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(2, 1, name="conv")(image))
    y = layers.GlobalAveragePooling1D()(layers.Dense(2, name="dense")(steps))
    found = report(keras.Model([image, steps], layers.Add()([x, y])))
    flops = {(row.layer, row.op): row.flops for row in found.rows}
    assert flops["conv", "conv"] == 2 * 4 * 64 * 64 * 1 * 2
    assert flops["dense", "matmul"] == 2 * 4 * 16 * 2 * 2


def test_reasons_name_the_other_op():
    found = report(convnet())
    why = {(row.layer, row.op): row for row in found.rows}
    assert why["conv", "conv"].why == "its op is on the allow list"
    assert why["relu", "relu"].why == "it lies between allow ops, downstream of conv of 'conv'"
    assert found.rows[why["relu", "relu"].because_of].layer == "conv"
    assert why["bn", "add"].why == "it follows moments of 'bn', which is on the deny list"
    assert why["bn", "batch_normalization"].why == (
        "it lies between allow ops, downstream of conv of 'conv'; in and out in float16, "
        "statistics, scale and offset in float32"
    )
    assert why["conv", "reshape"].why == "it computes with weights only, which stay float32"
    assert why["probs", "softmax"].why == "its op is on the deny list"
    model = Subclassed()
    lines = {(row.layer, row.op): row.why for row in report(model, np.ones((2, 6))).rows}
    assert lines["", "true_divide"] == (
        "no allow op is downstream of it, through ops that may compute in float16"
    )
    every = [row.why for model in (convnet(), attention()) for row in report(model).rows]
    assert not [why for why in every if "OTHER" in why or "LOW" in why or "vertex" in why]


def test_columns_of_a_row():
    found = report(sequential(), dtype="bfloat16")
    row = found.rows[0]
    assert (row.index, row.op, row.occurrence, row.tf_op) == (0, "matmul", 0, "MatMul")
    assert (row.list, row.colour, row.dtype, row.flops) == ("allow", "allow", "bfloat16", 384)
    assert [row.index for row in found.rows] == list(range(len(found.rows)))


def test_edges_follow_the_tensors_and_mark_casts():
    found = report(keras.Sequential([keras.Input((6,)), layers.Dense(8), layers.Softmax()]))
    assert [(row.op, row.dtype) for row in found.rows] == [
        ("matmul", "float16"),
        ("add", "float32"),
        ("softmax", "float32"),
    ]
    ends = [(edge.source, edge.target, edge.cast, edge.shape) for edge in found.edges]
    assert ends == [
        (None, 0, "float16", (4, 6)),
        (0, 1, "float32", (4, 8)),
        (1, 2, None, (4, 8)),
        (2, None, None, (4, 8)),
    ]
    assert all(isinstance(edge, Edge) and not edge.unseen for edge in found.edges)


def test_a_batch_normalization_takes_its_statistics_without_a_cast():
    found = report(convnet())
    at = next(row.index for row in found.rows if row.op == "batch_normalization")
    edges = [edge for edge in found.edges if edge.target == at]
    assert {edge.cast for edge in edges} == {None}
    made_by = {found.rows[edge.source].op for edge in edges if edge.source is not None}
    assert made_by == {"add", "moments"}


def test_what_updates_moving_statistics_is_told():
    found = report(convnet())
    updates = {row.index: row for row in found.rows if row.updates}
    assert {row.layer for row in updates.values()} == {"bn"}
    assert {row.op for row in updates.values()} == {"multiply", "add"}
    taken = {edge.source for edge in found.edges if edge.target not in updates}
    assert not taken & set(updates), "nothing else takes what they make"
    others = [row.op for row in found.rows if row.layer == "bn" and not row.updates]
    assert others == ["moments", "batch_normalization"]
    assert not [row for row in report(convnet(), training=False).rows if row.updates]
    for make in (recurrent, attention, two_outputs):
        assert not [row for row in report(make()).rows if row.updates]


def test_a_model_of_many_layers_is_told_on_one_page():
    found = report(keras.applications.MobileNetV2(weights=None, input_shape=(32, 32, 3)))
    lines = str(found).splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 120
    assert [line.split()[0] for line in lines if line.startswith("block_")] == [
        f"block_{i}_*" for i in range(1, 17)
    ]
    inner = found.layer("block_1_expand_BN")
    assert sum("(updates) x6" in line for line in str(inner).splitlines()) == 1
    assert max(len(line) for line in str(found.layer("block_3_*")).splitlines()) <= 120
    assert len(found.text(rows=None).splitlines()) == 4 + 155
    width, height = (side * found.plot().dpi for side in found.plot().get_size_inches())
    assert (width <= 2000, height <= 1400) == (True, True)


def test_nothing_remains_of_a_report():
    model = convnet()
    model.compile("sgd", "categorical_crossentropy")
    before = [ops.convert_to_numpy(x) for x in model.variables]
    state = dict(vars(model))
    report(model)
    for then, now in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(then, ops.convert_to_numpy(now))
    assert set(vars(model)) == set(state)
    assert not hooks.is_installed()
    assert not model.losses


def test_hooks_that_were_there_stay():
    other = sequential()
    rewritten.rewrite(other, rewritten.Options(op_lists(), "float16"))
    report(convnet())
    assert hooks.is_installed()


def test_hooks_go_when_a_model_fails():
    with pytest.raises(Exception):  # noqa: B017, PT011  each backend has its own
        report(Subclassed(), [np.ones((2, 3)), np.ones((2, 3))])
    assert not hooks.is_installed()


def test_a_model_that_is_not_built_is_built_once():
    model = Subclassed()
    found = report(model, np.ones((3, 6), "float32"))
    assert model.built
    assert Counter(row.op for row in found.rows)["matmul"] == 3
    assert found == report(model, np.ones((3, 6), "float32"))
    model(np.ones((3, 6), "float32"))
    assert all(np.all(np.isfinite(ops.convert_to_numpy(x))) for x in model.weights)


def test_a_rewritten_model_that_is_not_built():
    model = Subclassed()
    rewritten.rewrite(model, rewritten.Options(op_lists(), "float16"))
    rows = report(model, np.ones((3, 6), "float32")).rows
    model(np.ones((3, 6), "float32"), training=True)
    assert report(model).rows == rows


def test_an_example_is_converted_as_a_call_would():
    model = Subclassed()
    wide, single = (report(model, np.ones((3, 6), dtype)) for dtype in ("float64", "float32"))
    assert wide.rows == single.rows


def test_inputs_of_the_last_call():
    model = Subclassed()
    with pytest.raises(ValueError, match="does not declare its inputs: pass inputs="):
        report(model)
    rewritten.rewrite(model, rewritten.Options(op_lists(), "float16"))
    with pytest.raises(ValueError, match="or call it once after it was rewritten"):
        report(model)
    inputs = np.ones((5, 6), "float32")
    model(inputs, training=False)
    with pytest.raises(ValueError, match=r"only for inference since .* or training=False"):
        report(model)
    assert report(model, training=False) == report(model, inputs, training=False)
    model(inputs, training=True)
    assert report(model) == report(model, inputs)


def test_a_call_without_training_is_painted_as_for_training():
    class Plain(keras.Model):
        def __init__(self):
            super().__init__()
            self.d = layers.Dense(2)

        def call(self, x):
            return self.d(x)

    assert report(Plain(), np.ones((2, 3)), training=False).training


def test_ops_that_missed_the_plan_are_counted():
    class Moody(keras.Model):
        def __init__(self):
            super().__init__()
            self.d, self.e, self.more = layers.Dense(4, name="d"), layers.Dense(4, name="e"), False

        def call(self, x, training=False):
            x = self.d(x)
            return self.e(x) if self.more else x

    model = Moody()
    inputs = np.ones((2, 4), "float32")
    model.more = True
    model(inputs)
    model.more = False
    rewritten.rewrite(model, rewritten.Options(op_lists(), "float16"))
    model(inputs, training=True)
    assert not report(model).missed
    model.more = True
    with pytest.warns(UserWarning, match="has not recorded the op 'matmul' of layer 'e'"):
        model(inputs, training=True)
    model(inputs, training=True)
    found = report(model)
    assert found.missed == {("e", "matmul"): 2, ("e", "add"): 2}
    assert "2 calls of matmul in e were not in the plan" in str(found)
    assert not report(model, dtype="bfloat16").missed, "that is another plan"


def test_what_follows_a_deny_op_of_weights():
    class Scaled(layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(8,))

        def call(self, x):
            return x * ops.exp(self.scale)

    parts = [layers.Dense(8), Scaled(name="scaled"), layers.Dense(2)]
    rows = report(keras.Sequential([keras.Input((8,)), *parts])).rows
    assert [(row.list, row.colour) for row in rows if row.layer == "scaled"] == [
        ("deny", "deny"),
        ("infer", "deny"),
    ]


@pytest.mark.parametrize("lists", ["tf1.15", "tf2.3"])
@pytest.mark.parametrize("layer", [layers.Conv3D, layers.Conv3DTranspose])
def test_convolutions_in_three_dimensions(layer, lists):
    """TF 1.15 has them in no list, nor their gradients: nothing before one is painted for it."""
    model = keras.Sequential(
        [keras.Input((8,)), layers.Dense(8), layers.Reshape((2, 2, 2, 1)), layer(1, 2, name="conv")]
    )
    rows = report(model, lists=lists).rows
    dtypes = {(row.layer, row.op): row.dtype for row in rows}
    low = {"tf1.15": "float32", "tf2.3": "float16"}[lists]
    (conv,) = (dtypes[key] for key in dtypes if key[0] == "conv" and key[1].startswith("conv"))
    assert (dtypes[model.layers[0].name, "add"], conv) == (low, low)
    assert dtypes[model.layers[0].name, "matmul"] == "float16"


def test_lists_and_dtype_of_what_would_happen():
    model = convnet()
    rewritten.rewrite(model, rewritten.Options(op_lists(), "bfloat16"))
    found = report(model)
    assert (found.dtype, found.lists) == ("bfloat16", "tf1.15")
    softmax = {
        lists: next(row for row in report(model, lists=lists).rows if row.op == "softmax")
        for lists in ("tf1.15", "tf2", "tf2.21")
    }
    assert [(row.list, row.dtype) for row in softmax.values()] == [
        ("deny", "float32"),
        ("infer", "float32"),
        ("infer", "bfloat16"),
    ]
    changed = report(
        model, dtype="float16", lists=op_lists(deny_add=["Conv2D"], allow_remove=["Conv2D"])
    )
    assert {row.dtype for row in changed.rows if row.op == "conv"} == {"float32"}


def test_no_allow_op():
    found = report(no_allow_op())
    assert found.low_flops_share == 0.0
    assert {row.colour for row in found.rows} == {"unpainted"}
    assert {row.why for row in found.rows} == {"the graph has no allow op that may be changed"}
    assert found.summary.endswith("0.0 % of the floating point operations in float16")


def test_ops_without_float32_keep_their_dtype():
    found = report(recurrent())
    assert {row.dtype for row in found.rows if row.op == "not_equal"} == {"int32"}


def test_a_mixed_policy_is_refused():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2, dtype="mixed_float16")])
    with pytest.raises(ValueError, match="mixed policy 'mixed_float16'"):
        report(model)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        pytest.param({"dtype": "float8"}, "dtype must be 'float16', 'bfloat16'", id="dtype"),
        pytest.param({"lists": "tf3"}, "lists must be one of tf1.15", id="lists"),
    ],
)
def test_arguments_that_are_not_known(argument, message):
    with pytest.raises(ValueError, match=message):
        report(sequential(), **argument)


def test_a_report_for_machines_and_for_graphviz():
    for make in MODELS.values():
        model = make()
        found = report(model, example(model))
        assert json.loads(json.dumps(found.to_dict()))["rows"][0]["op"] == found.rows[0].op
        assert found.to_dot().count(" -> ") == len(found.edges)
