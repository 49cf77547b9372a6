"""PyTorch's DTensors: the shard of a process, and agreement of all processes."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import torch

from keras_mp.array_types import Gradient, Optimizer, Tensor, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.optimizers import flatten_optimizers


def is_distributed(tensor: Tensor) -> bool:
    """Returns whether `tensor` is a DTensor; does not import DTensor if it is not."""
    return hasattr(tensor, "device_mesh")


def local_part(tensor: Tensor) -> Any:
    """Returns the shard of `tensor` in this process."""
    return tensor.to_local() if is_distributed(tensor) else tensor


def rebuilt(tensor: Tensor, local: Any) -> Any:
    """Returns a tensor like `tensor` whose shard in this process is `local`."""
    if not is_distributed(tensor):
        return local
    mesh, placements = tensor.device_mesh, tensor.placements
    return type(tensor).from_local(
        local, mesh, placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )


def reduced(gradient: Gradient, variable: Variable = None) -> Any:
    """Returns a gradient with its terms in different processes summed.

    Finite terms may have a sum that is not. It is sharded like the variable; replicated if None.
    """
    if not is_distributed(gradient) or not any(p.is_partial() for p in gradient.placements):
        return gradient
    from torch.distributed.tensor import Replicate

    if variable is not None and is_distributed(variable.value):
        return gradient.redistribute(placements=variable.value.placements)
    whole = [Replicate() if p.is_partial() else p for p in gradient.placements]
    return gradient.redistribute(placements=whole)


def agreed(values: Tensor, how: str, tensors: Sequence[Tensor]) -> Any:
    """Returns the minimum ("min") or maximum ("max") of `values` over the shards of `tensors`.

    One all-reduce per mesh dimension along which a tensor is sharded.
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
    """Shards the slots of `optimizer` like their variables: Keras replicates them.

    Args:
        optimizer: Built.
        weights: Id of a target -> its weight, whose layout the slots get.
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
    """Shards the variable `kept` like `variable`; without a value it is unchanged."""
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
    """Returns the index, in the whole, of each number of the shard in this process: int32."""
    sizes, starts = list(tensor.shape), [0] * tensor.ndim
    if is_distributed(tensor):
        mesh = tensor.device_mesh
        for i, placement in enumerate(tensor.placements):
            if placement.is_shard():
                along = placement.dim % tensor.ndim
                part = -(-sizes[along] // mesh.size(i))  # as torch.chunk divides
                start = min(part * mesh.get_local_rank(i), sizes[along])
                starts[along] += start
                sizes[along] = min(part, sizes[along] - start)
    index = torch.zeros((), dtype=torch.int32)
    for whole, start, size in zip(tensor.shape, starts, sizes, strict=True):
        index = index[..., None] * whole + torch.arange(start, start + size, dtype=torch.int32)
    return index.to(local_part(tensor).device)
