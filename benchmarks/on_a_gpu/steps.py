"""What each backend gives: steps of the variants, and what there is to know about the device."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, Protocol

from benchmarks.on_a_gpu.sizes import Size, Work


@dataclasses.dataclass
class Steps:
    """Steps of one variant, whose state exists from here on."""

    take: Callable[[], Any]  # one, which the device may still be at
    wait: Callable[[], None]
    scale: Callable[[], float | None]
    fallback: Callable[[], str | None] = lambda: None  # why the kernels were not used, if so
    memory: Callable[[], int | None] = lambda: None  # bytes that a step needs, if it is known


Variants = dict[str, Callable[[], Steps]]


class Native(Protocol):
    """A backend and its device."""

    cuda: bool  # whether there is a GPU
    name: str  # of the device
    versions: dict[str, str]
    failures: tuple[type[Exception], ...]  # that tell what the device cannot do

    def free(self) -> int | None:
        """Gives back the memory of the last variant; returns how many bytes are free, if known."""

    def begin_peak(self) -> None:
        """Begins to look for the most memory."""

    def peak(self, steps: Steps) -> int | None:
        """Returns the most bytes that were in use since, or that a step needs, if known."""

    def waits(self, steps: Steps) -> int | None:
        """Returns how often Python waits for the device in a step; None if it never does."""

    def timed(self, steps: Steps, count: int) -> float:
        """Returns the milliseconds that a step takes, in `count` of them."""

    def copying(self, elements: int) -> Steps:
        """Returns steps that read and write as many numbers of float32."""

    def updates(self, size: Size) -> Variants:
        """Returns functions that make the state of each variant of the optimizer alone."""

    def training(self, size: Work, scale: float, policy: str = "float32") -> Variants:
        """Returns functions that make the state of each variant of a training step."""


class WholePrograms:
    """What backends have in common that compile a step whole."""

    def waits(self, _: Steps) -> int | None:
        """Returns None: nothing in a step waits for the device."""
        return None

    def timed(self, steps: Steps, count: int) -> float:
        steps.wait()
        return by_clock(steps, count)


def by_clock(steps: Steps, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        steps.take()
    steps.wait()
    return 1e3 * (time.perf_counter() - start) / count
