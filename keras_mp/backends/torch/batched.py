"""PyTorch: Keras' own rules, batch by batch, so that copies stay in the processor's cache.

Keras passes all variables to each kernel at once. Intermediate results are then as large as the
model: allocating that memory takes longer than computing. In batches the same kernels write the
same bits, and gradients are divided on the way, batch by batch. Kernels that write several tensors
do not check whether these overlap: `are_apart` does.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from keras_mp.array_types import Gradient, Gradients, Optimizer, Tensor, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.optimizers import (
    forwards_gradients,
    overwrites_with_gradient,
    updated_variables,
    with_method,
)

_BATCH = 2**19  # elements: with slots and copies a dozen MB
HALVES = (torch.float16, torch.bfloat16)
_KINDS = {torch.Tensor, torch.nn.Parameter}
_DTYPES = {torch.float32, *HALVES}
# Classes of `keras.optimizers` that treat each variable separately (Nadam updates a shared number).
_RULES = ("Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "Lion", "RMSprop", "SGD")


def cut(tensors: Sequence[Tensor], elements: int) -> Iterator[list[int]]:
    """Yields indices of `tensors` in batches of that many elements, or of one tensor.

    >>> list(cut([torch.ones(4), torch.ones(5), torch.ones(2), torch.ones(20)], 9))
    [[0, 1], [2], [3]]
    """
    places: list[int] = []
    left = elements
    for i, tensor in enumerate(tensors):
        if places and tensor.numel() > left:
            yield places
            places, left = [], elements
        places.append(i)
        left -= tensor.numel()
    if places:
        yield places


def is_host(device: Any) -> bool:
    """Returns whether Python reads from `device` without a wait.

    >>> is_host(torch.device("cpu"))
    True
    """
    return bool(device.type == "cpu")


def takes(
    optimizer: Optimizer, gradients: Sequence[Gradient], variables: Sequence[Variable]
) -> bool:
    """Returns whether `apply` takes the same step as `optimizer.apply` with divided gradients."""
    if type(optimizer).__name__ not in _RULES or not forwards_gradients(optimizer):
        return False
    values = [variable.value for variable in variables]
    tensors = [*values, *(gradient for gradient in gradients if gradient is not None)]
    if not {*map(type, tensors)} <= _KINDS or not all(is_host(each.device) for each in tensors):
        return False
    given = tensors[len(values) :]
    dtypes = {gradient.dtype for gradient in given}
    updated = {value.dtype for value in values}
    return (
        len({*map(id, values)}) == len(values)
        # The rule computes in the dtype of the first variable that it gets.
        and len(updated) == 1
        # Casting a gradient to the dtype of its variable does not overflow.
        and dtypes <= _DTYPES
        and (updated == {torch.float32} or dtypes <= updated)
        and all(gradient.layout == torch.strided for gradient in given)
        and not any(map(overwrites_with_gradient, variables))
        # A gradient that is divided late is read after others have been written.
        and are_apart(tensors_of(updated_variables(optimizer, variables)), given)
    )


def are_finite(gradients: Gradients, scale: Tensor) -> bool:
    """Returns True only if all of `gradients / scale` are finite; may miss very large ones.

    Args:
        gradients: Tensors or None.
        scale: float32, shape (); None for 1.
    """
    if scale is not None and not scale >= 1:
        return False
    present = [gradient for gradient in gradients if gradient is not None]
    norms: list[Any] = []
    for places in cut(present, _BATCH):
        norms += _norms([present[i] for i in places])
    return not norms or math.isfinite(torch.amax(torch.stack(norms)))


def _norms(gradients: list[Any]) -> list[Any]:
    """Returns float32 norms, without copies of 16-bit tensors."""
    if any(gradient.dtype in HALVES for gradient in gradients):
        norm = functools.partial(torch.linalg.vector_norm, dtype=torch.float32)
        return [norm(gradient) for gradient in gradients]
    return list(torch._foreach_norm(gradients, 2))


def apply(
    optimizer: Optimizer, gradients: list[Gradient], variables: list[Variable], scale: Tensor
) -> None:
    """Applies `gradients / scale`, finite or not, if `takes` is true for them.

    Args:
        optimizer: Keras' own.
        gradients: In the order of `variables`; not changed.
        variables: Known to `optimizer`.
        scale: float32, shape (); None for 1.
    """
    rule = optimizer._parallel_update_step

    def in_batches(gradients: list[Any], variables: list[Variable], rate: Any) -> None:
        for places in cut(gradients, _BATCH):
            given = [gradients[i] for i in places]
            if scale is not None:
                given = torch._foreach_div([gradient.float() for gradient in given], scale)
            rule(given, [variables[i] for i in places], rate)

    with with_method(optimizer, "_parallel_update_step", in_batches):
        optimizer.apply(gradients, variables)


def tensors_of(variables: Sequence[Variable]) -> list[Any]:
    """Returns the tensors of Keras variables that have one now."""
    return [value for value in map(keras_hooks.stored, variables) if value is not None]


def are_apart(written: Sequence[Tensor], read: Sequence[Tensor] = ()) -> bool:
    """Returns whether no tensor of `written` shares memory with another tensor of either list.

    Args:
        written: Strided tensors with memory (those on the meta device have none).
        read: More tensors, which may share memory with each other.

    >>> import torch
    >>> row = torch.arange(4.0)
    >>> are_apart([row[:2], row[2:]]), are_apart([row[:3]], [row[2:]])
    (True, False)
    >>> are_apart([torch.ones(2)], [row, row])
    True
    """
    tensors = [*written, *read]
    starts = np.asarray([tensor.data_ptr() for tensor in tensors], "int64")
    ends = starts + [
        tensor.nbytes if tensor.is_contiguous() else _extent(tensor) for tensor in tensors
    ]
    order = np.argsort(starts, kind="stable")
    order = order[starts[order] < ends[order]]
    is_written = order < len(written)
    starts, ends = starts[order], ends[order]
    of_all = np.maximum.accumulate(ends)[:-1]
    of_written = np.maximum.accumulate(np.where(is_written, ends, 0))[:-1]
    before = np.where(is_written[1:], of_all, of_written)
    return not np.any(starts[1:] < before)


def _extent(tensor: Any) -> int:
    """Returns the bytes from a tensor's first element to its last, gaps included."""
    if not tensor.numel():
        return 0
    steps = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int((steps + 1) * tensor.element_size())
