"""What `explain` found out about a model, as data and as text.

Knows neither keras nor a model: `explaining.py` gathers and has rules judge.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from keras_mp.diagnosis.float32_layers import Float32Layers, listed
from keras_mp.rendering import terminal
from keras_mp.rendering.model import Cells, Column, Fold, Part, Renderable, Table, Text
from keras_mp.rendering.text import pluralized

_FEW = 20  # layers; more are folded

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Row:
    """One layer, or a part of a module of torch or flax that a layer wraps.

    Attributes:
        path: Names from the model down, such as "encoder/block_1/dense"; of a part with the name
            that the module gives it: "encoder/layers.3.attn".
        kind: Name of its class.
        policy: Name of its dtype policy.
        compute_dtype: What it computes in. Of a part it is that of the layer: `torch.autocast`
            computes some ops of it in float32.
        variable_dtype: Of its own variables as they are, several separated by ", "; None where it
            has none. Before it is built, what the policy says.
        built: Whether it is built.
        quantization: Such as "int8", or None.
        input_dtypes: Of the floating-point tensors it is called on; None where that is not known,
            in subclassed models and before they are built.
        inside: Path of the layer of a library that made this one, or that wraps this part, which
            has its dtype; None where the model's author made it.
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
    """A likely problem, or something unknown.

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


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Renderable):
    """The result of `explain`, to print or to show in a notebook.

    Attributes:
        model: Name of the model.
        rows: The layers, nested ones after the model that has them.
        loss_scale: What scales the loss.
        findings: Errors first, then warnings, then notes.
        float32_layers: The layers that are to compute in float32, as code.
        all_layers: Whether its text lists every layer, or folds those of a large model.
    """

    model: str
    rows: tuple[Row, ...]
    loss_scale: LossScale
    findings: tuple[Finding, ...]
    float32_layers: Float32Layers
    all_layers: bool = False

    def policy_map(self) -> Any:
        """Returns the advice as a `keras.dtype_policies.DTypePolicyMap`.

        It has no key where no layer is to compute in float32, or where none can be reached by one.
        """
        return self.float32_layers.policy_map()

    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as plain JSON."""
        plain = {**Renderable.to_dict(self), "float32_layers": self.float32_layers.to_dict()}
        del plain["all_layers"]
        return plain

    def text(self, all_layers: bool = False) -> str:
        """Returns it as text.

        Args:
            all_layers: Whether to list every layer, or to fold those of a large model.
        """
        return terminal.to_text(replace(self, all_layers=all_layers)._parts())

    def _parts(self) -> Iterator[Part]:
        findings = _grouped_by_text(self.findings)
        counts = Counter(finding.level for finding, _ in findings)
        found = ", ".join(pluralized(n, level) for level, n in counts.items()) or "nothing found"
        yield Text(f"{self.model}: {pluralized(len(self.rows), 'layer')}, {found}", "title")
        if findings:
            heads = ("", "what", "where", "why", "remedy")
            rows = [
                (one.level, f"{one.what} [{one.code}]", listed(paths), one.why, one.remedy)
                for one, paths in findings
            ]
            yield Table([Column(head, "sentence") for head in heads], rows, form="records")
        yield from self.float32_layers.parts()
        yield Text(f"loss scale: {_loss_scale(self.loss_scale)}")
        yield Text(f"casts: {_casts(self.rows)}")
        every = _table_of_layers(self.rows)
        if self.all_layers or len(self.rows) <= _FEW:
            yield every
            return
        yield _table_of_kinds(self.rows)
        hint = f"Each of the {len(self.rows)} layers: explain(model, all_layers=True)"
        yield Fold(f"All {len(self.rows)} layers", [every], hint)


def _table_of_layers(rows: Iterable[Row]) -> Table:
    heads = ("policy", "computes in", "variables")
    columns = (Column("layer", "path"), Column("class"), *map(Column, heads))
    return Table(columns, [(row.path, row.kind, *_dtypes(row)) for row in rows])


def _table_of_kinds(rows: Iterable[Row]) -> Table:
    """Returns a table of one line for all layers that are alike, in the order of the first of each.

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
    alike: dict[Cells, list[Row]] = {}
    for row, variables in shown.values():
        whole = replace(row, variable_dtype=", ".join(sorted(variables)) or None)
        alike.setdefault((row.kind, *_dtypes(whole)), []).append(row)
    lines = []
    for (kind, *dtypes), group in alike.items():
        one = f"{_middle_cut(group[0].path, 34)} ({kind})"
        lines.append((one if len(group) == 1 else f"{len(group)} x {kind}", *dtypes))
    heads = ("policy", "computes in", "variables")
    return Table((Column("layers", "path"), *map(Column, heads)), lines)


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


def _grouped_by_text(findings: Iterable[Finding]) -> list[tuple[Finding, list[str]]]:
    groups: dict[tuple[str, ...], tuple[Finding, list[str]]] = {}
    for finding in findings:
        same = (finding.code, finding.what, finding.why, finding.remedy)
        groups.setdefault(same, (finding, []))[1].append(finding.path)
    return list(groups.values())


def _middle_cut(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    tail = (width - 1) * 2 // 3
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"
