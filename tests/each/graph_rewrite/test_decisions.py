"""What the graph rewrite decides, op by op, beside what Grappler of TensorFlow decided.

First the comparison itself, on rows written by hand; then our decisions.
"""

import dataclasses
from dataclasses import dataclass

import keras
import pytest
from keras import layers

from keras_mp import graph_rewrite
from keras_mp.graph_rewrite.decisions import SENTENCES
from tests.backends import on_one
from tests.graph_rewrite_cases import SETS
from tests.graph_rewrite_decisions import (
    FAMILY_OF_NODE,
    Comparison,
    compare,
    forward_slots,
    recorded,
    used_rows,
    why_not_compared,
)

RECORDED = [(kind, name) for kind, cases in SETS.items() for name in cases]
# Version that decided -> our lists for it. TF 2 decided about the recurrent models.
VERSIONS = {"tf1.15": "tf1.15", "tf2.4": "tf2", "tf2.21": "tf2.21"}
RECORDED_ONES = [
    (*each, version)
    for each in RECORDED
    for version in VERSIONS
    if version == "tf1.15" or each[0].startswith("recurrent")
]
MODES = pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])


@dataclass(frozen=True)
class Row:
    layer: str
    op: str
    dtype: str = "float32"


def rows(layer, *ops):
    """Returns rows of a layer: "matmul*" is in float16, "add" in float32."""
    return [Row(layer, op.rstrip("*"), "float16" if op[-1] == "*" else "float32") for op in ops]


def decided(*nodes, training=False):
    """Returns what Grappler might decide: "layer/name Op*" is in float16, without * it is not."""
    made = []
    for node in nodes:
        name, op = node.rstrip("*").split(" ")
        dtype = "float16" if node[-1] == "*" else "float32"
        made.append({"name": name, "op": op, "dtype": dtype, "layer": name.split("/")[0]})
        made[-1].update(backward=name.startswith("TRAIN/"), types={"T": dtype, "U": "float32"})
    return {"model": "m", "training": training, "nodes": made}


MLP = [
    *rows("d1", "matmul*", "add*", "relu*"),
    *rows("d2", "matmul*", "add*", "tanh*"),
    *rows("probs", "matmul*", "add", "softmax"),
]


# -- the comparison --------------------------------------------------------------------------------


def test_all_of_a_perceptron_is_matched():
    result = compare(recorded("fitted", "mlp_softmax", training=False), MLP)
    assert (len(result.agreeing), len(result.triples), result.unexplained) == (9, 9, [])
    assert [t.op for t in result.triples if t.layer == "probs"] == ["matmul", "add", "softmax"]


@pytest.mark.parametrize("index", range(len(MLP)))
def test_each_flipped_dtype_is_one_disagreement(index):
    flipped = {"float16": "float32", "float32": "float16"}[MLP[index].dtype]
    changed = [*MLP]
    changed[index] = dataclasses.replace(MLP[index], dtype=flipped)
    result = compare(recorded("fitted", "mlp_softmax", training=False), changed)
    expected = (0, 1) if flipped == "float16" else (1, 0)
    assert (len(result.safe), len(result.unsafe)) == expected


@pytest.mark.parametrize("index", range(len(MLP)))
def test_a_missing_row_is_unexplained_or_an_operator(index):
    result = compare(
        recorded("fitted", "mlp_softmax", training=False), [*MLP[:index], *MLP[index + 1 :]]
    )
    if MLP[index].op == "add":
        (operator,) = [t for t in result.triples if not t.has_row]
        assert operator.ours == ("float32",)
        assert operator.agrees == (MLP[index].layer == "probs")
    else:
        assert len(result.unexplained) == 1


def test_a_row_too_many_is_unexplained():
    result = compare(
        recorded("fitted", "mlp_softmax", training=False), [*MLP, *rows("d1", "matmul*")]
    )
    assert result.unexplained == ["our matmul in d1"]
    assert result.rows_left == {"unexplained (float16)": 1}


def test_softmax_is_in_the_loss_in_training():
    result = compare(recorded("fitted", "mlp_softmax", training=True), MLP)
    assert len(result.triples) == 8
    assert result.rows_left == {"softmax: the loss takes the logits in TF 1.15": 1}


