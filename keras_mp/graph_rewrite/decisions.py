"""Which ops of a recorded model compute in the 16-bit dtype, and why. Pure data in and out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from keras_mp.float_formats import FLOAT16
from keras_mp.graph_rewrite import gradients, keras_ops, painter
from keras_mp.graph_rewrite.graph import Graph
from keras_mp.graph_rewrite.lists import OpLists

# Beside those of the painter.
SENTENCES = {
    "weights_only": "it computes with weights only, which stay float32",
    "constant": "LOW cannot hold its constant, or that of an op before it",
}
# The largest finite number and the smallest that is not subnormal.
_RANGE = {"float16": (FLOAT16.largest, FLOAT16.smallest_normal)}


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about one op.

    Attributes:
        low: Whether it computes in the 16-bit dtype.
        list: "allow", "infer", "deny", "clear", or None for an op in no list.
        colour: "allow", "deny" or "unpainted".
        reason: Code of the reason: of `painter.SENTENCES`, or of `SENTENCES` here.
        because_of: Index of the op that the reason speaks of; None if there is none.
    """

    low: bool
    list: str | None
    colour: str
    reason: str
    because_of: int | None = None


def decide(graph: Graph, lists: OpLists, training: bool, dtype: str = "float16") -> list[Decision]:
    """Returns a decision for each op of `graph`.

    Two rules are not TensorFlow's: an infer or clear op that computes with weights only is in no
    list, and an op with a constant that `dtype` cannot hold, 1e-7 or -1e9 in float16, is denied,
    and so is what follows it through ops in no list.

    Args:
        graph: The ops of one call of a model.
        lists: The op lists; their `variant` chooses the passes.
        training: Whether the gradient is taken: then ops between an allow op and its gradient are
            painted, too.
        dtype: "float16" or "bfloat16".
    """
    kinds = [keras_ops.list_of(op.name, op.stands_for, lists) for op in graph.ops]
    weights = {i for i in graph.weights_only() if kinds[i] not in ("allow", "deny")}
    for i in weights:
        kinds[i] = None
    constants = _constants(graph, kinds, dtype)
    for i in constants:
        kinds[i] = "deny"
    vertices = [
        painter.Vertex(list=kind, is_float32=_computes_float32(graph, index))
        for index, kind in enumerate(kinds)
    ]
    edges: list[tuple[int, int]] = []
    for index, op in enumerate(graph.ops):
        # Statistics, scale and offset of a batch normalization are float32 in any colour.
        inputs = op.inputs[:1] if op.name == "batch_normalization" else op.inputs
        for value in (graph.values[i] for i in inputs):
            if value.op is not None and value.is_float32:
                edges.append((value.op, index))
    if training:

        def add(name: str, *inputs: int) -> int:
            vertices.append(painter.Vertex(list=lists.list_of(name)))
            edges.extend((vertex, len(vertices) - 1) for vertex in inputs)
            return len(vertices) - 1

        gradients.add_gradients(graph, range(len(graph.ops)), add)
    painting = painter.paint(painter.PaintGraph(vertices, edges, variant=lists.variant))
    own = dict.fromkeys(constants, "constant") | dict.fromkeys(weights, "weights_only")
    return [_decision(i, kinds[i], own.get(i), painting) for i in range(len(graph.ops))]


def _computes_float32(graph: Graph, index: int) -> bool:
    op = graph.ops[index]
    return any(graph.values[i].is_float32 for i in (*op.inputs, *op.outputs))


def _constants(graph: Graph, kinds: Sequence[str | None], dtype: str) -> list[int]:
    """Returns ops with a constant out of range, and the walls to which it comes.

    The reciprocal root of x + 1e-12 may be 1e6: no more for float16 than the constant.
    """
    found: list[int] = []
    reached: set[int] = set()
    for index, op in enumerate(graph.ops):
        own = kinds[index] is not None and _out_of_range(op.constants, dtype)
        before = any(graph.values[i].op in reached for i in op.inputs)
        if own or (before and kinds[index] != "allow"):
            reached.add(index)
            if own or kinds[index] is None:
                found.append(index)
    return found


def _out_of_range(constants: Sequence[float], dtype: str) -> bool:
    largest, smallest = _RANGE.get(dtype, (math.inf, 0.0))
    sizes = [abs(constant) for constant in constants]
    return any(largest < size < math.inf or 0.0 < size < smallest for size in sizes)


def _decision(
    index: int, kind: str | None, own: str | None, painting: painter.Painting
) -> Decision:
    low = index in painting.low
    colour = "allow" if low else "deny" if index in painting.deny else "unpainted"
    if own is not None:
        return Decision(low, kind, colour, own)
    reason = painting.reasons[index]
    return Decision(low, kind, colour, reason.code, reason.vertex)
