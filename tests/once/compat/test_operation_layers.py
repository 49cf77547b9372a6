"""Configs of operations of TF 1.15 to 2.15 as `Operation` layers: JSON to JSON."""

import base64
import contextlib
import json

import pytest
from hypothesis import given, strategies as st

from keras_mp.compat.configs import convert
from keras_mp.compat.configs.operation_layers import layers_of_today
from keras_mp.compat.configs.report import Report
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.inspecting.computed_layers import computed_of
from keras_mp.compat.operations import expressions
from keras_mp.compat.operations.keras_layers import Spec, layer_of


def layer(kind, name, nodes, **config):
    inside = {"name": name, "trainable": True, "dtype": "float32", **config}
    return {"class_name": kind, "name": name, "config": inside, "inbound_nodes": nodes}


def source(name):
    config = {"batch_input_shape": [None, 4], "sparse": False, "ragged": False}
    return layer("InputLayer", name, [], **config)


def dense(name, *nodes):
    return layer("Dense", name, [[[*one, {}]] for one in nodes], units=4)


def function(name, of, *nodes):
    return layer("TFOpLambda", name, list(nodes), function=of)


def graph_op(name, op, nodes, constants=None, **attributes):
    node = {"name": name, "op": op, "input": [], "attr": attributes}
    return layer("TensorFlowOpLayer", name, [nodes], node_def=node, constants=constants or {})


def rows(*layers, outputs=(("out", 0, 0),)):
    report = Report()
    with report.checked():
        found, ends = layers_of_today(
            list(layers), [list(one) for one in outputs], "$.layers", report
        )
    return {row["name"]: row for row in found}, ends


def shown(row):
    config = row["config"]
    return expressions.as_source(
        {"operation": config["operation"], "arguments": config["arguments"]},
        lambda number: row["inbound_nodes"][0][number][0],
    )


def result(*layers):
    found, _ = rows(*layers)
    return shown(found["out"])


@pytest.mark.parametrize(
    ("of", "node", "expected"),
    [
        ("math.multiply", ["x", 0, 0, {"y": 2.0, "name": None}], "x * 2.0"),
        ("math.multiply", ["_CONSTANT_VALUE", -1, 2.0, {"y": ["x", 0, 0]}], "2.0 * x"),
        ("math.subtract", ["x", 0, 0, {"y": ["y", 0, 0]}], "x - y"),
        ("math.subtract", ["x", 0, 0, {"y": ["x", 0, 0]}], "x - x"),
        ("concat", [["x", 0, 0, {"axis": -1}], ["y", 0, 0, {"axis": -1}]],
         "ops.concatenate([x, y], axis=-1)"),
        ("concat", [["x", 0, 0, {"axis": 1}]], "ops.concatenate([x], axis=1)"),
        ("math.reduce_mean", ["x", 0, 0, {"axis": [1, 2], "keepdims": True}],
         "ops.mean(x, axis=[1, 2], keepdims=True)"),
        ("compat.v1.transpose", ["x", 0, 0, {"perm": [0, 2, 1], "conjugate": False}],
         "ops.transpose(x, axes=[0, 2, 1])"),
        ("reshape", ["x", 0, 0, {"shape": [-1, 2]}], "ops.reshape(x, newshape=[-1, 2])"),
        ("reshape", ["x", 0, 0, {"shape": {"class_name": "TensorShape", "items": [2, 2]}}],
         "ops.reshape(x, newshape=[2, 2])"),
        ("keras.backend.l2_normalize", ["x", 0, 0, {"axis": 1}], "ops.l2_normalize(x, axis=1)"),
    ],
)  # fmt: skip
def test_functions(of, node, expected):
    found = result(source("x"), source("y"), function("out", of, node))
    assert expected is None or found == expected


SLICES = [
    (0, "x[0]"),
    ([{"start": None, "stop": None, "step": None}, 0], "x[:, 0]"),
    ([{"start": 1, "stop": -1, "step": 2}], "x[1:-1:2]"),
    ([{"class_name": "__ellipsis__"}, None], "x[..., None]"),
    ([["n", 0, 0]], "x[n]"),
]


