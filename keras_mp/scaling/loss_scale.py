"""The dynamic loss-scale rule, as pure functions.

Knows numbers, not optimizers: `scaler.py` owns the variables and calls `next_scale` once
a step. Imports keras.ops, and nothing of ours.
"""

from typing import Any

from keras import ops

from keras_mp.array_types import Tensor

LARGEST_SCALE = float.fromhex("0x1.fffffep127")  # of float32
_LARGEST_COUNT = 2**31 - 1  # the counter is an int32 on JAX and PyTorch


def next_scale(
    scale: Tensor,
    counter: Tensor,
    finite: Tensor,
    *,
    growth_steps: int = 2000,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    min_scale: float = 1.0,
    max_scale: float | None = None,
    hysteresis_left: Tensor | int = 1,
) -> tuple[Any, Any]:
    """Returns the loss scale and its counter after one training step.

    | gradients of the step                  | scale                                  | counter |
    | -------------------------------------- | -------------------------------------- | ------- |
    | finite, fewer than growth_steps so far | unchanged                              | + 1     |
    | finite, the growth_steps-th in a row   | scale * growth_factor                  | 0       |
    | an inf or a nan among them             | max(scale * backoff_factor, min_scale) | 0       |

    With a `hysteresis_left` above 1 the scale stays on an overflow, and only the counter restarts.
    The scale also stays if the product is not finite in float32, or above `max_scale`. An overflow
    does not change a scale that is already below `min_scale`. Values are never read in Python, so
    the function traces under jit.

    Args:
        scale: float32, shape (). What the loss is multiplied by; no unit.
        counter: int32 or int64, shape (). Finite steps in a row: since the last overflow, or since
            growth was last due.
        finite: bool, shape (). Whether every gradient of the step is finite. For a Python bool
            only the rows that apply are computed.
        growth_steps: Optimizer steps between two growths, at least 1.
        growth_factor: Multiplier of a growth, greater than 1.
        backoff_factor: Multiplier after an overflow, between 0 and 1.
        min_scale: Smallest scale; keras.optimizers.LossScaleOptimizer has none.
        max_scale: Largest scale; None for the largest float32.
        hysteresis_left: Integer, shape (). How many overflows, this step's included, shrink the
            scale: with 1 an overflow now shrinks it. See `next_hysteresis_left`.

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
    if finite is False:
        return _shrunk(scale, backoff_factor, min_scale, hysteresis_left), ops.zeros_like(counter)
    grow = is_due(counter, growth_steps)
    grown = scale * growth_factor
    allowed = grown <= (LARGEST_SCALE if max_scale is None else max_scale)
    taken = ops.where(ops.logical_and(grow, allowed), grown, scale)
    restart = grow
    if finite is not True:
        taken = ops.where(finite, taken, _shrunk(scale, backoff_factor, min_scale, hysteresis_left))
        restart = ops.logical_or(grow, ops.logical_not(finite))
    return taken, ops.where(restart, ops.zeros_like(counter), counter + 1)


def _shrunk(
    scale: Tensor, backoff_factor: float, min_scale: float, hysteresis_left: Tensor | int
) -> Any:
    shrunk = ops.maximum(scale * backoff_factor, ops.minimum(scale, min_scale))
    if isinstance(hysteresis_left, int):
        return shrunk if hysteresis_left <= 1 else scale
    return ops.where(hysteresis_left <= 1, shrunk, scale)


def next_hysteresis_left(
    left: Tensor, counter: Tensor, finite: Tensor, *, growth_steps: int, hysteresis: int
) -> Any:
    """Returns how many overflows it takes, after this step, until the scale shrinks.

    | gradients of the step      | left                    |
    | -------------------------- | ----------------------- |
    | finite, growth is due      | hysteresis              |
    | finite, growth is not due  | unchanged               |
    | an inf or a nan among them | - 1, but no less than 1 |

    So the scale shrinks at the `hysteresis`-th overflow since growth was last due, and at each
    later one. Growth counts as due even if `max_scale` prevents it.

    Args:
        left: Integer, shape (), as this function returned it; `hysteresis` at the start.
        counter: Integer, shape (). As for `next_scale`, before this step.
        finite: bool, shape (). Whether every gradient of the step is finite.
        growth_steps: Optimizer steps between two growths, at least 1.
        hysteresis: Overflows it takes to shrink the scale, at least 1.

    Returns:
        Integer of the shape and dtype of `left`.

    Source: Megatron-LM, core/optimizer/grad_scaler.py, DynamicGradScaler.update; DeepSpeed,
    runtime/fp16/loss_scaler.py, DynamicLossScaler (`delayed_shift`).

    >>> rule = {"growth_steps": 2, "hysteresis": 2}
    >>> int(next_hysteresis_left(ops.array(2), ops.array(0), ops.array(False), **rule))
    1
    >>> int(next_hysteresis_left(ops.array(1), ops.array(1), ops.array(True), **rule))
    2
    """
    left = ops.minimum(left, hysteresis)
    whole = ops.full_like(left, hysteresis)
    fewer = ops.maximum(left - 1, 1)
    if finite is True:
        return ops.where(is_due(counter, growth_steps), whole, left)
    if finite is False:
        return fewer
    return ops.where(finite, ops.where(is_due(counter, growth_steps), whole, left), fewer)


def is_due(counter: Tensor | int, growth_steps: int) -> Any:
    """Returns whether the scale grows at the next finite step.

    >>> is_due(1998, 2000), is_due(1999, 2000)
    (False, True)
    """
    return counter >= min(growth_steps, _LARGEST_COUNT) - 1
