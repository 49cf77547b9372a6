"""PyTorch's DTensors: what a process has of a tensor that is cut, and what all agree on."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import torch

from keras_mp.array_types import Gradient, Optimizer, Tensor, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.optimizers import flatten_optimizers


def is_distributed(tensor: Tensor) -> bool:
    """Returns whether `tensor` is a DTensor, without an import that most do not need."""
    return hasattr(tensor, "device_mesh")


def local_part(tensor: Tensor) -> Any:
    """Returns what this process has of `tensor`."""
    return tensor.to_local() if is_distributed(tensor) else tensor


def rebuilt(tensor: Tensor, local: Any) -> Any:
    """Returns what has `local` as its part in this process, and else is as `tensor`."""
    if not is_distributed(tensor):
        return local
    mesh, placements = tensor.device_mesh, tensor.placements
    return type(tensor).from_local(
        local, mesh, placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )


def reduced(gradient: Gradient, variable: Variable = None) -> Any:
    """Returns a gradient whose terms are still in different processes as their sum.

    Finite terms may have a sum that is not. It is laid out as the variable, whole if that is None.
    """
    if not is_distributed(gradient) or not any(p.is_partial() for p in gradient.placements):
        return gradient
    from torch.distributed.tensor import Replicate

    if variable is not None and is_distributed(variable.value):
        return gradient.redistribute(placements=variable.value.placements)
    whole = [Replicate() if p.is_partial() else p for p in gradient.placements]
    return gradient.redistribute(placements=whole)


def agreed(values: Tensor, how: str, tensors: Sequence[Tensor]) -> Any:
    """Returns the least ("min") or greatest ("max") of `values` where parts of `tensors` are.

    One all-reduce for each dimension of a mesh along which something is cut.
    """
    cut: dict[Any, set[int]] = {}
    for tensor in filter(is_distributed, tensors):
        dimensions = [i for i, p in enumerate(tensor.placements) if not p.is_replicate()]
        cut.setdefault(tensor.device_mesh, set()).update(dimensions)
    for mesh, along in cut.items():
        if along:
            from torch.distributed.tensor import DTensor, Partial, Replicate

            everywhere = [Partial(how) if i in along else Replicate() for i in range(mesh.ndim)]
            mine = DTensor.from_local(values.float(), mesh, everywhere, run_check=False)
            values = mine.full_tensor().to(values.dtype)
    return values


def cut_slots(optimizer: Optimizer, weights: Mapping[int, Variable] | None = None) -> None:
    """Lays out what `optimizer` keeps for a variable as the variable is: Keras makes it whole.

    Args:
        optimizer: Built.
        weights: Id of a variable -> the weight that it stands for, whose layout it is to have.
    """
    for each in flatten_optimizers(optimizer):
        variables = keras_hooks.trained_variables(each)
        for name, kept in vars(each).items():
            if name in ("_variables", "_trainable_variables") or not isinstance(kept, list):
                continue
            if len(kept) == len(variables):
                for slot, variable in zip(kept, variables, strict=True):
                    shard_like(slot, (weights or {}).get(id(variable), variable))


def shard_like(kept: Any, variable: Variable) -> None:
    """Lays out the variable `kept` as `variable`; what has no value now stays as it is."""
    if (
        not isinstance(kept, keras.Variable)
        or keras_hooks.stored(kept) is None
        or keras_hooks.stored(variable) is None
    ):
        return
    if not is_distributed(variable.value) or is_distributed(kept.value):
        return
    if tuple(kept.shape) != tuple(variable.shape):
        return
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = variable.value.device_mesh, variable.value.placements
    parts = distribute_tensor(kept.value.detach(), mesh, placements, src_data_rank=None)
    kept._value = torch.nn.Parameter(parts, requires_grad=False)


def places(tensor: Tensor) -> Any:
    """Returns the place of each number of the part in this process, in the whole: int32."""
    sizes, starts = list(tensor.shape), [0] * tensor.ndim
    if is_distributed(tensor):
        mesh = tensor.device_mesh
        for i, placement in enumerate(tensor.placements):
            if placement.is_shard():
                along = placement.dim % tensor.ndim
                part = -(-sizes[along] // mesh.size(i))  # as torch.chunk cuts
                start = min(part * mesh.get_local_rank(i), sizes[along])
                starts[along] += start
                sizes[along] = min(part, sizes[along] - start)
    found = torch.zeros((), dtype=torch.int32)
    for whole, start, size in zip(tensor.shape, starts, sizes, strict=True):
        found = found[..., None] * whole + torch.arange(start, start + size, dtype=torch.int32)
    return found.to(local_part(tensor).device)
