"""PyTorch: foreach kernels; an `if` (one host sync) when eager, gated state when compiled."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch

from keras_mp.array_types import Gradient, Gradients, Layer, Optimizer, Tensor, Variable
from keras_mp.backends import batched_torch
from keras_mp.backends.bits_torch import (
    assign_each as assign_each,
    bitcast as bitcast,
    elementwise as elementwise,
    keep_nan as keep_nan,
    shifted_right as shifted_right,
    upper_half as upper_half,
)
from keras_mp.backends.distributed_torch import (
    agreed,
    cut_slots as cut_slots,
    is_distributed,
    local_part,
    rebuilt,
    reduced,
    shard_like as shard_like,
)
from keras_mp.backends.memory_torch import are_apart, tensors_of
from keras_mp.backends.numerics import (
    HALVES,
    StepResult,
    cast_to_variable_dtype,
    finite_each,
    map_unscaled,
    nonfinite_kind,
    nonzero_rows,
    sum_magnitudes,
    upcast,
)
from keras_mp.backends.optimizers import updated, updated_variables

_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def read(variable: Variable) -> Any:
    """Returns the value of `variable` as a tensor, sharing memory with it."""
    value = variable.value
    return value.detach() if value.requires_grad else value


def copier() -> Callable[[Variable], Any]:
    """Returns a function that copies the value of a variable."""
    return lambda variable: read(variable).clone()


def unscale(gradients: Gradients, scale: Tensor, skip_unscale: Sequence[bool]) -> list[Any]:
    """Returns `gradients` divided by `scale`; None, and those marked `skip_unscale`, as they are.

    The caller's gradients are left alone: this allocates.
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
        if any(gradient.dtype in batched_torch.HALVES for gradient in wide):
            wide = list(map(upcast, wide))
        divided = torch._foreach_div([local_part(gradient) for gradient in wide], scale)
        for i, gradient, local in zip(dense, wide, divided, strict=True):
            out[i] = rebuilt(gradient, local)
    return out


def all_finite(gradients: Gradients) -> Any:
    """Returns a bool of shape (): no inf and no nan in `gradients`.

    Of gradients that are cut (DTensors) each process looks at its parts; one all-reduce of a
    scalar a dimension of the mesh makes one answer of it.
    """
    summed = [None if gradient is None else reduced(gradient) for gradient in gradients]
    return torch.all(agreed(finite_each(_leaves(summed)), "min", summed))


def _seen(gradients: Gradients) -> tuple[Any, Any]:
    """Returns `sum_magnitudes` of the parts in this process, and whether each gradient is finite.

    Each gradient is whole or cut, but no term of a sum.
    """
    magnitudes = sum_magnitudes(_leaves(gradients))
    return magnitudes, agreed(torch.isfinite(magnitudes), "min", gradients)


def _kind(magnitudes: Tensor, gradients: Gradients) -> Any:
    return agreed(nonfinite_kind(magnitudes), "max", gradients)


def _leaves(gradients: Gradients) -> list[Any]:
    return [
        gradient.coalesce().values()
        if gradient is not None and gradient.is_sparse
        else local_part(gradient)
        for gradient in gradients
    ]


