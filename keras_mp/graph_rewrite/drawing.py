"""The painted graph as text in the DOT language, and as places on a plane.

Pure: knows the rows and edges of a graph, neither Keras nor matplotlib.

Places: Sugiyama, Tagawa and Toda 1981: ranks by the longest path, crossings reduced by
barycentres, then each rank is moved as close to its neighbours as the distances allow.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from keras_mp.graph_rewrite.painted_graph import Edge, PaintedGraph, Row

# Fill and border; dark text is read on each, in a light viewer and in a dark one.
LOW = ("#bcdcf5", "#0b5c96")
DENY = ("#f6c9a8", "#a84300")
FLOAT32 = ("#eeeeee", "#6b6b6b")
OTHER = ("#ffffff", "#9a9a9a")
TEXT = "#1c1c1c"
LINE = "#6b6b6b"
CAST = "#b0177b"

_SWEEPS = 12
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


@dataclass(frozen=True)
class Layout:
    """Where the nodes of a graph are drawn, and the ways of its edges.

    Attributes:
        places: By node, its centre across and its rank from the top. One node is 1 wide.
        ways: For each edge of the graph, the nodes on its way. Those between the ends are bends,
            one a rank; edges of one tensor share them.
    """

    places: Mapping[Node, tuple[float, int]]
    ways: Sequence[Sequence[Node]]


def layout(graph: PaintedGraph, gap: float = 0.15, lane: float = 0.12) -> Layout:
    """Returns where to draw the ops of a graph, from the top to the bottom.

    Args:
        graph: What to draw.
        gap: Smallest distance between two nodes of one rank, in widths of a node.
        lane: Width of an edge that passes a rank, likewise.
    """
    rank, detached = _ranks(graph)
    ways: list[list[Node]] = []
    links: dict[tuple[Node, Node], None] = {}
    for edge in graph.edges:
        source, target = ends(edge)
        bends: list[Node] = [
            (f"bend{edge.tensor}", at) for at in range(rank[source] + 1, rank[target])
        ]
        for bend in bends:
            rank[bend] = bend[1]
        way = [source, *bends, target]
        links.update(dict.fromkeys(pairwise(way)))
        ways.append(way)
    ranks: list[list[Node]] = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for node, at in rank.items():
        ranks[at].append(node)
    above: dict[Node, list[Node]] = defaultdict(list)
    below: dict[Node, list[Node]] = defaultdict(list)
    for upper, lower in links:
        above[lower].append(upper)
        below[upper].append(lower)
    _order(ranks, above, below)
    # What nothing leads to is drawn below what ran before it, not far away.
    for index in detached:
        above["op", index].append(("op", index - 1))
        below["op", index - 1].append(("op", index))
    across = _across(ranks, above, below, gap, lane)
    return Layout({node: (across[node], rank[node]) for node in rank}, ways)


def _ranks(graph: PaintedGraph) -> tuple[dict[Node, int], list[int]]:
    given: dict[int, list[Edge]] = defaultdict(list)
    taken: dict[Node, list[int]] = defaultdict(list)
    for edge in graph.edges:
        if edge.target is not None:
            given[edge.target].append(edge)
        source, _ = ends(edge)
        if edge.target is not None:
            taken[source].append(edge.target)
    rank: dict[int, int] = {}
    bottom = start = 0  # the rank below all ops so far, and below those before the last of a run
    detached: list[int] = []
    for row in graph.rows:
        edges = given[row.index]
        upper = [rank[edge.source] + 1 for edge in edges if edge.source is not None]
        alone = not edges and not taken["op", row.index]
        # What nothing leads to ran after what was before it: the next step of a loop.
        if alone or (not upper and any(edge.unseen for edge in edges)):
            if row.index - 1 not in detached[-1:]:
                start = bottom
            upper.append(start)
            if row.index:
                detached.append(row.index)
        if any(edge.source is None for edge in edges):
            upper.append(1)
        rank[row.index] = max(upper, default=0)
        bottom = max(bottom, rank[row.index] + 1)
    # What has nothing above it comes down to where it is taken.
    for row in reversed(graph.rows):
        consumers = taken["op", row.index]
        if not given[row.index] and consumers:
            rank[row.index] = max(0, min(rank[i] for i in consumers) - 1)
    found: dict[Node, int] = {("op", index): at for index, at in rank.items()}
    for edge in graph.edges:
        source, target = ends(edge)
        if source[0] != "op":
            lowest = min((rank[i] for i in taken[source]), default=1)
            found[source] = max(0, lowest - 1)
        if target[0] != "op":
            found[target] = found[source] + 1
    lowest = min(found.values(), default=0)
    return {node: at - lowest for node, at in found.items()}, detached


def _order(
    ranks: list[list[Node]], above: Mapping[Node, list[Node]], below: Mapping[Node, list[Node]]
) -> None:
    best, fewest = [list(rank) for rank in ranks], _crossings(ranks, below)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for at in range(1, len(ranks)) if down else range(len(ranks) - 2, -1, -1):
            fixed = {node: i for i, node in enumerate(ranks[at - 1 if down else at + 1])}
            # One without a neighbour stays where it is.
            key = {
                node: _mean([fixed[n] for n in neighbours.get(node, ())], default=i)
                for i, node in enumerate(ranks[at])
            }
            ranks[at].sort(key=key.__getitem__)
        if (crossings := _crossings(ranks, below)) < fewest:
            best, fewest = [list(rank) for rank in ranks], crossings
    ranks[:] = best


def _crossings(ranks: Sequence[Sequence[Node]], below: Mapping[Node, list[Node]]) -> int:
    count = 0
    for upper, lower in pairwise(ranks):
        place = {node: i for i, node in enumerate(lower)}
        ends = [sorted(place[n] for n in below.get(node, ())) for node in upper]
        flat = [i for found in ends for i in found]
        count += sum(b < a for i, a in enumerate(flat) for b in flat[i + 1 :])
    return count


def _across(
    ranks: Sequence[Sequence[Node]],
    above: Mapping[Node, list[Node]],
    below: Mapping[Node, list[Node]],
    gap: float,
    lane: float,
) -> dict[Node, float]:
    def width(node: Node) -> float:
        return lane if node[0].startswith("bend") else 1.0

    offsets: dict[Node, float] = {}
    for rank in ranks:
        at = 0.0
        for i, node in enumerate(rank):
            if i:
                at += (width(rank[i - 1]) + width(node)) / 2 + gap
            offsets[node] = at
    found = dict(offsets)
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for rank in ranks if down else reversed(ranks):
            wanted: list[float] = []
            weights: list[float] = []
            for node in rank:
                sides = above if down else below
                near = sides.get(node, [])
                # A weight that is reshaped, or a statistic, does not pull the main chain aside.
                near = [n for n in near if sides.get(n)] or near
                wanted.append(_median([found[n] for n in near], found[node]))
                # A straight lane looks better than a straight arrow.
                weights.append(4.0 if node[0].startswith("bend") else 1.0 if near else 0.1)
            shifts = _increasing(
                [x - offsets[node] for x, node in zip(wanted, rank, strict=True)], weights
            )
            for node, shift in zip(rank, shifts, strict=True):
                found[node] = offsets[node] + shift
    return found


def _increasing(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Returns the increasing numbers that are closest to `values`, by least squares.

    Source: Ayer et al. 1955, the algorithm of pool adjacent violators.

    >>> _increasing([1.0, 3.0, 2.0, 5.0], [1.0, 1.0, 1.0, 1.0])
    [1.0, 2.5, 2.5, 5.0]
    """
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pool = (value, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, mass, count = pools.pop()
            total = mass + pool[1]
            pool = ((mean * mass + pool[0] * pool[1]) / total, total, count + pool[2])
        pools.append(pool)
    return [mean for mean, _, count in pools for _ in range(count)]


def _mean(values: Iterable[float], default: float) -> float:
    found = list(values)
    return sum(found) / len(found) if found else default


def _median(values: Sequence[float], default: float) -> float:
    if not values:
        return default
    ordered = sorted(values)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[-middle - 1]) / 2
