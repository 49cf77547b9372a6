"""JAX: the finite check of a step in few kernels, because compiling them delays the first step.

Small gradients of one shape are checked together, by one sum of their magnitudes. Large ones, and
16-bit ones, have a sum each. On CPUs that is a plain sum, which takes three quarters of the time; a
branch computes the sums of magnitudes if it is not finite.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras
from jax.experimental import sparse

from keras_mp.array_types import Gradients, Tensor
from keras_mp.backends.common.numerics import (
    HALVES,
    Update,
    dtype_of_sums,
    overflow_weight,
    real_parts,
    small_magnitudes,
    still_scaled,
    sum_magnitudes,
    tensors_to_check,
)

_SMALL = 2**14  # elements: so that what is written for a group stays in the cache
_TOGETHER = 16


class Check(NamedTuple):
    """Whether gradients divided by the loss scale are finite.

    `finite`: bool, shape (); `each`: bool, shape (number of gradients,), None unless requested;
    `sums`: of magnitudes, inf or nan if a gradient has an inf or a nan.
    """

    finite: Tensor
    each: Any
    sums: Tensor


def check(update: Update, unscaled: Callable[[Any], Any], tell_each: bool) -> Check:
    """Checks the divided gradients.

    Args:
        update: With arrays, or BCOO ones.
        unscaled: Returns a gradient divided by the loss scale.
        tell_each: Whether `each` is needed. Then no gradients are checked together.
    """
    scale, scaled = update.scale, still_scaled(update)
    to_check = functools.partial(tensors_to_check, update, unscaled)
    tensors = leaves(to_check())
    # Several devices lay gradients out differently, and would have to agree on both sums.
    if _is_traced(update.gradients) and jax.device_count() == 1:
        at_first = functools.partial(to_check, at_first=True)
        small, large = _groups(tensors, scaled, 1 if tell_each else _TOGETHER)
        groups = small + [[i] for i in large]
        sums = _sums(tensors, scaled, small, large, to_check, at_first, scale)
    else:
        groups = [[i] for i in range(len(tensors))]
        divides = isinstance(scale, jax.core.Tracer) or (scale is not None and scale < 1)
        sums = sum_magnitudes(tensors, scaled, overflow_weight(scale) if divides else None)
    finite = jnp.isfinite(sums)
    each = None
    if tell_each:
        row = {group[0]: i for i, group in enumerate(groups)}
        rows = [row.get(i, len(groups)) for i in range(len(tensors))]
        each = jnp.append(finite, True)[jnp.array(rows, "int32")]
    return Check(jnp.all(finite), each, sums)


def leaves(gradients: Gradients) -> list[Any]:
    """Returns the arrays of gradients; for BCOO ones those of their elements."""
    return [g.data if isinstance(g, sparse.BCOO) else g for g in gradients]


def _is_traced(gradients: Gradients) -> bool:
    return any(isinstance(each, jax.core.Tracer) for each in leaves(gradients))


def _groups(
    tensors: list[Any], scaled: Sequence[bool], together: int
) -> tuple[list[list[int]], list[int]]:
    """Returns the indices of small tensors that are checked together, and of large ones.

    Args:
        tensors: The tensors to check; None and empty ones are finite, and left out.
        scaled: Which ones are yet to be divided; only equals are checked together.
        together: Maximum number of one shape.
    """
    alike: dict[Any, list[int]] = {}
    large: list[int] = []
    for i, tensor in enumerate(tensors):
        if tensor is None or not tensor.size:
            continue
        if _is_large(tensor):
            large.append(i)
        else:
            alike.setdefault((tensor.shape, tensor.dtype, scaled[i]), []).append(i)
    small = [
        places[k : k + together]
        for places in alike.values()
        for k in range(0, len(places), together)
    ]
    return small, large


def _is_large(tensor: Any) -> bool:
    # For 16 bits XLA for CPUs would write the magnitudes in float32.
    halves = keras.backend.standardize_dtype(tensor.dtype) in HALVES
    return halves or tensor.size > _SMALL


def _sums(
    tensors: list[Any],
    scaled: Sequence[bool],
    small: list[list[int]],
    large: list[int],
    exact: Callable[[], list[Any]],
    at_first: Callable[[], list[Any]],
    scale: Tensor,
) -> Any:
    """Returns a sum of small multiples of magnitudes for each group, and each large tensor.

    Args:
        tensors: The tensors to check.
        scaled: Which ones are yet to be divided.
        small, large: From `_groups`.
        exact: Computes `tensors` again. XLA writes a branch's arguments to memory, but not what is
            computed in the branch.
        at_first: Returns tensors that are finite only if those are, at a scale of 1 or more.
        scale: float32, shape (); None for 1.
    """
    wide, weight = dtype_of_sums(tensors), overflow_weight(scale)

    def sum_of(group: list[int]) -> Any:
        # Broadcast once per group, not for each gradient.
        whole = None
        if weight is not None and scaled[group[0]]:
            whole = jnp.broadcast_to(weight, real_parts(tensors[group[0]]).shape)
        summed = _sum_in_pairs([small_magnitudes(tensors[i], whole) for i in group])
        return jnp.sum(summed).astype(wide)

    def of_large() -> Any:
        there = leaves(exact())
        chosen = [there[i] for i in large]
        return sum_magnitudes(chosen, [scaled[i] for i in large], weight).astype(wide)

    parts = [jnp.stack([sum_of(group) for group in small])] if small else []
    if large:
        there = leaves(at_first())
        parts.append(_where_needed(of_large, [there[i] for i in large], scale, wide))
    return jnp.concatenate(parts) if parts else jnp.zeros(0, wide)


def _sum_in_pairs(tensors: list[Any]) -> Any:
    """Returns the elementwise sum of tensors of one shape, added in pairs.

    XLA moves a transposition past one operation in each pass of its simplification. Kernels'
    gradients are transposed, so 15 chained additions would need 15 passes over the whole program.
    """
    while len(tensors) > 1:
        pairs = [jnp.add(a, b) for a, b in zip(tensors[::2], tensors[1::2], strict=False)]
        tensors = pairs + tensors[2 * len(pairs) :]
    return tensors[0]


def _where_needed(sums: Callable[[], Any], at_first: list[Any], scale: Tensor, dtype: str) -> Any:
    """Returns `sums()`, of `dtype`; on CPUs zeros if `_plain_sums_are_finite` is true.

    A CPU sums numbers in three quarters of the time that their magnitudes take. On other devices a
    branch waits for the device, and only reading the numbers takes time.
    """

    def on_a_cpu() -> Any:
        zeros = jnp.zeros(len(at_first), dtype)
        return jax.lax.cond(_plain_sums_are_finite(at_first, scale), lambda: zeros, sums)

    return jax.lax.platform_dependent(cpu=on_a_cpu, default=sums)


def _plain_sums_are_finite(tensors: list[Any], scale: Tensor) -> Any:
    numbers: dict[Any, list[Any]] = {}
    for tensor in tensors:
        for number in _sum_or_extremes(tensor):
            numbers.setdefault(number.dtype, []).append(number)
    fine = [jnp.all(jnp.isfinite(jnp.stack(each))) for each in numbers.values()]
    if scale is not None:
        fine.append(scale >= 1)
    return functools.reduce(jnp.logical_and, fine, True)


def _sum_or_extremes(tensor: Any) -> tuple[Any, ...]:
    """Returns the sum, or for 16 bits the maximum and minimum, which are read in place.

    XLA for CPUs writes converted values to memory before a reduction: float32, or a mask. Its
    maxima keep nans on JAX, but not on TensorFlow.
    """
    if keras.backend.standardize_dtype(tensor.dtype) in HALVES:
        return jnp.max(tensor), jnp.min(tensor)
    return (jnp.sum(tensor),)
