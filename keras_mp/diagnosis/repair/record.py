"""`Repairs`: what was repaired, or why not, as data and as text. Knows no model."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from keras_mp.diagnosis.float32_layers import Float32Layers, listed
from keras_mp.diagnosis.overflow_search.report import Finding
from keras_mp.files.json_files import json_values
from keras_mp.float_formats import LARGEST
from keras_mp.rendering.model import Part, Renderable, Text
from keras_mp.rendering.text import pluralized

Kind = Literal["nothing", "data", "weights", "float32", "code", "parts", "unsearched", "bound"]


@dataclass(frozen=True, slots=True)
class Repair:
    """One change of a live model.

    Attributes:
        layers: Paths of the layers that compute in float32 since.
        losses: Names of the losses that do.
        finding: What overflowed first, or None where nobody saw it.
        step: `iterations` of the optimizer at that time.
        skipped: Steps that were skipped before it, since the last repair.
        scale_before: The loss scale then.
        scale: The loss scale since.
        notes: What else was done or is to be known.
    """

    layers: tuple[str, ...]
    losses: tuple[str, ...]
    finding: Finding | None
    step: int
    skipped: int
    scale_before: float
    scale: float
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = [f"`{name}`" for name in (*self.layers, *self.losses)]
        compute = "computes" if len(names) == 1 else "compute"
        text = f"step {self.step}: {listed(names)} now {compute} in float32"
        if self.finding is not None:
            text += f": {_why(self.finding)}"
        text += f". {pluralized(self.skipped, 'step')} {'was' if self.skipped == 1 else 'were'} "
        text += "skipped; the loss scale is "
        text += f"{self.scale:.10g}{' again' if self.scale > self.scale_before else ''}."
        return " ".join((text, *self.notes))

    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as plain JSON; inf and nan as text."""
        plain: dict[str, Any] = json_values({**asdict(self), "text": str(self)})
        return plain


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why there is nothing to repair.

    Attributes:
        kind: "nothing" overflows on this batch at a loss scale that is high enough; the "data" hold
            inf or nan; so do "weights", or they are beyond float16; the step is not finite in
            "float32" either; the "code" casts to float16 itself; no set of layers that may be
            changed helps ("parts"); the batch could not be run ("unsearched"); or there were as
            many repairs as are allowed ("bound").
        text: What was found, and what to do.
    """

    kind: Kind
    text: str

    @property
    def ends(self) -> bool:
        """Whether the training cannot get well."""
        return self.kind not in ("nothing", "unsearched")


@dataclass(frozen=True, slots=True, repr=False)
class Repairs(Renderable):
    """What was repaired in a model, in order, and what of it could not be.

    Attributes:
        made: The repairs.
        verdict: Why the last search changed nothing; None where it changed something.
        float32_layers: All layers that were repaired, as a map to paste; None where none was.
    """

    made: tuple[Repair, ...] = ()
    verdict: Verdict | None = None
    float32_layers: Float32Layers | None = None

    def __bool__(self) -> bool:
        return bool(self.made)

    def __len__(self) -> int:
        return len(self.made)

    def __iter__(self) -> Iterator[Repair]:
        return iter(self.made)

    @property
    def layers(self) -> tuple[str, ...]:
        """Paths of all layers that were repaired."""
        return tuple(dict.fromkeys(path for each in self.made for path in each.layers))

    @property
    def losses(self) -> tuple[str, ...]:
        """Names of all losses that were repaired."""
        return tuple(dict.fromkeys(name for each in self.made for name in each.losses))

    def plus(self, other: "Repairs") -> "Repairs":
        """Returns these and later ones."""
        layers = other.float32_layers or self.float32_layers
        return replace(other, made=(*self.made, *other.made), float32_layers=layers)

    def code(self) -> str:
        """Returns Python that makes the `keras.dtype_policies.DTypePolicyMap`; "" without one."""
        return "" if self.float32_layers is None else self.float32_layers.code()

    def policy_map(self) -> Any:
        """Returns the `keras.dtype_policies.DTypePolicyMap`; None where no layer was repaired."""
        return None if self.float32_layers is None else self.float32_layers.policy_map()

    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as plain JSON; inf and nan as text."""
        return {
            "repairs": [each.to_dict() for each in self.made],
            "verdict": None if self.verdict is None else asdict(self.verdict),
            "layers": list(self.layers),
            "losses": list(self.losses),
            "code": self.code(),
        }

    def _parts(self) -> Iterator[Part]:
        told = [str(each) for each in self.made]
        if self.verdict is not None:
            told.append(self.verdict.text)
        yield from map(Text, told or ["no repair"])
        if self.float32_layers is not None:
            yield from self.float32_layers.parts()


def _why(finding: Finding) -> str:
    what = finding.op or f"{finding.tensor} of {finding.layer}"
    if finding.where == "backward":
        what = f"{finding.tensor} in {finding.layer}"
    limit = LARGEST.get(finding.dtype)
    if finding.largest is not None and limit is not None and finding.largest > limit:
        return f"{what} reached {finding.largest:.2g} (limit {limit:.5g})"
    return f"{what} made {finding.kind} in {finding.dtype}" + (
        f" ({finding.note})" if finding.note else ""
    )
