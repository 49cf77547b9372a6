"""What a report of the graph rewrite says, op by op: plain data, its table and its summary.

Knows neither Keras nor a framework; `reporting.py` fills it, `drawing.py` draws it.
"""

import html
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from keras_mp.graph_rewrite import drawing, plotting

_HEADER = ("layer", "op", "TF op", "list", "colour", "dtype", "flops", "why")
_MODEL = "(model)"


@dataclass(frozen=True, slots=True)
class Row:
    """One op of a model.

    Attributes:
        index: Its place in the order of the call, from 0.
        layer: Path of the layer that calls it: "d1", "block/dense"; "" for the model itself.
        op: Name of the keras op: "matmul".
        occurrence: How many ops of this name the layer has called before.
        tf_op: The TensorFlow op that it stands for, the main one of several; None for none.
        list: "allow", "infer", "deny", "clear", or None for an op in no list.
        colour: "allow", "deny" or "unpainted".
        dtype: What it computes in; for an op without float32 tensors, their dtype.
        why: The reason, as a sentence without its full stop.
        flops: Floating point operations of the forward pass; a multiply-add counts 2.
        because_of: Index of the op that `why` speaks of; None if there is none.
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


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor on its way to an op. Weights have none: an op takes them in its own dtype.

    Attributes:
        tensor: Number of the tensor; edges of one tensor share it.
        source: Index of the row that made it; None for an input of the model and where `unseen`.
        target: Index of the row that takes it; None for an output of the model.
        dtype: Its dtype for whoever calls the op.
        shape: Its shape; None for a side that is not known.
        cast: Dtype to which it is cast on the way; None if it is not.
        unseen: Whether something else than a keras op made it, as a loop.
    """

    tensor: int
    source: int | None
    target: int | None
    dtype: str
    shape: tuple[int | None, ...]
    cast: str | None = None
    unseen: bool = False


@dataclass(frozen=True, repr=False)
class Report:
    """Which ops of a model compute in the 16-bit dtype, and why.

    Attributes:
        model: Name of the model.
        dtype: The 16-bit dtype, "float16" or "bfloat16".
        lists: Name of the op lists: "tf1.15".
        training: Whether the gradient is taken: more is painted then.
        rows: The ops, in the order of the call.
        edges: The tensors between them.
        missed: For a model that is rewritten: how many ops have run so far that no row tells of, by
            (layer, op): a branch that was not taken when the plan was made, a loop that runs its
            body more often than was recorded, where the recorded rounds are not alike. Those of
            the allow list computed in the 16-bit dtype, others in float32.

    `str` is a table for a terminal, with one line for ops that are alike; `plot` and `to_dot` draw
    the graph.
    """

    model: str
    dtype: str
    lists: str
    training: bool
    rows: tuple[Row, ...]
    edges: tuple[Edge, ...]
    missed: Mapping[tuple[str, str], int] = field(default_factory=dict)

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
        """Returns the share of the floating point operations in the 16-bit dtype, 0.0 to 1.0.

        Those of the forward pass; 0.0 for a model without any.
        """
        total = sum(row.flops for row in self.rows if "float" in row.dtype)
        low = sum(row.flops for row in self.rows if row.dtype == self.dtype)
        return low / total if total else 0.0

    @property
    def summary(self) -> str:
        """Returns one line: "4 ops: 1 float16, 3 float32; 92.3 % of the ...".

        >>> rows = [Row(0, "d", "matmul", 0, "MatMul", "allow", "allow", "float16", "", 96),
        ...         Row(1, "d", "exp", 0, "Exp", "deny", "deny", "float32", "", 32)]
        >>> Report("model", "float16", "tf1.15", True, tuple(rows), ()).summary
        '2 ops: 1 float16, 1 float32; 75.0 % of the floating point operations in float16'
        """
        dtypes = Counter(row.dtype for row in self.rows)
        ordered = sorted(dtypes, key=lambda name: (name != self.dtype, name != "float32", name))
        found = ", ".join(f"{dtypes[name]} {name}" for name in ordered)
        return (
            f"{len(self.rows)} op{'' if len(self.rows) == 1 else 's'}"
            f"{': ' if found else ''}{found}; {100 * self.low_flops_share:.1f} % of the floating "
            f"point operations in {self.dtype}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as what `json.dump` takes."""
        missed = [
            {"layer": layer, "op": op, "calls": calls}
            for (layer, op), calls in sorted(self.missed.items())
        ]
        return {
            "model": self.model,
            "dtype": self.dtype,
            "lists": self.lists,
            "training": self.training,
            "counts": self.counts,
            "low_flops_share": self.low_flops_share,
            "rows": [asdict(row) for row in self.rows],
            "edges": [{**asdict(edge), "shape": list(edge.shape)} for edge in self.edges],
            "missed": missed,
        }

    def to_dot(self) -> str:
        """Returns the graph in the DOT language of Graphviz: `dot -Tsvg`."""
        return drawing.to_dot(self)

    def plot(self, path: str | Path | None = None) -> Any:
        """Returns the graph as a `matplotlib.figure.Figure`; no display is needed.

        Args:
            path: Where to save it as well: PNG, SVG or PDF, by the ending.

        Raises:
            ImportError: matplotlib is not installed.
            ValueError: matplotlib knows no format with this ending.
        """
        return plotting.plot(self, path)

    def __str__(self) -> str:
        """Returns the table, the summary, and what missed the plan."""
        lines = [*_table(self.rows), self.summary]
        for (layer, op), calls in sorted(self.missed.items()):
            lines.append(f"{calls} calls of {op} in {layer or _MODEL} were not in the plan")
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Returns one line."""
        return f"<Report of {self.model!r}: {self.summary}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _table(rows: tuple[Row, ...]) -> list[str]:
    # A loop that is unrolled calls the same ops at each step.
    groups: dict[tuple[str | None, ...], list[Row]] = {}
    for row in rows:
        key = (row.layer, row.op, row.tf_op, row.list, row.colour, row.dtype, row.why)
        groups.setdefault(key, []).append(row)
    total = sum(row.flops for row in rows) or 1
    cells = [list(_HEADER)] if groups else []
    for alike in groups.values():
        first = alike[0]
        share = 100 * sum(row.flops for row in alike) / total
        cells.append(
            [
                first.layer or _MODEL,
                first.op + (f" x{len(alike)}" if len(alike) > 1 else ""),
                first.tf_op or "-",
                first.list or "-",
                first.colour,
                first.dtype,
                f"{share:.1f} %",
                first.why,
            ]
        )
    widths = [max(len(line[i]) for line in cells) for i in range(len(_HEADER))] if cells else []
    right = _HEADER.index("flops")
    return [
        "  ".join(
            text.rjust(width) if i == right else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
