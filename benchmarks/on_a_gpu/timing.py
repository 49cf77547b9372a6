"""Times: the variants in turn, until the time is over."""

import argparse
import math
import statistics
import time
from typing import Any

from benchmarks.on_a_gpu.steps import Native, Variants
from keras_mp.diagnosis.benchmarking.recommending import in_turn, quartiles, ratios

WARM_UP = 3


def why_left_out(error: Exception, native: Native) -> str:
    """Returns what to say of a variant that did not run; raises what is no fault of the device."""
    text = str(error)
    told = f"{type(error).__name__} {text}".replace("_", "").lower()
    if "out of memory" in told or "resourceexhausted" in told:
        return "out of memory"
    if not native.cuda and "not supported" in text:
        return f"not on a CPU: {text.splitlines()[0]}"  # as 16 bits in JAX's attention
    raise error


class NoTime(Exception):
    """The time that was given is over."""


def measure(
    native: Native, variants: Variants, options: argparse.Namespace, until: float = math.inf
) -> dict[str, dict[str, Any]]:
    """Returns the times of each variant, or why there are none.

    Args:
        native: The backend.
        variants: What makes their state.
        options: Of the command.
        until: When to stop, by `time.monotonic`: after the last round that was whole.

    Raises:
        NoTime: Not even one was.
    """
    times: dict[str, list[float]] = {name: [] for name in variants}
    found: dict[str, dict[str, Any]] = {name: {"skipped": False} for name in variants}
    # The first round compiles, and is not counted.
    order = [*variants, *in_turn(list(variants), options.repeat)]
    for place, name in enumerate(order):
        rounds, beginning = divmod(place, len(variants))
        if time.monotonic() > until and (beginning == 0 or rounds < 2):
            if rounds < 2:
                raise NoTime
            break
        if "failed" in found[name]:
            continue
        steps = None
        try:
            native.begin_peak()
            steps = variants[name]()
            scale = steps.scale()
            guess = max(native.timed(steps, WARM_UP), 1e-6)
            count = min(max(1, round(1e3 * options.block / guess)), 200)
            times[name].append(native.timed(steps, count))
            found[name]["skipped"] |= scale is not None and (steps.scale() or 0.0) < scale
            found[name]["fallback"] = steps.fallback()
            found[name]["memory"] = native.peak(steps)  # without what the first round compiles
            if rounds == 0:
                found[name]["waits"] = native.waits(steps)
        except native.failures as error:
            found[name]["failed"] = why_left_out(error, native)
        del steps
        native.free()
    for name, taken in times.items():
        if "failed" not in found[name]:
            found[name]["milliseconds"] = quartiles(taken[1:])
        base = found.get("plain", {"failed": True})
        if "failed" not in found[name] and "failed" not in base:
            found[name]["ratio"] = ratios(taken[1:], times["plain"][1:])
    return found


def bandwidth(native: Native, options: argparse.Namespace) -> float:
    """Returns the bytes that a copy on the device reads and writes in a second."""
    elements = 2**20 if options.quick else 2**28
    steps = native.copying(elements)
    native.timed(steps, WARM_UP)
    taken = statistics.median(native.timed(steps, 10) for _ in range(options.repeat))
    return float(2 * 4 * elements / (taken / 1e3))