def in_known_form(gradients: Gradients, variables: Sequence[Variable] | None = None) -> list[Any]:
    """Returns `gradients`, of the sparse ones each as COO.

    Raises:
        ValueError: One is on the meta device, and its variable is not: PyTorch would do nothing, or
            take what lies in memory.
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
    """Returns a sparse gradient as a dense tensor, rows named twice summed; others as they are."""
    return gradient.to_dense() if gradient.is_sparse else gradient


def touched_rows(gradient: Gradient, variable: Variable) -> Any:
    """Returns a bool of shape (rows, 1, 1, ...): the rows with an element that is not zero."""
    return nonzero_rows(to_dense_gradient(gradient, variable))


def apply_if_finite(
    optimizer: Optimizer,
    gradients: list[Gradient],
    variables: list[Variable],
    scale: Tensor,
    skip_unscale: Sequence[bool],
    tell_each: bool,
) -> StepResult:
    """Applies `gradients` divided by `scale` if they are finite, else changes nothing.

    Under `torch.compile` an `if` on a tensor would break the graph, so the step runs on and the
    old values are chosen afterwards; the copies fuse away there.
    """
    if any(map(is_distributed, gradients)):
        gradients = list(map(reduced, gradients, variables))
        cut_slots(optimizer)
    if is_compiling():
        return _apply_gated(optimizer, gradients, variables, scale, skip_unscale)
    with torch.no_grad():
        if not any(skip_unscale) and batched_torch.takes(optimizer, gradients, variables):
            if batched_torch.are_finite(gradients, scale):
                batched_torch.apply(optimizer, gradients, variables, scale)
                return StepResult(True, None, None)
        elif (
            scale is not None
            and not any(skip_unscale)
            and _are_own(gradients, variables)
            and _are_alone(gradients, variables, optimizer)
        ):
            return _apply_in_place(optimizer, gradients, variables, scale)
        as_given = gradients
        if scale is not None:
            gradients = unscale(gradients, scale, skip_unscale)
        targets = updated(optimizer, variables)
        rounded = _rounded_back(as_given, targets)
        applied = gradients if rounded else _as_applied(gradients, targets)
        present = [gradient for gradient in applied if gradient is not None]
        amp = scale is not None and not any(skip_unscale) and _takes_amp(present)
        finite = amp and not _any_bad(present, scale if rounded else None)
        if not finite:
            applied = _as_applied(gradients, targets)
            magnitudes, each = _seen(applied)
            finite = (rounded or not amp) and bool(torch.all(each))
        if finite:
            optimizer.apply(gradients, variables)
            return StepResult(True, None, None)
        return StepResult(False, each, _kind(magnitudes, applied))


def _apply_in_place(
    optimizer: Optimizer, gradients: list[Gradient], variables: list[Variable], scale: Tensor
) -> StepResult:
    """Takes the step with gradients that are unscaled where they lie, and scaled again after it.

    A copy of them would be fresh memory, which takes ten times as long as a pass. The product with
    1 / scale is the quotient where the scale is a power of two, and else off by a rounding.
    """
    present = [gradient for gradient in gradients if gradient is not None]
    bad = torch.zeros((), dtype=torch.float32, device=present[0].device)
    torch._amp_foreach_non_finite_check_and_unscale_(present, bad, torch.reciprocal(scale))
    try:
        # The kernel looks at what it reads: what a scale below 1 makes infinite is not among it.
        finite = not bad + (scale < 1)
        if not finite:
            magnitudes, each = _seen(gradients)
            finite = bool(torch.all(each))
        if finite:
            optimizer.apply(gradients, variables)
            return StepResult(True, None, None)
        return StepResult(False, each, _kind(magnitudes, gradients))
    finally:
        torch._foreach_mul_(present, scale)


def _apply_gated(
    optimizer: Optimizer,
    gradients: list[Gradient],
    variables: list[Variable],
    scale: Tensor,
    skip_unscale: Sequence[bool],
) -> StepResult:
    ready = gradients if scale is None else unscale(gradients, scale, skip_unscale)
    applied = _as_applied(ready, updated(optimizer, variables))
    magnitudes, each = _seen(applied)
    finite = torch.all(each)
    with torch.no_grad():
        state = updated_variables(optimizer, variables)
        before = [(variable, variable.value.clone()) for variable in state]
        optimizer.apply(ready, variables)
        for variable, value in before:
            variable.value.copy_(torch.where(finite, variable.value, value))
    return StepResult(finite, each, torch.where(finite, 0, _kind(magnitudes, applied)))


def _as_applied(gradients: list[Gradient], variables: list[Variable]) -> list[Any]:
    """Returns `cast_to_variable_dtype` ones: for 400 at a time, of which most often none is."""
    single = all(gradient is None or gradient.dtype == torch.float32 for gradient in gradients)
    if single and not any(variable.dtype in HALVES for variable in variables):
        return gradients
    return list(map(cast_to_variable_dtype, gradients, variables))


def _rounded_back(gradients: list[Gradient], variables: list[Variable]) -> bool:
    """Returns whether all are of bfloat16: gradients that are divided by 1 or more still fit."""
    given = all(gradient is None or gradient.dtype == torch.bfloat16 for gradient in gradients)
    return given and all(variable.dtype == "bfloat16" for variable in variables)


def _are_own(gradients: list[Gradient], variables: list[Variable]) -> bool:
    """Returns whether all are `.grad`s of float32 variables, which can be changed in place."""
    present = [gradient for gradient in gradients if gradient is not None]
    own = all(
        gradient is None or gradient is variable.value.grad
        for gradient, variable in zip(gradients, variables, strict=True)
    )
    return (
        own
        and len({id(gradient) for gradient in present}) == len(present)
        and _takes_amp(present)
        and not any(variable.dtype in HALVES for variable in variables)
        and all(g.is_contiguous() and not g.is_inference() for g in present)
    )


def _are_alone(gradients: list[Gradient], variables: list[Variable], optimizer: Optimizer) -> bool:
    """Returns whether nothing else is changed where gradients are changed in place."""
    present = [gradient for gradient in gradients if gradient is not None]
    return are_apart(present, tensors_of(updated_variables(optimizer, variables)))


def _takes_amp(gradients: list[Gradient]) -> bool:
    """Returns whether `_any_bad` may look at `gradients`, once they are tensors of our own."""
    return len({gradient.device for gradient in gradients}) == 1 and all(
        gradient.dtype == torch.float32
        and gradient.device.type in ("cpu", "cuda")
        and not gradient.is_sparse
        and not is_distributed(gradient)
        for gradient in gradients
    )


def _any_bad(gradients: list[Gradient], scale: Tensor) -> Any:
    """Returns whether an element of tensors of our own is not finite, or `scale` is below 1.

    float32, shape (), 0 if not. One call, which writes each element back, times 1.
    """
    like: dict[str, Any] = {"dtype": torch.float32, "device": gradients[0].device}
    bad = torch.zeros((), **like)
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, bad, torch.ones((), **like))
    return bad if scale is None else bad + (scale < 1)


def apply(optimizer: Optimizer, gradients: list[Gradient], variables: list[Variable]) -> None:
    """Applies `gradients`, finite or not."""
    if any(map(is_distributed, gradients)):
        cut_slots(optimizer)
    optimizer.apply(gradients, variables)


def values_to_change(values: Sequence[Tensor]) -> list[Any]:
    """Returns copies of `values`: Keras' torch optimizers update tensors in place."""
    return [torch.clone(keras.ops.convert_to_tensor(value)).detach() for value in values]


