"""Which ops of a recorded model compute in the 16-bit dtype, and why. Pure data in and out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from keras_mp.float_formats import FLOAT16
from keras_mp.graph_rewrite import gradients, keras_ops, painter
from keras_mp.graph_rewrite.graph import Carried, Graph, Loop, Op, Origin
from keras_mp.graph_rewrite.lists import OpLists
from keras_mp.graph_rewrite.loops import LoopVertices

# Besides those of the painter.
SENTENCES = {
    "weights_only": "it computes with weights only, which stay float32",
    "constant": "LOW cannot hold its constant, or that of an op before it",
    "own_allow": "torch.autocast computes it in LOW",
    "own_deny": "torch.autocast computes it in float32",
    "own_follow_low": "it computes in the dtype of its inputs, LOW, as under torch.autocast",
    "own_follow": "it computes in the dtype of its inputs, not all LOW, as under torch.autocast",
    "own_unknown": "it is an op that the graph rewrite does not know",
    "own_in_place": "it changes a tensor in place, in float32",
    "accumulates": "it adds to a state step by step, and a sum in LOW stops growing",
    "layer": "deny_layers has its layer",
}
MODEL = "(model)"  # in place of a layer's path: the ops that the model calls itself
_OF_OWN: Mapping[str, painter.ListName] = {"allow": "allow", "deny": "deny", "follow": "clear"}
_OF_LISTS = frozenset({"allow_list", "deny_list", "no_list"})
_SUMS = frozenset({"add", "subtract"})
_ADDING = _SUMS | {"reshape", "transpose", "expand_dims", "squeeze", "copy"}
# TensorFlow computes these in two or four dimensions, and reshapes afterwards for other ranks.
_ON_MATRICES = frozenset({"dot", "inner", "tensordot"})
_ON_IMAGES = frozenset({"conv", "conv_transpose", "depthwise_conv", "separable_conv"})
# The largest finite number and the smallest normal one.
_RANGE = {"float16": (FLOAT16.largest, FLOAT16.smallest_normal)}


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one op.

    Attributes:
        low: Whether it computes in the 16-bit dtype.
        list: "allow", "infer", "deny", "clear", or None for an op in no list.
        colour: "allow", "deny" or "unpainted".
        reason: Code of the reason: of `painter.SENTENCES`, or of `SENTENCES` here.
        because_of: Index of the op that the reason names; None if there is none.
    """

    low: bool
    list: str | None
    colour: str
    reason: str
    because_of: int | None = None


