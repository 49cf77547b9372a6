"""What the backends share: the finite check as stacked sums, and float32 for 16-bit gradients."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops
from keras.backend import standardize_dtype

HALVES = ("float16", "bfloat16")


class Outcome(NamedTuple):
    """What the gradients of a step were.

    `finite`: bool, shape (): no inf and no nan. `each`: bool, shape (number of gradients,), of each
    one; True for None. `kind`: integer, shape (): 0 finite, 1 an inf and no nan, 2 a nan.
    """

    finite: Any
    each: Any
    kind: Any


def widened(tensor: Any) -> Any:
    """Returns `tensor`, in float32 if its dtype has 16 bits.

    >>> standardize_dtype(widened(ops.ones((2,), "float16")).dtype)
    'float32'
    """
    return ops.cast(tensor, "float32") if standardize_dtype(tensor.dtype) in HALVES else tensor


def tensors_of(gradients: Sequence[Any]) -> list[Any]:
    """Returns `gradients` with NumPy arrays as tensors.

    >>> ops.is_tensor(tensors_of([np.ones(2, "float32")])[0])
    True
    """
    return [ops.array(g) if isinstance(g, np.ndarray) else g for g in gradients]


def divided_each(
    gradients: Sequence[Any], raw: Sequence[bool], divided: Callable[[Any], Any]
) -> list[Any]:
    """Returns `divided(gradient)` of each; None, and those marked `raw`, as they are.

    >>> divided_each([4.0, None, 4.0], [False, False, True], lambda gradient: gradient / 2)
    [2.0, None, 4.0]
    """
    return [
        gradient if gradient is None or keep else divided(gradient)
        for gradient, keep in zip(gradients, raw, strict=True)
    ]


def narrowed(gradient: Any, variable: Any) -> Any:
    """Returns a dense `gradient` in the dtype of its variable where that has a smaller range.

    The optimizer casts it so, after the finite check: 1e5 becomes inf in float16 then.

    >>> import keras
    >>> bool(ops.isfinite(narrowed(ops.array(1e5), keras.Variable(0.0, dtype="float16"))))
    False
    """
    if not ops.is_tensor(gradient):
        return gradient
    given, taken = standardize_dtype(gradient.dtype), standardize_dtype(variable.dtype)
    smaller = taken == "float16" or (given == "float64" and taken != "float64")
    return ops.cast(gradient, taken) if smaller and given != taken else gradient


def nonzero_rows(gradient: Any) -> Any:
    """Returns which rows of a dense `gradient` have an element that is not zero.

    Returns:
        bool, shape (rows, 1, 1, ...), of the rank of `gradient`.

    >>> [bool(row) for row in nonzero_rows(ops.array([[0.0, 2.0], [0.0, 0.0]]))]
    [True, False]
    """
    return ops.any(ops.not_equal(gradient, 0), axis=tuple(range(1, gradient.ndim)), keepdims=True)


def sums_of(tensors: Sequence[Any], absolute: bool = False) -> Any:
    """Returns the sum of each tensor; 0 for None.

    Sums carry every inf and nan along and read each tensor once, where `all(isfinite(x))` writes
    a mask. They are stacked: a predicate chained through the tensors is inlined again into every
    update by XLA. False alarm: finite numbers whose sum exceeds 3.4e38.

    Args:
        tensors: Of any shapes and float dtypes; those of 16 bits are summed in float32.
        absolute: Whether to sum magnitudes. Then infs of both signs give an inf, and a nan comes
            of a nan only. Free where a compiler fuses it.

    Returns:
        float32 (float64 if one of them is), shape (number of tensors,).

    >>> sums = sums_of([ops.array([1.0, 2.0]), None, ops.array([np.inf, -np.inf])], True)
    >>> [float(each) for each in sums]
    [3.0, 0.0, inf]
    """
    present = [t for t in tensors if t is not None]
    doubles = any(standardize_dtype(t.dtype) in ("float64", "complex128") for t in present)
    wide = "float64" if doubles else "float32"
    sums = iter(
        [
            ops.cast(ops.sum(ops.abs(t) if absolute or _is_complex(t) else t), wide)
            for t in map(widened, present)
        ]
    )
    zero = ops.zeros((), wide)
    return ops.stack([zero if t is None else next(sums) for t in tensors])


def _is_complex(tensor: Any) -> bool:
    return "complex" in standardize_dtype(tensor.dtype)


def finite_each(tensors: Sequence[Any]) -> Any:
    """Returns of each tensor whether no element is inf or nan; True for None.

    Returns:
        bool, shape (number of tensors,).

    >>> [bool(each) for each in finite_each([ops.array([1.0, 2.0]), None, ops.array([np.inf])])]
    [True, True, False]
    """
    return ops.isfinite(sums_of(tensors)) if len(tensors) else ops.ones((0,), "bool")


def nonfinite_kind(tensors: Sequence[Any]) -> Any:
    """Returns 2 if there is a nan among the elements, else 1: int32, shape ().

    For what is not finite; not for every step, as it reads each tensor once more.

    >>> [int(nonfinite_kind([ops.array(x)])) for x in ([np.inf, -np.inf], [np.inf, np.nan])]
    [1, 2]
    """
    nans = [ops.any(ops.isnan(widened(t))) for t in tensors if t is not None]
    return ops.cast(ops.any(ops.stack(nans)), "int32") + 1
