"""A step in plain keras.ops: the backends' own implementations must match it, bit for bit.

It divides, checks with `all(isfinite(x))`, applies, and restores the old values. Not for several
replicas of `tf.distribute`, nor for sharded tensors.
"""

import contextlib

from keras import ops

from keras_mp import backends
from keras_mp.backends.common.numerics import StepResult, cast_to_variable_dtype, upcast
from keras_mp.backends.common.optimizers import updated_variables


@contextlib.contextmanager
def taken(wanted=True):
    """A scope in which steps are taken or traced in the plain way."""
    backend = backends.current()
    own = backend.apply_if_finite
    if wanted:
        backend.apply_if_finite = apply_if_finite
    try:
        yield
    finally:
        backend.apply_if_finite = own


def apply_if_finite(update, tell_each):
    """As in the protocol of backends."""
    optimizer, gradients, variables, scale, skip_unscale = update
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


def _divided(backend, gradient, scale):
    if not ops.is_tensor(gradient) or getattr(gradient, "is_sparse", False):
        return backend.unscale([gradient], scale, [False])[0]
    gradient = upcast(gradient)
    return ops.divide(gradient, ops.cast(scale, gradient.dtype))
