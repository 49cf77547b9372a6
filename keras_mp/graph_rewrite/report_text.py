"""What a report shows: a table of layers, tables of ops, and folds down to these."""

from collections import Counter
from collections.abc import Iterator, Sequence

from keras_mp.graph_rewrite import folding
from keras_mp.graph_rewrite.painted_graph import PaintedGraph, Row
from keras_mp.rendering.model import Column, Fold, Part, Table
from keras_mp.rendering.text import percent, pluralized

NARROWEST = 100
_UPDATES = "it only updates variables, such as moving statistics"
_OPS = (
    Column("op", "path"),
    Column("TF op", "path"),
    Column("list"),
    Column("colour"),
    Column("dtype"),
    Column("flops", "number"),
    Column("why", "sentence"),
)


def layers(graph: PaintedGraph, folds: Sequence[folding.Fold]) -> Table:
    """Returns a table with a line for each fold."""
    rows = []
    total = _flops(graph.rows)
    for fold, casts in zip(folds, folding.casts(graph, folds), strict=True):
        flops = _flops(fold.rows)
        floats = _flops([row for row in fold.rows if "float" in row.dtype])
        low = _flops([row for row in fold.rows if row.dtype == graph.dtype])
        cells = (
            counted(fold),
            f"{len(fold.rows):,}",
            fold.dtype(),
            percent(flops / total if total else 0.0),
            percent(low / floats) if floats else "",
        )
        rows.append((*cells, *(_counts(each) for each in casts)))
    columns = (
        Column("layer", "path"),
        Column("ops", "number"),
        Column("dtype"),
        Column("flops", "number"),
        Column(f"in {graph.dtype}", "number"),
        Column("casts in"),
        Column("casts out"),
    )
    return Table(columns, rows)


def ops(rows: Sequence[Row], most: int | None) -> Table:
    """Returns a table of ops, below the names of their layers.

    Args:
        rows: The ops.
        most: Lines that are shown; None for all.
    """
    by_layer: dict[str, list[Row]] = {}
    for row in rows:
        by_layer.setdefault(row.layer, []).append(row)
    total = _flops(rows)
    cells: list[tuple[str, ...]] = []
    sections = {}
    for name, inner in by_layer.items():
        sections[len(cells)] = name or folding.MODEL
        cells += op_cells(inner, total)
    return Table(_OPS, cells, most=most, rest="text(rows=None)", sections=sections)


def open_layers(folds: Sequence[folding.Fold], total: int) -> Iterator[Part]:
    """Yields folds that open to the ops of their layers."""
    for fold in folds:
        inner: list[Part] = list(open_layers(fold.parts, total))
        yield Fold(counted(fold), inner or [Table(_OPS, op_cells(fold.rows, total))])


def op_cells(rows: Sequence[Row], total: int) -> list[tuple[str, ...]]:
    """Returns the cells of ops: one line for ops that are alike.

    What only updates variables is one line, too.

    Args:
        rows: Ops of one layer.
        total: The operations that shares are of.
    """
    # A loop that is unrolled calls the same ops at each step.
    groups: dict[tuple[str | None, ...], list[Row]] = {}
    for row in rows:
        key = (row.op, row.tf_op, row.list, row.colour, row.dtype, row.why)
        groups.setdefault(("updates",) if row.updates else key, []).append(row)
    found: list[tuple[str, ...]] = []
    for alike in groups.values():
        first, times = alike[0], f" x{len(alike)}" if len(alike) > 1 else ""
        share = percent(_flops(alike) / total if total else 0.0)
        if first.updates:
            # Which they are, is said by `why`.
            names, dtypes, colours = (
                tuple(dict.fromkeys(values))
                for values in zip(*((row.op, row.dtype, row.colour) for row in alike), strict=True)
            )
            why = f"{_UPDATES}: {', '.join(names)}"
            dtype = dtypes[0] if len(dtypes) == 1 else folding.MIXED
            colour = colours[0] if len(colours) == 1 else folding.MIXED
            found.append((f"(updates){times}", "-", "-", colour, dtype, share, why))
            continue
        found.append(
            (
                first.op + times,
                first.tf_op or "-",
                first.list or "-",
                first.colour,
                first.dtype,
                share,
                first.why,
            )
        )
    return found


def missed(graph: PaintedGraph) -> Iterator[str]:
    """Yields what ran past the plan."""
    for (layer, op), calls in sorted(graph.missed.items()):
        rest = f" {'was' if calls == 1 else 'were'} not in the plan"
        yield f"{pluralized(calls, 'call')} of {op} in {layer or folding.MODEL}{rest}"


def counted(fold: folding.Fold) -> str:
    """Returns the name of a fold, and how many layers it has."""
    return fold.name + (f" ({fold.layers:,} layers)" if fold.layers > 1 else "")


def _counts(casts: Counter[str]) -> str:
    return ", ".join(f"{count} {dtype}" for dtype, count in sorted(casts.items()))


def _flops(rows: Sequence[Row]) -> int:
    return sum(row.flops for row in rows)
