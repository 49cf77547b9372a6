"""PyTorch's fused kernels, given numbers with which their rules are those of Keras.

- Adam: the kernel corrects the bias of each moment, and adds epsilon after that; Keras corrects the
  learning rate. At an infinite step there is nothing left to correct, and the learning rate is
  Keras' own, a tensor.
- SGD with momentum: Keras keeps the sum of past updates, `m = momentum * m - lr * g`, the kernel
  that of past gradients, and multiplies it by the learning rate. It is given `-lr * g`, and -1.
- Adagrad: see `keras_mp.fused.adagrad_epsilon`.

Whether the gradients are finite stays on the device (`found_inf`), in eager and compiled steps:
Python waits for nothing, and no graph breaks.
"""

import functools
from collections.abc import Sequence
from typing import Any

import keras
import torch

from keras_mp import fused
from keras_mp.backends.numerics import Outcome, narrowed, widened
from keras_mp.backends.torch import _of_trainer, is_compiling

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


def fallback(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> str | None:
    """Returns why a step with these gradients is not fused, or None."""
    rule = fused.rule_of(optimizer)
    if rule not in _KERNELS:
        return f"PyTorch has no fused kernel for {rule}"
    if (reason := fused.option_fallback(optimizer)) is not None:
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


def _of_variable(variable: Any, value: Any, device: Any) -> str | None:
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return f"is a {type(value).__name__}, which kernels do not take"
    if value.dtype != torch.float32:
        return f"is of {str(value.dtype).removeprefix('torch.')}, not float32"
    if value.device != device:
        return f"is on {value.device}, and another variable on {device}"
    if not value.is_contiguous() or not value.numel():
        return "has no elements, or not in the order of its shape"
    if getattr(variable, "overwrite_with_gradient", False):
        return "takes its gradient as new value (float8)"
    return None


def _of_gradient(gradient: Any, device: Any) -> str | None:
    if gradient.is_sparse:
        return "is sparse"
    if type(gradient) not in (torch.Tensor, torch.nn.Parameter):
        return f"is a {type(gradient).__name__}, which kernels do not take"
    if not gradient.is_floating_point():
        return f"is of {str(gradient.dtype).removeprefix('torch.')}"
    if gradient.device != device:
        return f"is on {gradient.device}, and not on {device}"
    return None


def apply(
    optimizer: Any,
    gradients: list[Any],
    variables: list[Any],
    scale: Any,
    *,
    skip: bool,
    count: bool,
    each: bool,
) -> Outcome:
    """One step with `gradients / scale`, for which `fallback` gave no reason.

    Args:
        optimizer: A built Keras optimizer.
        gradients: One a variable, or None. They are left as they are, unless they are those of
            Keras' own trainer, which nobody else holds.
        variables: The Keras variables.
        scale: float32, shape (); None for 1.
        skip: Whether a step with gradients that are not finite changes nothing.
        count: Whether a skipped step counts in `iterations`.
        each: Whether to tell of each gradient whether it is finite; else None is told.
    """
    with torch.no_grad():
        dense, taken = optimizer._filter_empty_gradients(gradients, variables)
        values = [variable.value for variable in taken]
        momentum = fused.rule_of(optimizer) == "SGD" and bool(optimizer.momentum)
        # A kernel writes what it divided back: with momentum that is no gradient any more.
        ours = scale is not None and not is_compiling() and not momentum
        owned = ours and _of_trainer(gradients, variables, [False] * len(gradients))
        if not owned and (scale is not None or momentum or skip):
            dense = _copies(dense, taken, scale)
            scale = None
        else:
            dense = _laid_out(list(map(narrowed, dense, taken)), values)
        outcome, bad = Outcome(True, None, None), None
        if skip:
            outcome, bad, scale = _checked(dense, gradients, scale, each)
        _decay(optimizer, values, outcome.finite)
        _update(optimizer, taken, values, dense, scale, bad)
        _constrain(taken, outcome.finite)
        optimizer._iterations.value.add_(1 if count else outcome.finite)
        return outcome


def _copies(gradients: Sequence[Any], variables: Sequence[Any], scale: Any) -> list[Any]:
    """Returns `gradients / scale`, in the dtype and layout of the variables, as new tensors."""
    wide = list(map(widened, gradients))
    new = torch._foreach_mul(wide, 1.0) if scale is None else torch._foreach_div(wide, scale)
    values = [variable.value for variable in variables]
    return _laid_out(list(map(narrowed, new, variables)), values)


def _laid_out(gradients: list[Any], values: list[Any]) -> list[Any]:
    # Kernels walk through all memory side by side.
    return [
        g if g.dtype == v.dtype and g.is_contiguous() else g.to(v.dtype).contiguous()
        for g, v in zip(gradients, values, strict=True)
    ]


def _checked(dense: list[Any], given: list[Any], scale: Any, each: bool) -> tuple[Any, Any, Any]:
    """Returns what `dense / scale` are, the same for kernels, and by what to divide `dense` still.

    `dense` are tensors of our own, of which a part of the scale may be taken here. Kernels take
    float32, shape (): 1 if one of them is not finite, else 0.
    """
    one = _constant(1.0, dense[0].device)
    bad, factor, rest = torch.zeros_like(one), one, None
    if scale is not None:
        # No element becomes inf by a divisor of at least 1: that is left to the kernel. And a
        # reciprocal of it could be too small a number.
        factor, rest = (one / scale).clamp(min=1.0), scale.clamp(min=1.0)
    torch._amp_foreach_non_finite_check_and_unscale_(dense, bad, factor)
    # The fastest norm, and exact about nans: a sum of squares is one where an element is.
    norms = torch.stack(torch._foreach_norm(dense, 2))
    kind = (bad + torch.isnan(torch.sum(norms))).int()
    return Outcome(bad == 0, _flags(dense, norms, given) if each else None, kind), bad, rest


def _flags(dense: list[Any], norms: Any, given: list[Any]) -> Any:
    greatest = torch.stack(torch._foreach_max(dense))
    least = torch.stack(torch._foreach_max(torch._foreach_neg(dense)))
    flags = torch.isfinite(greatest) & torch.isfinite(least) & ~torch.isnan(norms)
    rows = iter(flags.unbind())
    true = torch.ones_like(flags[0])
    return torch.stack([true if gradient is None else next(rows) for gradient in given])


def _decay(optimizer: Any, values: list[Any], finite: Any) -> None:
    if optimizer.weight_decay is None:
        return
    factor = 1 - optimizer.weight_decay * _learning_rate(optimizer, values[0])
    torch._foreach_mul_(values, _where(finite, factor, _constant(1.0, factor.device)))


def _update(
    optimizer: Any,
    variables: list[Any],
    values: list[Any],
    gradients: list[Any],
    scale: Any,
    bad: Any,
) -> None:
    def slots(of_all: list[Any]) -> list[Any]:
        return [of_all[optimizer._get_variable_index(variable)].value for variable in variables]

    rate = _learning_rate(optimizer, values[0])
    always: dict[str, Any] = {"weight_decay": 0.0, "maximize": False, "found_inf": bad}
    match fused.rule_of(optimizer):
        case "Adam" | "AdamW":
            step = optimizer._iterations.value + 1
            root = torch.sqrt(1 - torch.pow(float(optimizer.beta_2), step))
            alpha = rate * root / (1 - torch.pow(float(optimizer.beta_1), step))
            _kernel("_fused_adam_")(
                values,
                gradients,
                slots(optimizer._momentums),
                slots(optimizer._velocities),
                slots(optimizer._velocity_hats) if optimizer.amsgrad else [],
                [_constant(torch.inf, rate.device)] * len(values),
                lr=alpha,
                beta1=float(optimizer.beta_1),
                beta2=float(optimizer.beta_2),
                eps=float(optimizer.epsilon),
                amsgrad=bool(optimizer.amsgrad),
                grad_scale=scale,
                **always,
            )
        case "SGD":
            momentum = float(optimizer.momentum)
            if momentum:
                scale = (-1.0 if scale is None else -scale) / rate
                rate = _constant(-1.0, rate.device)
            _kernel("_fused_sgd_")(
                values,
                gradients,
                slots(optimizer.momentums) if momentum else [],
                momentum=momentum,
                lr=rate,
                dampening=0.0,
                nesterov=bool(momentum and optimizer.nesterov),
                is_first_step=False,
                grad_scale=scale,
                **always,
            )
        case "Adagrad":
            _kernel("_fused_adagrad_")(
                values,
                gradients,
                slots(optimizer._accumulators),
                [_constant(1.0, rate.device)] * len(values),
                lr=rate,
                lr_decay=0.0,
                eps=fused.adagrad_epsilon(optimizer),
                grad_scale=scale,
                **always,
            )


def _kernel(name: str) -> Any:
    return _TRACEABLE[name] if is_compiling() else _OVERLOADS[name]


def _learning_rate(optimizer: Any, like: Any) -> Any:
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


def _where(finite: Any, new: Any, old: Any) -> Any:
    return new if finite is True else torch.where(finite, new, old)


def _constrain(variables: list[Any], finite: Any) -> None:
    for variable in variables:
        if variable.constraint is not None:
            value = variable.value
            value.copy_(_where(finite, variable.constraint(value.detach()), value))
