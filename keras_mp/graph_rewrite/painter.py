"""Which vertices of a graph may compute in float16: the passes of Grappler, as one pure function.

Knows lists and edges, not ops: `lists.py` says which list contains an op, and the caller which
tensors flow where. A vertex is one dtype slot of an op, so batch normalization has two: its input
may become float16, its statistics stay float32. An op in no list is a wall: no colour passes
through it.

Source: TensorFlow 1.15.0, 2.4.4 and 2.21, core/grappler/optimizers/auto_mixed_precision.cc,
AutoMixedPrecisionImpl::Optimize. One of its steps is missing: it turns a cast to float32 whose
consumers all compute in float16 into a cast to float16. The rewriter does that.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

ListName = Literal["allow", "infer", "deny", "clear"]
Variant = Literal["tf1.15", "tf2", "tf2.21"]
Code = Literal[
    "allow_list", "between_allow", "follows_low", "next_to_low", "group_low", "loop_low",
    "deny_list", "follows_deny", "group_denied", "denied_before",
    "not_float32", "no_list", "unprocessable", "no_allow_op", "not_legal", "no_kernel",
    "nothing_upstream", "nothing_downstream", "reads_variable", "not_reached", "loop_unpainted",
]  # fmt: skip

# The word LOW stands for the name of the 16-bit dtype, OTHER for the vertex of the reason.
SENTENCES: dict[Code, str] = {
    "allow_list": "its op is on the allow list",
    "between_allow": "it lies between allow ops, downstream of OTHER",
    "follows_low": "it follows OTHER, which was painted LOW, and no denied op",
    "next_to_low": "it is a clear op next to OTHER, which was painted LOW",
    "group_low": "it shares a container with OTHER, which was painted LOW",
    "loop_low": "it feeds the next iteration of OTHER, which is LOW",
    "deny_list": "its op is on the deny list",
    "follows_deny": "it follows OTHER, which is on the deny list",
    "group_denied": "it shares a container with OTHER, which is denied",
    "denied_before": "it was denied before painting",
    "not_float32": "it does not hold float32",
    "no_list": "its op is in no list",
    "unprocessable": "it is fed, fetched or not ours to change",
    "no_allow_op": "the graph has no allow op that may be changed",
    "not_legal": "its op does not take LOW",
    "no_kernel": "its op has no kernel for LOW",
    "nothing_upstream": "no allow op is upstream of it, through ops that may compute in LOW",
    "nothing_downstream": "no allow op is downstream of it, through ops that may compute in LOW",
    "reads_variable": "it reads a variable, which stays float32",
    "not_reached": "no op in LOW reached it through clear ops",
    "loop_unpainted": "it is in one loop with OTHER, which is not LOW",
}


@dataclass(frozen=True, slots=True)
class Vertex:
    """One dtype slot of one op.

    Attributes:
        list: The op list that the op is in; None for none.
        is_float32: Whether the slot holds float32. Other slots are never rewritten.
        low_kernel: Whether the op has a kernel for the 16-bit dtype here.
        low_dtype_legal: Whether the op accepts the 16-bit dtype here at all.
        processable: Whether the op may be changed: it is neither fed nor fetched.
        reads_ref_variable: Whether it reads a variable in place, as those of TF 1 that are not
            resources; such a read stays float32 unless it is between two allow ops.
    """

    list: ListName | None
    is_float32: bool = True
    low_kernel: bool = True
    low_dtype_legal: bool = True
    processable: bool = True
    reads_ref_variable: bool = False


@dataclass(frozen=True)
class PaintGraph:
    """The input of `paint`. A vertex is its index in `vertices`.

    Attributes:
        vertices: The slots, in execution order. Only variant "tf2.21" reads the order.
        edges: (producer, consumer) of each tensor; duplicates have no effect.
        groups: Vertices that must share a dtype, such as all reads and writes of one container.
        loop_edges: (vertex that ends an iteration, vertices that merge it into the next).
        predenied: Vertices denied before painting starts, which must stay float32.
        variant: The passes of "tf1.15", "tf2" (2.4) or "tf2.21".

    Raises:
        ValueError: If the variant, a list or the index of a vertex does not exist.
    """

    vertices: Sequence[Vertex]
    edges: Collection[tuple[int, int]]
    groups: Sequence[Sequence[int]] = ()
    loop_edges: Sequence[tuple[int, Sequence[int]]] = ()
    predenied: Collection[int] = ()
    variant: Variant = "tf1.15"

    def __post_init__(self) -> None:
        if self.variant not in get_args(Variant):
            raise ValueError(
                f"variant must be one of {', '.join(get_args(Variant))}, but got {self.variant!r}."
            )
        allowed = {None, *get_args(ListName)}
        for index, vertex in enumerate(self.vertices):
            if vertex.list not in allowed:
                raise ValueError(
                    f"vertices[{index}].list must be allow, infer, deny, clear or None, but got "
                    f"{vertex.list!r}."
                )
        self._check("edges", (end for edge in self.edges for end in edge))
        self._check("groups", (member for group in self.groups for member in group))
        self._check("loop_edges", (v for last, heads in self.loop_edges for v in (last, *heads)))
        self._check("predenied", self.predenied)
        for index, (_, heads) in enumerate(self.loop_edges):
            if not heads:
                raise ValueError(
                    f"loop_edges[{index}] must name a vertex that merges, but has none."
                )

    def _check(self, field: str, indices: Iterable[int]) -> None:
        count = len(self.vertices)
        for index in indices:
            if not 0 <= index < count:
                raise ValueError(
                    f"{field} must name vertices 0 to {count - 1}, but there is a {index!r}."
                )


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a vertex has its colour.

    Attributes:
        code: A key of SENTENCES.
        vertex: The other vertex that the sentence names; None if there is none.
    """

    code: Code
    vertex: int | None = None

    def sentence(
        self, name: Callable[[int], str] = "vertex {}".format, low: str = "float16"
    ) -> str:
        """Returns the reason in words.

        >>> Reason("follows_deny", 3).sentence()
        'it follows vertex 3, which is on the deny list'
        >>> Reason("not_legal").sentence(low="bfloat16")
        'its op does not take bfloat16'
        """
        text = SENTENCES[self.code].replace("LOW", low)
        return text if self.vertex is None else text.replace("OTHER", name(self.vertex))


