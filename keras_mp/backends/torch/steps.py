"""PyTorch: a step is applied or skipped, in one of four ways."""

from typing import Any

import torch

from keras_mp.array_types import Gradient, Optimizer, Tensor, Variable
from keras_mp.backends.common.numerics import HALVES, StepResult, Update, cast_to_variable_dtype
from keras_mp.backends.common.optimizers import updated, updated_variables
from keras_mp.backends.torch import batched
from keras_mp.backends.torch.batched import are_apart, tensors_of
from keras_mp.backends.torch.distributed import cut_slots, is_distributed, reduced
from keras_mp.backends.torch.gradients import any_bad, checked, kind_of, takes_amp, unscale


def is_compiling() -> bool:
    """Returns whether torch.compile is tracing."""
    compiling: bool = torch.compiler.is_compiling()
    return compiling


def apply_if_finite(update: Update, tell_each: bool) -> StepResult:
    """Applies the divided gradients if they are finite, else changes nothing.

    Eager steps read from the device whether they are. There are three ways, from the fastest: the
    gradients are divided a few at a time, in place, or as copies.
    """
    optimizer, gradients, variables, scale, skip_unscale = update
    if any(map(is_distributed, gradients)):
        gradients = list(map(reduced, gradients, variables))
        update = Update(optimizer, gradients, variables, scale, skip_unscale)
        cut_slots(optimizer)
    if is_compiling():
        return _apply_gated(update)
    with torch.no_grad():
        divides_all = not any(skip_unscale)
        if divides_all and batched.takes(optimizer, gradients, variables):
            if batched.are_finite(gradients, scale):
                batched.apply(optimizer, gradients, variables, scale)
                return StepResult(True, None, None)
        elif (
            divides_all
            and scale is not None
            and _are_own(gradients, variables)
            and _are_alone(gradients, variables, optimizer)
        ):
            return _apply_in_place(optimizer, gradients, variables, scale)
        return _apply_copies(update)


def _apply_in_place(
    optimizer: Optimizer, gradients: list[Gradient], variables: list[Variable], scale: Tensor
) -> StepResult:
    """Takes the step with gradients that are unscaled in place, and scaled again afterwards.

    Allocating a copy of them takes ten times as long as a pass over them. The product with
    1 / scale is the exact quotient if the scale is a power of two, and else off by a rounding.
    """
    present = [gradient for gradient in gradients if gradient is not None]
    bad = torch.zeros((), dtype=torch.float32, device=present[0].device)
    torch._amp_foreach_non_finite_check_and_unscale_(present, bad, torch.reciprocal(scale))
    try:
        # The kernel checks its input, before a scale below 1 makes numbers infinite.
        finite = not bad + (scale < 1)
        if not finite:
            magnitudes, each = checked(gradients)
            finite = bool(torch.all(each))
        if finite:
            optimizer.apply(gradients, variables)
            return StepResult(True, None, None)
        return StepResult(False, each, kind_of(magnitudes, gradients))
    finally:
        torch._foreach_mul_(present, scale)


def _apply_copies(update: Update) -> StepResult:
    optimizer, as_given, variables, scale, skip_unscale = update
    gradients = as_given
    if scale is not None:
        gradients = unscale(gradients, scale, skip_unscale)
    targets = updated(optimizer, variables)
    rounded = _rounded_back(as_given, targets)
    applied = gradients if rounded else _as_applied(gradients, targets)
    present = [gradient for gradient in applied if gradient is not None]
    amp = scale is not None and not any(skip_unscale) and takes_amp(present)
    finite = amp and not any_bad(present, scale if rounded else None)
    if not finite:
        applied = _as_applied(gradients, targets)
        magnitudes, each = checked(applied)
        finite = (rounded or not amp) and bool(torch.all(each))
    if finite:
        optimizer.apply(gradients, variables)
        return StepResult(True, None, None)
    return StepResult(False, each, kind_of(magnitudes, applied))


def _apply_gated(update: Update) -> StepResult:
    """Runs the step, and chooses the old values afterwards: an `if` would break the graph.

    `torch.compile` fuses the copies away.
    """
    optimizer, gradients, variables, scale, skip_unscale = update
    ready = gradients if scale is None else unscale(gradients, scale, skip_unscale)
    applied = _as_applied(ready, updated(optimizer, variables))
    magnitudes, each = checked(applied)
    finite = torch.all(each)
    with torch.no_grad():
        state = updated_variables(optimizer, variables)
        before = [(variable, variable.value.clone()) for variable in state]
        optimizer.apply(ready, variables)
        for variable, value in before:
            variable.value.copy_(torch.where(finite, variable.value, value))
    return StepResult(finite, each, torch.where(finite, 0, kind_of(magnitudes, applied)))


def _as_applied(gradients: list[Gradient], variables: list[Variable]) -> list[Any]:
    """Returns gradients cast by `cast_to_variable_dtype`: fast if, as usual, none needs it."""
    single = all(gradient is None or gradient.dtype == torch.float32 for gradient in gradients)
    if single and not any(variable.dtype in HALVES for variable in variables):
        return gradients
    return list(map(cast_to_variable_dtype, gradients, variables))


def _rounded_back(gradients: list[Gradient], variables: list[Variable]) -> bool:
    """Returns whether all are bfloat16: divided by 1 or more, such gradients still fit."""
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
        and takes_amp(present)
        and not any(variable.dtype in HALVES for variable in variables)
        and all(g.is_contiguous() and not g.is_inference() for g in present)
    )


def _are_alone(gradients: list[Gradient], variables: list[Variable], optimizer: Optimizer) -> bool:
    """Returns whether changing gradients in place changes nothing else."""
    present = [gradient for gradient in gradients if gradient is not None]
    return are_apart(present, tensors_of(updated_variables(optimizer, variables)))
