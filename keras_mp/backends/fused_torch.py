"""PyTorch's fused kernels, given numbers with which their rules are those of Keras.

- Adam: the kernel corrects the bias of each moment, and adds epsilon after that; Keras corrects the
  learning rate. At an infinite step there is nothing left to correct, and the learning rate is
  Keras' own, a tensor.
- SGD with momentum: Keras keeps the sum of past updates, `m = momentum * m - lr * g`, the kernel
  that of past gradients, and multiplies it by the learning rate. It is given `-lr * g`, and -1 (as
  `g` and a `grad_scale` of `-1 / lr`).
- Adagrad: see `keras_mp.fused_rules.adagrad_epsilon`.

Whether the gradients are finite stays on a device (`found_inf`), in eager and compiled steps:
Python waits for nothing, and no graph breaks. In the memory of the host it is read, without a wait.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch

from keras_mp import fused_rules
from keras_mp.array_types import Gradient, Gradients, Optimizer, Tensor, Variable
from keras_mp.backends import batched_torch
from keras_mp.backends.numerics import StepResult, cast_to_variable_dtype, upcast
from keras_mp.backends.optimizers import overwrites_with_gradient
from keras_mp.backends.torch import is_compiling
from keras_mp.float_formats import FLOAT32
from keras_mp.settings import Settings

_BATCH = 2**20  # elements
_SMALL = 2.0**-80  # squares of float32 times this, 2**30 of them, have a sum
_LARGEST = FLOAT32.largest * _SMALL
_ENDLESS = 2.0**100  # above any norm of finite numbers

_KERNELS = {
    "Adam": "_fused_adam_",
    "AdamW": "_fused_adam_",
    "SGD": "_fused_sgd_",
    "Adagrad": "_fused_adagrad_",
}
# Those with a tensor as learning rate; others would read it from the device.
_OVERLOADS = {
    name: kernel.tensor_lr
    for name in set(_KERNELS.values())
    if "tensor_lr" in (kernel := getattr(torch.ops.aten, name)).overloads()
}
# Asked here, as torch.compile cannot trace the question.
_DEVICES = {
    name: [
        device
        for device in ("cpu", "cuda")
        if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}.tensor_lr", device.upper())
    ]
    for name in _OVERLOADS
}


def _made_traceable() -> dict[str, Any]:
    """Returns operators that call the kernels: torch.compile cannot trace these by themselves.

    They are told what PyTorch is told of its own: which arguments are written to.
    """
    found = {}
    for name, overload in _OVERLOADS.items():
        schema = str(overload._schema).removeprefix("aten::").replace(".tensor_lr", "")
        _LIBRARY.define(schema)
        _LIBRARY.impl(name, overload, "CompositeExplicitAutograd")
        torch.library.register_fake(f"keras_mp::{name}", lambda *_, **__: None, lib=_LIBRARY)
        found[name] = getattr(torch.ops.keras_mp, name).default
    return found


_LIBRARY = torch.library.Library("keras_mp", "FRAGMENT")
_TRACEABLE = _made_traceable()


def fallback(
    optimizer: Optimizer, gradients: Gradients, variables: Sequence[Variable]
) -> str | None:
    """Returns why a step with these gradients is not fused, or None."""
    rule = fused_rules.rule_of(optimizer)
    if rule not in _KERNELS:
        return f"PyTorch has no fused kernel for {rule}"
    if (reason := fused_rules.option_fallback(optimizer)) is not None:
        return reason
    if not variables:
        return None
    device = variables[0].value.device
    if device.type not in _DEVICES.get(_KERNELS[rule], []):
        return f"this PyTorch has no fused kernel for {rule} on {device.type}"
    for gradient, variable in zip(gradients, variables, strict=True):
        value = variable.value
        if (reason := _of_variable(variable, value, device)) is not None:
            return f"{variable.path} {reason}"
        if gradient is not None and (reason := _of_gradient(gradient, device)) is not None:
            return f"the gradient of {variable.path} {reason}"
    return None


def _of_variable(variable: Variable, value: Tensor, device: Any) -> str | None:
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return f"is a {type(value).__name__}, which kernels do not take"
    if value.dtype != torch.float32:
        return f"is of {str(value.dtype).removeprefix('torch.')}, not float32"
    if value.device != device:
        return f"is on {value.device}, and another variable on {device}"
    if not value.is_contiguous() or not value.numel():
        return "has no elements, or not in the order of its shape"
    if overwrites_with_gradient(variable):
        return "takes its gradient as new value (float8)"
    return None


def _of_gradient(gradient: Gradient, device: Any) -> str | None:
    if gradient.is_sparse:
        return "is sparse"
    if type(gradient) not in (torch.Tensor, torch.nn.Parameter):
        return f"is a {type(gradient).__name__}, which kernels do not take"
    if not gradient.is_floating_point():
        return f"is of {str(gradient.dtype).removeprefix('torch.')}"
    if gradient.device != device:
        return f"is on {gradient.device}, and not on {device}"
    return None


def _values(variables: Sequence[Variable]) -> list[Any]:
    """Returns the tensors of Keras variables."""
    return [variable.value for variable in variables]


def apply(
    optimizer: Optimizer,
    gradients: list[Gradient],
    variables: list[Variable],
    scale: Tensor,
    settings: Settings,
) -> StepResult:
    """Takes a step with `gradients / scale`, for which `fallback` gave no reason."""
    with torch.no_grad():
        dense, taken = optimizer._filter_empty_gradients(gradients, variables)
        values = _values(taken)
        if any(gradient.dtype != torch.float32 for gradient in dense):
            dense, scale = _divided(dense, taken, scale), None
        result, bad = StepResult(True, None, None), None
        if settings.skip_nonfinite:
            present = [gradient is not None for gradient in gradients]
            result, bad = _check(dense, scale, present if settings.diagnose else None)
        _decay(optimizer, values, result.finite)
        _update(optimizer, taken, values, dense, scale, bad)
        _constrain(taken, result.finite)
        always = not settings.skip_nonfinite or settings.count_skipped_steps
        optimizer._iterations.value.add_(1 if always else result.finite)
        return result


def _divided(gradients: Gradients, variables: Sequence[Variable], scale: Tensor) -> list[Any]:
    """Returns `gradients / scale` in float32, to which they are cast after the division."""
    wide = list(map(upcast, gradients))
    new = wide if scale is None else torch._foreach_div(wide, scale)
    return list(map(cast_to_variable_dtype, new, variables))


def _check(
    gradients: Gradients, scale: Tensor, present: Sequence[bool] | None
) -> tuple[StepResult, Any]:
    """Returns what `gradients / scale` are, and the same for kernels: 1 if one is not finite.

    Args:
        gradients: float32.
        scale: float32, shape (); None for 1.
        present: Of which of all gradients to tell whether they are finite: `gradients` are those.
    """
    if batched_torch.is_host(gradients[0].device) and not is_compiling():
        # Reading a number waits for nothing there; squares that overflow are looked at below.
        worst = torch.amax(torch.stack(torch._foreach_norm(gradients, 2)))
        if math.isfinite(worst) and (scale is None or scale >= 1):
            return StepResult(True, None, None), None
    small: list[Any] = []
    for places in batched_torch.cut(gradients, _BATCH):
        small += torch._foreach_norm(torch._foreach_mul([gradients[i] for i in places], _SMALL), 2)
    whole = torch.stack(small)  # inf where an element is, nan where one is, else finite
    worst = torch.amax(whole)
    limit = _constant(_ENDLESS, worst.device)
    if scale is not None:
        # Dividing by less than 1 may overflow: no element is larger than a norm.
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
) -> tuple[Callable[..., Any], list[list[Any]], Any, dict[str, Any]]:
    """Returns a kernel and what it is given: rows of a tensor a variable, a divisor, numbers.

    The rows follow on the gradients, which are to be divided.
    """
    rate = _learning_rate(optimizer, like)
    count = len(optimizer._trainable_variables)
    numbers: dict[str, Any] = {"lr": rate, "weight_decay": 0.0, "maximize": False}
    match fused_rules.rule_of(optimizer):
        case "Adam" | "AdamW":
            step = optimizer._iterations.value + 1
            root = torch.sqrt(1 - torch.pow(float(optimizer.beta_2), step))
            numbers |= {
                "lr": rate * root / (1 - torch.pow(float(optimizer.beta_1), step)),
                "beta1": float(optimizer.beta_1),
                "beta2": float(optimizer.beta_2),
                "eps": float(optimizer.epsilon),
                "amsgrad": bool(optimizer.amsgrad),
            }
            hats = optimizer._velocity_hats if optimizer.amsgrad else []
            rows = [*map(_values, (optimizer._momentums, optimizer._velocities, hats))]
            rows.append([_constant(torch.inf, rate.device)] * count)
            return _overload("_fused_adam_"), rows, scale, numbers
        case "SGD":
            momentum = float(optimizer.momentum)
            if momentum:
                # The kernel divides by the one, as the quotient of both may be above all floats.
                # It writes what it divides back, which must be a copy.
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
            rows = [_values(optimizer.momentums if momentum else [])]
            return _overload("_fused_sgd_"), rows, scale, numbers
    numbers |= {"lr_decay": 0.0, "eps": fused_rules.adagrad_epsilon(optimizer)}
    rows = [_values(optimizer._accumulators), [_constant(1.0, rate.device)] * count]
    return _overload("_fused_adagrad_"), rows, scale, numbers


def _update(
    optimizer: Optimizer,
    variables: list[Variable],
    values: list[Tensor],
    gradients: list[Gradient],
    scale: Tensor,
    bad: Tensor,
) -> None:
    kernel, rows, divisor, numbers = _kernel(optimizer, scale, gradients[0])
    for places in batched_torch.cut(gradients, _BATCH):
        given = [gradients[i] for i in places]
        if divisor is not None:
            given = torch._foreach_div(given, divisor)
        indices = [optimizer._get_variable_index(variables[i]) for i in places]
        kernel(
            [values[i] for i in places],
            [gradient.contiguous() for gradient in given],  # kernels walk through all side by side
            *([row[i] for i in indices] if row else [] for row in rows),
            found_inf=bad,
            **numbers,
        )


def _overload(name: str) -> Any:
    return _TRACEABLE[name] if is_compiling() else _OVERLOADS[name]


def _learning_rate(optimizer: Optimizer, like: Any) -> Any:
    """Returns the learning rate of this step: float32, shape (), on the device of `like`."""
    rate = optimizer._get_current_learning_rate()
    if isinstance(rate, keras.Variable):
        rate = rate.value
    if not isinstance(rate, torch.Tensor):
        return torch.full((), float(rate), device=like.device)
    return rate.to(device=like.device, dtype=torch.float32)


def _constant(value: float, device: Any) -> Any:
    """Returns a number on the device, never to be written to."""
    if is_compiling():
        return torch.full((), value, device=device)
    return _kept(value, device)


@functools.cache
def _kept(value: float, device: Any) -> Any:
    return torch.full((), value, device=device)


def _where(finite: Tensor, new: Any, old: Any) -> Any:
    return new if finite is True else torch.where(finite, new, old)


def _constrain(variables: list[Variable], finite: Tensor) -> None:
    for variable in variables:
        if variable.constraint is not None:
            value = variable.value
            value.copy_(_where(finite, variable.constraint(value.detach()), value))
