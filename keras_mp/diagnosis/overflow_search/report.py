"""What `find_overflow` found, as data and as text. Knows neither keras nor a model."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from keras_mp.diagnosis.float32_layers import Float32Layers, listed
from keras_mp.diagnosis.overflow_search.finding import Finding, Remedy
from keras_mp.files.json_files import json_values
from keras_mp.rendering.model import Renderable, Text

_SHOWN = 12  # findings in the text; `findings` has all


@dataclass(frozen=True, slots=True, repr=False)
class OverflowReport(Renderable):
    """What `find_overflow` returns: `print` it, or have a notebook show it.

    Attributes:
        findings: All of them, in order of execution: consequences come after causes.
        loss: The loss, not scaled; None where there is none.
        loss_scale: What it was multiplied by.
        loss_finite_at_scale_1: Whether the loss is finite unscaled; where it is not, no scale can
            help. None where there is no loss.
        float32_layers: The layers of float16 that were tried in float32, and how that is written:
            `code()` of it is Python. None where none was.
        then: The first cause that did harm when these computed in float32, or None.
        error: What it raised when layers computed in float32, as a sentence that names them, or "":
            then none is advised.
        remedies: What else to change, each tried: the dtype of a loss or metric, an epsilon, the
            loss scale, a line that casts.
        fitting_scale: The largest loss scale at which nothing overflows, by halving; None where
            only gradients overflow at none of 1 and above, or there is no need for one.
        next_scale: Where nothing overflows: the first loss scale at which something does, by
            doubling; None where none was found.
        at_next_scale: The first cause at that scale, or None.
    """

    findings: tuple[Finding, ...]
    loss: float | None
    loss_scale: float
    loss_finite_at_scale_1: bool | None
    float32_layers: Float32Layers | None = None
    then: Finding | None = None
    error: str = ""
    remedies: tuple[Remedy, ...] = ()
    fitting_scale: float | None = None
    next_scale: float | None = None
    at_next_scale: Finding | None = None

    @property
    def first(self) -> Finding | None:
        """The first cause that did harm, or None."""
        return next((f for f in self.findings if f.cause and not f.harmless), None)

    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as plain JSON; inf and nan as text."""
        layers = self.float32_layers
        plain = {"first": json_values(self.first), **Renderable.to_dict(self)}
        return {**plain, "float32_layers": layers and layers.to_dict()}

    def _parts(self) -> Iterator[Text]:
        first, later = self.first, self.at_next_scale
        yield Text(self._headline(), "title" if first is None else "alarm")
        if first is not None and first.source is not None:
            yield Text(str(first.source), "code")
        if self.loss is not None:
            yield Text(f"loss {self.loss:.6g}, loss scale {self.loss_scale:.10g}")
        if self.loss_finite_at_scale_1 is False:
            yield Text("The loss is not finite unscaled: no loss scale can cure that.")
        if self.float32_layers is not None:
            yield Text(f"With {listed(self._in_float32())} in float32, {self._verdict()}.")
        if self.error:
            yield Text(self.error)
        for remedy in self.remedies:
            # What was tried together has its verdict above.
            yield Text(f"- {remedy.text if self._is_told(remedy) else remedy}")
        if later is not None:
            yield Text(f"At a loss scale of {self.next_scale:.10g}: {later}")
            if later.source is not None:
                yield Text(str(later.source), "code")
        if self.float32_layers is not None:
            yield from self.float32_layers.parts()
        for title, findings in self._other_findings().items():
            if findings:
                yield Text(f"{title}:", "heading")
            for found in findings[:_SHOWN]:
                at = "" if found.source is None else f" ({found.source.short})"
                yield Text(f"{found}{at}", "item")
            if len(findings) > _SHOWN:
                yield Text(f"and {len(findings) - _SHOWN} more: findings", "item")

    def _other_findings(self) -> dict[str, list[Finding]]:
        first = self.first
        others = [found for found in self.findings if found is not first]
        return {
            "other causes": [f for f in others if f.cause and not f.harmless],
            "consequences": [f for f in others if not f.cause],
            "without harm": [f for f in others if f.cause and f.harmless],
        }

    def policy_map(self) -> Any:
        """Returns what is advised as a `keras.dtype_policies.DTypePolicyMap`; None without advice.

        `float32_layers.code()` is the same as Python code.
        """
        return None if self.float32_layers is None else self.float32_layers.policy_map()

    def _in_float32(self) -> list[str]:
        layers = self.float32_layers
        if layers is None:
            return []
        together = [remedy.what for remedy in self.remedies if self._is_told(remedy)]
        return [*layers.layers, *layers.by_hand, *together]

    def _is_told(self, remedy: Remedy) -> bool:
        return remedy.is_float32 and self.float32_layers is not None

    def _verdict(self) -> str:
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
