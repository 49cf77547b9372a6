"""PyTorch's fused kernels, with arguments for which their rules are those of Keras.

- Adam: the kernel corrects the bias of each moment, and adds epsilon after that; Keras corrects the
  learning rate. At an infinite step no correction remains, and the learning rate is Keras' own, a
  tensor.
- SGD with momentum: Keras keeps the sum of past updates, `m = momentum * m - lr * g`; the kernel
  keeps that of past gradients, and multiplies it by the learning rate. So it gets `-lr * g`, and -1
  (as `g` and a `grad_scale` of `-1 / lr`).
- Adagrad: see `keras_mp.backends.common.fused_rules.adagrad_epsilon`.

Whether the gradients are finite stays on a device (`found_inf`), in eager and compiled steps:
Python never waits, and no graph breaks. In host memory Python reads it, without a wait.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import torch

from keras_mp.array_types import Gradient, Gradients, Optimizer, Tensor, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common import fused_rules
from keras_mp.backends.common.numerics import StepResult, Update, cast_to_variable_dtype, upcast
from keras_mp.backends.common.optimizers import overwrites_with_gradient
from keras_mp.backends.torch import batched
from keras_mp.backends.torch.batched import are_apart
from keras_mp.backends.torch.steps import is_compiling
from keras_mp.float_formats import FLOAT32
from keras_mp.settings import Settings

_KINDS = {torch.Tensor, torch.nn.Parameter}
_BATCH = 2**20  # elements
_SMALL = 2.0**-80  # 2**30 squares of float32 times this have a finite sum
_LARGEST = FLOAT32.largest * _SMALL
_ENDLESS = 2.0**100  # above any norm of finite numbers

_KERNELS = {
    "Adam": "_fused_adam_",
    "AdamW": "_fused_adam_",
    "SGD": "_fused_sgd_",
    "Adagrad": "_fused_adagrad_",
}
# Kernels that take a tensor as learning rate; others would read it from the device.
_OVERLOADS = {
    name: kernel.tensor_lr
    for name in set(_KERNELS.values())
    if "tensor_lr" in (kernel := getattr(torch.ops.aten, name)).overloads()
}
# Computed here, because torch.compile cannot trace it.
_DEVICES = {
    name: [
        device
        for device in ("cpu", "cuda")
        if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}.tensor_lr", device.upper())
    ]
    for name in _OVERLOADS
}


def _traceable_kernels() -> dict[str, Any]:
    """Returns operators that call the kernels: torch.compile cannot trace the kernels themselves.

    They declare which arguments are written to, as PyTorch's own do.
    """
    kernels = {}
    for name, overload in _OVERLOADS.items():
        schema = str(overload._schema).removeprefix("aten::").replace(".tensor_lr", "")
        _LIBRARY.define(schema)
        _LIBRARY.impl(name, overload, "CompositeExplicitAutograd")
        torch.library.register_fake(f"keras_mp::{name}", lambda *_, **__: None, lib=_LIBRARY)
        kernels[name] = getattr(torch.ops.keras_mp, name).default
    return kernels


_LIBRARY = torch.library.Library("keras_mp", "FRAGMENT")
_TRACEABLE = _traceable_kernels()


class _Arguments(NamedTuple):
    """The tensors that a kernel changes, in the order of the variables.

    `slots`: for each slot argument of the kernel; an empty list if it needs none.
    """

    values: list[Any]
    slots: list[list[Any]]

    def of(self, places: Sequence[int]) -> "_Arguments":
        """Returns the tensors of the variables with these indices."""
        slots = [[row[i] for i in places] if row else [] for row in self.slots]
        return _Arguments([self.values[i] for i in places], slots)


def fallback(
    optimizer: Optimizer, gradients: Gradients, variables: Sequence[Variable]
) -> str | None:
    """Returns why a step with these gradients is not fused, or None."""
    arguments = _arguments(optimizer, gradients, variables)
    return arguments if isinstance(arguments, str) else None


def _arguments(
    optimizer: Optimizer, gradients: Gradients, variables: Sequence[Variable]
) -> _Arguments | str:
    """Returns a kernel's tensors, or why it cannot run.

    Kernels check no shapes: they would write past the end of a shorter tensor.
    """
    rule = fused_rules.rule_of(optimizer)
    if rule not in _KERNELS:
        return f"PyTorch has no fused kernel for {rule}"
    if (reason := fused_rules.option_fallback(optimizer)) is not None:
        return reason
    if not variables:
        return _Arguments([], [])
    values = [variable.value for variable in variables]
    device = values[0].device
    if device.type not in _DEVICES.get(_KERNELS[rule], []):
        return f"this PyTorch has no fused kernel for {rule} on {device.type}"
    shapes = [value.shape for value in values]
    are_fine = _are_supported(values, shapes, device)
    for gradient, variable, value in zip(gradients, variables, values, strict=True):
        if overwrites_with_gradient(variable):
            return f"{variable.path} takes its gradient as its new value (float8)"
        if not are_fine and (reason := _tensor_problem(value, value.shape, device)) is not None:
            return f"{variable.path} {reason}"
        if gradient is None:
            continue
        if (reason := _gradient_problem(gradient, value.shape, device)) is not None:
            return f"the gradient of {variable.path} {reason}"
    places = [keras_hooks.variable_index(optimizer, variable) for variable in variables]
    slots = [[kept[i].value for i in places] if kept else [] for kept in _slots(optimizer)]
    for row in slots:
        if not row or _are_supported(row, shapes, device):
            continue
        for slot, variable, value in zip(row, variables, values, strict=True):
            if (reason := _tensor_problem(slot, value.shape, device)) is not None:
                return f"a slot of {variable.path} {reason}"
    # A compiler finds overlaps by itself, and has no addresses.
    if not is_compiling():
        written = [*values, *itertools.chain.from_iterable(slots)]
        if not are_apart(written, [gradient for gradient in gradients if gradient is not None]):
            return "variables, their slots or gradients share memory"
    return _Arguments(values, slots)


def _slots(optimizer: Optimizer) -> list[Any]:
    """Returns the slots of all variables, a list per slot argument of the kernel."""
    slots = keras_hooks.slots_of(optimizer)
    match fused_rules.rule_of(optimizer):
        case "Adam" | "AdamW":
            hats = slots.velocity_hats if optimizer.amsgrad else []
            return [slots.momentums, slots.velocities, hats]
        case "SGD":
            return [optimizer.momentums if optimizer.momentum else []]
    return [slots.accumulators]


def _are_supported(tensors: Sequence[Tensor], shapes: list[Any], device: Any) -> bool:
    """Returns whether `_tensor_problem` finds no problem: quick for many small tensors."""
    if is_compiling():  # there each check runs once
        return False
    return (
        {type(tensor) for tensor in tensors} <= _KINDS
        and {tensor.dtype for tensor in tensors} == {torch.float32}
        and {tensor.device for tensor in tensors} == {device}
        and [tensor.shape for tensor in tensors] == shapes
        and all(tensor.is_contiguous() and tensor.numel() for tensor in tensors)
    )


def _tensor_problem(value: Tensor, shape: Any, device: Any) -> str | None:
    if type(value) not in _KINDS:
        return f"is a {type(value).__name__}, which kernels do not support"
    if value.dtype != torch.float32:
        return f"is of {_name(value.dtype)}, not float32"
    if value.device != device:
        return f"is on {value.device}, but another variable on {device}"
    if value.shape != shape:
        return f"has the shape {tuple(value.shape)} instead of {tuple(shape)}"
    if not value.is_contiguous() or not value.numel():
        return "has no elements, or is not contiguous"
    return None


def _gradient_problem(gradient: Gradient, shape: Any, device: Any) -> str | None:
    if gradient.layout != torch.strided:
        return "is sparse"
    if type(gradient) not in _KINDS:
        return f"is a {type(gradient).__name__}, which kernels do not support"
    if not gradient.is_floating_point():
        return f"is of {_name(gradient.dtype)}"
    if gradient.device != device:
        return f"is on {gradient.device} instead of {device}"
    if gradient.shape != shape:
        return f"has the shape {tuple(gradient.shape)} instead of {tuple(shape)}"
    return None


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def apply(update: Update, settings: Settings) -> StepResult | str:
    """Takes a step with the divided gradients, or returns why it cannot be fused."""
    optimizer, gradients, variables, scale, _ = update
    arguments = _arguments(optimizer, gradients, variables)
    if isinstance(arguments, str):
        return arguments
    with torch.no_grad():
        dense, taken = keras_hooks.without_empty(optimizer, gradients, variables)
        present = [gradient is not None for gradient in gradients]
        if len(taken) < len(variables):
            arguments = arguments.of([i for i, there in enumerate(present) if there])
        if any(gradient.dtype != torch.float32 for gradient in dense):
            dense, scale = _divided(dense, taken, scale), None
        result, bad = StepResult(True, None, None), None
        if settings.skip_nonfinite:
            result, bad = _check(dense, scale, present if settings.diagnose else None)
        _decay(optimizer, arguments.values, result.finite)
        _update(optimizer, arguments, dense, scale, bad)
        _constrain(taken, result.finite)
        always = not settings.skip_nonfinite or settings.count_skipped_steps
        keras_hooks.step_counter(optimizer).value.add_(1 if always else result.finite)
        return result


def _divided(gradients: Gradients, variables: Sequence[Variable], scale: Tensor) -> list[Any]:
    """Returns `gradients / scale`, cast to float32 after the division."""
    wide = list(map(upcast, gradients))
    new = wide if scale is None else torch._foreach_div(wide, scale)
    return list(map(cast_to_variable_dtype, new, variables))


def _check(
    gradients: Gradients, scale: Tensor, present: Sequence[bool] | None
) -> tuple[StepResult, Any]:
    """Checks `gradients / scale`; returns the same for kernels: 1 if one is not finite.

    Args:
        gradients: float32.
        scale: float32, shape (); None for 1.
        present: Which of all gradients are in `gradients`, for `each` of the result.
    """
    if batched.is_host(gradients[0].device) and not is_compiling():
        # Reading a number does not wait here; squares that overflow are handled below.
        worst = torch.amax(torch.stack(torch._foreach_norm(gradients, 2)))
        if math.isfinite(worst) and (scale is None or scale >= 1):
            return StepResult(True, None, None), None
    small: list[Any] = []
    for places in batched.cut(gradients, _BATCH):
        small += torch._foreach_norm(torch._foreach_mul([gradients[i] for i in places], _SMALL), 2)
    whole = torch.stack(small)  # inf if an element is, nan if one is, else finite
    worst = torch.amax(whole)
    limit = _constant(_ENDLESS, worst.device)
    if scale is not None:
        # Dividing by less than 1 may overflow: no element is larger than the norm.
        limit = torch.where(scale < 1, scale * _LARGEST, limit)
    finite = worst <= limit
    bad = torch.where(finite, *(_constant(x, worst.device) for x in (0.0, 1.0)))
    each = None
    if present is not None:
        rows, true = iter((whole <= limit).unbind()), torch.ones_like(finite)
        each = torch.stack([next(rows) if there else true for there in present])
    return StepResult(finite, each, (bad + torch.isnan(worst)).int()), bad


def _decay(optimizer: Optimizer, values: list[Tensor], finite: Tensor) -> None:
    if optimizer.weight_decay is None:
        return
    factor = 1 - optimizer.weight_decay * _learning_rate(optimizer, values[0])
    torch._foreach_mul_(values, _where(finite, factor, _constant(1.0, factor.device)))


def _kernel(
    optimizer: Optimizer, scale: Tensor, like: Any
) -> tuple[Callable[..., Any], Any, Any, dict[str, Any]]:
    """Returns a kernel and its arguments besides the tensors that it changes.

    These are a step count, if it takes one, a divisor of the gradients, and numbers.
    """
    rate = _learning_rate(optimizer, like)
    numbers: dict[str, Any] = {"lr": rate, "weight_decay": 0.0, "maximize": False}
    match fused_rules.rule_of(optimizer):
        case "Adam" | "AdamW":
            step = keras_hooks.step_counter(optimizer).value + 1
            # Of a whole number PyTorch makes a power in its default dtype.
            one, two = (
                (1 - torch.pow(float(beta), step)).to(torch.float32)
                for beta in (optimizer.beta_1, optimizer.beta_2)
            )
            numbers |= {
                "lr": rate * torch.sqrt(two) / one,
                "beta1": float(optimizer.beta_1),
                "beta2": float(optimizer.beta_2),
                "eps": float(optimizer.epsilon),
                "amsgrad": bool(optimizer.amsgrad),
            }
            return _overload("_fused_adam_"), torch.inf, scale, numbers
        case "SGD":
            momentum = float(optimizer.momentum)
            if momentum:
                # The kernel divides by one of them, because their quotient may overflow. It writes
                # the quotients back, so the gradients must be copies.
                factor = -1.0 / rate
                if scale is None:
                    scale = factor
                else:
                    numbers["grad_scale"] = factor
                numbers["lr"] = _constant(-1.0, rate.device)
            numbers |= {
                "momentum": momentum,
                "dampening": 0.0,
                "nesterov": bool(momentum and optimizer.nesterov),
                "is_first_step": False,
            }
            return _overload("_fused_sgd_"), None, scale, numbers
    numbers |= {"lr_decay": 0.0, "eps": fused_rules.adagrad_epsilon(optimizer)}
    return _overload("_fused_adagrad_"), 1.0, scale, numbers


def _update(
    optimizer: Optimizer,
    arguments: _Arguments,
    gradients: list[Gradient],
    scale: Tensor,
    bad: Tensor,
) -> None:
    kernel, count, divisor, numbers = _kernel(optimizer, scale, gradients[0])
    counts = [] if count is None else [_constant(count, gradients[0].device)]
    for places in batched.cut(gradients, _BATCH):
        given = [gradients[i] for i in places]
        if divisor is not None:
            given = torch._foreach_div(given, divisor)
        values, rows = arguments.of(places)
        kernel(
            values,
            [gradient.contiguous() for gradient in given],  # kernels walk all tensors in parallel
            *rows,
            *([each] * len(places) for each in counts),
            found_inf=bad,
            **numbers,
        )


def _overload(name: str) -> Any:
    return _TRACEABLE[name] if is_compiling() else _OVERLOADS[name]


def _learning_rate(optimizer: Optimizer, like: Any) -> Any:
    """Returns the learning rate of this step: float32, shape (), on the device of `like`."""
    rate = optimizer.learning_rate
    if isinstance(rate, keras.Variable):
        rate = rate.value
    if not isinstance(rate, torch.Tensor):
        return torch.full((), float(rate), dtype=torch.float32, device=like.device)
    return rate.to(device=like.device, dtype=torch.float32)


def _constant(value: float, device: Any) -> Any:
    """Returns a number on the device, which must never be written to."""
    return _new(value, device) if is_compiling() else _kept(value, device)


def _new(value: float, device: Any) -> Any:
    return torch.full((), value, dtype=torch.float32, device=device)


_kept = functools.cache(_new)


def _where(finite: Tensor, new: Any, old: Any) -> Any:
    return new if finite is True else torch.where(finite, new, old)


def _constrain(variables: list[Variable], finite: Tensor) -> None:
    for variable in variables:
        if variable.constraint is not None:
            value = variable.value
            value.copy_(_where(finite, variable.constraint(value.detach()), value))
