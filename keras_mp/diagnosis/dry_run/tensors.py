"""The float tensors in nested structures, and their numbers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_mp.graph_rewrite.tensors import dtype_of, is_sparse, shape_of, tensors


def floats(*values: Any) -> list[Any]:
    """Returns the dense floating-point tensors in nested `values`, without variables."""
    return [
        x
        for x in keras.tree.flatten(values)
        if ops.is_tensor(x)
        and not isinstance(x, keras.Variable)
        and not is_sparse(x)
        and keras.backend.is_float_dtype(dtype_of(x))
    ]


def map_floats(change: Callable[[Any], Any], value: Any) -> Any:
    """Returns nested `value` with `change` applied to each of its `floats`."""
    return keras.tree.map_structure(lambda x: change(x) if floats(x) else x, value)


def trainable_in(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Returns the trainable variables among the arguments of an op."""
    return [x for x in tensors(args, kwargs) if isinstance(x, keras.Variable) and x.trainable]


def is_finite(x: Any) -> bool | None:
    """Returns whether a tensor holds no inf and no nan; None if it has no values yet."""
    numbers = numbers_of(x)
    return None if numbers is None else bool(np.isfinite(numbers).all())


def numbers_of(x: Any) -> Any:
    """Returns a tensor as an array; None inside a loop or function that the framework traces."""
    try:
        return _array(x)
    except (TypeError, AttributeError, NotImplementedError):
        return None


def kind_of(x: Any) -> Literal["inf", "nan"]:
    """Returns "nan" if a tensor contains one, else "inf"."""
    return "nan" if np.isnan(_array(x)).any() else "inf"


def as_numpy(x: Any) -> Any:
    """Returns a tensor as a float64 array."""
    return np.asarray(_array(x)).astype(np.float64)


def _array(x: Any) -> Any:
    if dtype_of(x) == "bfloat16" and shape_of(x) == ():
        x = ops.cast(x, "float32")  # exact; NumPy does not accept the backends' bfloat16
    return ops.convert_to_numpy(x)
