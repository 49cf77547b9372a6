"""The ops of a model folded by layer, and its layers by their names: a tree that can be opened.

Pure: knows rows and edges, neither texts nor pictures.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from keras_mp.graph_rewrite.painted_graph import PaintedGraph, Row

MODEL = "(model)"
MIXED = "mixed"
_OWN = " (own ops)"
_TOKEN = re.compile(r"_*(?:\d+|[^\d_]+)")
_LONGEST_PERIOD = 40
_MOST_PARTS = 32
_FEW = 12  # layers that are not folded once more


@dataclass(frozen=True, slots=True)
class Fold:
    """Ops that are shown as one.

    Attributes:
        name: Path of a layer, "block_3_*" for all layers whose paths begin so, or "a … b" for the
            layers from a to b in the order of the call.
        rows: Its ops, in the order of the call.
        parts: What it is made of; () where it is one layer's own ops.
        kind: Folds of one kind are opened together, or not at all.
    """

    name: str
    rows: tuple[Row, ...]
    parts: tuple["Fold", ...] = ()
    kind: str = ""

    @property
    def layers(self) -> int:
        """Returns the number of layers in it, inner ones and what holds them counted alike."""
        return len({row.layer for row in self.rows})

    def dtype(self) -> str:
        """Returns the dtype of its ops, those without floats aside; "mixed" for several.

        What only moves numbers, as a reshaped bias, counts where nothing computes.
        """
        computing = [row for row in self.rows if row.flops]
        every = dict.fromkeys(row.dtype for row in computing or self.rows)
        floats = [name for name in every if "float" in name]
        return MIXED if len(floats) > 1 else next(iter(floats or every), "")


def folded(rows: Sequence[Row]) -> tuple[Fold, ...]:
    """Returns the outermost folds of ops.

    Layers fold into the layer that holds them, and neighbours whose names begin alike, as
    `block_3_conv` and `block_3_relu`, into one fold. So do sequences of layers that repeat.

    >>> def op(index, layer):
    ...     return Row(index, layer, "add", 0, None, None, "allow", "float16", "", 1)
    >>> names = [f"block_{i}_{name}" for i in range(9) for name in ("conv", "relu")]
    >>> stem, blocks = folded([op(i, name) for i, name in enumerate(["stem", *names])])
    >>> stem.name, blocks.name, blocks.parts[3].name, [fold.name for fold in blocks.parts[3].parts]
    ('stem', 'block_*', 'block_3_*', ['block_3_conv', 'block_3_relu'])
    """
    return _inside("", rows)


def unfolded(folds: Sequence[Fold], most: int | None) -> tuple[Fold, ...]:
    """Returns what is shown where there is room for `most` folds; None opens every one.

    What is alike is opened together, the outermost first.

    Args:
        folds: The outermost ones.
        most: At least 1.
    """
    if most is not None:
        folds = _chunked(folds, most)
    shown = [(0, fold) for fold in folds]
    closed: set[str] = set()
    while True:
        found = [(depth, fold) for depth, fold in shown if fold.parts and fold.kind not in closed]
        if not found:
            return tuple(fold for _, fold in shown)
        kind = min(found, key=lambda each: each[0])[1].kind
        opened = [
            each
            for depth, fold in shown
            for each in (
                [(depth + 1, part) for part in fold.parts]
                if fold.parts and fold.kind == kind
                else [(depth, fold)]
            )
        ]
        if most is None or len(opened) <= most:
            shown = opened
        else:
            closed.add(kind)


def owners(folds: Sequence[Fold]) -> dict[int, int]:
    """Returns which fold an op is in: places in `folds` by the index of the op."""
    return {row.index: place for place, fold in enumerate(folds) for row in fold.rows}


def casts(graph: PaintedGraph, folds: Sequence[Fold]) -> list[tuple[Counter[str], Counter[str]]]:
    """Returns how many tensors are cast on their way into each fold, and out of it, by dtype."""
    owner = owners(folds)
    found: list[tuple[set[tuple[int, str]], set[tuple[int, str]]]] = [(set(), set()) for _ in folds]
    for edge in graph.edges:
        source, target = (
            None if end is None else owner.get(end) for end in (edge.source, edge.target)
        )
        if edge.cast is None or source == target:
            continue
        if target is not None:
            found[target][0].add((edge.tensor, edge.cast))
        if source is not None:
            found[source][1].add((edge.tensor, edge.cast))
    return [
        (Counter(cast for _, cast in into), Counter(cast for _, cast in out)) for into, out in found
    ]


def find(folds: Sequence[Fold], name: str) -> Fold | None:
    """Returns the fold of a name, at any depth."""
    for fold in folds:
        found = fold if fold.name == name else find(fold.parts, name)
        if found is not None:
            return found
    return None


def _fold(name: str, parts: Sequence[Fold], kind: str | None = None) -> Fold:
    rows = sorted((row for part in parts for row in part.rows), key=lambda row: row.index)
    return Fold(name, tuple(rows), tuple(parts), _kind(name) if kind is None else kind)


def _kind(name: str) -> str:
    return re.sub(r"_?\d+", "", name)


def _inside(path: str, rows: Sequence[Row]) -> tuple[Fold, ...]:
    """Returns the folds of a layer, whose own ops and inner layers `rows` are."""
    below: dict[str, list[Row]] = {}
    start = len(path) + 1 if path else 0
    for row in rows:
        below.setdefault(row.layer[start:].partition("/")[0], []).append(row)
    found = []
    for name, inner in below.items():
        if not name:
            own = path + _OWN if len(below) > 1 else path
            found.append(Fold(own if path else MODEL, tuple(inner), (), _kind(own)))
            continue
        whole = f"{path}/{name}" if path else name
        parts = _inside(whole, inner)
        found.append(parts[0] if len(parts) == 1 else _fold(whole, parts))
    return _chunked(_repeating(_alike_names(found, start)), _MOST_PARTS)


def _alike_names(folds: Sequence[Fold], start: int) -> list[Fold]:
    """Folds neighbours whose names are alike up to a number or a word after `start`."""

    def head(fold: Fold, start: int) -> str | None:
        match = _TOKEN.match(fold.name, start)
        return match and fold.name[: match.end()]

    names = [fold.name for fold in folds]

    def within(folds: Sequence[Fold], start: int) -> list[Fold]:
        found: list[Fold] = []
        for prefix, run in groupby(folds, lambda fold: head(fold, start)):
            alike = list(run)
            if prefix is None or len(alike) == 1:
                found += alike
                continue
            while len(heads := {head(fold, len(prefix)) for fold in alike}) == 1:
                (longer,) = heads
                if longer is None:  # the same name, as nobody gives to two layers
                    break
                prefix = longer
            parts = within(alike, len(prefix)) if len(alike) > _FEW else alike
            found.append(_fold(_pattern(prefix, alike, names), parts))
        return found

    return within(folds, start)


def _pattern(prefix: str, alike: Sequence[Fold], names: Sequence[str]) -> str:
    inside = [fold.name for fold in alike]
    if all(name[len(prefix) :].startswith("_") for name in inside):
        prefix += "_"
    if sum(name.startswith(prefix) for name in names) > len(inside):
        return _span(alike)
    return f"{prefix}*"


def _span(folds: Sequence[Fold]) -> str:
    first, last = folds[0].name, folds[-1].name
    return f"{first.split(' … ')[0]} … {last.split(' … ')[-1]}"


def _repeating(folds: Sequence[Fold]) -> list[Fold]:
    """Folds each round of a sequence that repeats, as the layers of an encoder do."""
    kinds = [fold.kind for fold in folds]
    found: list[Fold] = []
    at = 0
    while at < len(folds):
        covered = best = 0
        for period in range(2, min((len(folds) - at) // 2, _LONGEST_PERIOD) + 1):
            first, times = kinds[at : at + period], 1
            while kinds[at + times * period : at + (times + 1) * period] == first:
                times += 1
            if times > 1 and times * period > covered:
                covered, best = times * period, period
        if not covered:
            found.append(folds[at])
            at += 1
            continue
        for _ in range(covered // best):
            parts = folds[at : at + best]
            found.append(_fold(_span(parts), parts))
            at += best
    return found


def _chunked(folds: Sequence[Fold], most: int) -> tuple[Fold, ...]:
    if len(folds) <= most:
        return tuple(folds)
    size = -(-len(folds) // most)
    chunks = [folds[at : at + size] for at in range(0, len(folds), size)]
    kind = f"parts of {_span(folds)}"
    return tuple(
        chunk[0] if len(chunk) == 1 else _fold(_span(chunk), chunk, kind) for chunk in chunks
    )