def test_calls_of_a_shared_layer_are_matched_in_order():
    theirs = decided("d/MatMul MatMul*", "d/BiasAdd BiasAdd*", "d/b MatMul*", "d/c BiasAdd")
    ours = rows("d", "matmul*", "add*", "matmul*", "add")
    assert compare(theirs, ours).agreement == 1
    assert compare(theirs, [*ours[:1], *ours[3:], *ours[2:3], *ours[1:2]]).agreement == 0.5


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_layer_normalization_is_one_op_here(dtype):
    ours = [Row(layer, "layer_normalization", dtype) for layer in ("ln1", "ln2")]
    result = compare(recorded("fitted", "transformer_block", training=False), ours)
    both = [t for t in result.triples if t.layer.startswith("ln")]
    assert [len(t.nodes) for t in both] == [11, 11]
    assert all(t.agrees == (dtype == "float32") for t in both)
    assert all(t.is_unsafe == (dtype == "float16") for t in both)


@pytest.mark.parametrize(
    ("ours", "third", "agrees", "unsafe"),
    [
        pytest.param("gelu*", "*", True, False, id="all float16"),
        pytest.param("gelu*", "", False, True, id="one of theirs is float32"),
        pytest.param("gelu", "", False, False, id="float32 against both"),
    ],
)
def test_one_op_agrees_with_several_if_with_all(ours, third, agrees, unsafe):
    theirs = decided(
        *("d/MatMul MatMul*", "d/BiasAdd BiasAdd*"),
        *("d/mul Mul*", "d/truediv RealDiv*", f"d/Erf Erf{third}", "d/add AddV2*", "d/mul_1 Mul*"),
    )
    result = compare(theirs, rows("d", "matmul*", "add*", ours))
    (gelu,) = [t for t in result.triples if t.op == "gelu"]
    assert len(gelu.nodes) == 5
    assert (gelu.agrees, gelu.is_unsafe) == (agrees, unsafe)
    assert result.unexplained == []


@pytest.mark.parametrize(("rsqrt", "agrees"), [("*", True), ("", False)])
def test_a_batch_normalization_of_a_vector_is_several_ops_there(rsqrt, agrees):
    ours = rows("bn", "moments", "multiply", "add", "batch_normalization*")
    theirs = decided(
        *("bn/moments/mean Mean", "bn/moments/SquaredDifference SquaredDifference"),
        *(
            "bn/moments/Squeeze Squeeze",
            "bn/batchnorm/add AddV2*",
            f"bn/batchnorm/Rsqrt Rsqrt{rsqrt}",
        ),
        *("bn/batchnorm/mul Mul*", "bn/batchnorm/sub Sub*", "bn/batchnorm/add_1 AddV2*"),
        training=True,
    )
    result = compare(theirs, ours)
    assert [(t.op, len(t.nodes), t.agrees) for t in result.triples] == [
        ("batch_normalization", 5, agrees),
        ("moments", 3, True),
    ]
    assert result.unexplained == []
    (why,) = result.rows_left
    assert why.startswith("batch normalization: its moving statistics")


@pytest.mark.parametrize("dtype", ["*", ""])
def test_clip_is_a_minimum_and_a_maximum(dtype):
    theirs = decided(
        "c/Minimum Minimum*", "c/Maximum Maximum*", "c/Minimum_1 Minimum", "c/n Maximum"
    )
    result = compare(theirs, rows("c", f"clip{dtype}", "clip"))
    assert [(len(t.nodes), t.agrees) for t in result.triples] == [(2, dtype == "*"), (2, True)]


def test_a_hard_sigmoid_is_four_ops_there():
    theirs = decided("d/b BiasAdd*", "d/m Mul*", "d/a AddV2*", "d/c Minimum*", "d/d Maximum*")
    result = compare(theirs, rows("d", "add*", "hard_sigmoid*"))
    assert [(t.op, len(t.nodes)) for t in result.triples] == [("add", 1), ("hard_sigmoid", 4)]
    assert result.agreement == 1


@pytest.mark.parametrize(
    "node", ["d/SpaceToBatchND SpaceToBatchND*", "d/kernel/Regularizer/Sum Sum", "loss/Mul Mul"]
)
def test_what_has_no_counterpart_is_left_with_a_reason(node):
    result = compare(decided(node), [])
    assert (result.nodes_left.total(), result.triples, result.unexplained) == (1, [], [])


def test_a_loss_that_a_layer_adds_is_needed_in_training():
    theirs, ours = recorded("second_sight", "vae", training=False), rows("divergence", "exp")
    assert list(compare(theirs, ours).rows_left) == [
        "loss that a layer adds, which no output needs"
    ]
    result = compare(recorded("second_sight", "vae", training=True), ours)
    assert [t.agrees for t in result.triples if t.layer == "divergence" and t.op == "exp"] == [True]


def test_two_calls_of_a_composite_share_the_nodes():
    theirs = decided("d/dropout/mul Mul*", "d/dropout/mul_1 Mul*", "d/e/mul Mul", "d/f/mul Mul")
    result = compare(theirs, rows("d", "dropout*", "dropout"))
    assert [(t.theirs, t.agrees) for t in result.triples] == [
        (("float16", "float16"), True),
        (("float32", "float32"), True),
    ]


