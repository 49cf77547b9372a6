"""Compares our decisions for a model with Grappler's: ops that both have, and differences.

The two sides compute a layer with different ops. A triple (model, layer, op) is compared:

- An op that both have is matched by family, in order of occurrence within the layer.
- One op against several (layer normalization is one op here, eleven in TF 1.15) is one triple,
  which agrees if all of the several have the dtype of the one.
- The body of a loop belongs to the layer that runs it, because TF 1.15 names no layer inside: the
  cell of a recurrent layer is one with that layer. The ops of the loop itself, such as Enter and
  Merge, are no keras ops; their colour shows in the ops of the body.
- In TF 2 a name says more, but its part inside a loop is left out of the records, too.
- Other ops may have no row, such as an operator of user code, `x * y`, or layer normalization by
  torch: they compute in float32, and count so.

Every other op needs a reason in the tables below, or is listed as unexplained.
"""

import gzip
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

DECISIONS = Path(__file__).parent / "data" / "graph_rewrite" / "decisions"

# Op of TensorFlow -> family. A family has the name of the keras op, if there is one.
FAMILY_OF_NODE = {
    "Abs": "absolute",
    "Add": "add",
    "AddN": "add",
    "AddV2": "add",
    "AvgPool": "average_pool",
    "BatchMatMul": "matmul",
    "BatchMatMulV2": "matmul",
    "BiasAdd": "add",
    "Cast": "cast",
    "ConcatV2": "concatenate",
    "Conv2D": "conv",
    "Conv3D": "conv",
    "Conv2DBackpropInput": "conv_transpose",
    "DepthwiseConv2dNative": "depthwise_conv",
    "Einsum": "matmul",
    "Elu": "elu",
    "Erf": "erf",
    "Exp": "exp",
    "ExpandDims": "expand_dims",
    "FusedBatchNormV3": "batch_normalization",
    "GatherV2": "take",
    "Greater": "compare",
    "GreaterEqual": "compare",
    "LeakyRelu": "leaky_relu",
    "Less": "compare",
    "Log": "log",
    "MatMul": "matmul",
    "Max": "max",
    "MaxPool": "max_pool",
    "Maximum": "bound",
    "Mean": "mean",
    "Minimum": "bound",
    "Mul": "multiply",
    "Neg": "negative",
    "Pad": "pad",
    "Pow": "power",
    "RealDiv": "divide",
    "Relu": "relu",
    "Relu6": "relu6",
    "Reshape": "reshape",
    "ResizeBilinear": "resize",
    "ResizeNearestNeighbor": "resize",
    "ResourceGather": "take",
    "ReverseV2": "flip",
    "Rsqrt": "rsqrt",
    "Select": "where",
    "SelectV2": "where",
    "Selu": "selu",
    "Sigmoid": "sigmoid",
    "Softmax": "softmax",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Split": "split",
    "SplitV": "split_sizes",
    "Sqrt": "sqrt",
    "Square": "square",
    "SquaredDifference": "squared_difference",
    "Squeeze": "squeeze",
    "StopGradient": "stop_gradient",
    "StridedSlice": "get_item",
    "Sub": "subtract",
    "Sum": "sum",
    "Tanh": "tanh",
    "Transpose": "transpose",
    "Unpack": "unstack",
}
# Keras op -> family, if the names differ.
FAMILY_OF_ROW = {
    "abs": "absolute",
    "amax": "max",
    "dot": "matmul",
    "einsum": "matmul",
    "floor_divide": "divide",
    "greater": "compare",
    "greater_equal": "compare",
    "less": "compare",
    "maximum": "bound",
    "minimum": "bound",
    "moveaxis": "transpose",
    "ravel": "reshape",
    "slice": "get_item",
    "swapaxes": "transpose",
    "tensordot": "matmul",
    "true_divide": "divide",
}
# Keras op -> families of its several nodes in TF 1.15.
ONE_HERE = {
    "clip": {"bound"},
    "dot_product_attention": {"matmul", "multiply", "softmax", "transpose"},
    "dropout": {"multiply"},
    "elu": {"elu", "compare", "multiply", "where"},  # with an alpha
    "gelu": {"multiply", "divide", "erf", "add", "power", "tanh"},
    "hard_sigmoid": {"multiply", "add", "bound"},
    "layer_normalization": {
        *("mean", "stop_gradient", "squared_difference"),
        *("add", "rsqrt", "multiply", "subtract"),
    },
    "matmul": {"multiply", "sum"},  # a product of vectors, if not a MatMul
    "moments": {"mean", "stop_gradient", "squared_difference", "squeeze"},
    "normalize": {"square", "sum", "bound", "rsqrt", "multiply"},
    "selu": {"elu", "compare", "multiply", "where"},
    "separable_conv": {"depthwise_conv", "conv"},
    "silu": {"sigmoid", "multiply"},
    "split": {"get_item"},  # of the gates
    "variance": {"stop_gradient", "squared_difference", "mean"},
}
OF_VECTORS = {"matmul"}
ALSO_ONE_THERE = {"split"}
# Family of a node -> its several keras ops here.
SEVERAL_HERE = {
    "resize": {"repeat"},
    "batch_statistics": {"moments", "mean", "variance", "var"},
    "split_sizes": {"get_item"},  # of the gates
    "subtract": {"negative", "add"},  # layer normalization adds -mean to the rest
}
# Python's operators, and what a layer of Keras 3 computes with them.
OPERATORS = {
    *("add", "subtract", "multiply", "divide", "negative", "power", "compare", "get_item"),
    "batch_statistics",
}
# Ops that move data and compute nothing: matched if a layer has equally many on both sides.
SHAPE_OPS = {"reshape", "transpose", "expand_dims", "squeeze"}

