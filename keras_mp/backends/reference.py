"""A step in plain keras.ops: what the fast paths of the backends are held against, bit for bit.

`KERAS_MP_FAST_PATHS=0` in the environment takes it in their place, to find out whether one of them
is to blame; so do tests. It divides, checks with `all(isfinite(x))`, applies, and puts the old
values back. Not for several replicas of `tf.distribute`, nor for tensors cut over processes.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from keras import ops

from keras_mp import backends
from keras_mp.array_types import Gradient, Optimizer, Tensor, Variable
from keras_mp.backends.numerics import StepResult, cast_to_variable_dtype, upcast
from keras_mp.backends.optimizers import updated_variables
from keras_mp.backends.protocol import Backend

_taken = [os.environ.get("KERAS_MP_FAST_PATHS", "1") == "0"]


@contextlib.contextmanager
def taken(wanted: bool = True) -> Iterator[None]:
    """Has steps that are taken or traced in this scope go the plain way, or not."""
    _taken.append(wanted)
    try:
        yield
    finally:
        _taken.pop()


def is_taken() -> bool:
    """Returns whether steps go the plain way.

    >>> with taken():
    ...     is_taken()
    True
    """
    return _taken[-1]


def apply_if_finite(
    optimizer: Optimizer,
    gradients: list[Gradient],
    variables: list[Variable],
    scale: Tensor,
    skip_unscale: Sequence[bool],
    tell_each: bool,
) -> StepResult:
    """Applies `gradients` divided by `scale` if they are finite, else changes nothing.

    Args:
        optimizer: The inner optimizer.
        gradients: Of the variables; tensors, sparse ones, None.
        variables: In the same order.
        scale: float32, shape (); None if the gradients are not scaled.
        skip_unscale: Which ones are not divided.
        tell_each: Whether `each` of the result is looked at; it is told anyway.
    """
    backend = backends.current()
    ready = [
        g if g is None or scale is None or keep else _divided(backend, g, scale)
        for g, keep in zip(gradients, skip_unscale, strict=True)
    ]
    dense = [
        None if g is None else backend.to_dense_gradient(g, v)
        for g, v in zip(ready, variables, strict=True)
    ]
    applied = [
        None if g is None else upcast(ops.abs(cast_to_variable_dtype(g, v)))
        for g, v in zip(dense, variables, strict=True)
    ]
    true, false = ops.ones((), "bool"), ops.zeros((), "bool")
    each = ops.stack([true if g is None else ops.all(ops.isfinite(g)) for g in applied])
    nans = ops.stack([false if g is None else ops.any(ops.isnan(g)) for g in applied])
    finite = ops.all(each)
    state = updated_variables(optimizer, variables)
    before = [ops.copy(backend.read(variable)) for variable in state]
    backend.apply(optimizer, ready, variables)
    for variable, value in zip(state, before, strict=True):
        variable.assign(ops.where(finite, backend.read(variable), value))
    kind = ops.where(finite, 0, ops.where(ops.any(nans), 2, 1))
    return StepResult(finite, each, ops.cast(kind, "int32"))


def _divided(backend: Backend, gradient: Gradient, scale: Tensor) -> Any:
    if not ops.is_tensor(gradient) or getattr(gradient, "is_sparse", False):
        return backend.unscale([gradient], scale, [False])[0]
    gradient = upcast(gradient)
    return ops.divide(gradient, ops.cast(scale, gradient.dtype))
