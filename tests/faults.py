"""The same training with faults planted at some steps, whatever runs it: a program of its own.

python -m tests.faults ENGINE REPLICAS OUT.npz

ENGINE is one of those of `ENGINES`; "single" is one device. Each case of `CASES` trains the same
model from the same weights on the same rows, REPLICAS of them to a step at least, and writes to OUT
what it ended with: weights of every replica, loss scale, counter, iterations.

A fault is in the rows of one replica, as the engines cut a batch: replica r of n has the r-th n-th.
"""

import json
import os
import socket
import subprocess
import sys
from contextlib import nullcontext

STEPS, ROWS, GROWTH = 40, 24, 7  # ROWS a step: for 1, 2, 3, 4, 8 replicas
FIRST, LAST, ALL = "first", "last", "all"

# Name -> (steps with the fault, whose rows, what is in them).
CASES = {
    "no fault": ([], ALL, None),
    "nan on the first replica": ([9, 25], FIRST, float("nan")),
    "nan on the last replica": ([9, 25], LAST, float("nan")),
    "nan on all": ([9, 25], ALL, float("nan")),
    "overflow on the last replica": ([9, 25], LAST, 3e38),
    "overflow on all": ([9, 25], ALL, 3e38),
    "thirty in a row": (list(range(5, 35)), LAST, float("nan")),
}
ENGINES = ("single", "mirrored", "workers", "data parallel", "model parallel", "ddp")


def rows_of(replicas, whose):
    """Returns the rows of a step that belong to a replica, the first, the last, or all."""
    size = ROWS // replicas
    return {FIRST: slice(0, size), LAST: slice(ROWS - size, ROWS), ALL: slice(0, ROWS)}[whose]


def data_of(case, replicas):
    """Returns x (STEPS * ROWS, 6) and y (STEPS * ROWS, 1), float32, with the faults of a case.

    An overflow is of finite data: times the loss scale of that step, the gradient of 3e38 is inf.
    """
    import numpy as np

    random = np.random.RandomState(0)
    x = random.randn(STEPS, ROWS, 6).astype("float32")
    y = np.tanh(x.sum(2, keepdims=True)).astype("float32")
    steps, whose, value = CASES[case]
    for step in steps:
        (y if value == 3e38 else x)[step, rows_of(replicas, whose)] = value
    return x.reshape(-1, 6), y.reshape(-1, 1)


def without_faults(case, replicas):
    """Returns the data without the steps that have a fault."""
    import numpy as np

    x, y = data_of(case, replicas)
    left = [step for step in range(STEPS) if step not in CASES[case][0]]
    keep = np.concatenate([np.arange(step * ROWS, (step + 1) * ROWS) for step in left])
    return x[keep], y[keep]


def main():
    engine, replicas, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    if engine in ("data parallel", "model parallel"):
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={replicas}"
    if engine == "ddp":
        import torch

        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        torch.multiprocessing.spawn(_of_process, (replicas, out), nprocs=replicas)
    elif engine == "workers" and "TF_CONFIG" not in os.environ:
        _start_workers(replicas, out)
    elif engine == "workers":
        _of_worker(replicas, out)
    else:
        _all_cases(engine, replicas, out, start(engine, replicas), _fit, lambda found: found)


def _all_cases(engine, replicas, out, scope, fit, gathered):
    """Trains every case, and writes what came of them."""
    import numpy as np

    found = {}
    for count_skipped_steps in (True, False):
        train = _trainer(scope, count_skipped_steps, fit)
        for case in CASES:
            for name, value in train(*data_of(case, replicas)).items():
                found[f"{case}/{count_skipped_steps}/{name}"] = value
            if engine == "single" and CASES[case][0]:
                for name, value in train(*without_faults(case, replicas)).items():
                    found[f"{case}/{count_skipped_steps}/without/{name}"] = value
    if (found := gathered(found)) is not None:
        np.savez(out, **found)


def _of_process(rank, replicas, out):
    """One process of torch's DistributedDataParallel, with a loop of its own."""
    import torch
    from torch import distributed

    store = f"file://{out}.store"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=replicas)

    def fit(model, optimizer, x, y):
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        size = ROWS // replicas
        for begin in range(rank * size, len(x), ROWS):
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
        return _together(everybodys) if rank == 0 else None

    _all_cases("ddp", replicas, out, nullcontext, fit, gathered)
    # Who leaves first would close connections that others still read from.
    distributed.barrier()
    distributed.destroy_process_group()


def _together(everybodys):
    """Returns as one what several processes found, which all have the whole of it."""
    found = {}
    for i, theirs in enumerate(everybodys):
        for key, value in theirs.items():
            name, _, copy = key.rpartition("/")
            if "/weights/" in key and copy == "0":
                found[f"{name}/{i}"] = value
            else:
                assert value == found.setdefault(key, value), f"process {i} has another {key}"
    return found