# -- why a node or a row has no partner ------------------------------------------------------------

_NO_COMPUTATION = {
    "Const": "constant",
    "Fill": "constant",
    "Identity": "Identity: no op in Keras 3",
    "Placeholder": "feed",
    "ReadVariableOp": "variable: float32 on both sides",
    "Shape": "Shape: no float data",
    "Size": "Shape: no float data",
    "VarHandleOp": "variable: float32 on both sides",
}
_DILATED = {"SpaceToBatchND", "BatchToSpaceND"}
_OF_LOOPS = {
    *("Enter", "Merge", "Switch", "NextIteration", "Exit", "TensorArrayV3"),
    *("TensorArrayScatterV3", "TensorArrayReadV3", "TensorArrayWriteV3", "TensorArrayGatherV3"),
    *("TensorListReserve", "TensorListFromTensor", "TensorListGetItem", "TensorListSetItem"),
    *("TensorListStack", "EmptyTensorList", "TensorListPushBack"),
}
# Time before batch and back, the last step, and the state that TF 1.15 begins a ConvLSTM with.
_AROUND_LOOPS = {"Transpose", "ReverseV2", "StridedSlice", "ZerosLike", "Sum", "Conv2D"}
_OF_MASKS = {"Select", "SelectV2", "Tile", "ZerosLike"}
_IN_LOOP = re.compile(r"/while(_\d+)?/")
_UNFUSED = "/batchnorm/"  # of a batch normalization, if not of images
_ADD_A_LOSS = {"divergence"}  # layers that do nothing else
_DROPOUT = re.compile(r"/dropout/(?!mul(_1)?$)")


def why_not_compared(node, in_loop_layer=False):
    """Returns why a forward node has no counterpart, whatever our rows, or None."""
    if re.match(r"(fetch|OUT)_\d+$", node["name"]):
        return "Identity of a fetch"
    if node["op"] in _NO_COMPUTATION:
        return _NO_COMPUTATION[node["op"]]
    if node["layer"] == "loss" or "/Regularizer/" in node["name"]:
        return "loss op"
    if node["op"] in _DILATED:
        return "dilation: space is batch around a Conv2D in TF 1.15"
    if node["op"] in _OF_LOOPS or (in_loop_layer and is_around_a_loop(node)):
        return "loop: what hands its states and sequences on"
    if _DROPOUT.search(node["name"]):
        return "dropout: its mask and its rate, no data of the model"
    return None


def is_around_a_loop(node):
    """Returns whether a node of a layer that runs a loop only feeds it, or reads its result."""
    if _IN_LOOP.search(node["name"]):
        return node["op"] in _OF_MASKS
    return node["op"] in _AROUND_LOOPS


