"""What `benchmark` found, as text, HTML and JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from keras_mp.diagnosis.benchmarking.recommending import Result
from keras_mp.rendering.model import Column, Part, Renderable, Table, Text
from keras_mp.rendering.text import pluralized

_HEADS = ("ms a step", "ratio", "first, s", "MB", "skipped", "scale", "loss")


@dataclass(frozen=True, slots=True, repr=False)
class BenchmarkReport(Renderable):
    """What each way to train the model costs, and which one is recommended.

    Attributes:
        model: Its name.
        backend: On which it was.
        device: "cpu", or the name of an accelerator.
        batch: The shapes and dtypes of a batch.
        made_up: Whether the data was.
        rounds: Turns that were timed.
        steps: Of each variant in each turn.
        results: Of what was measured; float32 first.
        failed: Why the others were not: by name.
        memory: What the bytes are: "peak" of the device, or "counted" from the arrays.
        notes: What was chosen for the user.
        recommended: The name of a variant.
        recommendation: A sentence.
        how: By name, what to write.
    """

    model: str
    backend: str
    device: str
    batch: str
    made_up: bool
    rounds: int
    steps: int
    results: tuple[Result, ...]
    failed: Mapping[str, str]
    memory: str
    notes: tuple[str, ...]
    recommended: str
    recommendation: str
    how: Mapping[str, str]

    def _parts(self) -> Iterator[Part]:
        yield Text(self._headline(), "title")
        marks = {True: "> ", False: "  "}
        rows = [_cells(each, marks[each.name == self.recommended]) for each in self.results]
        yield Table((Column(""), *(Column(head, "number") for head in _HEADS)), rows)
        yield from map(Text, self._below())
        yield Text(f"Recommended: {self.recommendation}", "title")

    def _headline(self) -> str:
        data = "made up" if self.made_up else "given"
        before = self.results[0].steps - self.rounds * self.steps
        return (
            f"{self.model} on {self.backend}, {self.device}: {pluralized(self.rounds, 'round')} of "
            f"{pluralized(self.steps, 'step')}, after {before}; data {data}, {self.batch}"
        )

    def _below(self) -> list[str]:
        """Returns what is said below the table."""
        lines = [f"not measured, {name}: {why}" for name, why in self.failed.items()]
        lines += [f"{each.name}: {note}" for each in self.results for note in each.notes]
        lines += self.notes
        lines.append(
            "ms: median and quartiles of the rounds; ratio: to float32, round by round; first: to "
            "make, compile and take two steps; loss: of the last round."
        )
        if self.memory == "counted":
            lines.append(
                "MB are counted from the arrays: weights, gradients, and what the optimizer keeps; "
                "no activations, which 16 bits halve."
            )
        else:
            lines.append("MB are the peak of the device; - where it is below an earlier one.")
        return lines


def _cells(result: Result, mark: str) -> tuple[str, ...]:
    low, middle, high = map(_number, result.milliseconds)
    return (
        f"{mark}{result.name}",
        f"{middle} ({low}-{high})",
        f"{result.ratio[1]:.2f}",
        f"{result.first_seconds:.1f}",
        "-" if result.memory is None else f"{result.memory / 1e6:.3g}",
        "-" if result.skipped is None else f"{result.skipped}",
        "-" if result.loss_scale is None else _scale(result.loss_scale),
        f"{result.loss:.3g}",
    )


def _number(milliseconds: float) -> str:
    return f"{milliseconds:.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


def _scale(scale: float) -> str:
    return f"{scale:.0f}" if scale == int(scale) and scale < 1e6 else f"{scale:.2g}"
