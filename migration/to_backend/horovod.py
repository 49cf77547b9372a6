"""KMP215: Horovod, whose optimizers, tapes and callbacks are for TensorFlow and Keras 2.

before:  opt = hvd.DistributedOptimizer(opt)
after:   keras.distribution.set_distribution(keras.distribution.DataParallel())

That is JAX, before the model is made. On PyTorch it is DistributedDataParallel. `horovod.torch` is
left alone.
"""

from keras_mp.migration.to_backend.uses import Target, Use, message

ANCHOR = "horovod"
_ON: dict[Target, str] = {
    "jax": "call keras.distribution.set_distribution(keras.distribution.DataParallel()) before "
    "the model is made",
    "torch": "use torch.nn.parallel.DistributedDataParallel",
}
_NOT_NEEDED: dict[Target, str] = {
    "jax": "remove it: keras.distribution.DataParallel lays out the weights",
    "torch": "remove it: DistributedDataParallel sends the weights at its start",
}
_LEAVE_OUT = "remove it"
# What a name begins with -> what to do instead.
_DO: dict[str, str | dict[Target, str]] = {
    "init": {
        "jax": "call keras.distribution.initialize(), if there are several processes",
        "torch": "call torch.distributed.init_process_group()",
    },
    "shutdown": {
        "jax": "remove it",
        "torch": "call torch.distributed.destroy_process_group()",
    },
    "rank": {"jax": "write jax.process_index()", "torch": "write torch.distributed.get_rank()"},
    "local_rank": {
        "jax": "remove it: JAX takes all devices of a process",
        "torch": "write int(os.environ['LOCAL_RANK'])",
    },
    "size": {
        "jax": "write jax.device_count(), or jax.process_count() where it shares out data",
        "torch": "write torch.distributed.get_world_size()",
    },
    "local_size": {
        "jax": "write jax.local_device_count()",
        "torch": "write int(os.environ['LOCAL_WORLD_SIZE'])",
    },
    "broadcast": _NOT_NEEDED,
    "Broadcast": _NOT_NEEDED,
    "callbacks.Broadcast": _NOT_NEEDED,
    "callbacks.MetricAverage": {
        "jax": "remove it: logs are those of all devices",
        "torch": "reduce the logs by torch.distributed.all_reduce",
    },
    "callbacks.LearningRate": "give the optimizer a schedule of keras.optimizers.schedules",
    "callbacks.BestModelCheckpoint": (
        "write keras.callbacks.ModelCheckpoint(path, save_best_only=True)"
    ),
    "load_model": "write keras.saving.load_model",
    "elastic.": {
        "jax": "start all processes again, with keras.callbacks.BackupAndRestore",
        "torch": "start all processes again by torchrun, with keras.callbacks.BackupAndRestore",
    },
    "nccl_built": _LEAVE_OUT,
    "mpi_built": _LEAVE_OUT,
    "gloo_built": _LEAVE_OUT,
    "data.": {
        "jax": "share out the data by dataset.shard(jax.process_count(), jax.process_index())",
        "torch": "share out the data by dataset.shard, with rank and world size",
    },
    "allreduce": {
        "jax": "remove it: sums over a batch are those of all devices",
        "torch": "write torch.distributed.all_reduce",
    },
    "allgather": {
        "jax": "remove it: arrays are whole on every device",
        "torch": "write torch.distributed.all_gather",
    },
}


def decide(use: Use) -> str | None:
    name = use.horovod
    if use.call is None or not name:
        return None
    starts = [start for start in _DO if name == start or name.startswith(start)]
    do = _DO[max(starts, key=len)] if starts else _ON
    return message(f"hvd.{name}", do, ANCHOR, use.target)