@dataclass(frozen=True, slots=True)
class LoopDecision:
    """The decision about a loop: which of its tensors are in the 16-bit dtype.

    Attributes:
        carried: For each state.
        read: For each sequence whose elements the body reads.
        written: For each sequence whose elements the body computes.
    """

    carried: tuple[bool, ...]
    read: tuple[bool, ...]
    written: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions about a graph.

    Attributes:
        ops: One for each op.
        loops: One for each loop.
        backward_from: The first vertex of a gradient; vertices between it and the ops are of loops.
    """

    ops: list[Decision]
    loops: list[LoopDecision]
    backward_from: int


def decide(
    graph: Graph,
    lists: OpLists,
    training: bool,
    dtype: str = "float16",
    deny_layers: Sequence[str] = (),
) -> Decisions:
    """Returns a decision for each op and each loop of `graph`.

    Three rules differ from TensorFlow's. An infer or clear op that computes with weights only is in
    no list. An op with a constant that `dtype` cannot hold, 1e-7 or -1e9 in float16, is denied, and
    so are ops that follow it through ops in no list. An op that adds to the state of a loop, if
    nothing else changes the state, is denied.

    Args:
        graph: The ops of one call of a model.
        lists: The op lists; their `variant` chooses the passes.
        training: Whether a gradient is taken: then ops between an allow op and its gradient are
            also painted.
        dtype: "float16" or "bfloat16".
        deny_layers: Paths of layers whose ops, and those of the layers in them, are denied.
    """
    kinds = [_list_of(op, lists) for op in graph.ops]
    weights = {i for i in graph.weights_only() if kinds[i] not in ("allow", "deny")}
    for i in weights:
        kinds[i] = None
    constants = _constants(graph, kinds, dtype)
    sums = [i for i in _sums(graph) if kinds[i] not in ("allow", "deny")]
    denied = [i for i, op in enumerate(graph.ops) if is_denied(op.layer, deny_layers)]
    for i in (*constants, *sums, *denied):
        kinds[i] = "deny"
    vertices = [
        painter.Vertex(list=kind, is_float32=_computes_float32(graph, index))
        for index, kind in enumerate(kinds)
    ]
    edges: list[tuple[int, int]] = []

    def add(name: str, *inputs: int) -> int:
        vertices.append(painter.Vertex(list=lists.list_of(name)))
        edges.extend((vertex, len(vertices) - 1) for vertex in inputs)
        return len(vertices) - 1

    def connect(vertex: int, taker: int) -> None:
        edges.append((vertex, taker))

    shaped = {
        op.outputs[0]: add(name, index)
        for index, op in enumerate(graph.ops)
        if (name := _shape_op_after(graph, op)) is not None
    }
    loops = LoopVertices(graph, add, connect, lists.variant, shaped)
    for index, op in enumerate(graph.ops):
        # Statistics, scale and offset of a batch normalization are float32, whatever the colour.
        inputs = op.inputs[:1] if op.rule == "batch_normalization" else op.inputs
        for i in inputs:
            vertex = loops.vertex(i)
            if vertex is not None and graph.values[i].is_float32:
                edges.append((vertex, index))
    backward_from = len(vertices)
    if training:
        gradients.add_gradients(graph, loops)
    painting = painter.paint(
        painter.PaintGraph(vertices, edges, loops.groups(), loops.loop_edges, variant=lists.variant)
    )
    own = dict.fromkeys(sums, "accumulates") | dict.fromkeys(constants, "constant")
    own |= dict.fromkeys(weights, "weights_only") | dict.fromkeys(denied, "layer")
    handed_on = [i for i, value in enumerate(graph.values) if value.origin is Origin.LOOP]
    low = frozenset(i for i in handed_on if loops.vertex(i) in painting.low)
    op_of = {vertex: graph.values[i].op for i, vertex in shaped.items()}
    made = [_decision(i, kinds[i], own.get(i), painting, op_of) for i in range(len(graph.ops))]
    return Decisions(
        _as_frameworks_decide(graph, made),
        [_loop_decision(loop, low) for loop in graph.loops],
        backward_from,
    )


def is_denied(layer: str, deny_layers: Sequence[str]) -> bool:
    """Returns whether the ops of a layer are denied.

    >>> [is_denied(layer, ["block"]) for layer in ("block", "block/dense", "block2", "")]
    [True, True, False, False]
    >>> is_denied("", ["(model)"])
    True
    """
    return any(
        layer == path or layer.startswith(f"{path}/") or (path == MODEL and not layer)
        for path in deny_layers
    )


def _list_of(op: Op, lists: OpLists) -> painter.ListName | None:
    """Returns the list of an op: the user's, the framework's own, or TensorFlow's."""
    if op.own in ("", "listed", "tensorflow"):
        return keras_ops.list_of(op.rule, op.stands_for, lists)
    own = lists.list_of(op.kind) if op.kind else None  # a name of Keras is there if a user added it
    # To the painter, an op that follows its inputs is one that passes colours on.
    return own or _OF_OWN.get(op.own)


def _as_frameworks_decide(graph: Graph, decisions: list[Decision]) -> list[Decision]:
    """Returns the decisions with those of ops that compute in the dtype of their inputs.

    Such an op computes in 16 bits exactly if all its float32 tensors come from ops that do.
    """
    if not any(op.own for op in graph.ops):
        return decisions
    makers, found = graph.makers(), list(decisions)
    for index, op in enumerate(graph.ops):
        before = found[index]
        if op.own == "follow" and before.list == "clear":
            inputs = op.inputs[:1] if op.rule == "batch_normalization" else op.inputs
            made_by = [makers.get(i) for i in inputs if graph.values[i].is_float32]
            low = bool(made_by) and all(i is not None and found[i].low for i in made_by)
            reason = "own_follow_low" if low else "own_follow"
            found[index] = Decision(low, None, "allow" if low else "unpainted", reason)
        elif op.own in ("allow", "deny", "unknown", "in_place") and before.reason in _OF_LISTS:
            found[index] = replace(before, reason=f"own_{op.own}")
    return found


