"""Which LossScaleOptimizer wraps an optimizer: at most one."""

import gc
import weakref
from typing import Any

from keras_mp.array_types import Optimizer


def wrapper_of(optimizer: Optimizer) -> Any:
    """Returns the LossScaleOptimizer that wraps `optimizer`, if one is alive; else None."""
    wrapper = optimizer.__dict__.get("_keras_mp_wrapper")
    return wrapper() if wrapper else None


def note_wrapper(optimizer: Optimizer, wrapper: Optimizer) -> None:
    """Records that `wrapper` wraps `optimizer`."""
    object.__setattr__(optimizer, "_keras_mp_wrapper", weakref.ref(wrapper))


def check_unwrapped(optimizer: Optimizer) -> None:
    """Raises ValueError if a LossScaleOptimizer wraps `optimizer`."""
    if wrapper_of(optimizer) is not None:
        gc.collect()  # a wrapper that nothing uses may still be alive
    if wrapper_of(optimizer) is not None:
        raise ValueError(
            f"inner_optimizer is already wrapped by a LossScaleOptimizer: {optimizer}. "
            "Use that wrapper, or make a new optimizer."
        )
