"""Limits of memory and time for one artefact, which the operating system enforces in its process.

The process stays for the next artefact as long as none took more, so Keras is imported once.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_mp.migration import backends
from keras_mp.migration.processes import Died, TookTooLong, Worker

# What frameworks say where there is no memory.
_NO_MEMORY = re.compile(
    r"MemoryError|[Uu]nable to allocate|bad_alloc|RESOURCE_EXHAUSTED|[Oo]ut of memory|\bOOM\b"
    r"|(annot|an't) allocate memory|DefaultCPUAllocator"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one artefact.

    Attributes:
        memory: Bytes, besides what Python takes with Keras; None for no limit.
        seconds: Of the clock, without the import of Keras; None for no limit.
    """

    memory: int | None = None
    seconds: float | None = None

    def __bool__(self) -> bool:
        return self.memory is not None or self.seconds is not None


class Exceeded(Exception):
    """An artefact takes more than it may.

    Args:
        why: As a sentence.
        reason: In few words, one of `ledger.REASONS`.
    """

    def __init__(self, why: str, reason: str) -> None:
        super().__init__(why, reason)
        self.why = why
        self.reason = reason


class Unlimited(Exception):
    """The system has no such limit; its text says so."""


def check(limits: Limits) -> None:
    """Raises Unlimited where the system keeps no limit of memory."""
    if limits.memory is not None and not sys.platform.startswith("linux"):
        raise Unlimited("--limit-memory needs Linux: omit it, or set a system limit")


class Process:
    """Runs functions within limits, one at a time.

    Args:
        limits: Of each.
        ready: What is called there before each, outside of its limits, where there are some.
    """

    def __init__(self, limits: Limits, ready: Callable[[], None] | None = None) -> None:
        self.limits = limits
        self._ready = _ready if ready is None else ready
        self._worker: Worker | None = None

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Returns what a function returns, which is an outcome or begins with one.

        Raises:
            Exceeded: It takes more.
            Died: Its process died, of something else.
        """
        if self._worker is None:
            self._worker = Worker()
        try:
            if self.limits:
                self._worker.call(self._ready)
            memory, seconds = self.limits.memory, self.limits.seconds
            return self._worker.call(_within, memory, function, *args, seconds=seconds)
        except TookTooLong:
            self.close()
            why = f"it exceeds --limit-seconds ({self.limits.seconds:g} s)"
            raise Exceeded(why, "too long") from None
        except Died as error:
            self.close()
            if self.limits.memory is None or error.code >= 0:
                raise
            raise _too_large(self.limits.memory) from None

    def close(self) -> None:
        """Ends the process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _too_large(memory: int) -> Exceeded:
    return Exceeded(f"it exceeds --limit-memory ({memory / 1e9:.3g} GB)", "too large")


# -- in the process -------------------------------------------------------------------------------


def _ready() -> None:
    """Imports Keras and starts its backend, which takes memory and time that are no artefact's.

    What fails here fails again, where it is said.
    """
    try:
        backends.choose()
        import keras
    except (backends.NoBackend, ImportError):
        return
    keras.utils.clear_session()
    float(keras.ops.sum(keras.ops.ones(2)))


def _within(memory: int | None, function: Callable[..., Any], *args: Any) -> Any:
    if memory is None:
        return function(*args)
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = _data() + memory
    hard = before[1]
    resource.setrlimit(
        resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )
    try:
        value = function(*args)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
    outcome = value[0] if isinstance(value, tuple) else value
    if outcome.why is not None and _NO_MEMORY.search(f"{outcome.why}\n{outcome.trace}"):
        raise _too_large(memory)
    return value


def _data() -> int:
    """Returns the bytes of memory that are this process's own, as the limit counts them."""
    text = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return int(text.partition("VmData:")[2].split()[0]) * 1024
