"""PyTorch: foreach kernels; an `if` (one host sync) when eager, gated state when compiled."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch

from keras_mp.backends.numerics import (
    divided_each,
    finite_sums,
    narrowed,
    nonzero_rows,
    widened,
)


def read(variable: Any) -> Any:
    """Returns the value of `variable` as a tensor, sharing memory with it."""
    return variable.value.detach()


def unscale(gradients: Sequence[Any], scale: Any, raw: Sequence[bool]) -> list[Any]:
    """Returns `gradients` divided by `scale`; None, and those marked `raw`, as they are.

    The caller's gradients are left alone: this allocates.
    """
    dense = [
        i
        for i, (gradient, keep) in enumerate(zip(gradients, raw, strict=True))
        if not (gradient is None or keep or gradient.is_sparse)
    ]
    out = divided_each(gradients, raw, lambda g: widened(g) / scale if g.is_sparse else g)
    if dense:
        divided = torch._foreach_div([widened(gradients[i]) for i in dense], scale)
        for i, gradient in zip(dense, divided, strict=True):
            out[i] = gradient
    return out


def all_finite(gradients: Sequence[Any]) -> Any:
    """Returns a bool of shape (): no inf and no nan in `gradients`."""
    return finite_sums(
        [
            gradient.coalesce().values() if gradient.is_sparse else gradient
            for gradient in gradients
            if gradient is not None
        ]
    )


def merged(gradients: Sequence[Any]) -> list[Any]:
    """Returns `gradients`: there is no row twice in a dense one."""
    return list(gradients)


def densified(gradient: Any, variable: Any) -> Any:
    """Returns a sparse gradient as a dense tensor, rows named twice summed; others as they are."""
    return gradient.to_dense() if gradient.is_sparse else gradient


def rows_held(gradient: Any, variable: Any) -> Any:
    """Returns a bool of shape (rows, 1, 1, ...): the rows with an element that is not zero."""
    return nonzero_rows(densified(gradient, variable))


def apply_if_finite(
    optimizer: Any,
    gradients: list[Any],
    variables: list[Any],
    unscaled: Callable[[list[Any]], list[Any]],
) -> Any:
    """Applies `unscaled(gradients)` if they are finite, else changes nothing; returns which.

    Under `torch.compile` an `if` on a tensor would break the graph, so the step runs on and the
    old values are chosen afterwards; the copies fuse away there.
    """
    gradients = unscaled(gradients)
    finite = all_finite(list(map(narrowed, gradients, variables)))
    with torch.no_grad():
        if not is_compiling():
            if finite:
                optimizer.apply(gradients, variables)
            return finite
        touched = (*variables, *optimizer._trainable_variables, *optimizer.variables)
        state = {id(variable): variable for variable in touched}
        before = [(variable, variable.value.clone()) for variable in state.values()]
        optimizer.apply(gradients, variables)
        for variable, value in before:
            variable.value.copy_(torch.where(finite, variable.value, value))
    return finite


def stateless_values(values: Sequence[Any]) -> list[Any]:
    """Returns copies of `values`: Keras' torch optimizers update tensors in place."""
    return [torch.clone(keras.ops.convert_to_tensor(value)).detach() for value in values]


def gradients(loss: Callable[[], Any], variables: list[Any]) -> list[Any]:
    """Returns the gradients of `loss()` with respect to `variables`."""
    frozen = [variable.path for variable in variables if not variable.value.requires_grad]
    if frozen:
        raise ValueError(f"Not trainable, so there is no gradient: {', '.join(frozen)}.")
    with torch.enable_grad():
        total = keras.ops.sum(loss())
    if not total.requires_grad:
        return [None] * len(variables)
    return list(
        torch.autograd.grad(total, [variable.value for variable in variables], allow_unused=True)
    )


def unshare(variables: Sequence[Any]) -> None:
    """Does nothing: assigning copies here."""


def is_compiling() -> bool:
    """Returns whether torch.compile is tracing."""
    compiling: bool = torch.compiler.is_compiling()
    return compiling


def is_baked_in(value: Any) -> bool:
    """Returns False: compiled functions read variables here."""
    return False


def lifted() -> contextlib.AbstractContextManager[None]:
    """Returns a scope in which variables may be created."""
    return contextlib.nullcontext()


def replicas() -> int:
    """Returns 1: each process runs its own step."""
    return 1
