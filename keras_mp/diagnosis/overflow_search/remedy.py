"""One thing to change in a program, and what came of trying it."""

from dataclasses import dataclass
from typing import Literal

from keras_mp.diagnosis.dry_run.source_lines import SourceLine
from keras_mp.diagnosis.overflow_search.finding import Finding

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