def test_several_ops_here_are_one_there():
    theirs = decided("up/resize ResizeNearestNeighbor*")
    assert compare(theirs, rows("up", "repeat*", "repeat*")).agreement == 1
    (triple,) = compare(theirs, rows("up", "repeat*", "repeat")).triples
    assert not triple.agrees
    assert not triple.is_unsafe


@pytest.mark.parametrize("statistics", ["moments", "moments*"])
def test_a_batch_normalization_has_two_slots_in_training(statistics):
    ours = rows("bn", statistics, "batch_normalization*")
    result = compare(decided("bn/b FusedBatchNormV3*", training=True), ours)
    assert len(result.triples) == result.nodes == 2
    assert [t.op for t in result.unsafe] == ["moments"] * (statistics == "moments*")


def test_operators_without_a_row_are_float32():
    result = compare(recorded("fitted", "transformer_block", training=False), rows("gelu", "erf*"))
    gelu = [t for t in result.triples if t.layer == "gelu"]
    assert [(t.op, t.agrees) for t in gelu] == [
        ("erf", True),
        *(("multiply", False), ("divide", False), ("add", False), ("multiply", False)),
    ]
    assert not any(t.is_unsafe for t in gelu)


def test_a_normalization_without_a_row_is_float32():
    theirs = recorded("fitted", "transformer_block", training=False)
    both = [t for t in compare(theirs, MLP).triples if t.layer in ("ln1", "ln2")]
    assert [(t.op, len(t.nodes), t.agrees) for t in both] == [("layer_normalization", 11, True)] * 2
    part = [t for t in compare(theirs, rows("ln1", "rsqrt")).triples if t.layer == "ln1"]
    assert "layer_normalization" not in {t.op for t in part}


def test_shapes_are_matched_only_where_there_are_as_many():
    theirs = decided("d/Reshape Reshape*", "d/Reshape_1 Reshape")
    assert compare(theirs, rows("d", "reshape*", "reshape")).agreement == 1
    assert compare(theirs, rows("d", "reshape*")).triples == []


@on_one
@MODES
@pytest.mark.parametrize(("kind", "name", "version"), RECORDED_ONES)
def test_every_node_is_in_a_triple_or_has_a_reason(kind, name, version, training):
    theirs = recorded(kind, name, training, version)
    unknown = {
        node["op"]
        for node in forward_slots(theirs)
        if node["op"] not in FAMILY_OF_NODE and not why_not_compared(node)
    }
    assert unknown == set()
    result = compare(theirs, MLP)
    in_triples = sum(len(triple.nodes) for triple in result.triples)
    assert in_triples + result.nodes_left.total() == result.nodes
    with_row = sum(len(triple.ours) for triple in result.triples if triple.has_row)
    assert with_row + result.rows_left.total() == len(MLP)


@pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="models are the same on every backend; here soonest"
)
@pytest.mark.parametrize(("kind", "name"), RECORDED)
def test_the_model_has_the_layers_that_were_recorded(kind, name):
    model = SETS[kind][name].build().model
    nodes = recorded(kind, name, training=False)["nodes"]
    theirs = {node["layer"].split("/")[0] for node in nodes} - {f"OUT_{i}" for i in range(2)}
    assert theirs <= {layer.name for layer in model.layers}


# -- our decisions ---------------------------------------------------------------------------------

# (model, layer, op) that computes in float16 here and in float32 in TF 1.15 -> why.
UNSAFE = {
    ("siamese", "cosine", "matmul"): "TF 1.15 multiplied and summed; Keras 3 multiplies matrices",
    ("branches", "elu", "elu"): "of four ops one has no allow op behind it; the three others have",
}


def comparison_of(kind, training, version="tf1.15"):
    """Returns the comparison of all models of a kind."""
    result = Comparison()
    for name, case in SETS[kind].items():
        model, lists = case.build().model, VERSIONS[version]
        report = graph_rewrite.report(model, training=training, lists=lists)
        result += compare(recorded(kind, name, training, version), used_rows(report))
    return result


