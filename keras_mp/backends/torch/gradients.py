"""PyTorch: unscales and checks gradients, in one process or several."""

from collections.abc import Sequence
from typing import Any

import torch

from keras_mp.array_types import Gradient, Gradients, Tensor, Variable
from keras_mp.backends.common.numerics import (
    finite_each,
    map_unscaled,
    nonfinite_kind,
    nonzero_rows,
    sum_magnitudes,
    upcast,
)
from keras_mp.backends.torch import batched
from keras_mp.backends.torch.distributed import (
    agreed,
    is_distributed,
    local_part,
    rebuilt,
    reduced,
)

_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def unscale(gradients: Gradients, scale: Tensor, skip_unscale: Sequence[bool]) -> list[Any]:
    """Returns `gradients` divided by `scale`; None, and those marked `skip_unscale`, unchanged.

    Does not change the caller's gradients: this allocates.
    """
    gradients = in_known_form(gradients)
    dense = [
        i
        for i, (gradient, keep) in enumerate(zip(gradients, skip_unscale, strict=True))
        if not (gradient is None or keep or gradient.is_sparse)
    ]
    out = map_unscaled(gradients, skip_unscale, lambda g: upcast(g) / scale if g.is_sparse else g)
    if dense:
        wide = [gradients[i] for i in dense]
        if any(gradient.dtype in batched.HALVES for gradient in wide):
            wide = list(map(upcast, wide))
        divided = torch._foreach_div([local_part(gradient) for gradient in wide], scale)
        for i, gradient, local in zip(dense, wide, divided, strict=True):
            out[i] = rebuilt(gradient, local)
    return out


def all_finite(gradients: Gradients) -> Any:
    """Returns a bool of shape (): no inf and no nan in `gradients`.

    Of sharded gradients (DTensors) each process checks its shards; one all-reduce of a scalar per
    mesh dimension combines the answers.
    """
    summed = [None if gradient is None else reduced(gradient) for gradient in gradients]
    return torch.all(agreed(finite_each(_leaves(summed)), "min", summed))


def checked(gradients: Gradients) -> tuple[Any, Any]:
    """Returns `sum_magnitudes` of this process' shards, and whether each gradient is finite.

    Gradients may be whole or sharded, but not partial sums.
    """
    magnitudes = sum_magnitudes(_leaves(gradients))
    return magnitudes, agreed(torch.isfinite(magnitudes), "min", gradients)


def kind_of(magnitudes: Tensor, gradients: Gradients) -> Any:
    """Returns `nonfinite_kind` over all processes."""
    return agreed(nonfinite_kind(magnitudes), "max", gradients)


def _leaves(gradients: Gradients) -> list[Any]:
    return [
        gradient.coalesce().values()
        if gradient is not None and gradient.is_sparse
        else local_part(gradient)
        for gradient in gradients
    ]


def in_known_form(gradients: Gradients, variables: Sequence[Variable] | None = None) -> list[Any]:
    """Returns `gradients`, sparse ones as COO.

    Raises:
        ValueError: One is on the meta device, but its variable is not: PyTorch would do nothing, or
            read uninitialised memory.
    """
    for i, gradient in enumerate(gradients):
        if gradient is None or not gradient.is_meta:
            continue
        if variables is not None and not variables[i].value.is_meta:
            raise ValueError(
                f"The gradient of {variables[i].path} is on the meta device and has no numbers, "
                f"but the variable is on {variables[i].value.device}. Compute both on one device."
            )
    return [
        gradient.to_sparse_coo()
        if gradient is not None and gradient.layout in _COMPRESSED
        else gradient
        for gradient in gradients
    ]


def to_dense_gradient(gradient: Gradient, variable: Variable) -> Any:
    """Returns a sparse gradient as a dense tensor, duplicate rows summed; others unchanged."""
    return gradient.to_dense() if gradient.is_sparse else gradient


def touched_rows(gradient: Gradient, variable: Variable) -> Any:
    """Returns a bool of shape (rows, 1, 1, ...): the rows with a nonzero element."""
    return nonzero_rows(to_dense_gradient(gradient, variable))


def takes_amp(gradients: list[Gradient]) -> bool:
    """Returns whether `any_bad` accepts `gradients`, once they are tensors of our own."""
    return len({gradient.device for gradient in gradients}) == 1 and all(
        gradient.dtype == torch.float32
        and gradient.device.type in ("cpu", "cuda")
        and not gradient.is_sparse
        and not is_distributed(gradient)
        for gradient in gradients
    )


def any_bad(gradients: list[Gradient], scale: Tensor) -> Any:
    """Returns whether an element of our own tensors is not finite, or `scale` is below 1.

    float32, shape (), 0 if not. One call, which writes each element back, times 1.
    """
    like: dict[str, Any] = {"dtype": torch.float32, "device": gradients[0].device}
    bad = torch.zeros((), **like)
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, bad, torch.ones((), **like))
    return bad if scale is None else bad + (scale < 1)
