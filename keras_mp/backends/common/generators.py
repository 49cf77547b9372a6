"""Random states that are not variables of Keras: those of Python, NumPy and torch.

Keras' own seeds are variables. On torch, though, `dropout` draws from torch's generator.
"""

import contextlib
import random
from collections.abc import Iterator

import keras
import numpy as np


@contextlib.contextmanager
def unchanged_generators() -> Iterator[None]:
    """A scope that restores the random states at its end.

    >>> before = random.getstate()
    >>> with unchanged_generators():
    ...     _ = random.random()
    >>> random.getstate() == before
    True
    """
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with _unchanged_in_torch():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


@contextlib.contextmanager
def seeded_generators(seed: int) -> Iterator[None]:
    """A scope with random states of `seed`, which restores the previous states at its end.

    >>> def draw():
    ...     with seeded_generators(1):
    ...         return random.random()
    >>> draw() == draw()
    True
    """
    with unchanged_generators():
        random.seed(seed)
        np.random.seed(seed)
        if keras.backend.backend() == "torch":
            import torch

            torch.manual_seed(seed)
        yield


def _unchanged_in_torch() -> contextlib.AbstractContextManager[None]:
    if keras.backend.backend() != "torch":
        return contextlib.nullcontext()
    import torch

    # Not all devices, the default: a process that uses one of them would initialise the others.
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    return torch.random.fork_rng(devices)  # type: ignore[no-any-return]