@pytest.mark.parametrize(("spec", "expected"), SLICES)
def test_slices(spec, expected):
    out = layer("SlicingOpLambda", "out", [["x", 0, 0, {"slice_spec": spec}]])
    out["config"]["function"] = "__operators__.getitem"
    assert result(source("x"), source("n"), out) == expected


def attribute(**value):
    return value


@pytest.mark.parametrize(
    ("op", "constants", "attributes", "expected"),
    [
        ("Mul", {"0": 2.0}, {}, "2.0 * x"),
        ("Mul", {"1": 2.0}, {}, "x * 2.0"),
        ("Mean", {"1": [1, 2]}, {"keep_dims": {"b": True}},
         "ops.mean(x, axis=[1, 2], keepdims=True)"),
        ("Cast", {}, {"SrcT": {"type": "DT_BOOL"}, "DstT": {"type": "DT_HALF"}},
         'ops.cast(x, dtype="float16")'),
        ("StridedSlice", {"1": [0, 0], "2": [0, 1], "3": [1, 1]},
         {"begin_mask": {"i": "1"}, "end_mask": {"i": "1"}, "shrink_axis_mask": {"i": "2"}}, None),
        ("MaxPool", {}, {"ksize": {"list": {"i": ["1", "2", "2", "1"]}},
                         "strides": {"list": {"i": ["1", "2", "2", "1"]}},
                         "padding": {"s": base64.b64encode(b"SAME").decode()}}, None),
        ("Split", {"0": 1}, {"num_split": {"i": "2"}},
         "ops.split(x, indices_or_sections=2, axis=1)"),
    ],
)  # fmt: skip
def test_graph_ops(op, constants, attributes, expected):
    out = graph_op("out", op, [["x", 0, 0, {}]], constants, **attributes)
    found = result(source("x"), out)
    assert expected is None or found == expected
    text = json.dumps(out["config"]["node_def"])
    out["config"]["node_def"] = text  # as some versions wrote it
    assert result(source("x"), out) == found


REFUSED = [
    pytest.param(function("out", "strings.lower", ["x", 0, 0, {}]),
                 '.config.function is "strings.lower"', id="no such function"),
    pytest.param(function("out", "math.reduce_mean", ["x", 0, 0, {"axes": 1}]),
                 "an argument 'axes' that is not known", id="no such argument"),
    pytest.param(function("out", "math.add", ["x", 0, 0, {}]), "has no 'y'", id="none of them"),
    pytest.param(function("out", "linalg.inv", ["x", 0, 0, {"adjoint": True}]),
                 "adjoint=True", id="an argument's value"),
    pytest.param(function("out", "math.add", ["x", 0, 0, {"y": ["_COMPOSITE_TYPE", {}]}]),
                 "ragged or sparse", id="a ragged tensor"),
    pytest.param(function("out", "math.add", ["x", 0, 0, {"y": {"class_name": "TypeSpec"}}]),
                 "of no kind that is known", id="an object"),
    pytest.param(graph_op("out", "DecodeJpeg", [["x", 0, 0, {}]]),
                 '.config.node_def.op is "DecodeJpeg"', id="no such op"),
    pytest.param(graph_op("out", "Mul", [["x", 0, 0, {}]], {"7": 1.0}),
                 "constants.7 is no input", id="a constant that is no input"),
    pytest.param(graph_op("out", "Cast", [["x", 0, 0, {}]], None, DstT={"type": "DT_STRING"}),
                 "no dtype of Keras", id="a dtype"),
    pytest.param(layer("Lambda", "out", [[["x", 0, 0, {}]]], function=["AAAA", None, None],
                       function_type="lambda"), ".config.function is code that", id="no code"),
    pytest.param(layer("AddMetric", "out", [[["x", 0, 0, {}]]], aggregation=None, metric_name="m"),
                 "aggregation is null", id="a metric of another kind"),
]  # fmt: skip


@pytest.mark.parametrize(("out", "why"), REFUSED)
def test_what_is_refused_is_named_with_its_place(out, why):
    with pytest.raises(LegacyError) as told:
        rows(source("x"), out)
    assert str(told.value).startswith("$.layers[1]")
    assert why in str(told.value)


