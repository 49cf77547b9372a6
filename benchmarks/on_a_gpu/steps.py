"""What each backend gives: steps of the variants, and what there is to know about the device."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass
class Steps:
    """Steps of one variant, whose state exists from here on."""

    take: Callable[[], Any]  # one, which the device may still be at
    wait: Callable[[], None]
    scale: Callable[[], float | None]
    fallback: Callable[[], str | None] = lambda: None  # why the kernels were not used, if so
    memory: Callable[[], int | None] = lambda: None  # bytes that a step needs, if it is known


Variants = dict[str, Callable[[], Steps]]


def by_clock(steps: Steps, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        steps.take()
    steps.wait()
    return 1e3 * (time.perf_counter() - start) / count
