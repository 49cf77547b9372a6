"""Which ops of a recorded model compute in the 16-bit dtype, and why. Pure data in and out."""

from dataclasses import dataclass

from keras_mp.graph_rewrite import gradients, keras_ops, painter
from keras_mp.graph_rewrite.graph import Graph
from keras_mp.graph_rewrite.lists import OpLists


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about one op.

    Attributes:
        low: Whether it computes in the 16-bit dtype.
        list: "allow", "infer", "deny", "clear", or None for an op in no list.
        colour: "allow", "deny" or "unpainted".
        reason: Code of the reason, see `painter.SENTENCES`; "weights_only" is not among them.
        because_of: Index of the op that the reason speaks of; None if there is none.
    """

    low: bool
    list: str | None
    colour: str
    reason: str
    because_of: int | None = None


def decide(graph: Graph, lists: OpLists, training: bool) -> list[Decision]:
    """Returns a decision for each op of `graph`.

    Args:
        graph: The ops of one call of a model.
        lists: The op lists; their `variant` chooses the passes.
        training: Whether the gradient is taken: then ops between an allow op and its gradient are
            painted, too.
    """
    kinds = [keras_ops.list_of(op.name, op.stands_for, lists) for op in graph.ops]
    weights = {i for i in graph.weights_only() if kinds[i] != "allow"}
    for i in weights:
        kinds[i] = None
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
    return [_decision(i, kinds[i], i in weights, painting) for i in range(len(graph.ops))]


def _computes_float32(graph: Graph, index: int) -> bool:
    op = graph.ops[index]
    return any(graph.values[i].is_float32 for i in (*op.inputs, *op.outputs))


def _decision(
    index: int, kind: str | None, weights_only: bool, painting: painter.Painting
) -> Decision:
    low = index in painting.low
    colour = "allow" if low else "deny" if index in painting.deny else "unpainted"
    if weights_only:
        return Decision(low, kind, colour, "weights_only")
    reason = painting.reasons[index]
    return Decision(low, kind, colour, reason.code, reason.vertex)
