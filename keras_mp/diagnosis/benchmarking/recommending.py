"""Measurements: in turn, so that disturbances affect all alike; and what they recommend.

Imports no Keras.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

TOLERANCE = 0.05  # of the loss, or of its decrease
FASTER = 0.97  # of the time of float32; anything closer counts as equally fast
LEANER = 0.95  # of its memory
_SKIPS = 0.05  # of the steps, once the loss scale had time to fall


@dataclass(frozen=True, slots=True)
class Result:
    """The measurements of a variant.

    Attributes:
        name: Of the variant.
        milliseconds: Per step: lower quartile, median, upper quartile of the rounds.
        ratio: The same relative to float32, round by round.
        first_seconds: Until the first steps were taken: making, building, compiling.
        memory: Bytes; None if unknown.
        steps: Steps taken in total.
        skipped: Skipped steps; None without loss scaling.
        late_skips: Those of them after the first steps.
        loss_scale: At the end; None without one.
        first_loss: Of the first steps.
        mean_loss: Of all rounds, because a single round is too noisy.
        loss: Of the last round.
        notes: Warnings of Keras or keras_mp.
    """

    name: str
    milliseconds: tuple[float, float, float]
    ratio: tuple[float, float, float]
    first_seconds: float
    memory: int | None
    steps: int
    skipped: int | None
    late_skips: int
    loss_scale: float | None
    first_loss: float
    mean_loss: float
    loss: float
    notes: tuple[str, ...] = ()


def fault(result: Result, base: Result) -> str | None:
    """Returns why a variant does not train as well as float32, or None.

    Args:
        result: Of the variant.
        base: Of float32.
    """
    if not math.isfinite(result.mean_loss):
        return f"its loss is {result.mean_loss}"
    if result.late_skips > max(1, _SKIPS * result.steps):
        return f"it skipped {result.late_skips} of {result.steps} steps"
    room = TOLERANCE * max(abs(base.mean_loss), abs(base.first_loss - base.mean_loss))
    if result.mean_loss > base.mean_loss + room:
        return f"its loss is {result.mean_loss:.4g}, that of float32 {base.mean_loss:.4g}"
    return None


def recommend(results: Sequence[Result], device: str, how: Mapping[str, str]) -> tuple[str, str]:
    """Returns the name of the recommended variant, and a sentence that says why.

    A variant is sound if it skips hardly a step and its mean loss exceeds that of float32 by at
    most `TOLERANCE` of that loss, or of its decrease. Candidates are sound variants that take at
    most `FASTER` of float32's time, with an upper quartile below 1. The fastest candidate is
    recommended, or the first in order whose time is within its noise. Without candidates float32
    is, and the text names the variant with the least memory.

    Args:
        results: Of float32, and of other variants, simpler ones first.
        device: The device.
        how: By name, the code to write.

    >>> def result(name, ratio, loss=1.0, memory=100):
    ...     three = (ratio, ratio, ratio)
    ...     return Result(name, three, three, 1.0, memory, 9, None, 0, None, 2.0, loss, loss)
    >>> results = [result("float32", 1.0), result("a", 0.5, loss=9.0), result("b", 0.7)]
    >>> recommend(results, "gpu", {"b": "do b"})[0]
    'b'
    """
    base = next(each for each in results if each.name == "float32")
    if not math.isfinite(base.mean_loss):
        return base.name, (
            f"The loss of float32 is {base.mean_loss} after {base.steps} steps: fix that first "
            "(keras_mp.find_overflow(model, x, y) finds the cause); nothing can be compared."
        )
    others = [each for each in results if each is not base]
    faults = {each.name: fault(each, base) for each in others}
    sound = [each for each in others if faults[each.name] is None]
    broken = _of_broken(others, faults)
    faster = [each for each in sound if each.ratio[1] <= FASTER and each.ratio[2] < 1]
    if faster:
        fastest = min(faster, key=lambda each: each.ratio[1])
        best = next(each for each in faster if each.ratio[0] <= fastest.ratio[2])
        memory = _memory(best, base)
        return best.name, (
            f"{best.name}: a step takes {best.ratio[1]:.2f} of the time of float32 "
            f"({best.milliseconds[1]:.3g} ms instead of {base.milliseconds[1]:.3g}){memory}, and "
            f"the loss is as good. Write: {how.get(best.name, best.name)}.{broken}"
        )
    text = f"float32: on this device ({device}) nothing that trains as well is faster."
    lean = [
        each
        for each in sound
        if each.memory and base.memory and each.memory <= LEANER * base.memory
    ]
    if lean:
        best = min(lean, key=lambda each: (each.memory or 0, each.ratio[1]))
        text += (
            f" If memory is short: {best.name}, {(best.memory or 0) / (base.memory or 1):.2f} "
            f"of the bytes at {best.ratio[1]:.2f} times the time. "
            f"Write: {how.get(best.name, best.name)}."
        )
    return base.name, text + broken


def _memory(result: Result, base: Result) -> str:
    if not result.memory or not base.memory:
        return ""
    share = result.memory / base.memory
    return f", {share:.2f} of its memory" if abs(share - 1) >= 0.005 else ", the same memory"


def _of_broken(results: Sequence[Result], faults: Mapping[str, str | None]) -> str:
    fast_and_broken = [each for each in results if faults[each.name] and each.ratio[1] <= FASTER]
    words = [f"{each.name} is faster, but {faults[each.name]}" for each in fast_and_broken]
    return f" Not recommended: {'; '.join(words)}." if words else ""


def in_turn(names: Sequence[str], repeat: int) -> Iterator[str]:
    """Yields each name `repeat` times: all names in turn, in another order each time.

    >>> " ".join(in_turn("abc", 2))
    'a b c a c b'
    """
    for repetition in range(repeat):
        turn = repetition % len(names)
        yield from [*names[turn:], *names[:turn]][:: -1 if repetition % 2 else 1]


def quartiles(numbers: Sequence[float]) -> list[float]:
    """Returns lower quartile, median and upper quartile.

    >>> quartiles([1.0, 2.0, 3.0]), quartiles([5.0])
    ([1.5, 2.0, 2.5], [5.0, 5.0, 5.0])
    """
    if len(numbers) < 2:
        return [*numbers] * 3
    return statistics.quantiles(numbers, n=4, method="inclusive")


def ratios(numbers: Sequence[float], base: Sequence[float]) -> list[float]:
    """Returns quartiles of the ratio of `numbers` to `base`, both measured in turn.

    >>> ratios([2.0, 3.0], [1.0, 1.0])
    [2.25, 2.5, 2.75]
    """
    return quartiles([a / b for a, b in zip(numbers, base, strict=True)])
