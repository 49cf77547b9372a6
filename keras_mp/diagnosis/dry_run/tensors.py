"""The float tensors in nested structures: their numbers, and gradients by them.

For a gradient, zeros are added to a tensor. They have its dtype, so the gradient is that of the
framework's backward pass, infs included.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_mp.diagnosis.dry_run.observers import Call, Key, Observer, unobserved
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


class TensorKey(NamedTuple):
    """Identifies a float tensor in every run of a step.

    Attributes:
        call: The key of a call.
        side: Whether the tensor is an input or an output of the call.
        number: Its index among the float tensors on that side, from 0.
    """

    call: Key
    side: Literal["input", "output"]
    number: int


def zeros_like(x: Any) -> Any:
    """Returns a variable of zeros with the shape and dtype of a tensor, which no layer casts."""
    return keras.Variable(
        ops.zeros(x.shape), dtype=dtype_of(x), trainable=True, autocast=False, name="zeros"
    )


class Perturber(Observer):
    """Adds zeros to chosen tensors of a step.

    Attributes:
        zeros: Variables or tensors, by the tensor that they are added to.
    """

    def __init__(self, zeros: Mapping[TensorKey, Any]) -> None:
        self.zeros = zeros

    def op(self, call: Call) -> Any:
        """Runs an op on its arguments plus zeros, and returns its result plus zeros."""
        return self._run(call)

    def layer(self, call: Call) -> Any:
        """Runs a layer as `op` runs an op."""
        return self._run(call)

    def _run(self, call: Call) -> Any:
        with unobserved():
            given = self._plus(call.key, "input", (call.args, call.kwargs))
        result = call.with_arguments(*given).run()
        with unobserved():
            return self._plus(call.key, "output", result)

    def _plus(self, key: Key, side: Literal["input", "output"], value: Any) -> Any:
        """Returns nested `value` with the zeros for it added, if there are any."""
        if not any(TensorKey(key, side, i) in self.zeros for i in range(len(floats(value)))):
            return value
        count = -1

        def plus(x: Any) -> Any:
            nonlocal count
            count += 1
            zeros = self.zeros.get(TensorKey(key, side, count))
            if zeros is None or shape_of(x) != shape_of(zeros) or dtype_of(x) != dtype_of(zeros):
                return x
            return ops.add(x, zeros.value if isinstance(zeros, keras.Variable) else zeros)

        return map_floats(plus, value)
