"""What `explain` found out about a model, as data and as text.

Knows neither keras nor a model: `explaining.py` gathers and has rules judge.
"""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

WIDTH = 100
_SHOWN = 6  # paths in a line of the text; `as_dict` has all

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
    """

    path: str
    kind: str
    policy: str
    compute_dtype: str
    variable_dtype: str | None
    built: bool
    quantization: str | None
    input_dtypes: tuple[str, ...] | None

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
    """

    model: str
    rows: tuple[Row, ...]
    loss_scale: LossScale
    findings: tuple[Finding, ...]

    def as_dict(self) -> dict[str, Any]:
        """Returns all of it as plain JSON."""
        listed = asdict(self)
        for row in listed["rows"]:
            if row["input_dtypes"] is not None:
                row["input_dtypes"] = list(row["input_dtypes"])
        return {**listed, "rows": list(listed["rows"]), "findings": list(listed["findings"])}

    def __repr__(self) -> str:
        return f"<Explanation of {self.model!r}: {self._counted()}>"

    def __str__(self) -> str:
        parts = [f"{self.model}: {_plural(len(self.rows), 'layer')}", "", *_table(self.rows), ""]
        parts += _wrapped("casts: ", _casts(self.rows))
        parts += _wrapped("loss scale: ", _loss_scale(self.loss_scale))
        parts += ["", self._counted()]
        for finding, paths in _grouped(self.findings):
            parts += ["", *_wrapped(f"{finding.level}: ", f"{finding.what} [{finding.code}]")]
            parts += _wrapped("  where:  ", _listed(paths))
            parts += _wrapped("  why:    ", finding.why)
            parts += _wrapped("  remedy: ", finding.remedy)
        return "\n".join(parts)

    def _counted(self) -> str:
        counts = Counter(finding.level for finding, _ in _grouped(self.findings))
        return ", ".join(_plural(n, level) for level, n in counts.items()) or "nothing found"


def _table(rows: Iterable[Row]) -> Iterator[str]:
    cells = [("layer", "class", "policy", "computes in", "variables")]
    for row in rows:
        variables = row.variable_dtype or "-"
        if not row.built:
            variables = "not built"
        cells.append(
            (
                _middle_cut(row.path, 34),
                _middle_cut(row.kind, 20),
                _middle_cut(row.policy, 18),
                row.compute_dtype,
                variables,
            )
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for cell in cells:
        padded = (text.ljust(width) for text, width in zip(cell, widths, strict=True))
        yield "  ".join(padded).rstrip()[:WIDTH]


def _casts(rows: Iterable[Row]) -> str:
    where: dict[str, list[str]] = {}
    unknown = False
    for row in rows:
        # Layers inside layers, such as those of MultiHeadAttention, are the outer one's business.
        unknown = unknown or (row.input_dtypes is None and "/" not in row.path)
        for dtype in row.casts:
            where.setdefault(f"{dtype} to {row.compute_dtype}", []).append(row.path)
    found = [f"{cast} before {_listed(paths)}" for cast, paths in where.items()]
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


def _listed(paths: list[str]) -> str:
    rest = len(paths) - _SHOWN
    return ", ".join(paths[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


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
