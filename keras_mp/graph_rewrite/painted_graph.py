"""The painted ops of a model, and the tensors between them: plain data.

Knows neither Keras nor a framework. `reporting.py` fills it, `op_report.py` adds text and pictures.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Row:
    """One op of a model.

    Attributes:
        index: Its position in the order of the call, from 0.
        layer: Path of the layer that calls it: "d1", "block/dense"; "" for the model itself.
        op: Name of the keras op: "matmul"; of an op of the framework itself: "torch.matmul".
        occurrence: How many ops of this name the layer has called before.
        tf_op: The TensorFlow op that it stands for, the main one of several; or None.
        list: "allow", "infer", "deny", "clear", or None for an op in no list, or one that computes
            in the dtype of its inputs.
        colour: "allow", "deny" or "unpainted".
        dtype: The dtype that it computes in; for an op without float32 tensors, theirs.
        why: The reason, as a sentence without its full stop.
        flops: Floating point operations of the forward pass; a multiply-add counts 2.
        because_of: Index of the op that `why` names; None if there is none.
        updates: Whether only variables take its result, such as moving statistics.
    """

    index: int
    layer: str
    op: str
    occurrence: int
    tf_op: str | None
    list: str | None
    colour: str
    dtype: str
    why: str
    flops: int
    because_of: int | None = None
    updates: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor that an op takes. Weights have none: an op takes them in its own dtype.

    Attributes:
        tensor: Number of the tensor; edges of one tensor share it.
        source: Index of the row that made it; None for an input of the model and where `unseen`.
        target: Index of the row that takes it; None for an output of the model.
        dtype: Its dtype for the caller of the op.
        shape: Its shape; None for an unknown side.
        cast: The dtype that it is cast to; None for no cast.
        unseen: Whether something else than a keras op made it, such as a loop.
    """

    tensor: int
    source: int | None
    target: int | None
    dtype: str
    shape: tuple[int | None, ...]
    cast: str | None = None
    unseen: bool = False


@dataclass(frozen=True, repr=False)
class PaintedGraph:
    """The data of a `Report`, which documents the attributes."""

    model: str
    dtype: str
    lists: str
    training: bool
    rows: tuple[Row, ...]
    edges: tuple[Edge, ...]
    missed: Mapping[tuple[str, str], int] = field(default_factory=dict)
    part: str | None = None

    @property
    def title(self) -> str:
        """Returns what it is of: "d1 of model: training, tf1.15 lists"."""
        of = self.model if self.part is None else f"{self.part} of {self.model}"
        return f"{of}: {'training' if self.training else 'inference'}, {self.lists} lists"

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Returns the number of ops by "dtype", by "colour" and by "list"."""
        return {
            "dtype": dict(Counter(row.dtype for row in self.rows)),
            "colour": dict(Counter(row.colour for row in self.rows)),
            "list": dict(Counter(str(row.list) for row in self.rows)),
        }

    @property
    def low_flops_share(self) -> float:
        """Returns the share of floating point operations in the 16-bit dtype, 0.0 to 1.0.

        Of the forward pass; 0.0 for a model without any.
        """
        total = sum(row.flops for row in self.rows if "float" in row.dtype)
        low = sum(row.flops for row in self.rows if row.dtype == self.dtype)
        return low / total if total else 0.0

    @property
    def summary(self) -> str:
        """Returns one line: "4 ops: 1 float16, 3 float32; 92.3 % of the ...".

        >>> rows = [Row(0, "d", "matmul", 0, "MatMul", "allow", "allow", "float16", "", 96),
        ...         Row(1, "d", "exp", 0, "Exp", "deny", "deny", "float32", "", 32)]
        >>> PaintedGraph("model", "float16", "tf1.15", True, tuple(rows), ()).summary
        '2 ops: 1 float16, 1 float32; 75.0 % of the floating point operations in float16'
        """
        dtypes = Counter(row.dtype for row in self.rows)
        ordered = sorted(dtypes, key=lambda name: (name != self.dtype, name != "float32", name))
        counts = ", ".join(f"{dtypes[name]} {name}" for name in ordered)
        return (
            f"{len(self.rows)} op{'' if len(self.rows) == 1 else 's'}"
            f"{': ' if counts else ''}{counts}; {100 * self.low_flops_share:.1f} % of the floating "
            f"point operations in {self.dtype}"
        )
