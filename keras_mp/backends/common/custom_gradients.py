"""Whether a function runs whose gradient somebody wrote: `keras.ops.custom_gradient` and its like.

The frameworks differentiate nothing inside, and let nothing in that is no argument. None says
publicly that it is in one, so that the stack is asked.
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
