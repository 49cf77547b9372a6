"""What comparing a model with the graphs of its SavedModel gave: plain data, for reports."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Differences = Literal["refuse", "tell", "ignore"]
REFUSED = (
    "{}: it {}. A class of your own with the "
    "name of one of Keras' is taken for that: pass it as custom_objects; differences='tell' loads "
    "the model anyway"
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
        text = f"{self.largest:.1e} of the largest number at most (rounding: {self.allowed:.0e})"
        if self.layer is not None:
            text += f", first in {self.layer}, by {self.layer_largest:.1e}"
        elif self.differs:
            text += "; which layer is the first is not known"
        return text


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
        why: Why something was not compared; "" where all was that the file has.
        source: What the model was compared with.
    """

    shapes: tuple[tuple[tuple[int, ...], ...], ...] = ()
    predictions: Part | None = None
    training: Part | None = None
    why: str = ""
    source: str = "the graph in the file"

    @property
    def differs(self) -> bool:
        """Whether something differs by more than rounding."""
        return any(part is not None and part.differs for part in (self.predictions, self.training))

    def to_dict(self) -> dict[str, Any]:
        """Returns it as plain JSON."""
        found = dataclasses.asdict(self)
        found["shapes"] = [[list(one) for one in trial] for trial in self.shapes]
        for part in (found["predictions"], found["training"]):
            if part is not None and part["largest"] == float("inf"):
                part["largest"] = "inf"
        return found

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> "Comparison":
        """Returns what `to_dict` gave."""
        parts = {
            name: None if found[name] is None else _part(found[name])
            for name in ("predictions", "training")
        }
        shapes = tuple(tuple(tuple(one) for one in trial) for trial in found["shapes"])
        return cls(shapes, why=found["why"], source=found["source"], **parts)

    def agreement(self) -> str:
        """Returns a line that says that both agree; "" where they do not, or were not compared."""
        if self.predictions is None or self.differs:
            return ""
        with_training = "" if self.training is None else ", with training, too"
        return f"predicts as {self.source}{with_training}: {self.predictions}"

    def differences(self) -> Iterator[str]:
        """Yields what is not the same, a line each."""
        if self.predictions is not None and self.predictions.differs:
            yield f"predicts otherwise than {self.source}: {self.predictions}"
        if self.training is not None and self.training.differs:
            yield f"computes otherwise in training than {self.source}: {self.training}"

    def remarks(self) -> tuple[str, ...]:
        """Returns what a reader should know: differences, and what was not compared."""
        return (*self.differences(), *([self.why] if self.why else []))
