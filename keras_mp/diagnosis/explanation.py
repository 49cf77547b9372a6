"""What `explain` found out about a model, as data and as text.

Knows neither keras nor a model: `explaining.py` gathers and has rules judge.
"""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from keras_mp.diagnosis.float32_layers import Float32Layers, listed
from keras_mp.rendering import markup
from keras_mp.rendering.markup import escaped
from keras_mp.rendering.notebooks import running_cell

WIDTH = 100
_FEW = 20  # layers; more are folded

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Row:
    """One layer.

    Attributes:
        path: Names from the model down, such as "encoder/block_1/dense".
        kind: Name of its class.
        policy: Name of its dtype policy.
        compute_dtype: What it computes in.
        variable_dtype: Of its own variables as they are, several separated by ", "; None where it
            has none. Before it is built, what the policy says.
        built: Whether it is built.
        quantization: Such as "int8", or None.
        input_dtypes: Of the floating-point tensors it is called on; None where that is not known,
            in subclassed models and before they are built.
        inside: Path of the layer of a library that made this one, which has its dtype; None where
            the model's author made it.
    """

    path: str
    kind: str
    policy: str
    compute_dtype: str
    variable_dtype: str | None
    built: bool
    quantization: str | None
    input_dtypes: tuple[str, ...] | None
    inside: str | None = None

    @property
    def casts(self) -> tuple[str, ...]:
        """Dtypes of inputs that Keras casts to `compute_dtype`."""
        return tuple(dtype for dtype in self.input_dtypes or () if dtype != self.compute_dtype)


@dataclass(frozen=True, slots=True)
class LossScale:
    """Whether the loss is to be scaled, and how it is.

    Attributes:
        needed: Whether some layer computes in float16 or has float16 variables, or the graph
            rewrite has ops compute in it; None if no layer does so far, and some are not built that
            may make others.
        kind: "keras_mp.LossScaleOptimizer", "keras.optimizers.LossScaleOptimizer", the name of
            another class of its kind, "loss_scale_factor", "none", "no optimizer", or "unknown"
            where the model has an optimizer that is not one of Keras.
        dynamic: Whether the scale changes during training; None without a loss scale.
        value: The scale now; None without one, or where it cannot be read now.
        optimizer: Class name of the optimizer that takes the steps, or None.
    """

    needed: bool | None
    kind: str
    dynamic: bool | None
    value: float | None
    optimizer: str | None

    @property
    def present(self) -> bool:
        """Whether the loss is scaled, or may be: kind "unknown"."""
        return self.kind not in ("none", "no optimizer")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that will bite, or is not known.

    Attributes:
        code: A short name that stays the same, such as "float16_softmax".
        level: "error", training goes wrong; "warning", it does for values that occur; "note".
        path: The layer, or "optimizer", "loss", "metrics".
        what: What is there.
        why: Why that bites, with the number.
        remedy: What to write instead.
    """

    code: str
    level: Level
    path: str
    what: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `explain` returns; `str()` of it is what it printed.

    Attributes:
        model: Name of the model.
        rows: The layers, nested ones after the model that has them.
        loss_scale: What scales the loss.
        findings: Errors first, then warnings, then notes.
        float32_layers: The layers that are to compute in float32, as code.
        shown_in: The cell of a notebook in which `explain` has shown it.
    """

    model: str
    rows: tuple[Row, ...]
    loss_scale: LossScale
    findings: tuple[Finding, ...]
    float32_layers: Float32Layers
    shown_in: object = field(default=None, repr=False, compare=False)

    def policy_map(self) -> Any:
        """Returns what is advised as a `keras.dtype_policies.DTypePolicyMap`.

        It has no key where no layer is to compute in float32, or where none can be reached by one.
        """
        return self.float32_layers.policy_map()

    def as_dict(self) -> dict[str, Any]:
        """Returns all of it as plain JSON."""
        rows = [asdict(row) for row in self.rows]
        for row in rows:
            if row["input_dtypes"] is not None:
                row["input_dtypes"] = list(row["input_dtypes"])
        return {
            "model": self.model,
            "rows": rows,
            "loss_scale": asdict(self.loss_scale),
            "findings": [asdict(finding) for finding in self.findings],
            "float32_layers": self.float32_layers.as_dict(),
        }

    def text(self, all_layers: bool = False) -> str:
        """Returns what `explain` prints.

        Args:
            all_layers: Whether to list every layer, or to fold those of a large model.
        """
        parts = [self._headline()]
        for finding, paths in _grouped(self.findings):
            parts += ["", *_wrapped(f"{finding.level}: ", f"{finding.what} [{finding.code}]")]
            parts += _wrapped("  where:  ", listed(paths))
            parts += _wrapped("  why:    ", finding.why)
            parts += _wrapped("  remedy: ", finding.remedy)
        if self.float32_layers:
            parts += ["", *self.float32_layers.lines()]
        parts += ["", *_wrapped("loss scale: ", _loss_scale(self.loss_scale))]
        parts += _wrapped("casts: ", _casts(self.rows))
        table, is_folded = self._table(all_layers)
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        parts.append("")
        for cells in table:
            padded = (text.ljust(width) for text, width in zip(cells, widths, strict=True))
            parts.append("  ".join(padded).rstrip()[:WIDTH])
        if is_folded:
            parts += ["", f"Each of the {len(self.rows)} layers: explain(model, all_layers=True)"]
        return "\n".join(parts)

    def __repr__(self) -> str:
        return f"<Explanation of {self.model!r}: {self._counted()}>"

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str | None:
        """Returns tables for a notebook; None in the cell in which `explain` showed them."""
        if self.shown_in is not None and self.shown_in == running_cell():
            return None
        return self.html()

    def html(self) -> str:
        """Returns tables, with every layer, as a piece of HTML that needs nothing else."""
        parts = [f'<p class="head">{escaped(self._headline())}</p>']
        findings = [
            (one.level, f"{one.what} [{one.code}]", listed(paths), one.why, one.remedy)
            for one, paths in _grouped(self.findings)
        ]
        if findings:
            heads = [("", ""), ("what", ""), ("where", "path"), ("why", ""), ("remedy", "")]
            parts.append(markup.table(heads, findings, of_sentences=True))
        parts += self.float32_layers.html()
        parts.append(f"<p>loss scale: {escaped(_loss_scale(self.loss_scale))}</p>")
        parts.append(f"<p>casts: {escaped(_casts(self.rows))}</p>")
        (heads_of_layers, *rows), is_folded = self._table(False)
        kinds = ("path", *[""] * (len(heads_of_layers) - 1))
        heads = list(zip(heads_of_layers, kinds, strict=True))
        parts.append(markup.table(heads, rows))
        if is_folded:
            (heads_of_layers, *rows), _ = self._table(True)
            kinds = ("path", *[""] * (len(heads_of_layers) - 1))
            heads = list(zip(heads_of_layers, kinds, strict=True))
            parts.append(f"<details><summary>All {len(rows)} layers</summary>")
            parts += [markup.table(heads, rows), "</details>"]
        return markup.output(parts)

    def _table(self, all_layers: bool) -> tuple[list[tuple[str, ...]], bool]:
        """Returns the table of the layers, its head first, and whether it is folded."""
        is_folded = not all_layers and len(self.rows) > _FEW
        return list(_folded(self.rows) if is_folded else _each(self.rows)), is_folded

    def _headline(self) -> str:
        return f"{self.model}: {_plural(len(self.rows), 'layer')}, {self._counted()}"

    def _counted(self) -> str:
        counts = Counter(finding.level for finding, _ in _grouped(self.findings))
        return ", ".join(_plural(n, level) for level, n in counts.items()) or "nothing found"