def why_node_is_left(node, families_here):
    """Returns why a node found no row in its layer, or None."""
    if node["family"] == "transpose" and "softmax" in families_here:
        return "softmax over another axis: its input transposed and its result back"
    if "/einsum" in node["name"] and node["family"] in SHAPE_OPS:
        return "einsum: TF 1.15 multiplies matrices and reshapes"
    if "/Tensordot" in node["name"] and node["family"] in SHAPE_OPS:
        return "Tensordot: Keras 3 multiplies without reshaping"
    if node["family"] in ("expand_dims", "squeeze"):
        if families_here & {"conv", "max_pool", "average_pool"}:
            return "1D is 2D between ExpandDims and Squeeze in TF 1.15"
        if "matmul" in families_here:
            return "Dot: other shapes in between"
    return None


def why_row_is_left(row, families_there, families_here, loss_ops):
    """Returns why a row found no node in its layer, or None."""
    family = family_of(row)
    if row.dtype not in ("float16", "float32"):
        return "no float data"
    if row.op == "tf.cond":
        return "cond: what chooses"
    if row.op in ("zeros", "ones"):
        return "constant"
    if row.layer in _ADD_A_LOSS and not loss_ops:
        return "loss that a layer adds, which no output needs"
    if family in OPERATORS and "batch_normalization" in families_here:
        return "batch normalization: its moving statistics, which no fetch of TF 1.15 needs"
    if family in SHAPE_OPS | {"broadcast_to"}:
        if families_there & {"conv", "depthwise_conv", "conv_transpose"}:
            return "bias: reshaped, where BiasAdd takes it as it is"
        if "squared_difference" in families_there:
            return "layer normalization: its weights reshaped"
        if "sum" in families_there:
            return "Dot: other shapes in between"
    if family == "softmax" and "SoftmaxCrossEntropyWithLogits" in loss_ops:
        return "softmax: the loss takes the logits in TF 1.15"
    if family == "sigmoid" and "Log1p" in loss_ops:
        return "sigmoid: the loss takes the logits in TF 1.15"
    return None


# -- the comparison --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Triple:
    """An op of both sides, with its dtypes: several if it is several ops there.

    Attributes:
        op: Name of the keras op, or of the family if there is no row.
        ours: dtypes of the rows.
        theirs: dtypes of the nodes.
        nodes: Names of the nodes.
        has_row: False for an op that was not recorded.
        whys: The reasons for the rows' dtypes.
    """

    model: str
    layer: str
    op: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    nodes: tuple[str, ...]
    has_row: bool = True
    whys: tuple[str, ...] = ()

    @property
    def key(self):
        return self.model, self.layer, self.op

    @property
    def agrees(self):
        return len({*self.ours, *self.theirs}) == 1

    @property
    def is_unsafe(self):
        """Whether we compute in float16 what Grappler computes, at least partly, in float32."""
        return "float16" in self.ours and "float32" in self.theirs

    def __str__(self):
        ours, theirs = "+".join(self.ours), "+".join(self.theirs)
        return f"{self.model}: {self.layer} {self.op}: {ours}, Grappler {theirs}"


@dataclass
class Comparison:
    """Triples, and the numbers of unmatched nodes and rows by reason.

    `nodes` counts Grappler's forward nodes with a float32 slot; in training a batch normalization
    counts twice, because it has two such slots.
    """

    triples: list[Triple] = field(default_factory=list)
    nodes: int = 0
    rows: int = 0
    nodes_left: Counter = field(default_factory=Counter)
    rows_left: Counter = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)

    @property
    def agreeing(self):
        return [t for t in self.triples if t.agrees]

    @property
    def safe(self):
        return [t for t in self.triples if not t.agrees and not t.is_unsafe]

    @property
    def unsafe(self):
        return [t for t in self.triples if t.is_unsafe]

    @property
    def agreement(self):
        return len(self.agreeing) / len(self.triples)

    def __add__(self, other):
        return Comparison(
            self.triples + other.triples,
            self.nodes + other.nodes,
            self.rows + other.rows,
            self.nodes_left + other.nodes_left,
            self.rows_left + other.rows_left,
            self.unexplained + other.unexplained,
        )

    def __str__(self):
        seen = [t for t in self.triples if t.has_row]
        unseen = [t for t in self.triples if not t.has_row]
        lines = [
            f"{len(self.agreeing)} of {len(self.triples)} agree ({self.agreement:.1%}), "
            f"{len(self.safe)} safe and {len(self.unsafe)} unsafe disagreements",
            f"  with a row: {sum(t.agrees for t in seen)} of {len(seen)}; "
            f"without, so float32: {sum(t.agrees for t in unseen)} of {len(unseen)}",
            f"  Grappler's nodes: {self.nodes}, in triples "
            f"{sum(len(t.nodes) for t in self.triples)}, the others:",
            *(f"    {count:4} {why}" for why, count in self.nodes_left.most_common()),
            f"  our rows: {self.rows}, in triples {sum(len(t.ours) for t in seen)}, the others:",
            *(f"    {count:4} {why}" for why, count in self.rows_left.most_common()),
            *(f"  UNSAFE {triple}" for triple in self.unsafe),
            *(f"  safe   {triple}" for triple in self.safe),
            *(f"  UNEXPLAINED {what}" for what in self.unexplained),
        ]
        return "\n".join(lines)


