"""Converts the gradients of callers to tensors of floats; accepts what plain Keras accepts."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops
from keras.backend import standardize_dtype

from keras_mp.array_types import Gradient, Gradients, Variable
from keras_mp.backends.common.optimizers import path

_WIDER = ("float64", "complex64", "complex128")  # than float32


def as_tensors(gradients: Gradients, variables: Sequence[Variable] | None = None) -> list[Any]:
    """Returns `gradients` as tensors of floats; None, sparse ones and floats are unchanged.

    Numbers, lists, and integers are cast as the optimizer would cast them, but to float32 for a
    16-bit variable: they are not yet divided by the loss scale.

    Args:
        gradients: Tensors, sparse ones, arrays, numbers, (nested) lists of numbers, None.
        variables: Their variables; None for float32.

    Raises:
        TypeError: A gradient is none of these.

    >>> [standardize_dtype(each.dtype) for each in as_tensors([[1.0, 2.0], 3, ops.array([True])])]
    ['float32', 'float32', 'float32']
    """
    converted = [
        _as_tensor(gradient, i, variables) if _is_foreign(gradient) else gradient
        for i, gradient in enumerate(gradients)
    ]
    # Computed once per dtype: in most steps all gradients have the same.
    dtypes = {gradient.dtype for gradient in converted if gradient is not None}
    if not any(map(_is_exact, dtypes)):
        return converted
    return [
        ops.cast(gradient, _wide(variables, i))
        if gradient is not None and _is_exact(gradient.dtype)
        else gradient
        for i, gradient in enumerate(converted)
    ]


def check_shapes(gradients: Gradients, variables: Sequence[Variable]) -> None:
    """Raises ValueError if a gradient cannot be broadcast to its variable.

    Shapes that are unknown while a step is traced pass.

    Args:
        gradients: Tensors, sparse ones, None.
        variables: In the same order.

    >>> weight = keras.Variable([[1.0, 2.0]], name="weight")
    >>> check_shapes([ops.ones((1, 1))], [weight])
    >>> check_shapes([ops.ones((2, 1))], [weight])
    Traceback (most recent call last):
    ValueError: The gradient of weight has the shape (2, 1), which cannot be broadcast to that of \
the variable, (1, 2). Pass one gradient for each variable, in the same order.
    """
    for gradient, variable in zip(gradients, variables, strict=True):
        if gradient is None or (shape := _shape(gradient)) == variable.shape:
            continue
        if not _fits(shape, variable.shape):
            raise ValueError(
                f"The gradient of {path(variable)} has the shape {_text(shape)}, which "
                f"cannot be broadcast to that of the variable, {_text(variable.shape)}. Pass "
                "one gradient for each variable, in the same order."
            )


def _is_foreign(gradient: Gradient) -> bool:
    if isinstance(gradient, (np.ndarray, np.generic, keras.Variable)):
        return True
    # torch.compile of PyTorch 2.4 cannot trace hasattr on a tensor.
    known = gradient is None or ops.is_tensor(gradient)
    return not known and not hasattr(gradient, "dtype")


def _as_tensor(gradient: Any, i: int, variables: Sequence[Variable] | None) -> Any:
    if isinstance(gradient, keras.Variable):
        gradient = gradient.value
    if hasattr(gradient, "dtype"):
        return ops.convert_to_tensor(gradient)
    try:
        return ops.convert_to_tensor(gradient, _wide(variables, i))
    except (TypeError, ValueError, RuntimeError) as error:
        whose = f"gradient {i}" if variables is None else f"the gradient of {path(variables[i])}"
        raise TypeError(
            f"A gradient must be a tensor, an array, a number or a list of numbers, but {whose} "
            f"is of the class {type(gradient).__name__}: {error}"
        ) from error


def _is_exact(dtype: Any) -> bool:
    exact: bool = standardize_dtype(dtype).startswith(("int", "uint", "bool"))
    return exact


def _wide(variables: Sequence[Variable] | None, i: int) -> str:
    dtype = "float32" if variables is None else standardize_dtype(variables[i].dtype)
    return dtype if dtype in _WIDER else "float32"


def _shape(gradient: Gradient) -> Any:
    # IndexedSlices whose shape was given as a tuple cannot return it themselves.
    dense_shape = getattr(gradient, "dense_shape", None)
    return dense_shape if isinstance(dense_shape, tuple | list) else gradient.shape


def _fits(shape: Any, target: Any) -> bool:
    if getattr(shape, "rank", 0) is None:
        return True
    sizes, wanted = list(shape), list(target)
    return len(sizes) <= len(wanted) and all(
        n is None or n in (1, m) for n, m in zip(reversed(sizes), reversed(wanted), strict=False)
    )


def _text(shape: Any) -> str:
    return str(tuple(shape))
