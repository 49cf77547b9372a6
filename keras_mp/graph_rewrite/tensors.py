"""Finds, replaces and describes the tensors among the arguments of an op."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_mp.graph_rewrite.graph import Shape

_ARRAYS = (np.ndarray, np.floating)
_SPARSE = ("SparseTensor", "BCOO", "RaggedTensor", "IndexedSlices")


def is_tensor(x: Any) -> bool:
    """Returns whether `x` is a tensor of the backend, a variable, or an array."""
    return isinstance(x, (keras.Variable, *_ARRAYS)) or bool(keras.ops.is_tensor(x))


def is_constant(x: Any) -> bool:
    """Returns whether `x` is an array or number of NumPy, which gets no gradient."""
    return isinstance(x, _ARRAYS)


def is_sparse(x: Any) -> bool:
    """Returns whether `x` is sparse or ragged: few such ops support float16."""
    return type(x).__name__ in _SPARSE


def tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the tensors of a call in the order of its arguments; a list counts as its items."""
    for argument in (*args, *kwargs.values()):
        if isinstance(argument, (list, tuple)):
            yield from tensors(argument, {})
        elif is_tensor(argument):
            yield argument


def has_float32(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Returns whether a tensor of a call is float32."""
    return any(name_of_dtype(x) == "float32" for x in tensors(args, kwargs))


def name_of_dtype(x: Any) -> str:
    """Returns the name of a tensor's dtype, also of one that Keras does not know.

    JAX has such dtypes for random keys, TensorFlow for variables and lists.
    """
    return str(getattr(x.dtype, "name", x.dtype)).rpartition(".")[2]


def replaced(argument: Any, change: Callable[[Any], Any]) -> Any:
    """Returns `argument` with `change` applied to each tensor in it."""
    if isinstance(argument, (list, tuple)):
        items = [replaced(item, change) for item in argument]
        if isinstance(argument, tuple) and hasattr(argument, "_fields"):
            return type(argument)(*items)
        return type(argument)(items)
    return change(argument) if is_tensor(argument) else argument


def version_of(x: Any) -> Any:
    """Returns what changes when torch changes a tensor in place; None if nothing tells."""
    try:
        return getattr(x, "_version", None)
    except RuntimeError:  # of torch's inference mode
        return None


def shape_of(x: Any) -> Shape:
    """Returns the shape of a tensor; None for an unknown dimension."""
    try:
        return tuple(side if isinstance(side, int) else None for side in x.shape)
    except ValueError:  # TensorFlow: even the rank is unknown
        return ()


def dtype_of(x: Any) -> str:
    """Returns Keras' name of a tensor's dtype."""
    return str(keras.backend.standardize_dtype(x.dtype))
