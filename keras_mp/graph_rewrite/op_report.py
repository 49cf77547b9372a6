"""What a report of the graph rewrite says: folded by layer, op by op, as JSON, and drawn."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from keras_mp.graph_rewrite import drawing, folding, plotting, report_text
from keras_mp.graph_rewrite.painted_graph import Edge, PaintedGraph
from keras_mp.rendering import terminal
from keras_mp.rendering.model import Fold, Part, Renderable, Text

_ROWS = 50
_NODES = 40


class Report(PaintedGraph, Renderable):
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
        part: The name that `layer` was given; None for the report of a whole model.

    `str` is a table of the layers, where layers that belong together may share a line, and of a
    `layer` a table of its ops. A notebook shows layers that open. `plot` and `to_dot` draw.
    """

    def text(self, rows: int | None = _ROWS, width: int = 120) -> str:
        """Returns a table of the layers, or of the ops where this is of a `layer`.

        The columns of layers: the dtype of its ops ("mixed" where they have several), its share of
        the floating point operations, how much of that is in the 16-bit dtype, and how many tensors
        are cast on their way in and out.

        Args:
            rows: Most lines of the table. Layers are folded until they fit: those in another layer,
                those whose names begin alike ("block_3_*"), and those from one to another
                ("a … b"). None: one line for each layer, and all ops.
            width: Most characters of a line, at least 100. Longer names lose their beginnings.

        Raises:
            ValueError: `rows` is below 1 or `width` below 100.

        >>> import keras
        >>> model = keras.Sequential(name="net", layers=[
        ...     keras.layers.Input((8,)),
        ...     keras.layers.Dense(16, name="hidden"),
        ...     keras.layers.Dense(4, activation="softmax", name="probs"),
        ... ])
        >>> from keras_mp.graph_rewrite import report
        >>> print(report(model).text())
        net: training, tf1.15 lists
        5 ops: 3 float16, 2 float32; 98.0 % of the floating point operations in float16
        <BLANKLINE>
        layer   ops  dtype     flops  in float16  casts in   casts out
        hidden    2  float16  66.7 %       100 %  1 float16
        probs     3  mixed    33.3 %      94.1 %
        """
        if rows is not None and rows < 1:
            raise ValueError(f"rows must be at least 1, or None, but got {rows!r}.")
        if width < report_text.NARROWEST:
            raise ValueError(f"width must be at least {report_text.NARROWEST}, but got {width!r}.")
        return terminal.to_text(self._parts(rows), width)

    def layer(self, name: str) -> "Report":
        """Returns the report of a layer: its ops, those of the layers in it, and their tensors.

        What comes from outside counts as an input, and what is taken outside as an output. The ops
        keep their `index`.

        Args:
            name: Path of a layer ("block/dense"), a name that the table shows ("block_3_*",
                "a … b"), or a pattern of paths: "*" for every op of the model, "(model)" for those
                that it calls itself.

        Raises:
            ValueError: No op is called by a layer of this name.

        >>> import keras
        >>> model = keras.Sequential([
        ...     keras.layers.Input((8,)),
        ...     keras.layers.Dense(16, name="hidden"),
        ...     keras.layers.Dense(4, activation="softmax", name="probs"),
        ... ])
        >>> from keras_mp.graph_rewrite import report
        >>> [(row.op, row.dtype) for row in report(model).layer("probs").rows]
        [('matmul', 'float16'), ('add', 'float32'), ('softmax', 'float32')]
        """
        fold = folding.find(folding.folded(self.rows), name)
        if fold is not None:
            inside = {row.index for row in fold.rows}
        else:
            inside = {row.index for row in self.rows if _is_below(row.layer, name)} or {
                row.index for row in self.rows if fnmatchcase(row.layer, name)
            }
        if not inside:
            known = list(dict.fromkeys(row.layer for row in self.rows if row.layer))
            near = get_close_matches(name, known, n=3)
            said = f"; did you mean {', '.join(map(repr, near))}?" if near else "."
            raise ValueError(f"No layer {name!r} of model {self.model!r} calls an op{said}")
        layers = {row.layer for row in self.rows if row.index in inside}
        return replace(
            self,
            rows=tuple(row for row in self.rows if row.index in inside),
            edges=tuple(_edges(self.edges, inside)),
            missed={key: calls for key, calls in self.missed.items() if key[0] in layers},
            part=name,
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as what `json.dump` takes: each op and each tensor, nothing folded.

        >>> import keras
        >>> model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4, name="d")])
        >>> from keras_mp.graph_rewrite import report
        >>> [(row["layer"], row["op"]) for row in report(model).to_dict()["rows"]]
        [('d', 'matmul'), ('d', 'add')]
        """
        missed = [
            {"layer": layer, "op": op, "calls": calls}
            for (layer, op), calls in sorted(self.missed.items())
        ]
        return {
            "model": self.model,
            "part": self.part,
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
        """Returns all ops in the DOT language of Graphviz, in boxes by layer: `dot -Tsvg`.

        >>> import keras
        >>> model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4, name="d")])
        >>> from keras_mp.graph_rewrite import report
        >>> report(model).to_dot().count(" -> ")
        3
        """
        return drawing.to_dot(self)

    def plot(self, path: str | Path | None = None, rows: int | None = _NODES) -> Any:
        """Returns the layers as a `matplotlib.figure.Figure`; no display and no Graphviz is needed.

        A box is a layer, or some that are folded as in `text`. Its left part is as large as its
        share in the 16-bit dtype. Dashed arrows are casts.

        Args:
            path: Where to save it as well: PNG, SVG or PDF, by the ending.
            rows: Most boxes; None for one for each layer.

        Raises:
            ImportError: matplotlib is not installed.
            ValueError: matplotlib knows no format with this ending, or `rows` is below 1.
        """
        if rows is not None and rows < 1:
            raise ValueError(f"rows must be at least 1, or None, but got {rows!r}.")
        return plotting.plot(self, folding.unfolded(folding.folded(self.rows), rows), path)

    def __str__(self) -> str:
        """Returns the table, the summary, and what missed the plan."""
        return self.text()

    def _parts(self, rows: int | None = _ROWS) -> Iterator[Part]:
        yield Text(self.title, "title")
        yield Text(self.summary)
        yield from map(Text, report_text.missed(self))
        if not self.rows:
            return
        if self.part is not None:
            yield report_text.ops(self.rows, rows)
            return
        folds = folding.unfolded(folding.folded(self.rows), rows)
        yield report_text.layers(self, folds)
        layers = len({row.layer for row in self.rows})
        hint = f"All {layers:,} layers: text(rows=None). Ops of some: layer(name)."
        inner = list(report_text.open_layers(folds, sum(row.flops for row in self.rows)))
        is_folded = any(fold.parts for fold in folds)
        yield Fold("The ops, layer by layer", inner, hint if is_folded else "")


def _is_below(layer: str, path: str) -> bool:
    return layer == path or layer.startswith(f"{path}/")


def _edges(edges: tuple[Edge, ...], inside: set[int]) -> list[Edge]:
    """Returns the edges of a part, whose ends outside are inputs and outputs."""
    found: dict[Edge, None] = {}
    for edge in edges:
        source = edge.source if edge.source in inside else None
        target = edge.target if edge.target in inside else None
        if source is not None or target is not None:
            found[replace(edge, source=source, target=target)] = None
    return list(found)