def _each(rows: Iterable[Row]) -> Iterator[tuple[str, ...]]:
    yield "layer", "class", "policy", "computes in", "variables"
    for row in rows:
        yield _middle_cut(row.path, 34), _middle_cut(row.kind, 20), *_dtypes(row)


def _folded(rows: Iterable[Row]) -> Iterator[tuple[str, ...]]:
    """Yields one line for all layers that are alike, in the order of the first of each.

    What a layer is made of is in its own line, but where it computes in another dtype.
    """
    shown: dict[str, tuple[Row, set[str]]] = {}
    for row in rows:
        variables = set((row.variable_dtype or "").split(", ")) - {""}
        whole, of_whole = shown.get(row.inside or "", (None, set()))
        if whole is not None and row.compute_dtype == whole.compute_dtype:
            of_whole.update(variables)
        else:
            shown[row.path] = row, variables
    alike: dict[tuple[str, ...], list[Row]] = {}
    for row, variables in shown.values():
        whole = replace(row, variable_dtype=", ".join(sorted(variables)) or None)
        alike.setdefault((row.kind, *_dtypes(whole)), []).append(row)
    yield "layers", "policy", "computes in", "variables"
    for (kind, *dtypes), group in alike.items():
        name = f"{len(group)} x {kind}"
        if len(group) == 1:
            name = f"{_middle_cut(group[0].path, 34)} ({kind})"
        yield name, *dtypes


def _dtypes(row: Row) -> tuple[str, str, str]:
    variables = (row.variable_dtype or "-") if row.built else "not built"
    return _middle_cut(row.policy, 18), row.compute_dtype, variables


def _casts(rows: Iterable[Row]) -> str:
    where: dict[str, list[str]] = {}
    unknown = False
    for row in rows:
        # Layers inside layers, such as those of MultiHeadAttention, are the outer one's business.
        unknown = unknown or (row.input_dtypes is None and "/" not in row.path)
        for dtype in row.casts:
            where.setdefault(f"{dtype} to {row.compute_dtype}", []).append(row.path)
    found = [f"{cast} before {listed(paths)}" for cast, paths in where.items()]
    if unknown:
        found.append("others not known" if found else "not known")
    return "; ".join(found) or "none"


def _loss_scale(scale: LossScale) -> str:
    need = {True: "needed", False: "not needed", None: "not known whether it is needed"}
    match scale.kind:
        case "none":
            how = f"{scale.optimizer} has none"
        case "no optimizer":
            how = "no optimizer yet"
        case "unknown":
            how = f"not known, as model.optimizer is a {scale.optimizer}"
        case "loss_scale_factor":
            how = f"loss_scale_factor={scale.value:g} of {scale.optimizer}, fixed"
        case kind:
            now = "not readable now" if scale.value is None else f"{scale.value:g}"
            dynamic = "dynamic" if scale.dynamic else "fixed"
            how = f"{kind} around {scale.optimizer}, {dynamic}, {now}"
    return f"{need[scale.needed]}; {how}"


def _grouped(findings: Iterable[Finding]) -> list[tuple[Finding, list[str]]]:
    groups: dict[tuple[str, ...], tuple[Finding, list[str]]] = {}
    for finding in findings:
        same = (finding.code, finding.what, finding.why, finding.remedy)
        groups.setdefault(same, (finding, []))[1].append(finding.path)
    return list(groups.values())


def _wrapped(head: str, text: str) -> list[str]:
    indent = " " * (len(head) if head.startswith(" ") else 2)
    return textwrap.wrap(head + text, WIDTH, subsequent_indent=indent)


def _middle_cut(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    tail = (width - 1) * 2 // 3
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