@dataclass(frozen=True)
class Painting:
    """The colours of a graph's float32 slots; other slots keep their dtype.

    Attributes:
        low: Vertices that compute in the 16-bit dtype; never one of `deny`.
        deny: Vertices that must stay float32: those of the deny list, and those that follow them.
        reasons: The reason for every vertex of the graph.
    """

    low: frozenset[int]
    deny: frozenset[int]
    reasons: dict[int, Reason]


def paint(graph: PaintGraph) -> Painting:
    """Returns what Grappler's auto_mixed_precision paints.

    | pass | what is painted                                               | variant  |
    | ---- | ------------------------------------------------------------- | -------- |
    | 1    | allow: all processable allow ops; none of them ends it        | all      |
    | 2    | deny: forward from deny ops, through infer ops, and through   |          |
    |      | clear ops that lead to an infer or deny op by clear ops alone | all      |
    | 2b   | a group with a denied member is denied, else allow if any is  | all      |
    | 3    | allow: what lies both downstream and upstream of allow ops    | all      |
    | 4    | allow: an infer op with an allow input and no denied one      | tf2.21   |
    | 5    | allow: clear ops connected to allow by clear ops, either way  | all      |
    | 6    | an allow op that cannot take the dtype is not painted         | not 1.15 |
    | 7    | groups as in 2b; a loop whose merges are not all allow is not | all      |

    Passes 3 to 5 paint processable float32 vertices with a 16-bit kernel that are not denied.
    An allow op needs no kernel: in pass 1 its list decides. Nor does a member of a group.

    A deny colour stops at an allow op, and a clear op that leads nowhere keeps no colour:

    >>> chain = ["allow", "deny", "infer", "clear", "infer", "clear", "allow"]
    >>> painting = paint(PaintGraph([Vertex(at) for at in chain], [(i, i + 1) for i in range(6)]))
    >>> sorted(painting.low), sorted(painting.deny)
    ([0, 5, 6], [1, 2, 3, 4])
    >>> painting.reasons[4]
    Reason(code='follows_deny', vertex=1)
    """
    canvas = _Canvas(graph)
    _paint_allow_ops(canvas)
    canvas.stopped = not canvas.low
    if not canvas.stopped:
        _deny_forward(canvas)
        _match_groups(canvas)
        _paint_between_allow_ops(canvas)
        if graph.variant == "tf2.21":
            _paint_infer_ops_after_low(canvas)
        _spread_through_clear_ops(canvas)
        if graph.variant != "tf1.15":
            _unpaint_illegal_allow_ops(canvas)
        _match_groups(canvas)
        _match_loops(canvas)
    return canvas.finished()


