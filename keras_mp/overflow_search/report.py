"""What `find_overflow` found, as data and as text. Knows neither keras nor a model."""

import textwrap
from dataclasses import asdict, dataclass
from typing import Any, Literal

from keras_mp.diagnosis.float32_layers import Float32Layers, listed
from keras_mp.dry_run.calls import Where
from keras_mp.monitor.run_folder import as_json

_WIDTH = 100
_FIRST = "first cause"
_SHOWN = 12  # findings in the text; `as_json` has all

# The largest finite number of a dtype.
LIMITS = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}

_IN = {
    "forward": "in the forward pass: ",
    "regularizer": "in a regularizer: ",
    "loss": "in the loss: ",
    "metric": "in a metric: ",
    "backward": "in the backward pass: ",
    "input": "in ",
    "weights": "in the weights: ",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One place where an inf or a nan is.

    Attributes:
        where: Part of the step.
        layer: Path of the layer, as "encoder/dense"; of a loss or metric its name; of a weight its
            path; "the input: x", "the input: y" for the data.
        layer_class: Name of its class, or "".
        op: Name of the keras op, "cast" for a cast by Keras, None where the layer as a whole is
            meant.
        tensor: Which tensor of it: "output", "gradient of its input", "gradient of dense/kernel".
        dtype: Its dtype.
        kind: "nan" where one is in it, else "inf".
        largest: Largest magnitude that it would have in float32; inf where it has none there
            either, None where that is not known.
        cause: Whether what it was computed of was finite. Else it is a consequence.
        harmless: Whether nothing that is not finite came of it in the end, as of a mask with -inf.
        note: What else is to be said, or "".
    """

    where: Where
    layer: str
    layer_class: str
    op: str | None
    tensor: str
    dtype: str
    kind: Literal["inf", "nan"]
    largest: float | None
    cause: bool = True
    harmless: bool = False
    note: str = ""

    def __str__(self) -> str:
        kind = self.kind if self.kind == "nan" or not self.cause else "overflow"
        name = self.layer + (f" ({self.layer_class})" if self.layer_class else "")
        parts = [f"{kind} {_IN[self.where]}{name}"]
        if self.op is not None:
            parts.append(f"op {self.op}")
        if self.tensor != "output":
            parts.append(self.tensor)
        text = f"{', '.join(parts)}, {self.dtype}"
        if self.largest is not None:
            limit = LIMITS.get(self.dtype)
            text += f": largest magnitude {self.largest:.2g}" + (
                f" (limit {limit:.5g})" if limit else ""
            )
        return text + (f"; {self.note}" if self.note else "")


@dataclass(frozen=True, slots=True)
class OverflowReport:
    """What `find_overflow` returns.

    Attributes:
        findings: All of them, in order of execution: consequences come after causes.
        loss: The loss, not scaled; None where there is none.
        loss_scale: What it was multiplied by.
        loss_finite_at_scale_1: Whether the loss is finite unscaled; where it is not, no scale can
            help. None where there is no loss.
        float32_layers: The layers of float16 that were tried in float32, and how that is written:
            `code()` of it is Python. None where none was.
        then: The first cause that did harm when these computed in float32, or None.
    """

    findings: tuple[Finding, ...]
    loss: float | None
    loss_scale: float
    loss_finite_at_scale_1: bool | None
    float32_layers: Float32Layers | None = None
    then: Finding | None = None

    @property
    def first(self) -> Finding | None:
        """The first cause that did harm, or None."""
        return next((f for f in self.findings if f.cause and not f.harmless), None)

    def as_json(self) -> dict[str, Any]:
        """Returns all of it as plain JSON; inf and nan as text."""
        first, layers = self.first, self.float32_layers
        whole = {
            "first": None if first is None else asdict(first),
            "findings": [asdict(found) for found in self.findings],
            "loss": self.loss,
            "loss_scale": self.loss_scale,
            "loss_finite_at_scale_1": self.loss_finite_at_scale_1,
            "float32_layers": layers and layers.as_dict(),
            "then": None if self.then is None else asdict(self.then),
        }
        plain: dict[str, Any] = as_json(whole)  # type: ignore[assignment]
        return plain

    def __repr__(self) -> str:
        return f"<OverflowReport: {self._headline()}>"

    def __str__(self) -> str:
        lines = self.summary()
        if self.float32_layers is not None:
            lines += ["", *self.float32_layers.lines()]
        for title, chosen in self.sorted_findings().items():
            if title == _FIRST:  # the first line
                continue
            lines += ["", f"{title}:"]
            for found in chosen[:_SHOWN]:
                lines += textwrap.wrap(
                    str(found), _WIDTH, initial_indent="  ", subsequent_indent="    "
                )
            if len(chosen) > _SHOWN:
                lines.append(f"  and {len(chosen) - _SHOWN} more")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Returns tables for a notebook."""
        from keras_mp.monitor import notebook  # late: most see text

        return notebook.show_overflows(self)

    def summary(self) -> list[str]:
        """Returns sentences: what came first, the loss, and whether float32 cures it."""
        lines = [self._headline()]
        if self.loss is not None:
            lines.append(f"loss {self.loss:.6g}, loss scale {self.loss_scale:.10g}")
        if self.loss_finite_at_scale_1 is False:
            lines.append("The loss is not finite unscaled: no loss scale can cure that.")
        if self.float32_layers is not None:
            tried = f"With {listed(self._in_float32())} in float32, {self._tried()}."
            lines += textwrap.wrap(tried, _WIDTH)
        return lines

    def sorted_findings(self) -> dict[str, list[Finding]]:
        """Returns the findings by what they are; only kinds of which there are any."""
        first = self.first
        others = [f for f in self.findings if f is not first]
        kinds = {
            _FIRST: [] if first is None else [first],
            "other causes": [f for f in others if f.cause and not f.harmless],
            "consequences": [f for f in others if not f.cause],
            "without harm": [f for f in others if f.cause and f.harmless],
        }
        return {kind: found for kind, found in kinds.items() if found}

    def policy_map(self) -> Any:
        """Returns what is advised as a `keras.dtype_policies.DTypePolicyMap`; None without advice.

        `float32_layers.code()` is the same as Python code.
        """
        return None if self.float32_layers is None else self.float32_layers.policy_map()

    def _in_float32(self) -> list[str]:
        layers = self.float32_layers
        return [] if layers is None else [*layers.layers, *layers.by_hand]

    def _tried(self) -> str:
        if self.then is None:
            return "nothing overflows (tried)"
        what = f"there is still (tried): {self.then}"
        if self.then.where == "backward" and self.loss_scale > 1:
            return (
                f"only gradients overflow (tried), for which a lower loss scale is the cure; {what}"
            )
        return what

    def _headline(self) -> str:
        first = self.first
        if first is not None:
            return str(first)
        at = "" if self.loss is None else f" at a loss scale of {self.loss_scale:.10g}"
        harm = self.loss_finite_at_scale_1 is False or not all(f.harmless for f in self.findings)
        if harm:
            return f"not everything is finite{at}, but what made it so was not seen"
        if self.findings:
            return f"no overflow that does harm{at}"
        return f"no overflow: everything is finite{at}"
