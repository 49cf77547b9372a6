"""PyTorch: where tensors lie. Kernels that write several at once do not look what overlaps."""

from collections.abc import Sequence
from typing import Any

from keras_mp.array_types import Tensor, Variable


def tensors_of(variables: Sequence[Variable]) -> list[Any]:
    """Returns the tensors of Keras variables, of those that have one now."""
    return [variable._value for variable in variables if variable._value is not None]


def are_apart(written: Sequence[Tensor], read: Sequence[Tensor] = ()) -> bool:
    """Returns whether no tensor of `written` shares memory with another one, of either list.

    Args:
        written: Strided tensors, with memory (of which those on the meta device have none).
        read: More of them; these may share memory with each other.

    >>> import torch
    >>> row = torch.arange(4.0)
    >>> are_apart([row[:2], row[2:]]), are_apart([row[:3]], [row[2:]])
    (True, False)
    >>> are_apart([torch.ones(2)], [row, row])
    True
    """
    spans = [(*_span(tensor), True) for tensor in written]
    spans += [(*_span(tensor), False) for tensor in read]
    spans.sort()
    end_of_all = end_of_written = 0
    for start, end, is_written in spans:
        if start == end:
            continue
        if start < (end_of_all if is_written else end_of_written):
            return False
        end_of_all = max(end_of_all, end)
        if is_written:
            end_of_written = max(end_of_written, end)
    return True


def _span(tensor: Any) -> tuple[int, int]:
    """Returns the addresses of the first byte of a tensor and of the one after its last."""
    start: int = tensor.data_ptr()
    if tensor.is_contiguous():
        return start, start + tensor.nbytes
    if not tensor.numel():
        return start, start
    steps = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (steps + 1) * tensor.element_size()
