"""The engines of PyTorch: processes that talk by gloo."""

import os
from contextlib import nullcontext

from tests import faults

TESTED = [("ddp", 2), ("ddp", 4)]


def _ddp(replicas, out):
    """DistributedDataParallel, a loop of its own."""
    import torch

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.multiprocessing.spawn(_of_process, (replicas, out), nprocs=replicas)


def _of_process(rank, replicas, out):
    import torch
    from torch import distributed

    store = f"file://{out}.store"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=replicas)

    def fit(model, optimizer, x, y):
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        size = faults.ROWS // replicas
        for begin in range(rank * size, len(x), faults.ROWS):
            here = slice(begin, begin + size)
            parallel.zero_grad()
            errors = parallel(torch.from_numpy(x[here])) - torch.from_numpy(y[here])
            optimizer.scale_loss((errors**2).mean()).backward()
            with torch.no_grad():
                variables = model.trainable_variables
                optimizer.apply([v.value.grad for v in variables], variables)

    def gathered(found):
        everybodys = [None] * replicas
        distributed.all_gather_object(everybodys, found)
        return faults.together(everybodys) if rank == 0 else None

    faults.all_cases(replicas, out, nullcontext, fit, gathered)
    # Who leaves first would close connections that others still read from.
    distributed.barrier()
    distributed.destroy_process_group()


ENGINES = {"ddp": _ddp}
