"""A report as HTML for notebooks: layers fold, and show their ops when they are opened."""

from collections.abc import Iterator, Sequence

from keras_mp.graph_rewrite import folding, report_text
from keras_mp.graph_rewrite.painted_graph import PaintedGraph
from keras_mp.rendering import markup

_OPS = tuple((name, "number" if name == "flops" else "") for name in report_text.OP_HEADER)
_KINDS = tuple("number" if each else "" for each in report_text.LAYER_NUMBERS)
# The columns of a line that opens; a table cannot fold.
_CSS = """
.keras-mp .fold > summary, .keras-mp .fold-head { display: grid; margin: 0; padding: 0.1rem 0;
  grid-template-columns: minmax(12rem, 24rem) 4rem 5.5rem 5rem 6rem 10rem 10rem; gap: 0 0.8rem;
  font-size: 0.9rem; font-variant-numeric: tabular-nums; border-bottom: 1px solid var(--faint); }
.keras-mp .fold-head { font-weight: 700; border-color: var(--text); }
.keras-mp .fold .name::before { content: "\\25b8\\00a0"; }
.keras-mp .fold[open] > summary .name::before { content: "\\25be\\00a0"; }
.keras-mp .fold .number, .keras-mp .fold-head .number { text-align: right; }
.keras-mp .fold table { margin-left: 1.4rem; }
"""


def notebook_output(
    graph: PaintedGraph, folds: Sequence[folding.Fold], notes: Sequence[str]
) -> str:
    """Returns what a notebook shows of a report.

    Args:
        graph: The ops.
        folds: The outermost folds to show.
        notes: Lines below the title.
    """
    parts = [f'<p class="head">{markup.escaped(graph.model)}</p>']
    parts += [f"<p>{markup.escaped(note)}</p>" for note in notes]
    if folds:
        heads = "".join(
            f'<span class="{kind}">{markup.escaped(name)}</span>'
            for name, kind in zip(report_text.layer_header(graph), _KINDS, strict=True)
        )
        parts.append(f'<div class="scroll"><div class="fold-head">{heads}</div>')
        parts += [*_folds(graph, folds, 0, sum(row.flops for row in graph.rows)), "</div>"]
    return markup.output(parts, _CSS)


def _folds(
    graph: PaintedGraph, folds: Sequence[folding.Fold], depth: int, total: int
) -> Iterator[str]:
    for fold, (_, *cells) in zip(folds, report_text.layer_cells(graph, folds), strict=True):
        count = f" ({fold.layers:,} layers)" if fold.layers > 1 else ""
        numbers = "".join(
            f'<span class="{kind}">{markup.escaped(cell)}</span>'
            for cell, kind in zip(cells, _KINDS[1:], strict=True)
        )
        yield (
            f'<details class="fold"><summary><span class="name" style="padding-left: {depth}rem">'
            f"{markup.path(fold.name)}{count}</span>{numbers}</summary>"
        )
        if fold.parts:
            yield from _folds(graph, fold.parts, depth + 1, total)
        else:
            yield markup.table(_OPS, report_text.op_cells(fold.rows, total))
        yield "</details>"
