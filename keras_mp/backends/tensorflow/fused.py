"""TensorFlow's fused kernels, whose rules are those of Keras, in one `tf.cond` per step."""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_mp.array_types import Gradient, Gradients, Optimizer, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common import fused_rules
from keras_mp.backends.common.numerics import StepResult, Update
from keras_mp.backends.common.optimizers import overwrites_with_gradient, path
from keras_mp.backends.tensorflow import gating, windows as windows_tensorflow
from keras_mp.backends.tensorflow.backend import after, check_gradients, unscale
from keras_mp.settings import Settings

# For tensors with that many elements a kernel is slower than Keras' rule on several cores: it
# splits each tensor between its threads, whatever its size. benchmarks/step.py has some.
_SLOWER = range(2**13, 3 * 2**14)
_CORES = os.cpu_count() or 1
_RULES = ("Adam", "AdamW", "SGD", "Adagrad", "RMSprop")  # those with a kernel


@tf.autograph.experimental.do_not_convert
def fallback(
    optimizer: Optimizer, gradients: Gradients, variables: Sequence[Variable]
) -> str | None:
    """Returns why a step with these gradients is not fused, or None."""
    if (reason := fused_rules.option_fallback(optimizer)) is not None:
        return reason
    if (rule := fused_rules.rule_of(optimizer)) not in _RULES:
        return f"TensorFlow has no fused kernel for {rule}"
    if getattr(optimizer, "amsgrad", False):
        return "TensorFlow has no fused kernel of amsgrad"
    if gating.under_xla():
        return fused_rules.XLA
    if tf.distribute.has_strategy():
        return f"under {type(tf.distribute.get_strategy()).__name__} Keras updates the replicas"
    for gradient, variable in zip(gradients, variables, strict=True):
        if (reason := _variable_problem(variable)) is not None:
            return f"{path(variable)} {reason}"
        if isinstance(gradient, tf.IndexedSlices):
            return f"the gradient of {path(variable)} is sparse"
        if gradient is not None and not gradient.dtype.is_floating:
            return f"the gradient of {path(variable)} is of {gradient.dtype.name}"
        # Kernels refuse shapes that the default path broadcasts; an unknown shape may be one.
        if gradient is not None and gradient.shape != (shape := _value(variable).shape):
            return f"the gradient of {path(variable)} has the shape {gradient.shape}, not {shape}"
    return None


def _variable_problem(variable: Variable) -> str | None:
    value = _value(variable)
    # Subclasses, and objects that contain other variables, are recognized by name.
    if type(value).__name__ != "ResourceVariable":
        return f"is a {type(value).__name__}, which kernels do not support"
    if value.dtype != tf.float32:
        return f"is of {value.dtype.name}, not float32"
    if overwrites_with_gradient(variable):
        return "takes its gradient as its new value (float8)"
    return None


def _value(variable: Variable) -> Any:
    return getattr(variable, "value", variable)


@tf.autograph.experimental.do_not_convert
def apply(update: Update, settings: Settings) -> StepResult | str:
    """Takes a step with the divided gradients, or returns why it cannot be fused."""
    optimizer, gradients, variables, scale, _ = update
    reason: str | None = fallback(optimizer, gradients, variables)
    if reason is not None:
        return reason
    always = settings.skip_nonfinite and settings.count_skipped_steps

    def divided(gradient: Gradient) -> Any:
        ready = gradient if scale is None else unscale([gradient], scale, [False])[0]
        return tf.cast(ready, tf.float32)

    def step() -> None:
        dense, taken = keras_hooks.without_empty(optimizer, gradients, variables)
        _step(optimizer, dense, taken, divided)
        if not always:
            keras_hooks.step_counter(optimizer).assign_add(1)

    if not settings.skip_nonfinite:
        with after(gradients):
            step()
        return StepResult(True, None, None)
    result = check_gradients(update)
    tf.cond(result.finite, step, lambda: None)
    if always:
        with after([result.finite]):
            keras_hooks.step_counter(optimizer).assign_add(1)
    return result


def _step(
    optimizer: Optimizer,
    gradients: list[Gradient],
    variables: list[Variable],
    divided: Callable[[Gradient], Any],
) -> None:
    rate = tf.cast(tf.convert_to_tensor(optimizer.learning_rate), tf.float32)
    if optimizer.weight_decay is not None:
        decay = rate * optimizer.weight_decay
        for variable in variables:
            value = _value(variable)
            tf.raw_ops.ResourceApplyGradientDescent(var=value.handle, alpha=decay, delta=value)
    kernel, slots = _kernel(optimizer, rate)
    window = windows_tensorflow.Window()
    for gradient, variable in zip(gradients, variables, strict=True):
        i = keras_hooks.variable_index(optimizer, variable)
        handles = {name: of_all[i].value.handle for name, of_all in slots.items()}
        with window.opened():
            gradient = divided(gradient)
        value = _value(variable)
        if _takes_longer(value):
            optimizer.update_step(gradient, value, rate)
            window.updates.append(windows_tensorflow.writes(value))
        else:
            window.updates.append([kernel(var=value.handle, grad=gradient, **handles)])
    for variable in variables:
        if variable.constraint is not None:
            variable.assign(variable.constraint(variable))


def _takes_longer(value: Any) -> bool:
    """Returns whether the kernel is slower for a `tf.Variable` than Keras' rule."""
    return _CORES > 1 and "GPU" not in value.device and value.shape.num_elements() in _SLOWER


def _kernel(optimizer: Optimizer, rate: Any) -> tuple[Callable[..., Any], dict[str, list[Any]]]:
    """Returns the kernel, and the slots of all variables by the names of its arguments."""
    ops, partial = tf.raw_ops, functools.partial
    # An integer (the beta_1=0 of GANs) or a NumPy number would become a tensor of its own dtype.
    constant = partial(tf.constant, dtype=tf.float32)
    slots = keras_hooks.slots_of(optimizer)
    match fused_rules.rule_of(optimizer):
        case "Adam" | "AdamW":
            betas = {"beta1": constant(optimizer.beta_1), "beta2": constant(optimizer.beta_2)}
            number = tf.cast(keras_hooks.step_counter(optimizer).value + 1, tf.float32)
            powers = {f"{name}_power": beta**number for name, beta in betas.items()}
            epsilon = constant(optimizer.epsilon)
            kernel = partial(ops.ResourceApplyAdam, lr=rate, epsilon=epsilon, **betas, **powers)
            return kernel, {"m": slots.momentums, "v": slots.velocities}
        case "SGD" if optimizer.momentum:
            kernel = partial(
                ops.ResourceApplyKerasMomentum,
                lr=rate,
                momentum=constant(optimizer.momentum),
                use_nesterov=optimizer.nesterov,
            )
            return kernel, {"accum": optimizer.momentums}
        case "SGD":
            return lambda var, grad: ops.ResourceApplyGradientDescent(
                var=var, alpha=rate, delta=grad
            ), {}
        case "Adagrad":
            epsilon = constant(fused_rules.adagrad_epsilon(optimizer))
            kernel = partial(ops.ResourceApplyAdagradV2, lr=rate, epsilon=epsilon)
            return kernel, {"accum": slots.accumulators}
    kernel = partial(
        ops.ResourceApplyRMSProp,
        lr=rate,
        rho=constant(optimizer.rho),
        momentum=constant(optimizer.momentum),
        epsilon=constant(optimizer.epsilon),
    )
    return kernel, {"ms": slots.velocities, "mom": slots.momentums}
