"""What a report of the graph rewrite says, op by op: as a table, as JSON, and drawn."""

import html
from dataclasses import asdict
from pathlib import Path
from typing import Any

from keras_mp.graph_rewrite import drawing, plotting
from keras_mp.graph_rewrite.painted_graph import PaintedGraph, Row

_HEADER = ("layer", "op", "TF op", "list", "colour", "dtype", "flops", "why")
_MODEL = "(model)"


class Report(PaintedGraph):
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