def test_a_loss_stands_before_the_output_where_it_can():
    found, ends = rows(
        source("x"),
        dense("h", ("x", 0, 0)),
        function("mean", "math.reduce_mean", ["h", 0, 0, {}]),
        dense("out", ("h", 0, 0)),
        layer("AddLoss", "loss", [[["mean", 0, 0, {}]]], unconditional=False),
    )
    assert ends == [["out", 0, 0]]
    assert found["out"]["inbound_nodes"] == [[["loss", 0, 0, {}]]]
    assert found["loss"]["inbound_nodes"] == [[["h", 0, 0, {}], ["mean", 0, 0, {}]]]


def test_a_loss_of_the_output_stands_behind_it():
    layers = [
        source("x"),
        dense("out", ("x", 0, 0)),
        function("mean", "math.reduce_mean", ["out", 0, 0, {}]),
        layer("AddLoss", "loss", [[["mean", 0, 0, {}]]], unconditional=False),
        layer("AddMetric", "metric", [[["mean", 0, 0, {}]]], aggregation="mean", metric_name="m"),
    ]
    report = Report()
    found, ends = layers_of_today(layers, [["out", 0, 0]], "$.layers", report)
    found = {row["name"]: row for row in found}
    assert ends == [["loss", 0, 0]]
    assert found["metric"]["inbound_nodes"][0][0][:3] == ["out", 0, 0]
    assert found["loss"]["inbound_nodes"][0][0][:3] == ["metric", 0, 0]
    assert any("'loss' is the output now" in change.what for change in report)


def test_a_loss_in_the_middle_passes_its_value_on():
    found, _ = rows(
        source("x"),
        layer("AddLoss", "loss", [[["x", 0, 0, {}]]], unconditional=False),
        dense("out", ("loss", 0, 0)),
    )
    assert found["loss"]["inbound_nodes"] == [[["x", 0, 0, {}]]]
    assert found["out"]["inbound_nodes"] == [[["loss", 0, 0, {}]]]


def test_shapes_are_kept_only_where_others_take_them():
    parts = [
        source("x"),
        function("shape", "shape", ["x", 0, 0, {}]),
        function("size", "math.reduce_prod", ["shape", 0, 0, {}]),
        function("out", "reshape", ["x", 0, 0, {"shape": ["size", 0, 0]}]),
    ]
    found, _ = rows(*parts)
    assert list(found) == ["x", "out"]
    assert shown(found["out"]) == "ops.reshape(x, ops.prod(ops.shape(x)))"
    found, _ = rows(*parts, outputs=[["out", 0, 0], ["shape", 0, 0]])
    assert list(found) == ["x", "shape", "out"]


def test_long_chains_of_shapes_neither_recur_nor_explode():
    layers = [source("x"), function("n0", "shape", ["x", 0, 0, {}])]
    for i in range(400):
        layers.append(function(f"n{i + 1}", "math.add", [f"n{i}", 0, 0, {"y": 1}]))
    layers.append(function("out", "reshape", ["x", 0, 0, {"shape": ["n20", 0, 0]}]))
    rows(*layers[:22], layers[-1])
    with pytest.raises(LegacyError, match="computes too much with shapes"):
        rows(*layers)
    del layers[2:]
    for i in range(40):  # each twice as large as the one before
        node = [f"n{i}", 0, 0, {"y": [f"n{i}", 0, 0]}]
        layers.append(function(f"n{i + 1}", "math.add", node))
    layers.append(function("out", "reshape", ["x", 0, 0, {"shape": ["n40", 0, 0]}]))
    with pytest.raises(LegacyError, match="computes too much with shapes"):
        rows(*layers)