def _loop_decision(loop: Loop, low: frozenset[int]) -> LoopDecision:
    return LoopDecision(
        tuple(state.start in low for state in loop.carried),
        tuple(each is not None and each.element in low for each in loop.read),
        tuple(each is not None and each.whole in low for each in loop.written),
    )


def _sums(graph: Graph) -> set[int]:
    """Returns the ops that add to a loop state that no op reduces.

    A state s of s = f s + x with a gate f below 1 stays near x; one of s = s + x grows with the
    steps: in float16 a sum of ones stops growing at 2048, in bfloat16 at 256.
    """
    sums: set[int] = set()
    for loop in graph.loops:
        for state in loop.carried:
            sums.update(_path_of_sums(graph, loop, state))
    return sums


def _path_of_sums(graph: Graph, loop: Loop, state: Carried) -> set[int]:
    reached, path = {state.start}, set()
    for index in range(loop.first, loop.last):
        op = graph.ops[index]
        if op.rule in _ADDING and any(i in reached for i in op.inputs):
            reached.update(op.outputs)
            path.add(index)
    # The state must come back from its end to its start through these ops alone.
    behind, back = {state.end}, set()
    for index in sorted(path, reverse=True):
        if any(i in behind for i in graph.ops[index].outputs):
            behind.update(graph.ops[index].inputs)
            back.add(index)
    is_sum = state.start in behind and any(graph.ops[i].rule in _SUMS for i in back)
    return back if is_sum else set()


def _computes_float32(graph: Graph, index: int) -> bool:
    op = graph.ops[index]
    return any(graph.values[i].is_float32 for i in (*op.inputs, *op.outputs))


def _shape_op_after(graph: Graph, op: Op) -> str | None:
    """Returns the clear op that TensorFlow adds after the computing op, or None.

    It matters with the lists of TF 2.21: an infer op that follows an allow op directly is painted,
    but not with a Reshape between them. Source: TF 2.21, python/ops/math_ops.py, tensordot, and
    nn_ops.py, conv1d.
    """
    if not op.outputs or not graph.values[op.outputs[0]].is_float32:
        return None
    if op.own == "tensorflow":
        return None  # it is among the ops
    shapes = [graph.values[i].shape for i in op.inputs[:2]]
    rank = len(graph.values[op.outputs[0]].shape)
    of_matrices = op.rule in _ON_MATRICES
    if op.rule == "matmul":
        of_matrices = any(len(shape) < 3 for shape in shapes)  # otherwise BatchMatMul
    if of_matrices and rank != 2:
        return "Reshape"
    return "Squeeze" if op.rule in _ON_IMAGES and rank == 3 else None


def _constants(graph: Graph, kinds: Sequence[str | None], dtype: str) -> list[int]:
    """Returns ops with a constant out of range, and the walls that it reaches.

    The reciprocal root of x + 1e-12 may be 1e6, which float16 cannot hold either.
    """
    constants: list[int] = []
    reached: set[int] = set()
    for index, op in enumerate(graph.ops):
        own = kinds[index] is not None and _out_of_range(op.constants, dtype)
        before = any(graph.values[i].op in reached for i in op.inputs)
        if own or (before and kinds[index] != "allow"):
            reached.add(index)
            if own or kinds[index] is None:
                constants.append(index)
    return constants


def _out_of_range(constants: Sequence[float], dtype: str) -> bool:
    largest, smallest = _RANGE.get(dtype, (math.inf, 0.0))
    sizes = [abs(constant) for constant in constants]
    return any(largest < size < math.inf or 0.0 < size < smallest for size in sizes)


def _decision(
    index: int,
    kind: str | None,
    own: str | None,
    painting: painter.Painting,
    op_of: Mapping[int, int | None],
) -> Decision:
    low = index in painting.low
    colour = "allow" if low else "deny" if index in painting.deny else "unpainted"
    if own is not None:
        return Decision(low, kind, colour, own)
    reason = painting.reasons[index]
    because_of = None if reason.vertex is None else op_of.get(reason.vertex, reason.vertex)
    return Decision(low, kind, colour, reason.code, because_of)
