"""PyTorch: numbers as bits, block by block on a CPU, and in DTensors."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from keras_mp.array_types import Tensor, Variable
from keras_mp.backends.common.numerics import each_whole, signed
from keras_mp.backends.protocol import Elementwise
from keras_mp.backends.torch.distributed import is_distributed, local_part, places, rebuilt

# On a CPU allocating memory costs more than the arithmetic; blocks of this size are reused.
_BLOCK = 2**17


def bitcast(tensor: Tensor, dtype: str) -> Any:
    """Returns the bits of `tensor` as numbers of another dtype with as many bits."""
    return tensor.view(getattr(torch, dtype))


def shifted_right(bits: Tensor, count: int) -> Any:
    """Returns int32 numbers shifted by 1 bit or more, with zeros on the left."""
    return (bits >> count).bitwise_and_((1 << (32 - count)) - 1)


def upper_half(bits: Tensor) -> Any:
    """Returns the upper 16 bits of int32 numbers, which it overwrites: int16."""
    return bits.bitwise_right_shift_(16).to(torch.int16)


def keep_nan(numbers: Tensor, wide: Tensor) -> Any:
    """Returns `numbers`, with nan where `wide` is nan."""
    if _is_eager(wide) and torch.isfinite(wide.sum()):  # no nan
        return numbers
    return torch.where(torch.isnan(wide), float("nan"), numbers)


def elementwise(
    function: Elementwise, *columns: Sequence[Tensor], starts: Sequence[int] = ()
) -> list[Any]:
    """Returns `function(places, *row)` for each row of tensors.

    On a CPU large ones in parts, and small ones as one tensor, for fewer calls; of DTensors the
    shard of this process.
    """
    if torch.compiler.is_compiling():
        return each_whole(function, *columns, starts=starts)
    rows = list(zip(*columns, strict=True))
    first = list(starts) or [0] * len(rows)
    found: list[Any] = [None] * len(rows)
    small: list[int] = []
    numbers = 0
    for i, row in enumerate(rows):
        size = local_part(row[0]).numel()
        if size > _BLOCK or is_distributed(row[0]):
            found[i] = _of_one(function, row, first[i])
            continue
        alike = not small or row[0].device == rows[small[-1]][0].device
        if numbers + size > _BLOCK or not alike:
            _join(function, rows, first, small, found)
            small, numbers = [], 0
        small.append(i)
        numbers += size
    _join(function, rows, first, small, found)
    return found


def _join(
    function: Elementwise,
    rows: list[tuple[Any, ...]],
    starts: list[int],
    chosen: list[int],
    found: list[Any],
) -> None:
    """Puts the result for the chosen rows, passed as one, into `found`."""
    if not chosen:
        return
    tensors = [rows[i][0] for i in chosen]
    sizes, shapes = [tensor.numel() for tensor in tensors], [tensor.shape for tensor in tensors]
    joined = [
        torch.cat([each.detach().reshape(-1) for each in column])
        for column in zip(*(rows[i] for i in chosen), strict=True)
    ]

    def places() -> Any:
        ends = list(itertools.accumulate(sizes, initial=starts[chosen[0]]))
        if ends[:-1] == [starts[i] for i in chosen]:
            return torch.arange(sum(sizes), dtype=torch.int32, device=tensors[0].device) + signed(
                starts[chosen[0]]
            )
        apart = [
            torch.arange(size, dtype=torch.int32) + signed(starts[i])
            for i, size in zip(chosen, sizes, strict=True)
        ]
        return torch.cat(apart).to(tensors[0].device)

    made = function(places, *joined)
    single = not isinstance(made, tuple)
    parts = [
        [part.view(shape) for part, shape in zip(each.split(sizes), shapes, strict=True)]
        for each in ([made] if single else made)
    ]
    for i, row in zip(chosen, zip(*parts, strict=True), strict=True):
        found[i] = row[0] if single else row


def _of_one(function: Elementwise, row: tuple[Any, ...], start: int) -> Any:
    whole = row[0]
    parts = [local_part(each).detach() for each in row]
    size, shape, device = parts[0].numel(), parts[0].shape, parts[0].device
    block = _BLOCK if _is_eager(parts[0]) else size
    flat = [each.reshape(-1) for each in parts]
    cut = places(whole).reshape(-1) if is_distributed(whole) else None
    count = torch.arange(min(block, size), dtype=torch.int32, device=device)
    out: list[Any] = []
    single = False
    for begin in range(0, max(size, 1), max(block, 1)):
        end = min(begin + block, size)

        def here(begin: int = begin, end: int = end) -> Any:
            if cut is not None:
                return cut[begin:end] + signed(start)
            return count[: end - begin] + signed(start + begin)

        made = function(here, *[each[begin:end] for each in flat])
        single = not isinstance(made, tuple)
        blocks = [made] if single else list(made)
        if len(blocks[0]) == size:
            out = blocks
            break
        out = out or [torch.empty(size, dtype=block.dtype) for block in blocks]
        for kept, each in zip(out, blocks, strict=True):
            kept[begin:end] = each
    shaped = [rebuilt(whole, each.view(shape)) for each in out]
    return shaped[0] if single else tuple(shaped)


def assign_each(variables: Sequence[Variable], values: Sequence[Tensor]) -> None:
    """Assigns a value to each variable, in its dtype."""
    targets = [variable.value for variable in variables]
    with torch.no_grad():
        if targets and not any(map(is_distributed, targets)):
            torch._foreach_copy_(targets, list(values))
            return
        for tensor, value in zip(targets, values, strict=True):
            tensor.copy_(value)


def _is_eager(tensor: Tensor) -> bool:
    """Returns whether the values of `tensor` are on a CPU now."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()