def test_what_a_model_computes_in_words():
    inner = {"layers": [source("x"), function("h", "nn.relu6", ["x", 0, 0, {}])]}
    inner |= {"name": "inner", "input_layers": [["x", 0, 0]], "output_layers": [["h", 0, 0]]}
    model = {"class_name": "Functional", "name": "inner", "config": inner}
    model["inbound_nodes"] = [[["x", 0, 0, {}]]]
    layers = [source("x"), model, function("out", "math.add", ["inner", 1, 0, {"y": 1.0}])]
    layers.append(function("bad", "strings.lower", ["out", 0, 0, {}]))
    whole = {"layers": layers, "input_layers": [["x", 0, 0]], "output_layers": [["out", 0, 0]]}
    found = {str(one) for one in computed_of({"class_name": "Functional", "config": whole})}
    assert {"h = ops.relu6(x)", "out = inner + 1.0"} <= found
    (bad,) = (one for one in computed_of({"config": whole}) if one.name == "bad")
    assert bad.expression is None
    assert "strings.lower" in str(bad)


def test_a_layer_alone_has_no_arguments():
    with pytest.raises(LegacyError, match="is saved only where a functional model calls it"):
        convert(
            {"class_name": "TFOpLambda", "config": {"name": "a", "function": "abs"}}, kind="layer"
        )


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["x", "y", "", "Mul"]),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from("xyab"), inner, max_size=3)
        ),
        max_leaves=12,
    ),
    st.sampled_from(["math.multiply", "concat", "reshape", "split", "shape", "einsum"]),
)
def test_any_call_is_converted_or_refused(node, of):
    config = {"name": "net", "layers": [source("x"), function("out", of, node)]}
    config |= {"input_layers": [["x", 0, 0]], "output_layers": [["out", 0, 0]]}
    with contextlib.suppress(LegacyError):
        convert({"class_name": "Functional", "config": config}, kind="model")


VECTOR, OTHER = Spec((None, 8), "float32"), Spec((None, 2), "float32")
IMAGE = Spec((None, 4, 4, 3), "float32")


@pytest.mark.parametrize(
    ("name", "arguments", "inputs", "expected"),
    [
        ("relu6", {"x": {"tensor": 0}}, [VECTOR], ("ReLU", {"max_value": 6.0})),
        ("relu", {"x": {"tensor": 0}, "threshold": 1.0}, [VECTOR], None),
        ("multiply", {"x1": {"tensor": 0}, "x2": 3.0}, [VECTOR],
         ("Rescaling", {"scale": 3.0, "offset": 0.0})),
        ("divide", {"x1": {"tensor": 0}, "x2": 4}, [VECTOR],
         ("Rescaling", {"scale": 0.25, "offset": 0.0})),
        ("divide", {"x1": {"tensor": 0}, "x2": 255}, [VECTOR], None),  # the inverse is rounded
        ("add", {"x1": {"tensor": 0}, "x2": {"tensor": 1}}, [VECTOR, VECTOR], ("Add", {})),
        ("add", {"x1": {"tensor": 0}, "x2": {"tensor": 1}}, [VECTOR, IMAGE], None),
        ("subtract", {"x1": {"tensor": 1}, "x2": {"tensor": 0}}, [VECTOR, VECTOR], None),
        ("reshape", {"x": {"tensor": 0}, "newshape": [-1, 2, 4]}, [VECTOR],
         ("Reshape", {"target_shape": [2, 4]})),
        ("reshape", {"x": {"tensor": 0}, "newshape": [-1, 4]}, [VECTOR], None),  # of the batch
        ("concatenate", {"xs": [{"tensor": 0}, {"tensor": 1}], "axis": -1}, [VECTOR, OTHER],
         ("Concatenate", {"axis": -1})),
        ("concatenate", {"xs": [{"tensor": 0}, {"tensor": 1}], "axis": 0}, [VECTOR, OTHER], None),
        ("mean", {"x": {"tensor": 0}, "axis": [1, 2]}, [IMAGE],
         ("GlobalAveragePooling2D", {"data_format": "channels_last", "keepdims": False})),
        ("mean", {"x": {"tensor": 0}, "axis": [1, 3]}, [IMAGE], None),
        ("relu6", {"x": {"tensor": 0}}, [Spec((None,), "int32")], None),
        ("sort", {"x": {"tensor": 0}}, [VECTOR], None),
    ],
)  # fmt: skip
def test_layers_of_keras(name, arguments, inputs, expected):
    assert layer_of({"operation": name, "arguments": arguments}, inputs) == expected
