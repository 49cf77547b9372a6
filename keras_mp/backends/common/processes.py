"""Several processes that train one model, and what each of them found out by itself."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from keras_mp.backends import keras_hooks

_BYTES = 1 << 14  # of a text


def process_count() -> int:
    """Returns how many processes train together; 1 where nothing says otherwise.

    >>> process_count()
    1
    """
    match keras.backend.backend():
        case "jax":
            import jax

            return int(jax.process_count())
        case "torch":
            from torch import distributed

            if distributed.is_available() and distributed.is_initialized():
                return int(distributed.get_world_size())
    return 1


def gathered(text: str) -> list[str]:
    """Returns the texts of all processes, in the order of their ranks.

    Each process has to call this. A text that is too long becomes "".

    >>> gathered("mine")
    ['mine']
    """
    if process_count() == 1:
        return [text]
    held = text.encode() if len(text.encode()) <= _BYTES else b""
    if keras.backend.backend() == "jax":
        from jax.experimental import multihost_utils

        padded = np.frombuffer(held.ljust(_BYTES), np.uint8)
        rows = np.asarray(multihost_utils.process_allgather(padded))
        return [row.tobytes().decode().rstrip() for row in rows]
    import torch
    from torch import distributed

    # Gloo gathers what is on the CPU, NCCL what is on a GPU.
    on_gpu = distributed.get_backend() == "nccl"
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    mine = torch.tensor(list(held.ljust(_BYTES)), dtype=torch.uint8, device=device)
    every = [torch.empty_like(mine) for _ in range(process_count())]
    distributed.all_gather(every, mine)
    return [np.asarray(each.cpu()).tobytes().decode().rstrip() for each in every]


@contextlib.contextmanager
def in_this_process(variables: Iterable[Any]) -> Iterator[None]:
    """A scope in which variables hold what this process has of them, and computes alone.

    For JAX, where an array is of all processes. Elsewhere nothing is to be done.

    Raises:
        ValueError: A variable is cut between processes.
    """
    if keras.backend.backend() != "jax" or process_count() == 1:
        yield
        return
    values = [(variable, _replicated(variable)) for variable in variables]
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        with keras_hooks.with_values(values):
            yield
    finally:
        keras.distribution.set_distribution(distribution)


def _replicated(variable: Any) -> Any:
    value = variable.value
    if value.is_fully_addressable:
        return value
    if not value.is_fully_replicated:
        raise ValueError(
            f"{variable.path} is cut between processes, and no process can compute alone"
        )
    return _here(value.addressable_data(0))


def own_part(nested: Any) -> Any:
    """Returns the rows of a batch that this process has fed, where it is of all processes.

    Raises:
        ValueError: The batch is cut otherwise than by rows.

    >>> own_part({"x": 1})
    {'x': 1}
    """
    if keras.backend.backend() != "jax" or process_count() == 1:
        return nested
    return keras.tree.map_structure(_own_rows, nested)


def _own_rows(x: Any) -> Any:
    if getattr(x, "is_fully_addressable", True):
        return x
    if x.is_fully_replicated:
        return _here(x.addressable_data(0))
    shards = {shard.index[0].start or 0: shard.data for shard in x.addressable_shards}
    if any(data.shape[1:] != x.shape[1:] for data in shards.values()):
        raise ValueError(f"a batch of the shape {x.shape} is not cut by rows")
    return keras.ops.concatenate([_here(shards[start]) for start in sorted(shards)])


def _here(x: Any) -> Any:
    import jax

    return jax.device_put(x, jax.local_devices()[0])
