"""The dynamic loss-scale rule, as one pure function.

Knows numbers, not optimizers: `loss_scale_optimizer.py` owns the variables and calls
`next_scale` once a step. Imports keras.ops, and nothing of ours.
"""

from typing import Any

from keras import ops

_LARGEST_COUNT = 2**31 - 1  # the counter is an int32 on JAX and PyTorch


def next_scale(
    scale: Any,
    counter: Any,
    finite: Any,
    *,
    growth_steps: int = 2000,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    min_scale: float = 1.0,
    max_scale: float | None = None,
) -> tuple[Any, Any]:
    """Returns the loss scale and its counter after one training step.

    | gradients of the step                  | scale                                  | counter |
    | -------------------------------------- | -------------------------------------- | ------- |
    | finite, fewer than growth_steps so far | unchanged                              | + 1     |
    | finite, the growth_steps-th in a row   | scale * growth_factor                  | 0       |
    | an inf or a nan among them             | max(scale * backoff_factor, min_scale) | 0       |

    A product that is not finite in float32, or above `max_scale`, is not taken: the scale stays.
    A scale that is already below `min_scale` stays where it is on an overflow. Values are never
    read in Python, so the function traces under jit.

    Args:
        scale: float32, shape (). What the loss is multiplied by; no unit.
        counter: int32 or int64, shape (). Finite steps since `scale` last changed.
        finite: bool, shape (). Whether every gradient of the step is finite.
        growth_steps: Optimizer steps between two growths, at least 1.
        growth_factor: Multiplier of a growth, greater than 1.
        backoff_factor: Multiplier after an overflow, between 0 and 1.
        min_scale: Smallest scale; keras.optimizers.LossScaleOptimizer has none.
        max_scale: Largest scale; None for the largest float32.

    Returns:
        (scale, counter), of the same shapes and dtypes as given.

    Source: Micikevicius et al. 2018, section 3.2; TensorFlow 2.3.4,
    python/training/experimental/loss_scale.py, DynamicLossScale.update. TensorFlow lifts a scale
    below 1 to 1 on an overflow; here an overflow never raises the scale.

    >>> s, n = next_scale(ops.array(4.0), ops.array(1), ops.array(True), growth_steps=2)
    >>> float(s), int(n)
    (8.0, 0)
    >>> s, n = next_scale(ops.array(4.0), ops.array(1), ops.array(False))
    >>> float(s), int(n)
    (2.0, 0)
    """
    counted = counter + 1
    grow = counted >= min(growth_steps, _LARGEST_COUNT)
    grown = scale * growth_factor
    allowed = ops.isfinite(grown)
    if max_scale is not None:
        allowed = ops.logical_and(allowed, grown <= max_scale)
    shrunk = ops.maximum(scale * backoff_factor, ops.minimum(scale, min_scale))
    taken = ops.where(ops.logical_and(grow, allowed), grown, scale)
    restart = ops.logical_or(grow, ops.logical_not(finite))
    return ops.where(finite, taken, shrunk), ops.where(restart, ops.zeros_like(counter), counted)
