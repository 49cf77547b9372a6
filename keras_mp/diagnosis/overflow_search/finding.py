"""One place where a step has an inf or a nan, and one change that was tried, as data and text."""

from dataclasses import dataclass
from typing import Literal

from keras_mp.diagnosis.dry_run.observers import Where
from keras_mp.diagnosis.dry_run.source_lines import SourceLine
from keras_mp.float_formats import LARGEST

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