def _start_workers(replicas, out):
    """Runs the workers of MultiWorkerMirroredStrategy; none of them outlives this."""
    import numpy as np

    sockets = [socket.socket() for _ in range(replicas)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    outs = [f"{out}.{i}.npz" for i in range(replicas)]
    workers = []
    try:
        for i in range(replicas):
            task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}}
            command = [sys.executable, "-m", "tests.faults", "workers", str(replicas), outs[i]]
            environment = {**os.environ, "TF_CONFIG": json.dumps(task)}
            workers.append(subprocess.Popen(command, env=environment))
        for worker in workers:
            assert worker.wait(timeout=200) == 0
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    everybodys = []
    for each in outs:
        with np.load(each) as arrays:
            everybodys.append(dict(arrays))
    np.savez(out, **_together(everybodys))


def _of_worker(replicas, out):
    """One worker of MultiWorkerMirroredStrategy, with a loop of its own."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = strategy.cluster_resolver.task_id

    def fit(model, optimizer, x, y):
        @tf.function
        def step(x, y):
            def each(x, y):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((model(x) - y) ** 2) / replicas
                    scaled = optimizer.scale_loss(loss)
                variables = model.trainable_variables
                gradients = tape.gradient(scaled, [v.value for v in variables])
                optimizer.apply_gradients(zip(gradients, variables, strict=True))

            strategy.run(each, args=(x, y))

        size = ROWS // replicas
        for begin in range(rank * size, len(x), ROWS):
            here = slice(begin, begin + size)
            step(tf.constant(x[here]), tf.constant(y[here]))

    _all_cases("workers", replicas, out, strategy.scope, fit, lambda found: found)


def start(engine, replicas):
    """Prepares the engine; returns a function that makes the context that a model is made in."""
    import keras

    match engine:
        case "single":
            return nullcontext
        case "mirrored":
            import tensorflow as tf

            cpu = tf.config.list_physical_devices("CPU")[0]
            devices = [tf.config.LogicalDeviceConfiguration()] * replicas
            tf.config.set_logical_device_configuration(cpu, devices)
            strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
            return strategy.scope
        case "data parallel":
            keras.distribution.set_distribution(keras.distribution.DataParallel())
            return nullcontext
        case "model parallel":
            shape = (replicas // 2, 2)
            mesh = keras.distribution.DeviceMesh(shape, ["batch", "model"])
            layout = keras.distribution.LayoutMap(mesh)
            layout[".*hidden/kernel"], layout[".*hidden/bias"] = (None, "model"), ("model",)
            parallel = keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")
            keras.distribution.set_distribution(parallel)
            return nullcontext
    raise SystemExit(f"ENGINE is one of {ENGINES}, not {engine!r}")


def _fit(model, optimizer, x, y):
    model.fit(x, y, batch_size=ROWS, shuffle=False, verbose=0)


def _trainer(scope, count_skipped_steps, fit):
    """Returns a function that trains, always from the same start, and tells what came of it."""
    import keras
    import numpy as np

    import keras_mp

    keras.utils.set_random_seed(0)
    with scope():
        model = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(8, activation="tanh", name="hidden"),
                keras.layers.Dense(1, name="out"),
            ]
        )
        optimizer = keras_mp.LossScaleOptimizer(
            keras.optimizers.SGD(0.05, momentum=0.9),
            initial_scale=2.0**10,
            dynamic_growth_steps=GROWTH,
            count_skipped_steps=count_skipped_steps,
        )
        model.compile(optimizer, keras.losses.MeanSquaredError())
        optimizer.build(model.trainable_variables)
    variables = [*model.variables, *optimizer.variables]
    start = [keras.ops.convert_to_numpy(v).copy() for v in variables]

    def train(x, y):
        for variable, value in zip(variables, start, strict=True):
            variable.assign(value)
        fit(model, optimizer, x, y)
        found = {
            "scale": np.float32(keras.ops.convert_to_numpy(optimizer.loss_scale)),
            "counter": np.int32(keras.ops.convert_to_numpy(optimizer.step_counter)),
            "iterations": np.int32(keras.ops.convert_to_numpy(optimizer.iterations)),
        }
        found["cut"] = np.int32(sum(_is_cut(variable) for variable in model.variables))
        for variable in model.variables:
            for i, copy in enumerate(_copies(variable)):
                found[f"weights/{variable.path}/{i}"] = copy
        return found

    return train


def _is_cut(variable):
    """Returns whether devices hold different parts of a variable."""
    sharding = getattr(variable.value, "sharding", None)
    return sharding is not None and not sharding.is_fully_replicated


def _copies(variable):
    """Returns what each device holds of a variable: the shards of one that is cut count as one."""
    import keras
    import numpy as np

    value = variable.value
    match keras.backend.backend():
        case "tensorflow":
            import tensorflow as tf

            if isinstance(value, tf.distribute.DistributedValues):
                return [one.numpy() for one in value.values]
        case "jax":
            if value.sharding.is_fully_replicated:
                return [np.array(shard.data) for shard in value.addressable_shards]
    return [np.array(keras.ops.convert_to_numpy(value))]


if __name__ == "__main__":
    main()
