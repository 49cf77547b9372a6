"""Whether a function with a custom gradient runs: `keras.ops.custom_gradient` and similar.

The frameworks differentiate nothing inside, and let nothing in that is no argument. None says
publicly that it is in one, and a user may call each framework's own, so the stack is asked.
"""

import inspect
import traceback

_CALLERS = frozenset(
    {
        "jax._src.custom_derivatives",
        "tensorflow.python.ops.custom_gradient",
        "torch.autograd.function",
    }
)


def is_inside() -> bool:
    """Returns whether the caller is called, at any depth, by a function with its own gradient.

    >>> import keras
    >>> @keras.ops.custom_gradient
    ... def identity(x):
    ...     print(is_inside())
    ...     return x, lambda upstream: upstream
    >>> _ = identity(keras.ops.ones(()))
    True
    >>> is_inside()
    False
    """
    frames = traceback.walk_stack(inspect.currentframe())
    return any(frame.f_globals.get("__name__") in _CALLERS for frame, _ in frames)
