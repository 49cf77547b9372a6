"""A report as text of a given width: a table of layers, and a table of ops."""

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap

from keras_mp.graph_rewrite import folding
from keras_mp.graph_rewrite.painted_graph import PaintedGraph, Row
from keras_mp.rendering.text import percent, pluralized, shortened

OP_HEADER = ("op", "TF op", "list", "colour", "dtype", "flops", "why")
NARROWEST = 100
_UPDATES = "it only updates variables, such as moving statistics"
LAYER_NUMBERS = (False, True, False, True, True, False, False)
_NAMES = 44
_OP = 22


def layer_header(graph: PaintedGraph) -> tuple[str, ...]:
    """Returns what the columns of `layer_cells` hold; `LAYER_NUMBERS` says which are numbers."""
    return ("layer", "ops", "dtype", "flops", f"in {graph.dtype}", "casts in", "casts out")


def layer_cells(graph: PaintedGraph, folds: Sequence[folding.Fold]) -> list[tuple[str, ...]]:
    """Returns the cells of folds, below `layer_header`; the name is not shortened."""
    found = []
    total = _flops(graph.rows)
    for fold, casts in zip(folds, folding.casts(graph, folds), strict=True):
        flops = _flops(fold.rows)
        floats = _flops([row for row in fold.rows if "float" in row.dtype])
        low = _flops([row for row in fold.rows if row.dtype == graph.dtype])
        cells = (
            fold.name,
            f"{len(fold.rows):,}",
            fold.dtype(),
            percent(flops / total if total else 0.0),
            percent(low / floats) if floats else "",
        )
        found.append((*cells, *(_counts(each) for each in casts)))
    return found


def op_cells(rows: Sequence[Row], total: int) -> list[tuple[str, ...]]:
    """Returns the cells of ops, below `OP_HEADER`: one line for ops that are alike.

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


def layer_table(graph: PaintedGraph, folds: Sequence[folding.Fold], width: int) -> list[str]:
    """Returns a line a fold below a header, at most `width` wide."""
    if not folds:
        return []
    cells = layer_cells(graph, folds)
    header = layer_header(graph)
    room = width - sum(2 + size for size in _widths([header, *cells])[1:])
    names = [named(fold, min(room, _NAMES)) for fold in folds]
    lines = [(name, *others) for name, (_, *others) in zip(names, cells, strict=True)]
    return _aligned([header, *lines], LAYER_NUMBERS)


def op_table(rows: Sequence[Row], width: int) -> list[str]:
    """Returns the ops below the names of their layers, at most `width` wide."""
    layers: dict[str, list[Row]] = {}
    for row in rows:
        layers.setdefault(row.layer, []).append(row)
    total = _flops(rows)
    found = [(name, op_cells(inner, total)) for name, inner in layers.items()]
    every = [OP_HEADER, *(line for _, lines in found for line in lines)]
    widths = [min(size, _OP) for size in _widths(every)][:-1]
    indent = 2
    room = max(20, width - indent - sum(size + 2 for size in widths))
    right = [name == "flops" for name in OP_HEADER]

    def lines_of(cells: Sequence[str]) -> Iterator[str]:
        *short, why = cells
        shown = [shortened(text, size) for text, size in zip(short, widths, strict=True)]
        for i, part in enumerate(wrap(why, room) or [""]):
            texts = shown if i == 0 else [""] * len(shown)
            yield " " * indent + _line([*texts, part], [*widths, 0], right)

    lines = list(lines_of(OP_HEADER)) if found else []
    for name, ops in found:
        lines.append(shortened(name or folding.MODEL, width))
        for cells in ops:
            lines += lines_of(cells)
    return lines


def missed(graph: PaintedGraph, width: int) -> Iterator[str]:
    """Yields what ran past the plan."""
    for (layer, op), calls in sorted(graph.missed.items()):
        text = f"{pluralized(calls, 'call')} of {op} in "
        rest = f" {'was' if calls == 1 else 'were'} not in the plan"
        room = max(20, width - len(text) - len(rest))
        yield f"{text}{shortened(layer or folding.MODEL, room)}{rest}"


def named(fold: folding.Fold, room: int) -> str:
    """Returns the name of a fold, and how many layers it has, in `room` characters."""
    count = f" ({fold.layers:,} layers)" if fold.layers > 1 else ""
    left = max(8, room - len(count))
    if len(fold.name) > left and " … " in fold.name:
        first, last = fold.name.split(" … ")
        half = max(4, (left - 3) // 2)
        return f"{shortened(first, half)} … {shortened(last, half)}{count}"
    return shortened(fold.name, left) + count


def _counts(casts: Counter[str]) -> str:
    return ", ".join(f"{count} {dtype}" for dtype, count in sorted(casts.items()))


def _flops(rows: Sequence[Row]) -> int:
    return sum(row.flops for row in rows)


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _aligned(lines: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    widths = _widths(lines)
    return [_line(line, widths, right) for line in lines]


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    return "  ".join(
        text.rjust(width) if is_right else text.ljust(width)
        for text, width, is_right in zip(cells, widths, right, strict=True)
    ).rstrip()
