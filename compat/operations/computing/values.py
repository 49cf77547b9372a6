"""What is a tensor, what is known, and how one becomes the other."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

MOST_KNOWN = 1 << 24  # numbers of an array that an expression makes of nothing
MOST_AXES = 64

Value = Any  # a tensor, a number, a list of these, a NumPy array
Tensor = Any


def is_tensor(value: Value) -> bool:
    """Returns whether a value is a tensor of the backend."""
    return bool(ops.is_tensor(value)) or isinstance(value, keras.KerasTensor)


def has_tensor(value: Value) -> bool:
    """Returns whether a value is a tensor, or a list with one."""
    if isinstance(value, list | tuple):
        return any(map(has_tensor, value))
    return is_tensor(value)


def is_symbol(value: Value) -> bool:
    """Returns whether a value stands for a size that is not known yet, as JAX has them."""
    plain = (bool, int, float, complex, str, list, tuple, np.ndarray, np.generic)
    return value is not None and not isinstance(value, plain) and not is_tensor(value)


def has_symbol(value: Value) -> bool:
    """Returns whether one is in a list."""
    return isinstance(value, list | tuple) and any(is_symbol(item) for item in value)


def dtype_of(value: Value) -> str:
    """Returns the dtype that TensorFlow would give a value.

    >>> dtype_of(1), dtype_of([1, 2.5]), dtype_of(True)
    ('int32', 'float32', 'bool')
    """
    if is_tensor(value):
        return str(keras.backend.standardize_dtype(value.dtype))
    if isinstance(value, list | tuple):
        kinds = [dtype_of(item) for item in value]
        return next((kind for kind in kinds if kind.startswith(("float", "bf"))), None) or next(
            iter(kinds), "float32"
        )
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int32"
    if isinstance(value, float):
        return "float32"
    if is_symbol(value):
        return "int32"
    return str(np.asarray(value).dtype)


def tensor(value: Value, dtype: str | None = None) -> Tensor:
    """Returns a value as a tensor; one that is a tensor as it is."""
    if is_tensor(value):
        return value
    dtype = dtype or dtype_of(value)
    if has_tensor(value) or has_symbol(value):
        return ops.stack([ops.cast(tensor(item, dtype), dtype) for item in value])
    if is_symbol(value):
        return ops.cast(ops.convert_to_tensor(value), dtype)
    if dtype == "bfloat16":
        return ops.cast(ops.convert_to_tensor(np.asarray(value, "float32")), dtype)
    return as_tensor(np.asarray(value), dtype)


def as_tensor(value: Value, dtype: str) -> Tensor:
    """Returns a tensor of a dtype; of 32 bits where a backend has no more."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*requested.*dtype.*")
        if is_tensor(value):
            return ops.cast(value, dtype)
        return ops.convert_to_tensor(value.astype(dtype), dtype=dtype)


def together(*values: Value) -> list[Tensor]:
    """Returns values as tensors: what is known takes the dtype of the tensors beside it."""
    dtype = next((dtype_of(value) for value in values if is_tensor(value)), None)
    if dtype is None:
        dtype = next((dtype_of(value) for value in values if has_tensor(value)), None)
    return [tensor(value, dtype) for value in values]


def number(value: Any, given: Sequence[Value]) -> Value:
    """Returns a NumPy result as a plain number where plain numbers were given."""
    if any(isinstance(one, np.ndarray | np.generic) for one in given) or np.ndim(value):
        return value
    return value.item() if isinstance(value, np.generic | np.ndarray) else value


def known_call(function: Callable[..., Any], *given: Value) -> Value:
    """Calls a function of NumPy with what is known, through lists."""
    array = next((one for one in given if isinstance(one, np.ndarray)), None)
    if array is not None:  # which lists beside it are, too, as beside a tensor
        given = tuple(
            np.asarray(one, array.dtype) if isinstance(one, list | tuple) else one for one in given
        )
    lists = [one for one in given if isinstance(one, list | tuple)]
    if not lists:
        with np.errstate(all="ignore"):
            return number(function(*given), given)
    length = max(len(one) for one in lists)
    rows = [
        (list(one) * length if len(one) == 1 else list(one))
        if isinstance(one, list | tuple)
        else [one] * length
        for one in given
    ]
    return [known_call(function, *row) for row in zip(*rows, strict=True)]


def checked_size(count: float) -> None:
    """Raises where a file asks for more memory than a model can need.

    Raises:
        ValueError: An array would have more numbers than `MOST_KNOWN`.
    """
    if count > MOST_KNOWN:
        raise ValueError(f"an array of {count:.0f} numbers; {MOST_KNOWN} are allowed")


def ints(value: Value) -> Any:
    """Returns whole numbers as Python's, alone or in a list; None as it is."""
    if isinstance(value, list | tuple):
        return [ints(item) for item in value]
    if isinstance(value, np.ndarray):
        return ints(value.tolist())
    # What else there is stands for sizes that are not known: tensors, and symbols of JAX.
    return int(value) if isinstance(value, int | float | np.generic) else value


def dims(shape: Value) -> Any:
    """Returns a shape as a tuple; a tensor as it is."""
    if is_tensor(shape):
        if any(isinstance(size, int) and size > MOST_AXES for size in shape.shape):
            raise ValueError(f"a shape of more than {MOST_AXES} axes")
        return shape
    whole = ints(shape)
    return tuple(whole) if isinstance(whole, list) else (whole,)


def axes(axis: Value) -> Any:
    """Returns axes as an int, a tuple, or None."""
    whole = ints(axis)
    return tuple(whole) if isinstance(whole, list) else whole


def is_floating(dtype: str) -> bool:
    """Returns whether a dtype is one of floating numbers."""
    return dtype.startswith(("float", "bfloat"))