class _Canvas:
    """The graph while it is painted: `low` and `deny` hold the colours, each with its reason."""

    def __init__(self, graph: PaintGraph) -> None:
        self.graph = graph
        self.vertices = graph.vertices
        self.inputs: list[list[int]] = [[] for _ in graph.vertices]
        self.outputs: list[list[int]] = [[] for _ in graph.vertices]
        for producer, consumer in graph.edges:
            self.inputs[consumer].append(producer)
            self.outputs[producer].append(consumer)
        self.low: dict[int, Reason] = {}
        self.deny = {index: Reason("denied_before") for index in graph.predenied}
        self.unpainted: dict[int, Reason] = {}
        self.stopped = False
        self.downstream: dict[int, int] = {}

    def indices(self, name: ListName) -> list[int]:
        return [index for index, vertex in enumerate(self.vertices) if vertex.list == name]

    def allow_ops(self) -> list[int]:
        return [index for index in self.indices("allow") if self.vertices[index].processable]

    def paintable(self, index: int) -> bool:
        """Returns whether colour may spread to a vertex that its list does not paint."""
        vertex = self.vertices[index]
        return (
            vertex.processable
            and vertex.is_float32
            and vertex.low_dtype_legal
            and vertex.low_kernel
            and index not in self.deny
        )

    def finished(self) -> Painting:
        low = frozenset(index for index in self.low if self.vertices[index].is_float32)
        deny = frozenset(index for index in self.deny if self.vertices[index].is_float32) - low
        reasons = {index: self.reason(index) for index in range(len(self.vertices))}
        return Painting(low, deny, reasons)

    def reason(self, index: int) -> Reason:
        vertex = self.vertices[index]
        if not vertex.is_float32:
            return Reason("not_float32")
        for colour in (self.low, self.deny, self.unpainted):
            if index in colour:
                return colour[index]
        return Reason(self.why_bare(index))

    def why_bare(self, index: int) -> Code:
        vertex = self.vertices[index]
        if vertex.list is None:
            return "no_list"
        if not vertex.processable:
            return "unprocessable"
        if self.stopped:
            return "no_allow_op"
        if not vertex.low_dtype_legal:
            return "not_legal"
        if not vertex.low_kernel:
            return "no_kernel"
        if vertex.list == "infer":
            return "nothing_downstream" if index in self.downstream else "nothing_upstream"
        return "reads_variable" if vertex.reads_ref_variable else "not_reached"


def _paint_allow_ops(canvas: _Canvas) -> None:
    canvas.low = {index: Reason("allow_list") for index in canvas.allow_ops()}


