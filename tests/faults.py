"""Trains with faults at some steps, under any engine: a program of its own.

python -m tests.faults ENGINE REPLICAS OUT.npz

ENGINE is "single", one device, or one that a module of `tests/engines` runs. Each case of `CASES`
trains the same model from the same weights on the same rows, and writes its final state to OUT:
weights of every replica, loss scale, counter, iterations.

A fault is in the rows of one replica: replica r of n has the r-th n-th of a batch.
"""

import importlib
import multiprocessing
import os
import socket
import sys
from contextlib import nullcontext

STEPS, ROWS, GROWTH = 20, 24, 4  # ROWS a step: for 1, 2, 3, 4, 8 replicas
FIRST, LAST, ALL = "first", "last", "all"

# Name -> (steps with the fault, whose rows, the faulty value).
CASES = {
    "no fault": ([], ALL, None),
    "nan on the first replica": ([5, 13], FIRST, float("nan")),
    "nan on the last replica": ([5, 13], LAST, float("nan")),
    "nan on all": ([5, 13], ALL, float("nan")),
    "overflow on the last replica": ([5, 13], LAST, 3e38),
    "overflow on all": ([5, 13], ALL, 3e38),
    # More than the ten steps that take the loss scale to its floor.
    "twelve in a row": (list(range(5, 17)), LAST, float("nan")),
}
FRAMEWORKS = ("tensorflow", "jax", "torch")  # modules of tests/engines


def main():
    run(sys.argv[1], int(sys.argv[2]), sys.argv[3])


def run(engine, replicas, out):
    """Trains every case with an engine, and writes the results."""
    if engine == "single":
        all_cases(replicas, out, nullcontext, fit, without=True)
        return
    for framework in FRAMEWORKS:
        module = importlib.import_module(f"tests.engines.{framework}")
        if engine in module.ENGINES:
            module.ENGINES[engine](replicas, out)
            return
    raise SystemExit(f"there is no engine {engine!r}")


def rows_of(replicas, whose):
    """Returns the rows of a step that belong to a replica, the first, the last, or all."""
    size = ROWS // replicas
    return {FIRST: slice(0, size), LAST: slice(ROWS - size, ROWS), ALL: slice(0, ROWS)}[whose]


def data_of(case, replicas):
    """Returns x (STEPS * ROWS, 6) and y (STEPS * ROWS, 1), float32, with the faults of a case.

    An overflow has finite data: times that step's loss scale, the gradient of 3e38 is inf.
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
    """Returns the data without the faulty steps."""
    import numpy as np

    x, y = data_of(case, replicas)
    left = [step for step in range(STEPS) if step not in CASES[case][0]]
    keep = np.concatenate([np.arange(step * ROWS, (step + 1) * ROWS) for step in left])
    return x[keep], y[keep]


def all_cases(replicas, out, scope, fit, gathered=lambda found: found, without=False):
    """Trains every case, and writes the results.

    `scope` makes the context that the model is made in, `fit(model, optimizer, x, y)` trains it.
    `gathered` returns, from this process' results, those to write, or None. `without` also trains
    on the data without the faulty steps.
    """
    import numpy as np

    found = {}
    for count_skipped_steps in (True, False):
        train = trainer(scope, count_skipped_steps, fit)
        for case in CASES:
            for name, value in train(*data_of(case, replicas)).items():
                found[f"{case}/{count_skipped_steps}/{name}"] = value
            if without and CASES[case][0]:
                for name, value in train(*without_faults(case, replicas)).items():
                    found[f"{case}/{count_skipped_steps}/without/{name}"] = value
    if (found := gathered(found)) is not None:
        np.savez(out, **found)


def together(everybodys):
    """Combines the results of several processes, each of which has all of them."""
    found = {}
    for i, theirs in enumerate(everybodys):
        for key, value in theirs.items():
            name, _, copy = key.rpartition("/")
            if "/weights/" in key and copy == "0":
                found[f"{name}/{i}"] = value
            else:
                assert value == found.setdefault(key, value), f"process {i} has another {key}"
    return found


def processes(engine, replicas, out, environment):
    """Runs an engine once per replica, and writes their combined results; ends all processes.

    `environment(i, addresses)` returns additional environment variables of process i; the
    addresses are free ones of this machine, one per process. The processes are forks of this one.
    """
    import keras  # noqa: F401 - once, for all of them
    import numpy as np

    addresses = free_addresses(replicas)
    outs = [f"{out}.{i}.npz" for i in range(replicas)]
    context = multiprocessing.get_context("fork")
    started = []
    try:
        for i in range(replicas):
            arguments = engine, replicas, outs[i], environment(i, addresses)
            started.append(context.Process(target=_replica, args=arguments))
            started[-1].start()
        for process in started:
            process.join(timeout=200)
            assert process.exitcode == 0
    finally:
        for process in started:
            process.kill()
            process.join()
    everybodys = []
    for each in outs:
        with np.load(each) as arrays:
            everybodys.append(dict(arrays))
    np.savez(out, **together(everybodys))


def _replica(engine, replicas, out, environment):
    os.environ.update(environment)
    run(engine, replicas, out)


def free_addresses(count):
    """Returns `count` free addresses of this machine, host:port."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def fit(model, optimizer, x, y):
    model.fit(x, y, batch_size=ROWS, shuffle=False, verbose=0)


def trainer(scope, count_skipped_steps, fit):
    """Returns a function that trains, always from the same start, and returns the results."""
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
    start = [_whole(variable) for variable in variables]

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
    """Returns each device's value of a variable; the shards of a sharded one count as one."""
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
    return [_whole(variable)]


def _whole(variable):
    """Returns the value of a variable as a NumPy array, gathered if it is sharded."""
    import keras
    import numpy as np

    value = variable.value
    if not getattr(value, "is_fully_addressable", True):
        from jax.experimental import multihost_utils

        return np.array(multihost_utils.process_allgather(value, tiled=True))
    return np.array(keras.ops.convert_to_numpy(variable))


if __name__ == "__main__":
    main()