def recorded(kind, name, training, version="tf1.15"):
    """Returns the decisions of a TensorFlow's Grappler: `kind` is the name of a folder."""
    mode = "training" if training else "forward"
    suffix = "" if version == "tf1.15" else f".{version}"
    with gzip.open(DECISIONS / kind / f"{name}.{mode}{suffix}.json.gz") as f:
        return json.load(f)


def used_rows(report):
    """Returns the rows whose results reach an output.

    Keras calls a stack of cells once before the loop, and takes the first step of a sequence, for
    the shapes of dropout masks; TF 1.15 does not.
    """
    takers = {}
    for edge in report.edges:
        takers.setdefault(edge.source, set()).add(edge.target)
    used = {None}
    for row in reversed(report.rows):
        reaches = takers.get(row.index, set()) & used
        if reaches or row.updates or row.layer in _ADD_A_LOSS:
            used.add(row.index)
    return [row for row in report.rows if row.index in used]


def compare(decided, rows):
    """Compares Grappler's decisions for a model with our rows for it.

    Args:
        decided: As `recorded` returns.
        rows: Objects with `layer`, `op` and `dtype`, in the order of the calls.
    """
    result = Comparison(rows=len(rows))
    loss_ops = {node["op"] for node in decided["nodes"] if node["layer"] == "loss"}
    constants = {node["name"] for node in decided["nodes"] if node["op"] == "Const"}
    there, here = {}, {}
    loops = {node["layer"] for node in decided["nodes"] if node["op"] == "NextIteration"}
    for node in forward_slots(decided):
        result.nodes += 1
        if why := why_not_compared(node, in_loop_layer=node["layer"] in loops):
            result.nodes_left[why] += 1
        else:
            there.setdefault(node["layer"], []).append(node)
    for row in rows:
        around = next((layer for layer in loops if row.layer.startswith(f"{layer}/")), row.layer)
        here.setdefault(around, []).append(row)
    for layer in {**there, **here}:
        nodes, layer_rows = there.get(layer, []), here.get(layer, [])
        matching = _Matching(decided["model"], layer, nodes, layer_rows)
        result.triples += matching.triples()
        ours = {family_of(row) for row in layer_rows}
        for node in matching.nodes:
            why = why_node_is_left(node, ours)
            if node.get("inputs") and set(node["inputs"]) <= constants:
                why = "of constants only"
            result.nodes_left[why or "unexplained"] += 1
            if not why:
                result.unexplained.append(f"{node['name']} ({node['op']}) of Grappler in {layer}")
        theirs = {node["family"] for node in nodes}
        for row in matching.rows:
            why = why_row_is_left(row, theirs, ours, loss_ops)
            in_float16 = " (float16)" if row.dtype == "float16" else ""
            result.rows_left[(why or "unexplained") + in_float16] += 1
            if not why:
                result.unexplained.append(f"our {row.op} in {layer or 'the model'}")
    return result


def forward_slots(decided):
    """Yields the forward nodes with their family; a batch normalization in training twice."""
    for node in decided["nodes"]:
        if node["backward"]:
            continue
        family = FAMILY_OF_NODE.get(node["op"], node["op"])
        yield {**node, "family": family}
        if decided["training"] and family == "batch_normalization":
            # Of its two slots, T is the dtype of the data and U that of the statistics.
            yield {**node, "family": "batch_statistics", "dtype": node["types"]["U"]}


