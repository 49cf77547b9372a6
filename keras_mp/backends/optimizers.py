"""What is asked of Keras' optimizers and variables, beyond their public API, on every backend."""

from collections.abc import Sequence
from typing import Any


def parts(optimizer: Any) -> list[Any]:
    """Returns `optimizer`, and the ones that it steps with if it is a MultiOptimizer.

    >>> import keras
    >>> len(parts(keras.optimizers.SGD()))
    1
    """
    return [optimizer, *getattr(optimizer, "optimizers", ())]


def averages(optimizer: Any) -> bool:
    """Returns whether `optimizer` keeps averages of weights.

    >>> import keras
    >>> averages(keras.optimizers.SGD(use_ema=True))
    True
    """
    return any(part.use_ema for part in parts(optimizer))


def written(optimizer: Any, variables: Sequence[Any]) -> list[Any]:
    """Returns the variables that a step of `optimizer` with `variables` may write, each once."""
    touched = (*variables, *optimizer._trainable_variables, *optimizer.variables)
    return list({id(variable): variable for variable in touched}.values())


def overwritten(variable: Any) -> bool:
    """Returns whether `variable` takes its gradient as new value, never scaled (float8's scales).

    >>> import keras
    >>> overwritten(keras.Variable(1.0))
    False
    """
    return bool(getattr(variable, "overwrite_with_gradient", False))


def path(variable: Any) -> str:
    """Returns the path of a Keras variable, the name of any other.

    >>> import keras
    >>> path(keras.Variable(1.0, name="weight"))
    'weight'
    """
    return str(getattr(variable, "path", variable.name))
