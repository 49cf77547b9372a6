"""The painted graph as text in the DOT language, and the colours of its ops.

Pure: knows the rows and edges of a graph, neither Keras nor matplotlib.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from keras_mp.graph_rewrite.painted_graph import Edge, PaintedGraph, Row

# Fill and border; dark text is read on each, in a light viewer and in a dark one.
LOW = ("#bcdcf5", "#0b5c96")
DENY = ("#f6c9a8", "#a84300")
FLOAT32 = ("#eeeeee", "#6b6b6b")
OTHER = ("#ffffff", "#9a9a9a")
TEXT = "#1c1c1c"
LINE = "#6b6b6b"
CAST = "#b0177b"

Node = tuple[str, int]


def colours(row: Row, low: str) -> tuple[str, str]:
    """Returns the fill and the border of an op."""
    if row.dtype == low and row.colour == "allow":
        return LOW
    if row.colour == "deny":
        return DENY
    return FLOAT32 if row.dtype == "float32" else OTHER


def words(row: Row) -> str:
    """Returns what colour alone must not say: "float32, deny"."""
    return f"{row.dtype}, deny" if row.colour == "deny" else row.dtype


def ends(edge: Edge) -> tuple[Node, Node]:
    """Returns the two nodes of an edge: ("op", index), or one named after the tensor."""
    outside = ("unseen" if edge.unseen else "input", edge.tensor)
    source = outside if edge.source is None else ("op", edge.source)
    return source, ("output", edge.tensor) if edge.target is None else ("op", edge.target)


def edges_of_nodes(graph: PaintedGraph) -> dict[Node, Edge]:
    """Returns the first edge of each node."""
    return {node: edge for edge in reversed(graph.edges) for node in ends(edge)}


def to_dot(graph: PaintedGraph) -> str:
    """Returns a graph in the DOT language; the same graph gives the same text."""
    lines = [
        f"digraph {quoted(graph.model)} {{",
        f"  graph [label={quoted(graph.model + chr(10) + graph.summary)}, labelloc=t, "
        f'bgcolor="white", fontname="Helvetica", fontcolor="{TEXT}"];',
        f'  node [shape=box, style="rounded,filled", fontname="Helvetica", fontcolor="{TEXT}"];',
        f'  edge [color="{LINE}", fontname="Helvetica", fontsize=10, fontcolor="{CAST}"];',
    ]
    lines += _clusters(graph)
    nodes = dict.fromkeys(node for edge in graph.edges for node in ends(edge) if node[0] != "op")
    edges = edges_of_nodes(graph)
    for node in nodes:
        text = f"{node[0]}\n{edges[node].dtype} {shape_text(edges[node].shape)}"
        style = "shape=point" if node[0] == "unseen" else 'shape=plaintext, style=""'
        lines.append(f"  {_id(node)} [{style}, label={quoted(text)}];")
    for edge in graph.edges:
        source, target = ends(edge)
        marked = ""
        if edge.cast is not None:
            marked = f' [style=dashed, color="{CAST}", label={quoted(edge.cast)}]'
        lines.append(f"  {_id(source)} -> {_id(target)}{marked};")
    return "\n".join([*lines, "}", ""])


def quoted(text: str) -> str:
    r"""Returns a DOT string that is shown as `text`.

    >>> print(quoted('a "b" \\N &amp;'))
    "a \"b\" \\N &amp;amp;"
    """
    for old, new in (("\\", "\\\\"), ('"', '\\"'), ("&", "&amp;"), ("\n", "\\n")):
        text = text.replace(old, new)
    return f'"{text}"'


def _id(node: Node) -> str:
    return f"{node[0]}{node[1]}"


def shape_text(shape: Sequence[int | None]) -> str:
    """Returns a shape as it is drawn: "(?, 8)"."""
    return f"({', '.join('?' if side is None else str(side) for side in shape)})"


@dataclass
class _Cluster:
    rows: list[Row] = field(default_factory=list)
    inner: dict[str, "_Cluster"] = field(default_factory=dict)


def _clusters(graph: PaintedGraph) -> list[str]:
    root = _Cluster()
    for row in graph.rows:
        cluster = root
        for part in row.layer.split("/") if row.layer else ():
            cluster = cluster.inner.setdefault(part, _Cluster())
        cluster.rows.append(row)
    lines: list[str] = []
    count = 0

    def write(cluster: _Cluster, indent: str) -> None:
        nonlocal count
        for row in cluster.rows:
            fill, border = colours(row, graph.dtype)
            thick = ", penwidth=2" if row.colour == "deny" else ""
            lines.append(
                f"{indent}op{row.index} [label={quoted(row.op + chr(10) + words(row))}, "
                f'fillcolor="{fill}", color="{border}"{thick}, tooltip={quoted(row.why)}];'
            )
        for name, inner in cluster.inner.items():
            lines.append(f'{indent}subgraph "cluster_{count}" {{')
            count += 1
            frame = 'labelloc=t, style=rounded, color="#b5b5b5"'
            lines.append(f"{indent}  graph [label={quoted(name)}, {frame}];")
            write(inner, indent + "  ")
            lines.append(f"{indent}}}")

    write(root, "  ")
    return lines
