"""The ops of a model as a graph: recording creates it, painting reads it.

Plain data. Knows neither Keras nor a framework.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

Shape = tuple[int | None, ...]


class Origin(Enum):
    """The origin of a value that no recorded op made."""

    CONSTANT = "constant"  # it gets no gradient
    INPUT = "input"
    VARIABLE = "variable"
    LOOP = "loop"  # passed on by a loop: to its body, from step to step, or out of it
    UNKNOWN = "unknown"  # made by an unrecorded op: a wall


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor: its origin, shape and dtype."""

    origin: Origin | None  # None: `op` made it
    op: int | None
    shape: Shape
    dtype: str
    trainable: bool = False

    @property
    def is_float32(self) -> bool:
        """Returns whether painting concerns this value."""
        return self.dtype == "float32"


@dataclass(frozen=True, slots=True)
class Op:
    """One call of a keras op, or of an op of a framework itself.

    Attributes:
        layer: Path of the layer that called it, "" for the model itself.
        name: Name of the keras op: "matmul"; or of the framework's: "torch.matmul".
        occurrence: How many ops of this name the layer has called before.
        stands_for: The equivalent TensorFlow ops, the main one first.
        inputs: Indices of the tensors among `Graph.values`, in the order of the arguments.
        outputs: Likewise.
        flops: Floating point operations; a multiply-add counts 2.
        constants: The numbers that it combines with its tensors.
        kind: The keras op that computes the same as a framework's op; "" if there is none.
        own: The `foreign_ops.Own` of a framework's op; "" for a keras op.
    """

    layer: str
    name: str
    occurrence: int
    stands_for: tuple[str, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    flops: int = 0
    constants: tuple[float, ...] = ()
    kind: str = ""
    own: str = ""

    @property
    def rule(self) -> str:
        """Returns the name of the keras op whose gradient and cost it has."""
        return self.kind if self.own else self.name

    @property
    def key(self) -> tuple[str, str]:
        """Returns the key of its decision, together with the occurrence."""
        return self.layer, self.name


@dataclass(frozen=True, slots=True)
class Carried:
    """A state that a loop carries from step to step: four values of one shape and dtype.

    Attributes:
        before: Before the loop; None if it is not a tensor, such as a number.
        start: At the start of a step.
        end: At the end of a step.
        after: After the loop; None if nothing reads it.
    """

    before: int | None
    start: int | None
    end: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Sequence:
    """A tensor of which each step of a loop reads, or computes, one element.

    Attributes:
        whole: The tensor.
        element: The element of one step.
        last: The element of the last step, if the loop returns it, too.
    """

    whole: int
    element: int
    last: int | None = None


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop, with one recorded step.

    Attributes:
        layer: Path of the layer that runs it, "" for the model itself.
        name: Name of the function that runs it: "rnn", "scan".
        occurrence: How many of this name the layer has run before.
        first: Index of the first op of its body.
        last: Index after the last op of its body.
        steps: How often it runs the body; None if unknown beforehand.
        carried: The states, in the order of the flat structure.
        read: The sequences whose elements the body reads, likewise; None for other objects.
        written: The sequences whose elements the body computes, likewise.
        masked: Whether a mask decides which of its examples take a step.
        calls: How often each (layer, op) was called when the body ended.
    """

    layer: str
    name: str
    occurrence: int
    first: int
    last: int
    steps: int | None
    carried: tuple[Carried, ...]
    read: tuple[Sequence | None, ...]
    written: tuple[Sequence | None, ...]
    masked: bool = False
    calls: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Returns the key of its decision, together with the occurrence."""
        return self.layer, self.name


@dataclass
class Graph:
    """The ops of one call of a model, in the order in which they ran.

    Attributes:
        values: Every tensor.
        ops: Every op.
        loops: Every loop; an inner one follows the loop around it.
        outputs: Indices of the values that the model returned.
        assigned: Indices of values that were assigned to variables, such as moving averages.
        losses: Indices of values that layers added to the loss.
        calls: How often each (layer, op) was called; more often than it has ops if a call returned
            its argument.
        branching: Layers in which eager TensorFlow calls one of several functions, or one of them
            several times.
        has_functions: Whether a layer calls a `tf.function`, or has a `tf.GradientTape`.
    """

    values: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    outputs: tuple[int, ...] = ()
    assigned: tuple[int, ...] = ()
    losses: tuple[int, ...] = ()
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    branching: set[str] = field(default_factory=set)
    has_functions: bool = False

    def makers(self) -> dict[int, int]:
        """Returns the op that made each value; for a value that a loop passes on, its source's."""
        came_from: dict[int, int | None] = {}
        for loop in self.loops:
            for state in loop.carried:
                if state.start is not None:
                    came_from[state.start] = state.before
                if state.after is not None:
                    came_from[state.after] = state.end
            came_from |= {each.element: each.whole for each in filter(None, loop.read)}
            for each in filter(None, loop.written):
                came_from[each.whole] = each.element
                if each.last is not None:
                    came_from[each.last] = each.element
        made_by: dict[int, int] = {}
        for index in range(len(self.values)):
            i: int | None = index
            while i is not None and i in came_from:
                i = came_from[i]
            op = None if i is None else self.values[i].op
            if op is not None:
                made_by[index] = op
        return made_by

    def weights_only(self) -> frozenset[int]:
        """Returns the ops that depend on weights only: a reshaped bias, a scaled kernel.

        If painted, they would sum a weight's gradient over the batch in float16.
        """
        of_weights: set[int] = set()
        for index, op in enumerate(self.ops):
            values = [self.values[i] for i in op.inputs]
            if values and all(
                value.origin is Origin.VARIABLE or value.op in of_weights for value in values
            ):
                of_weights.add(index)
        return frozenset(of_weights)