def family_of(row):
    if row.op.startswith("tf."):
        name = row.op.removeprefix("tf.")
        return FAMILY_OF_NODE.get(name, name)
    return FAMILY_OF_ROW.get(row.op, row.op)


class _Matching:
    """The ops of one layer; `nodes` and `rows` are those still without a partner."""

    def __init__(self, model, layer, nodes, rows):
        self.model, self.layer = model, layer
        self.nodes, self.rows = list(nodes), list(rows)
        self.has_rows = bool(rows)

    def triples(self):
        return [
            *self._unfused_normalization(),
            *self._unstacked_bias(),
            *self._one_to_one(),
            *self._one_row_to_nodes(),
            *self._rows_to_one_node(),
            *self._normalization_without_row(),
            *self._operators(),
        ]

    def _match(self, rows, nodes, op=None):
        """Returns the triple of these, and removes them from the unmatched ones."""
        self.rows = [row for row in self.rows if not any(row is taken for taken in rows)]
        self.nodes = [node for node in self.nodes if not any(node is taken for taken in nodes)]
        return Triple(
            *(self.model, self.layer, op or rows[0].op),
            tuple(row.dtype for row in rows) or ("float32",),
            tuple(node["dtype"] for node in nodes),
            tuple(node["name"] for node in nodes),
            has_row=bool(rows),
            whys=tuple(getattr(row, "why", "") for row in rows),
        )

    def _unfused_normalization(self):
        rows = [row for row in self.rows if row.op == "batch_normalization"]
        nodes = [node for node in self.nodes if _UNFUSED in node["name"]]
        if len(rows) == 1 and nodes:
            yield self._match(rows, nodes)

    def _unstacked_bias(self):
        nodes = [node for node in self.nodes if node["family"] == "unstack"]
        squeezed = [row for row in self.rows if row.op == "squeeze"]
        split = [row for row in self.rows if row.op == "split"][:1]
        if len(nodes) == len(split) and len(squeezed) == 2:
            yield self._match([*split, *squeezed], nodes)

    def _one_to_one(self):
        for family in dict.fromkeys(node["family"] for node in self.nodes):
            nodes = [node for node in self.nodes if node["family"] == family]
            rows = [row for row in self.rows if family_of(row) == family]
            if family in SHAPE_OPS and len(nodes) != len(rows):
                continue
            of_tensorflow = rows and all(row.op.startswith("tf.") for row in rows)
            if family in ONE_HERE.keys() - OF_VECTORS - ALSO_ONE_THERE and not of_tensorflow:
                continue  # below, with the further nodes that it may be
            for node, row in zip(nodes, rows, strict=False):
                yield self._match([row], [node])

    def _one_row_to_nodes(self):
        for op in dict.fromkeys(row.op for row in self.rows if row.op in ONE_HERE):
            rows = [row for row in self.rows if row.op == op]
            nodes = [node for node in self.nodes if node["family"] in ONE_HERE[op]]
            if op in OF_VECTORS:  # the last of each family: what precedes is something else
                nodes = list({node["family"]: node for node in nodes}.values())
                if len(nodes) != len(ONE_HERE[op]):
                    continue
            if nodes and len(nodes) % len(rows) == 0:
                each = len(nodes) // len(rows)
                for i, row in enumerate(rows):
                    yield self._match([row], nodes[i * each : (i + 1) * each])

    def _rows_to_one_node(self):
        for family, ops in SEVERAL_HERE.items():
            nodes = [node for node in self.nodes if node["family"] == family]
            rows = [row for row in self.rows if row.op in ops]
            if rows and nodes and len(rows) % len(nodes) == 0:
                each = len(rows) // len(nodes)
                for i, node in enumerate(nodes):
                    yield self._match(rows[i * each : (i + 1) * each], [node])

    def _normalization_without_row(self):
        parts = ONE_HERE["layer_normalization"]
        nodes = [node for node in self.nodes if node["family"] in parts]
        if not self.has_rows and parts == {node["family"] for node in nodes}:
            yield self._match([], nodes, op="layer_normalization")

    def _operators(self):
        for node in [node for node in self.nodes if node["family"] in OPERATORS]:
            yield self._match([], [node], op=node["family"])
