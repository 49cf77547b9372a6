"""What `find_overflow` found and tried, as data and as text. Knows no model."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from keras_mp.diagnosis.dry_run.observers import Where
from keras_mp.diagnosis.dry_run.source_lines import SourceLine
from keras_mp.diagnosis.float32_layers import Float32Layers, listed
from keras_mp.files.json_files import json_values
from keras_mp.float_formats import LARGEST
from keras_mp.rendering.model import Renderable, Text

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
        source: The line of source code that computes it: the innermost of the user's code, or that
            of the layer in Keras; of a gradient, that of the forward pass. None where none is
            known.
        time_step: (which, of how many) in a recurrent layer, from 1: the first that is like this.
        times: How many are like this: other time steps, or the same line again.
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
    source: SourceLine | None = None
    time_step: tuple[int, int] | None = None
    times: int = 1

    @property
    def repeated(self) -> str:
        """In which time step, and how often; or ""."""
        if self.time_step is not None:
            others = f" and {self.times - 1} others" if self.times > 1 else ""
            return "time step {} of {}".format(*self.time_step) + others
        return f"{self.times} times" if self.times > 1 else ""

    def __str__(self) -> str:
        kind = self.kind if self.kind == "nan" or not self.cause else "overflow"
        name = self.layer + (f" ({self.layer_class})" if self.layer_class else "")
        parts = [f"{kind} {_IN[self.where]}{name}"]
        if self.op is not None:
            parts.append(f"op {self.op}")
        if self.tensor != "output":
            parts.append(self.tensor)
        if repeated := self.repeated:
            parts.append(repeated)
        text = f"{', '.join(parts)}, {self.dtype}"
        if self.largest is not None:
            limit = LARGEST.get(self.dtype)
            text += f": largest magnitude {self.largest:.2g}" + (
                f" (limit {limit:.5g})" if limit else ""
            )
        return text + (f"; {self.note}" if self.note else "")


Kind = Literal["dtype", "source line", "epsilon", "from_logits", "loss scale"]


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of the program, tried on the batch.

    Attributes:
        kind: What is changed: the "dtype" of a loss or metric, a "source line" that casts to
            float16 itself, an "epsilon" that float16 rounds to 0, a loss that is to compute
            "from_logits", or the "loss scale".
        what: The loss or metric, the line, or the number that is changed.
        text: What to do.
        source: The line to change, or None.
        then: The first cause that did harm after the change, or None.
        error: What the trial raised, or "".
        scale: The loss scale of the trial.
    """

    kind: Kind
    what: str
    text: str
    source: SourceLine | None = None
    then: Finding | None = None
    error: str = ""
    scale: float = 1.0

    @property
    def helps(self) -> bool:
        """Whether nothing is left, or only gradients that a lower loss scale takes care of."""
        lower = self.then is not None and self.then.where == "backward" and self.scale > 1
        return not self.error and (self.then is None or lower)

    @property
    def is_float32(self) -> bool:
        """Whether something computes in float32; such changes are tried together, with layers."""
        return self.kind in ("dtype", "source line")

    def __str__(self) -> str:
        if self.error:
            return f"{self.text} Trying it raised {self.error}."
        if self.then is not None and self.helps:
            return (
                f"{self.text} Then only gradients overflow at a loss scale of {self.scale:.10g} "
                "(tried): LossScaleOptimizer lowers it."
            )
        if self.then is not None:
            return f"{self.text} There is still (tried): {self.then}"
        return f"{self.text} Then nothing overflows (tried)."


_SHOWN = 12  # findings in the text; `findings` has all


@dataclass(frozen=True, slots=True, repr=False)
class OverflowReport(Renderable):
    """The result of `find_overflow`, to print or to show in a notebook.

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
        """Returns the advice as a `keras.dtype_policies.DTypePolicyMap`; None without advice.

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
