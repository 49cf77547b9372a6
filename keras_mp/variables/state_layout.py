"""Which saved array belongs to which variable of an optimizer: pure functions of shapes and kinds.

Files hold an optimizer's state as arrays by position, without names.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from keras_mp.array_types import Variable


def layouts(own: Sequence[Variable], inner: Sequence[Variable]) -> list[list[Any]]:
    """Returns the orders in which files store these variables.

    Args:
        own: iteration, learning_rate, step_counter, dynamic_scale.
        inner: The inner optimizer's variables.
    """
    return [
        [*own, *inner],  # this class, Keras' LossScaleOptimizer
        list(inner),  # the inner optimizer by itself
        [*own[:2], *inner],  # Keras' LossScaleOptimizer before its first step
    ]


def match(orders: Sequence[Sequence[Variable]], saved: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """Returns (variable, array) pairs for the first of `orders` that `saved` has.

    Args:
        orders: Orders of the variables, from `layouts`.
        saved: Arrays by position, "0", "1", ...

    Raises:
        ValueError: The arrays fit no order. The message compares them with the first.
    """
    for variables in orders:
        if set(saved) == {str(i) for i in range(len(variables))} and all(
            _shape(saved[str(i)]) == _shape(variable)
            and _is_integer(saved[str(i)]) == _is_integer(variable)
            for i, variable in enumerate(variables)
        ):
            return [(variable, saved[str(i)]) for i, variable in enumerate(variables)]
    keys = sorted(saved, key=_position)
    check(orders[0], [saved[key] for key in keys])
    raise ValueError(
        "its arrays are of another kind of optimizer: "
        f"{', '.join(f'{key} ({saved[key].dtype})' for key in keys[:8])}"
    )


def check(variables: Sequence[Variable], values: Sequence[Any]) -> None:
    """Raises ValueError unless there is one array of the right shape for each variable.

    >>> import numpy as np
    >>> check([np.zeros(3)], [np.zeros(3), np.zeros(3)])
    Traceback (most recent call last):
    ValueError: it has 2 arrays, but this optimizer has 1 variables (another optimizer class, \
other trainable variables?)
    """
    if len(values) != len(variables):
        raise ValueError(
            f"it has {len(values)} arrays, but this optimizer has {len(variables)} variables "
            "(another optimizer class, other trainable variables?)"
        )
    for i, (variable, value) in enumerate(zip(variables, values, strict=True)):
        if _shape(variable) != _shape(value):
            raise ValueError(
                f"its array {i} has shape {_shape(value)}, but variable {i} of this optimizer, "
                f"{variable.path}, has shape {_shape(variable)}"
            )


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape)


def _is_integer(value: Any) -> bool:
    """Returns whether `value` is an integer, which tells a step counter from a slot."""
    return "int" in str(value.dtype)


def _position(key: str) -> tuple[int, str]:
    return (int(key), "") if key.isdigit() else (1 << 30, key)
