"""The ops that TensorFlow has around the body of a loop, for the painter.

A state enters the body through Enter, Merge, Switch and Identity, and returns through NextIteration
to Merge; Exit passes it on. A sequence lies in a container, whose writers and readers share a
dtype. Source: TF 1.15, python/ops/control_flow_ops.py and tensor_array_ops.py; for the lists of
TF 2 the containers are those of python/ops/list_ops.py, which its loops use.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from keras_mp.graph_rewrite.graph import Carried, Graph, Loop, Sequence
from keras_mp.graph_rewrite.painter import Variant

Add = Callable[..., int]
"""add(name of a TensorFlow op, *vertices of its inputs) -> its vertex."""
Connect = Callable[[int, int], None]
"""connect(vertex, vertex that takes its output)."""

_OF_TF2 = {
    "TensorArrayV3": "TensorListReserve",
    "TensorArrayScatterV3": "TensorListFromTensor",
    "TensorArrayReadV3": "TensorListGetItem",
    "TensorArrayWriteV3": "TensorListSetItem",
    "TensorArrayGatherV3": "TensorListStack",
    "StackV2": "EmptyTensorList",
    "StackPushV2": "TensorListPushBack",
    "StackPopV2": "TensorListPopBack",
}


@dataclass(slots=True)
class _Container:
    """The vertices of a container: any reader may return what was written."""

    itself: int
    writers: list[int]
    readers: list[int]


@dataclass(frozen=True, slots=True)
class _State:
    """The vertices of a carried state."""

    identity: int
    end: int  # takes the state at the end of a step
    next: int
    exit: int


class LoopVertices:
    """Adds the vertices of a graph's loops, and maps values to vertices.

    `shaped` are the values that their op does not make itself, with the vertices that do.

    Attributes:
        loop_edges: (the NextIteration of a state, its Merge).
    """

    def __init__(
        self,
        graph: Graph,
        add: Add,
        connect: Connect,
        variant: Variant,
        shaped: Mapping[int, int],
    ) -> None:
        self.graph = graph
        self.loop_edges: list[tuple[int, tuple[int, ...]]] = []
        self._add, self._connect, self._variant = add, connect, variant
        self._of_value = dict(shaped)
        self._states: dict[int, _State] = {}
        self._containers: list[_Container] = []
        self._container: dict[int, _Container] = {}
        for loop in graph.loops:
            for state in loop.carried:
                self._add_state(loop, state)
            for sequence in filter(None, loop.read):
                self._add_read(sequence)
            for sequence in filter(None, loop.written):
                self._add_written(sequence)
        for loop in graph.loops:
            self._connect_ends(loop)

    def vertex(self, value: int | None) -> int | None:
        """Returns the vertex that makes a value, or None for an input or a weight."""
        if value is None:
            return None
        return self._of_value.get(value, self.graph.values[value].op)

    def add(self, name: str, *vertices: int | None) -> int:
        """Adds an op by its name in TF 1.15."""
        if self._variant != "tf1.15":
            name = _OF_TF2.get(name, name)
        return self._add(name, *(vertex for vertex in vertices if vertex is not None))

    def is_float32(self, value: int | None) -> bool:
        """Returns whether a value is a float32 tensor."""
        return value is not None and self.graph.values[value].is_float32

    def feed_back(self, last: int, merge: int) -> None:
        """Closes a loop."""
        self._connect(last, merge)
        self.loop_edges.append((last, (merge,)))

    def groups(self) -> list[list[int]]:
        """Returns the vertices that share a dtype, container by container."""
        return [[each.itself, *each.writers, *each.readers] for each in self._containers]

    def pass_through(self, kind: str, writer: int, reader: int) -> _Container:
        """Adds a container of a kind, "TensorArrayV3" or "StackV2"."""
        container = _Container(self.add(kind), [writer], [reader])
        self._containers.append(container)
        return container

    def pass_back(self, value: int, writer: int, reader: int) -> None:
        """Adds the container of the gradient of the sequence `value`.

        In TF 1.15 it is part of the sequence's own container.
        """
        if self._variant != "tf1.15":
            self.pass_through("TensorArrayV3", writer, reader)
            return
        container = self._container[value]
        for other in container.readers:
            self._connect(writer, other)
        for other in container.writers:
            self._connect(other, reader)
        container.writers.append(writer)
        container.readers.append(reader)

    def _add_state(self, loop: Loop, state: Carried) -> None:
        if state.start is None or not self.is_float32(state.start):
            return
        merge = self.add("Merge", self.add("Enter", self.vertex(state.before)))
        switch = self.add("Switch", merge)
        identity = self.add("Identity", switch)
        end = following = self.add("NextIteration")
        if loop.masked:
            end = self.add("Select", identity)
            self._connect(end, following)
        self.feed_back(following, merge)
        leaving = self.add("Exit", switch)
        self._of_value[state.start] = identity
        if state.after is not None:
            self._of_value[state.after] = leaving
        self._states[state.start] = _State(identity, end, following, leaving)

    def _add_read(self, sequence: Sequence) -> None:
        if not self.is_float32(sequence.element):
            return
        scatter = self.add("TensorArrayScatterV3", self.vertex(sequence.whole))
        read = self.add("TensorArrayReadV3", scatter)
        self._of_value[sequence.element] = read
        self._container[sequence.element] = self.pass_through("TensorArrayV3", scatter, read)

    def _add_written(self, sequence: Sequence) -> None:
        if not self.is_float32(sequence.whole):
            return
        write = self.add("TensorArrayWriteV3")
        gather = self.add("TensorArrayGatherV3", write)
        self._of_value[sequence.whole] = gather
        if sequence.last is not None:
            self._of_value[sequence.last] = self.add("StridedSlice", gather)
        self._container[sequence.whole] = self.pass_through("TensorArrayV3", write, gather)

    def _connect_ends(self, loop: Loop) -> None:
        for state in loop.carried:
            if state.start in self._states and (end := self.vertex(state.end)) is not None:
                self._connect(end, self._states[state.start].end)
        for sequence in filter(None, loop.written):
            made = self.vertex(sequence.element)
            if sequence.whole in self._container and made is not None:
                into = self._container[sequence.whole].writers[0]
                if loop.masked:
                    select = self.add("Select", made)
                    self._connect(select, into)
                else:
                    self._connect(made, into)
