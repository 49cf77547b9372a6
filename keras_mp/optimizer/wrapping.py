"""Which LossScaleOptimizer is around an optimizer: there is one at most."""

import gc
import weakref
from typing import Any

from keras_mp.array_types import Optimizer


def wrapper_of(optimizer: Optimizer) -> Any:
    """Returns the LossScaleOptimizer around `optimizer`, if one is alive; else None."""
    wrapper = optimizer.__dict__.get("_keras_mp_wrapper")
    return wrapper() if wrapper else None


def note_wrapper(optimizer: Optimizer, wrapper: Optimizer) -> None:
    """Takes note that `wrapper` is around `optimizer`."""
    object.__setattr__(optimizer, "_keras_mp_wrapper", weakref.ref(wrapper))


def check_unwrapped(optimizer: Optimizer) -> None:
    """Raises ValueError if there is a LossScaleOptimizer around `optimizer`."""
    if wrapper_of(optimizer) is not None:
        gc.collect()  # a wrapper that nobody uses any more may still be there
    if wrapper_of(optimizer) is not None:
        raise ValueError(
            f"inner_optimizer is already wrapped by a LossScaleOptimizer: {optimizer}. "
            "Use that wrapper, or make a new optimizer."
        )
