"""The engines of PyTorch: processes that talk by gloo."""

import os
import warnings
from contextlib import contextmanager, nullcontext

from tests import faults

TESTED = [("ddp", 3), ("ddp fit", 2), ("fsdp", 2)]
CUT = {"fsdp": 4}  # kernels and biases of both layers


def _engine(loop):
    """Returns an engine that trains by `loop(rank, replicas)`, which returns how to fit."""

    def run(replicas, out):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        in_processes(_of_process, (replicas, out, loop), replicas)

    return run


def in_processes(function, arguments, count):
    """Calls a function with its number, and the arguments, in as many processes, forks of this."""
    import keras  # noqa: F401 - once, for all of them
    import torch

    with warnings.catch_warnings():
        # JAX warns of forks where another test has imported it; these do not use it.
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        torch.multiprocessing.start_processes(function, arguments, count, start_method="fork")


@contextmanager
def group(path, rank, replicas, **options):
    """The process group of gloo that meets at the file `path`, for the scope."""
    from torch import distributed

    store = distributed.FileStore(str(path), replicas)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=replicas, **options)
    yield
    # Who leaves first closes connections that others may still read from, even after a barrier.
    store.set(f"done {rank}", "")
    store.wait([f"done {i}" for i in range(replicas)])
    distributed.destroy_process_group()


def _of_process(rank, replicas, out, loop):
    import numpy as np
    from torch import distributed

    cut = set()

    def gathered(found):
        for key in found:
            if key.endswith("/cut"):
                [found[key]] = map(np.int32, cut or {0})
        everybodys = [None] * replicas
        distributed.all_gather_object(everybodys, found)
        return faults.together(everybodys) if rank == 0 else None

    with group(f"{out}.store", rank, replicas):
        faults.all_cases(replicas, out, nullcontext, loop(rank, replicas, cut.add), gathered)


def _rows(array, rank, replicas):
    """Returns the rows of all steps that belong to a process."""
    steps = array.reshape(-1, replicas, faults.ROWS // replicas, array.shape[-1])
    return steps[:, rank].reshape(-1, array.shape[-1])


def _own_loop(rank, replicas, _):
    """DistributedDataParallel, a loop of its own."""
    import torch

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

    return fit


def in_parallel(model):
    """Returns `model` as one that Keras' `fit` trains with DistributedDataParallel."""
    import keras
    from torch.nn.parallel import DistributedDataParallel

    class Parallel(keras.Model):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.in_parallel = DistributedDataParallel(model).forward  # Keras would track a module

        def call(self, x, training=None):
            return self.in_parallel(x, training=training)

    return Parallel(model)


def _keras_loop(rank, replicas, _):
    """DistributedDataParallel in Keras' own `fit`."""
    import keras

    def fit(model, optimizer, x, y):
        parallel = in_parallel(model)
        parallel.compile(optimizer, keras.losses.MeanSquaredError())
        x, y = (_rows(array, rank, replicas) for array in (x, y))
        parallel.fit(x, y, batch_size=faults.ROWS // replicas, shuffle=False, verbose=0)

    return fit


def in_shards(model, mesh):
    """Returns `model` as one that Keras' `fit` trains with FSDP: weights, gradients, slots cut."""
    import keras
    import torch
    from torch.distributed.fsdp import fully_shard

    class Stateless(torch.nn.Module):
        """A Keras model whose weights are attributes, which FSDP replaces."""

        def __init__(self, model):
            super().__init__()
            self.weights = torch.nn.ParameterList([v.value for v in model.trainable_variables])
            self.state, self.function = model.non_trainable_variables, model.stateless_call

        def forward(self, x):
            state = [v.value for v in self.state]
            y, state = self.function(list(self.weights), state, x, training=self.training)
            for variable, value in zip(self.state, state, strict=True):
                variable.assign(value)
            return y

    sharded = fully_shard(Stateless(model), mesh=mesh)
    return keras.Sequential([keras.layers.TorchModuleWrapper(sharded)], name="sharded")


def _shards(rank, replicas, report_cut):
    """FSDP 2 in Keras' own `fit`."""
    import keras
    from torch import distributed

    mesh = distributed.init_device_mesh("cpu", (replicas,))

    def fit(model, optimizer, x, y):
        sharded = in_shards(model, mesh)
        # The variables are others, so the optimizer must be another, too.
        own = type(optimizer).from_config(optimizer.get_config())
        sharded.compile(own, keras.losses.MeanSquaredError())
        x, y = (_rows(array, rank, replicas) for array in (x, y))
        sharded.fit(x, y, batch_size=faults.ROWS // replicas, shuffle=False, verbose=0)
        weights = [v.value for v in sharded.trainable_variables]
        report_cut(sum(any(p.is_shard() for p in each.placements) for each in weights))
        for variable, value in zip(model.trainable_variables, weights, strict=True):
            variable.assign(value.full_tensor())
        for variable, trained in zip(optimizer.variables, own.variables, strict=True):
            value = trained.value
            variable.assign(value.full_tensor() if hasattr(value, "full_tensor") else value)

    return fit


ENGINES = {
    "ddp": _engine(_own_loop),
    "ddp fit": _engine(_keras_loop),
    "fsdp": _engine(_shards),
}
