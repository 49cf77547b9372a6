"""What a model computes, op by op: the graph that recording makes and painting reads.

Plain data. Knows neither Keras nor a framework.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

Shape = tuple[int | None, ...]


class Origin(Enum):
    """Where a value comes from, if no recorded op made it."""

    INPUT = "input"
    VARIABLE = "variable"
    UNKNOWN = "unknown"  # made by something that is not recorded: a wall


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor: what made it, its shape and dtype."""

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
    """One call of a keras op.

    Attributes:
        layer: Path of the layer that called it, "" for the model itself.
        name: Name of the keras op: "matmul".
        occurrence: How many ops of this name the layer has called before.
        stands_for: The TensorFlow ops that do the same, the main one first.
        inputs: Indices of the tensors among `Graph.values`, in the order of the arguments.
        outputs: Likewise.
        flops: Floating point operations; a multiply-add counts 2.
        constants: The numbers that it combines with its tensors.
    """

    layer: str
    name: str
    occurrence: int
    stands_for: tuple[str, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    flops: int = 0
    constants: tuple[float, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Returns what a decision is filed under, together with the occurrence."""
        return self.layer, self.name


@dataclass
class Graph:
    """The ops of one call of a model, in the order in which they ran.

    Attributes:
        values: Every tensor.
        ops: Every op.
        outputs: Indices of the values that the model returned.
        assigned: Indices of those that became values of variables, such as moving averages.
        losses: Indices of those that layers added to the loss.
        calls: How often each (layer, op) was called; more often than there are ops where it handed
            back what it was given.
    """

    values: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    outputs: tuple[int, ...] = ()
    assigned: tuple[int, ...] = ()
    losses: tuple[int, ...] = ()
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)

    def weights_only(self) -> frozenset[int]:
        """Returns the ops all of whose tensors come from weights: a reshaped bias, a scaled kernel.

        Painted, they would sum the gradient of a weight over the batch in float16.
        """
        found: set[int] = set()
        for index, op in enumerate(self.ops):
            values = [self.values[i] for i in op.inputs]
            if values and all(
                value.origin is Origin.VARIABLE or value.op in found for value in values
            ):
                found.add(index)
        return frozenset(found)