def _deny_forward(canvas: _Canvas) -> None:
    deny_ops = canvas.indices("deny")
    leads_on = set(canvas.indices("infer")) | set(deny_ops)
    waiting = list(leads_on)
    while waiting:
        for index in canvas.inputs[waiting.pop()]:
            if index not in leads_on and canvas.vertices[index].list == "clear":
                leads_on.add(index)
                waiting.append(index)
    # Predenied vertices pass nothing on: the search neither starts nor continues there.
    root = {index: index for index in deny_ops if index not in canvas.deny}
    canvas.deny |= dict.fromkeys(root, Reason("deny_list"))
    queue = deque(root)
    while queue:
        last = queue.popleft()
        for index in canvas.outputs[last]:
            if index in leads_on and index not in canvas.deny:
                root[index] = root[last]
                canvas.deny[index] = Reason("follows_deny", root[last])
                queue.append(index)


def _match_groups(canvas: _Canvas) -> None:
    for group in (*canvas.graph.groups, *((index,) for index in canvas.graph.predenied)):
        denied = next((index for index in group if index in canvas.deny), None)
        if denied is not None:
            for index in group:
                canvas.low.pop(index, None)
                canvas.deny.setdefault(index, Reason("group_denied", denied))
            continue
        painted = next((index for index in group if index in canvas.low), None)
        if painted is not None:
            for index in group:
                canvas.low.setdefault(index, Reason("group_low", painted))


def _paint_between_allow_ops(canvas: _Canvas) -> None:
    # By list, not by colour: an allow op that its group denied still ends a path here.
    allow_ops = canvas.allow_ops()
    downstream = {index: index for index in allow_ops}
    queue = deque(allow_ops)
    while queue:
        last = queue.popleft()
        for index in canvas.outputs[last]:
            if (
                index not in downstream
                and canvas.vertices[index].list in ("infer", "clear")
                and canvas.paintable(index)
            ):
                downstream[index] = downstream[last]
                queue.append(index)
    canvas.downstream = downstream
    upstream = set(allow_ops)
    waiting = list(allow_ops)
    while waiting:
        for index in canvas.inputs[waiting.pop()]:
            if index in downstream and index not in upstream:
                upstream.add(index)
                waiting.append(index)
    for index in sorted(upstream):
        canvas.low.setdefault(index, Reason("between_allow", downstream[index]))


def _paint_infer_ops_after_low(canvas: _Canvas) -> None:
    # One sweep in order; each op sees those painted before it. TensorFlow checks for no kernel
    # here; none of its infer ops lacks one, so the safe rule gives the same result.
    for index in canvas.indices("infer"):
        if index in canvas.low or not canvas.paintable(index):
            continue
        inputs = canvas.inputs[index]
        painted = next((i for i in inputs if i in canvas.low), None)
        if painted is not None and not any(i in canvas.deny for i in inputs):
            canvas.low[index] = Reason("follows_low", painted)


def _spread_through_clear_ops(canvas: _Canvas) -> None:
    waiting = [index for index in sorted(canvas.low) if canvas.vertices[index].processable]
    while waiting:
        last = waiting.pop()
        for index in (*canvas.inputs[last], *canvas.outputs[last]):
            vertex = canvas.vertices[index]
            if (
                vertex.list == "clear"
                and index not in canvas.low
                and canvas.paintable(index)
                and not vertex.reads_ref_variable
            ):
                canvas.low[index] = Reason("next_to_low", last)
                waiting.append(index)


def _unpaint_illegal_allow_ops(canvas: _Canvas) -> None:
    for index in canvas.indices("allow"):
        if index in canvas.low and not canvas.vertices[index].low_dtype_legal:
            del canvas.low[index]


def _match_loops(canvas: _Canvas) -> None:
    for last, heads in canvas.graph.loop_edges:
        bare = next((index for index in heads if index not in canvas.low), None)
        if bare is None:
            canvas.low.setdefault(last, Reason("loop_low", heads[0]))
            continue
        for index in (*heads, last):
            if index in canvas.low:
                del canvas.low[index]
                canvas.unpainted[index] = Reason("loop_unpainted", bare)
