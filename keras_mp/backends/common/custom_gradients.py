"""Whether a function with a custom gradient runs: `keras.ops.custom_gradient` and similar.

The frameworks do not differentiate inside, and accept only arguments there. None has a public way
to tell, so this reads the stack.
"""

import sys
from types import FrameType

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
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") in _CALLERS:
            return True
        frame = frame.f_back
    return False