def gradients(loss: Callable[[], Any], variables: list[Variable]) -> list[Any]:
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


def tape_gradients(
    tape: Any, loss: Tensor | float, scale: Callable[[Any], Any], variables: list[Variable]
) -> None:
    """Returns None: tapes are TensorFlow's."""


def copy_shared_arrays(variables: Sequence[Variable]) -> None:
    """Does nothing: assigning copies here."""


def buffers(layers: Sequence[Layer]) -> list[Any]:
    """Returns the buffers of `layers`, and of modules in them; Keras does not know them."""
    wrapper = keras.layers.TorchModuleWrapper
    found = [
        buffer for layer in layers for buffer in layer.buffers(recurse=isinstance(layer, wrapper))
    ]
    return list({id(buffer): buffer for buffer in found}.values())


def version(variable: Variable) -> Any:
    """Returns what differs once `variable` was assigned to; None where nothing tells that."""
    value = variable.value
    if is_compiling() or value.is_inference():
        return None
    return id(value), value._version


def thread() -> int:
    """Returns 0: a step is of one thread."""
    return 0


def update_tensors(optimizer: Optimizer) -> None:
    """Does nothing: it changes the tensors of variables in place, whose ever they are."""


def is_compiling() -> bool:
    """Returns whether torch.compile is tracing."""
    compiling: bool = torch.compiler.is_compiling()
    return compiling


def is_trace_constant(value: Tensor) -> bool:
    """Returns False: compiled functions read variables here."""
    return False


def is_at_hand(value: Tensor) -> bool:
    """Returns whether Python reads `value` without a wait, and without a break of a graph."""
    return not is_compiling() and batched_torch.is_host(value.device)


def init_scope() -> contextlib.AbstractContextManager[None]:
    """Returns a scope in which variables may be created."""
    return contextlib.nullcontext()


def replicas() -> int:
    """Returns 1: each process runs its own step."""
    return 1


def check_strategy() -> None:
    """Does nothing: `tf.distribute` is TensorFlow's."""
