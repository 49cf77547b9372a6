"""Update rules that changed between Keras 2 and Keras 3, as pure functions of tensors.

All tensors of a call have one dtype and, but for scalars, one shape. Nothing is read in Python,
so everything traces. Sources: TF 2.3.4, python/keras/optimizer_v2/*.py, `_resource_apply_dense`,
unchanged up to `keras.optimizers.legacy` of 2.15; but for `rmsprop_2_10` and `lamb`, which say
theirs.
"""

from typing import Any

from keras import ops

Tensor = Any


def rmsprop(
    gradient: Tensor,
    velocity: Tensor,
    average: Tensor | None,
    *,
    rate: Tensor,
    rho: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """RMSprop without momentum: epsilon is added to the root. Keras 3 adds it below the root.

    Args:
        gradient: The gradient.
        velocity: Moving average of the squared gradients.
        average: Moving average of the gradients if centered, else None.
        rate: The learning rate, shape ().
        rho: Discount of both averages.
        epsilon: For numerical stability.

    Returns:
        (step, velocity, average): the step is to be subtracted from the variable.

    >>> step, velocity, _ = rmsprop(
    ...     ops.array([1e-6]), ops.zeros(1), None, rate=1.0, rho=0.75, epsilon=1e-7
    ... )
    >>> round(float(step[0]), 4)  # 1e-6 / (0.5e-6 + 1e-7); Keras 3: 1e-6 / (1e-7 ** 0.5) = 0.0032
    1.6667
    """
    velocity = rho * velocity + (1 - rho) * ops.square(gradient)
    variance = velocity
    if average is not None:
        average = rho * average + (1 - rho) * gradient
        variance = velocity - ops.square(average)
    return rate * gradient / (ops.sqrt(variance) + epsilon), velocity, average


def rmsprop_2_10(
    gradient: Tensor,
    velocity: Tensor,
    average: Tensor | None,
    momentum: Tensor | None,
    *,
    rate: Tensor,
    rho: float,
    momentum_rate: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """RMSprop of `tf.keras.optimizers.experimental` in TF 2.10, and only there.

    The learning rate multiplies the momentum, not what goes into it. Centered, it averages squared
    gradients and takes the square of that from the velocity itself; TF 2.11 mended it.

    Args:
        gradient: The gradient.
        velocity: What is rooted in the denominator.
        average: Moving average of the squared gradients if centered, else None.
        momentum: Momentum of the quotients, None without momentum.
        rate: The learning rate, shape ().
        rho: Discount of the averages.
        momentum_rate: Discount of the momentum.
        epsilon: For numerical stability.

    Returns:
        (step, velocity, average, momentum): the step is to be subtracted from the variable.

    Source: Keras 2.10.0, optimizers/optimizer_experimental/rmsprop.py, `update_step`.

    >>> step, *_ = rmsprop_2_10(
    ...     ops.array([2.0]), ops.zeros(1), None, ops.ones(1),
    ...     rate=0.5, rho=0.75, momentum_rate=0.5, epsilon=0.0,
    ... )
    >>> float(step[0])  # 0.5 * (0.5 * 1 + 2 / 1)
    1.25
    """
    squared = ops.square(gradient)
    velocity = rho * velocity + (1 - rho) * squared
    if average is not None:
        average = rho * average + (1 - rho) * squared
        velocity = velocity - ops.square(average)
    quotient = gradient / (ops.sqrt(velocity) + epsilon)
    if momentum is not None:
        quotient = momentum = momentum_rate * momentum + quotient
    return rate * quotient, velocity, average, momentum


def adagrad(
    gradient: Tensor, accumulator: Tensor, *, rate: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Adagrad: epsilon is added to the root. Keras 3 adds it below the root.

    Args:
        gradient: The gradient.
        accumulator: Sum of the squared gradients.
        rate: The learning rate, shape ().
        epsilon: For numerical stability.

    Returns:
        (step, accumulator): the step is to be subtracted from the variable.

    >>> step, _ = adagrad(ops.array([1e-6]), ops.zeros(1), rate=1.0, epsilon=1e-7)
    >>> round(float(step[0]), 4)  # 1e-6 / (1e-6 + 1e-7); Keras 3: 0.0032
    0.9091
    """
    accumulator = accumulator + ops.square(gradient)
    return rate * gradient / (ops.sqrt(accumulator) + epsilon), accumulator


def nadam_momentum(step: Tensor, *, beta_1: float, schedule_decay: float) -> Tensor:
    """The momentum of Nadam at a step, `beta_1 * (1 - 0.5 * 0.96 ** (schedule_decay * step))`.

    Keras 3 has it with a `schedule_decay` of 1; in Keras 2 it was an argument, 0.004.

    Args:
        step: 1 at the first step, shape ().
        beta_1: What the momentum tends to.
        schedule_decay: How fast.

    >>> round(float(nadam_momentum(ops.array(1.0), beta_1=0.9, schedule_decay=0.004)), 4)
    0.4501
    """
    # In the dtype of `step` throughout: a Python base would be float64 on some backends.
    base = ops.cast(0.96, step.dtype)
    return beta_1 * (1.0 - 0.5 * ops.power(base, schedule_decay * step))


def nadam(
    gradient: Tensor,
    momentum: Tensor,
    velocity: Tensor,
    product: Tensor,
    step: Tensor,
    *,
    rate: Tensor,
    beta_1: float,
    beta_2: float,
    schedule_decay: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Nadam with the momentum schedule of Keras 2.

    Args:
        gradient: The gradient.
        momentum: Moving average of the gradients.
        velocity: Moving average of the squared gradients.
        product: The `nadam_momentum` of every step so far, multiplied, this one's included; shape
            (). A checkpoint of TF 1.15 to 2.15 calls it `momentum_cache`.
        step: 1 at the first step, shape ().
        rate: The learning rate, shape ().
        beta_1: Discount of the momentum.
        beta_2: Discount of the velocity.
        schedule_decay: Of `nadam_momentum`.
        epsilon: For numerical stability.

    Returns:
        (update, momentum, velocity): the update is to be subtracted from the variable.

    Source: TF 2.3.4, python/keras/optimizer_v2/nadam.py; Dozat 2016.

    >>> zeros, one = ops.zeros(1), ops.array(1.0)
    >>> update, m, v = nadam(
    ...     ops.ones(1), zeros, zeros, ops.array(0.5), one,
    ...     rate=one, beta_1=0.5, beta_2=0.5, schedule_decay=0.0, epsilon=0.0,
    ... )
    >>> round(float(update[0]), 4)  # 0.75 * 1 / 0.5 + 0.25 * 0.5 / (1 - 0.125)
    1.6429
    """
    now = nadam_momentum(step, beta_1=beta_1, schedule_decay=schedule_decay)
    following = nadam_momentum(step + 1, beta_1=beta_1, schedule_decay=schedule_decay)
    momentum = beta_1 * momentum + (1 - beta_1) * gradient
    velocity = beta_2 * velocity + (1 - beta_2) * ops.square(gradient)
    unbiased = velocity / (1 - ops.power(ops.cast(beta_2, step.dtype), step))
    direction = (1 - now) * gradient / (1 - product) + following * momentum / (
        1 - product * following
    )
    return rate * direction / (ops.sqrt(unbiased) + epsilon), momentum, velocity


def lamb(
    gradient: Tensor,
    weight: Tensor,
    momentum: Tensor,
    velocity: Tensor,
    step: Tensor,
    *,
    rate: Tensor,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    weight_decay_rate: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """LAMB: Adam's direction and the decay of the weight, both under one trust ratio.

    `keras.optimizers.Lamb` decays the weight beside the ratio; without decay the two agree.

    Args:
        gradient: The gradient.
        weight: The variable.
        momentum: Moving average of the gradients.
        velocity: Moving average of the squared gradients.
        step: 1 at the first step, shape ().
        rate: The learning rate, shape ().
        beta_1: Discount of the momentum.
        beta_2: Discount of the velocity.
        epsilon: For numerical stability.
        weight_decay_rate: What of the weight is added to the direction.

    Returns:
        (update, momentum, velocity): the update is to be subtracted from the variable.

    Source: TensorFlow Addons 0.11.2, optimizers/lamb.py; You et al. 2020.

    >>> update, *_ = lamb(
    ...     ops.ones(1), ops.array([4.0]), ops.zeros(1), ops.zeros(1), ops.array(1.0),
    ...     rate=0.5, beta_1=0.5, beta_2=0.5, epsilon=0.0, weight_decay_rate=0.25,
    ... )
    >>> float(update[0])  # 0.5 * the norm of the weight, 4
    2.0
    """
    momentum = beta_1 * momentum + (1 - beta_1) * gradient
    velocity = beta_2 * velocity + (1 - beta_2) * ops.square(gradient)
    mean = momentum / (1 - ops.power(ops.cast(beta_1, step.dtype), step))
    variance = velocity / (1 - ops.power(ops.cast(beta_2, step.dtype), step))
    direction = mean / (ops.sqrt(variance) + epsilon) + weight_decay_rate * weight
    weight_norm = ops.sqrt(ops.sum(ops.square(weight)))
    norm = ops.sqrt(ops.sum(ops.square(direction)))
    usable = ops.logical_and(weight_norm > 0, norm > 0)
    ratio = ops.where(usable, weight_norm / ops.where(usable, norm, 1), 1)
    return rate * ratio * direction, momentum, velocity