@pytest.mark.parametrize(
    ("layer", "shape", "dtype"),
    [
        pytest.param(layers.Dense(4, use_bias=False), (6,), "float16", id="MatMul"),
        pytest.param(layers.Dense(4, use_bias=False), (5, 6), "float32", id="MatMul, Reshape"),
        pytest.param(layers.EinsumDense("abc,cd->abd", (5, 4)), (5, 6), "float16", id="Einsum"),
        pytest.param(layers.Conv2D(4, 3, use_bias=False), (5, 5, 6), "float16", id="Conv2D"),
        pytest.param(layers.Conv1D(4, 3, use_bias=False), (5, 6), "float32", id="Conv2D, Squeeze"),
        pytest.param(
            layers.Conv1DTranspose(4, 3, use_bias=False),
            (5, 6),
            "float32",
            id="transposed, Squeeze",
        ),
        pytest.param(
            layers.DepthwiseConv1D(3, use_bias=False), (5, 6), "float32", id="depthwise, Squeeze"
        ),
    ],
)
def test_a_shape_op_comes_after_some_products(layer, shape, dtype):
    """As recorded with TF 2.21, where tanh is float16 if what it takes is an allow op's."""
    tanh = layers.Activation("tanh")
    model = keras.Sequential([keras.Input(shape), layer, tanh, layers.Reshape((-1,))])
    rows = graph_rewrite.report(model, training=False, lists="tf2.21").rows
    (row,) = [row for row in rows if row.op == "tanh"]
    assert row.dtype == dtype
    assert not any("gradient" in row.why for row in rows)


# At first sight, with the tables of the commit before, the later ones were at 94.3 % and 90.3 %,
# and those of the second sight at 99.6 % (228 of 229) and 98.4 % (244 of 248), on each backend.
# Of the unfitted recurrent models all 235 forward ops were right at first sight, and 231 of 233 in
# training: gradients of a sequence share a container with it in TF 1.15. Of those of the second
# sight all but one in training, which was float32 here.
#
# With TF 2 the recurrent models were compared when they all agreed with TF 1.15. At first sight
# TF 2.4 decided the same about 117 of 120, 227 of 227 and 139 of 139 ops forward, 115 of 118,
# 225 of 225 and 138 of 138 in training, and still does. With TF 2.21 it was 116 of 128, 224 of 244
# and 139 of 148 forward, of which 1, 6 and 1 were unsafe: ops after a product of more than two
# dimensions, which ends in a Reshape there. In training it was 115 of 126, 228 of 242 and 139 of
# 147; since the repair one, three and one fewer, of `SAFE`. The others compute with weights only.
LEAST = {
    ("tf1.15", "fitted"): (0.98, 0.96),
    ("tf1.15", "unfitted"): (0.98, 0.96),
    ("tf1.15", "second_sight"): (0.99, 0.98),
    ("tf1.15", "recurrent"): (0.97, 0.97),
    ("tf1.15", "recurrent_unfitted"): (1.0, 1.0),
    ("tf1.15", "recurrent_second_sight"): (1.0, 1.0),
    ("tf2.4", "recurrent"): (0.97, 0.97),
    ("tf2.4", "recurrent_unfitted"): (1.0, 1.0),
    ("tf2.4", "recurrent_second_sight"): (1.0, 1.0),
    ("tf2.21", "recurrent"): (0.91, 0.9),
    ("tf2.21", "recurrent_unfitted"): (0.94, 0.92),
    ("tf2.21", "recurrent_second_sight"): (0.94, 0.93),
}
_TAKE = "of a Variable: ResourceGather, in no list, in tf.keras; Keras 3 reads it all for GatherV2"
_LOSS = "the gradient of mse meets no denied op in TF 2.21; here that of every loss is denied"
# (model, layer, op) of a recurrent model in float32 here and in float16 in TensorFlow -> why.
SAFE = {
    "tf2.21": {
        ("text_bidirectional", "emb", "take"): _TAKE,
        ("masked_stack", "emb", "take"): _TAKE,
        ("residual_text", "emb", "take"): _TAKE,
        ("gru_sequence", "after", "add"): _LOSS,
        ("encoder_decoder", "out", "add"): _LOSS,
        ("minimal_cell", "out", "add"): _LOSS,
        ("sums_cell", "out", "add"): _LOSS,
        ("softmax_cell", "out", "add"): _LOSS,
    }
}


def is_explained(triple, version):
    """Returns whether an op is float32 here for a reason: with weights only, it always is."""
    of_weights = set(triple.whys) == {SENTENCES["weights_only"]}
    return of_weights or triple.key in SAFE.get(version, {})


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("version", "kind"), LEAST)
def test_agrees_with_grappler(version, kind, training):
    result = comparison_of(kind, training, version)
    print(result)  # noqa: T201 - shown where it fails
    assert result.unexplained == []
    assert result.agreement >= LEAST[version, kind][training]
    assert [str(t) for t in result.unsafe if t.key not in UNSAFE] == []
    if kind.startswith("recurrent"):
        assert [str(t) for t in result.safe if not is_explained(t, version)] == []
