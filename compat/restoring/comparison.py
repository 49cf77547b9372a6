"""What comparing a model with the graphs of its SavedModel gave: plain data, for reports."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

_PARTS = ("predictions", "in_float32", "training")
Differences = Literal["refuse", "tell", "ignore"]
REFUSED = (
    "{}: {}. A class of your own with the name of one of Keras' is taken for that: pass it as "
    "custom_objects; differences='tell' loads the model anyway"
)


class Differs(ValueError):
    """A model computes otherwise than the SavedModel that it was loaded from."""


@dataclass(frozen=True, slots=True)
class Part:
    """A comparison of results.

    Attributes:
        largest: The largest difference, as a part of the largest number of that result; inf where
            shapes differ.
        allowed: What rounding may make.
        layer: The first layer whose output differs, with its class; None where none is known.
        layer_largest: By how much; 0.0 without one.
    """

    largest: float
    allowed: float
    layer: str | None = None
    layer_largest: float = 0.0

    @property
    def differs(self) -> bool:
        """Whether it is more than rounding."""
        return not self.largest <= self.allowed

    def __str__(self) -> str:
        text = f"{_size(self.largest)} of the largest value (limit {self.allowed:g})"
        if self.layer is not None:
            text += f", first in {self.layer}, by {_size(self.layer_largest)}"
        elif self.differs:
            text += "; which layer is the first is not known"
        return text

    def bound(self) -> str:
        """Returns the next power of ten above the largest difference, and the limit."""
        most = 10.0 ** math.ceil(math.log10(self.largest)) if self.largest else 0.0
        return f"at most {most:g} of the largest value (limit {self.allowed:g})"


def _size(difference: float) -> str:
    return f"{difference:.2g}" if math.isfinite(difference) else "inf (shapes, or nan)"


def _part(found: Mapping[str, Any]) -> Part:
    # Files have infinity as the text "inf".
    numbers = {name: float(found[name]) for name in ("largest", "allowed", "layer_largest")}
    return Part(layer=found["layer"], **numbers)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comparing a model with the graphs of its SavedModel gave.

    Attributes:
        shapes: Of the inputs of each trial.
        predictions: Of results without training; None where they were not compared.
        training: Of results and moving statistics with training; None as above.
        in_float32: Of predictions where all is computed in float32; None where nothing is in 16
            bits, and where that was not compared.
        why: Why something was not compared; "" where all was that the file has.
        source: What the model was compared with.
    """

    shapes: tuple[tuple[tuple[int, ...], ...], ...] = ()
    predictions: Part | None = None
    training: Part | None = None
    why: str = ""
    source: str = "the graph in the file"
    in_float32: Part | None = None

    @property
    def differs(self) -> bool:
        """Whether something differs by more than rounding."""
        return any(True for _ in self.differences())

    def _parts(self) -> tuple[Part | None, ...]:
        return self.predictions, self.in_float32, self.training

    def to_dict(self) -> dict[str, Any]:
        """Returns it as plain JSON."""
        found = dataclasses.asdict(self)
        found["shapes"] = [[list(one) for one in trial] for trial in self.shapes]
        for part in (found[name] for name in _PARTS):
            if part is not None and part["largest"] == float("inf"):
                part["largest"] = "inf"
        return found

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> "Comparison":
        """Returns what `to_dict` gave."""
        parts = {name: None if found[name] is None else _part(found[name]) for name in _PARTS}
        shapes = tuple(tuple(tuple(one) for one in trial) for trial in found["shapes"])
        return cls(shapes, why=found["why"], source=found["source"], **parts)

    def agreement(self) -> str:
        """Returns a line that says that both agree; "" where they do not, or were not compared."""
        if self.predictions is None or self.differs:
            return ""
        both = [one for one in (self.predictions, self.training) if one is not None]
        how = ", with and without training" if len(both) == 2 else ""
        largest = max(both, key=lambda one: one.largest)
        found = f"predictions agree with {self.source}{how}: they differ by {largest.bound()}"
        if self.in_float32 is None:
            return found
        return f"{found}, and in float32 by {self.in_float32.bound()}"

    def differences(self) -> Iterator[str]:
        """Yields what is not the same, a line each."""
        names = ("predictions", "predictions in float32", "training")
        # What agrees in float32 differs in 16 bits by rounding, however much that is.
        wide = self.in_float32
        is_rounding = wide is not None and not wide.differs
        for name, part in zip(names, self._parts(), strict=True):
            if part is not None and part.differs and not (is_rounding and name == names[0]):
                verb = "differs" if name == "training" else "differ"
                yield f"{name} {verb} from {self.source} by {part}"

    def remarks(self) -> tuple[str, ...]:
        """Returns what a reader should know: differences, and what was not compared."""
        return (*self.differences(), *([self.why] if self.why else []))
