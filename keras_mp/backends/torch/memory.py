"""PyTorch: memory of tensors. Kernels that write several at once do not check for overlaps."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_mp.array_types import Tensor, Variable
from keras_mp.backends import keras_hooks


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
