"""TensorFlow's fused kernels, whose rules are those of Keras, in one `tf.cond` a step."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_mp import fused
from keras_mp.backends.numerics import Outcome, narrowed, root_sums
from keras_mp.backends.tensorflow import unscale


@tf.autograph.experimental.do_not_convert
def fallback(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> str | None:
    """Returns why a step with these gradients is not fused, or None."""
    if (reason := fused.option_fallback(optimizer)) is not None:
        return reason
    if getattr(optimizer, "amsgrad", False):
        return "XLA has no kernel of amsgrad"
    if tf.distribute.has_strategy():
        return f"under {type(tf.distribute.get_strategy()).__name__} Keras updates the replicas"
    for gradient, variable in zip(gradients, variables, strict=True):
        if (reason := _of_variable(variable)) is not None:
            return f"{_path(variable)} {reason}"
        if isinstance(gradient, tf.IndexedSlices):
            return f"the gradient of {_path(variable)} is sparse"
        if gradient is not None and not gradient.dtype.is_floating:
            return f"the gradient of {_path(variable)} is of {gradient.dtype.name}"
    return None


def _of_variable(variable: Any) -> str | None:
    value = _value(variable)
    # Its subclasses, and what has other variables in it, are told apart by name.
    if type(value).__name__ != "ResourceVariable":
        return f"is a {type(value).__name__}, which kernels do not take"
    if value.dtype != tf.float32:
        return f"is of {value.dtype.name}, not float32"
    if getattr(variable, "overwrite_with_gradient", False):
        return "takes its gradient as new value (float8)"
    return None


def _value(variable: Any) -> Any:
    return getattr(variable, "value", variable)


def _path(variable: Any) -> str:
    return str(getattr(variable, "path", variable.name))


@tf.autograph.experimental.do_not_convert
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
        gradients: One a variable, or None.
        variables: The Keras variables.
        scale: float32, shape (); None for 1.
        skip: Whether a step with gradients that are not finite changes nothing.
        count: Whether a skipped step counts in `iterations`.
        each: Whether to tell of each gradient whether it is finite; else None is told.
    """
    if scale is not None:
        gradients = unscale(gradients, scale, [False] * len(gradients))
    gradients = list(map(narrowed, gradients, variables))
    given, taken = optimizer._filter_empty_gradients(gradients, variables)
    dense = [tf.cast(gradient, tf.float32) for gradient in given]

    def step() -> None:
        _step(optimizer, dense, taken)
        if not (skip and count):
            optimizer._iterations.assign_add(1)

    if not skip:
        step()
        return Outcome(True, None, None)
    sums = root_sums(gradients if each else dense)
    flags = tf.math.is_finite(sums)
    finite = tf.reduce_all(flags)
    kind = tf.cast(~finite, tf.int32) + tf.cast(tf.reduce_any(tf.math.is_nan(sums)), tf.int32)
    tf.cond(finite, step, lambda: None)
    if count:
        optimizer._iterations.assign_add(1)
    return Outcome(finite, flags if each else None, kind)


def _step(optimizer: Any, gradients: list[Any], variables: list[Any]) -> None:
    rate = tf.cast(tf.convert_to_tensor(optimizer._get_current_learning_rate()), tf.float32)
    if optimizer.weight_decay is not None:
        for variable in variables:
            value = _value(variable)
            decay = rate * optimizer.weight_decay
            tf.raw_ops.ResourceApplyGradientDescent(var=value.handle, alpha=decay, delta=value)
    update = _update(optimizer, rate)
    for gradient, variable in zip(gradients, variables, strict=True):
        update(_value(variable).handle, gradient, optimizer._get_variable_index(variable))
    for variable in variables:
        if variable.constraint is not None:
            variable.assign(variable.constraint(variable))


def _update(optimizer: Any, rate: Any) -> Callable[[Any, Any, int], Any]:
    """Returns a function of the handle of a variable, its gradient and its number."""
    ops = tf.raw_ops
    match fused.rule_of(optimizer):
        case "Adam" | "AdamW":
            beta_1, beta_2 = tf.constant(optimizer.beta_1), tf.constant(optimizer.beta_2)
            number = tf.cast(optimizer._iterations.value + 1, tf.float32)
            powers = {"beta1_power": beta_1**number, "beta2_power": beta_2**number}
            epsilon = tf.constant(optimizer.epsilon)
            return lambda handle, gradient, i: ops.ResourceApplyAdam(
                var=handle,
                m=optimizer._momentums[i].value.handle,
                v=optimizer._velocities[i].value.handle,
                lr=rate,
                beta1=beta_1,
                beta2=beta_2,
                epsilon=epsilon,
                grad=gradient,
                **powers,
            )
        case "SGD" if optimizer.momentum:
            momentum = tf.constant(optimizer.momentum)
            return lambda handle, gradient, i: ops.ResourceApplyKerasMomentum(
                var=handle,
                accum=optimizer.momentums[i].value.handle,
                lr=rate,
                grad=gradient,
                momentum=momentum,
                use_nesterov=optimizer.nesterov,
            )
        case "SGD":
            return lambda handle, gradient, i: ops.ResourceApplyGradientDescent(
                var=handle, alpha=rate, delta=gradient
            )
        case "Adagrad":
            epsilon = tf.constant(fused.adagrad_epsilon(optimizer))
            return lambda handle, gradient, i: ops.ResourceApplyAdagradV2(
                var=handle,
                accum=optimizer._accumulators[i].value.handle,
                lr=rate,
                epsilon=epsilon,
                grad=gradient,
            )
    rho, momentum = tf.constant(optimizer.rho), tf.constant(optimizer.momentum)
    epsilon = tf.constant(optimizer.epsilon)
    return lambda handle, gradient, i: ops.ResourceApplyRMSProp(
        var=handle,
        ms=optimizer._velocities[i].value.handle,
        mom=optimizer._momentums[i].value.handle,
        lr=rate,
        rho=rho,
        momentum=momentum,
        epsilon=epsilon,
        grad=gradient,
    )
