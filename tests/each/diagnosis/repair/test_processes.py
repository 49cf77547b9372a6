"""Two processes that train one model, of which one has the batches that overflow."""

import contextlib
import json
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_mp
from tests import programs
from tests.engines import jax as jax_engines, torch as engines
from tests.faults import free_addresses

BACKEND = keras.backend.backend()
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        BACKEND == "tensorflow", reason="there one process has all replicas: test_replicas.py"
    ),
]


def made():
    keras.utils.set_random_seed(0)
    keras_mp.set_global_policy("mixed_float16")
    start = keras.initializers.Constant(1.0)
    large = keras.layers.Dense(1, kernel_initializer=start, name="large")
    out = keras.layers.Dense(1, kernel_initializer=start, dtype="float32", name="out")
    return keras.Sequential([keras.Input((4,)), large, out], name="net")


def trained(model, rank, how):
    """Returns what came of it, where one process has small numbers, the other large ones."""
    optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(1e-9))
    model.compile(optimizer, "mae")
    x = np.full((16, 4), 30000.0 if rank else 1.0, "float32")
    if how == "nan" and rank:
        x[:] = np.nan
    callback = keras_mp.PrecisionRepair(skips=3)
    if how == "repair":
        repairs = keras_mp.repair(model, x[:2], x[:2, :1])
        callbacks = []
    else:
        callbacks, repairs = [callback], None
    model.fit(x, x[:, :1], batch_size=2, shuffle=False, verbose=0, callbacks=callbacks)
    repairs = callback.repairs if repairs is None else repairs
    return {
        "layers": [path.rpartition("/")[2] for path in repairs.layers],
        "why": [each.finding.op for each in repairs],
        "verdict": repairs.verdict and repairs.verdict.kind,
        "stopped": callback.stopped,
        "skipped": int(optimizer.skipped_steps),
        "steps": int(optimizer.iterations),
        "scale": float(optimizer.loss_scale),
        "dtype": [
            layer.compute_dtype
            for layer in model._flatten_layers()
            if isinstance(layer, keras.layers.Dense)
        ],
        "weights": [keras.ops.convert_to_numpy(w).tolist() for w in model.weights],
    }


def _train(rank, folder, how):
    with engines.group(f"{folder}/store", rank, 2):
        model = engines.in_parallel(made())
        model.build((None, 4))
        found = trained(model, rank, how)
    Path(folder, str(rank)).write_text(json.dumps(found), encoding="utf-8")


PROGRAM = """
import json, sys
from pathlib import Path
from tests.engines import jax as engines

rank = engines.data_parallel_processes(2)
from tests.each.diagnosis.repair import test_processes as test
found = test.trained(test.made(), rank, sys.argv[2])
Path(sys.argv[1], str(rank)).write_text(json.dumps(found), encoding="utf-8")
import jax
jax.distributed.shutdown()
"""


def together(folder, how):
    """Returns what came of it in both processes; none outlives this."""
    if BACKEND == "torch":
        engines.in_processes(_train, (str(folder), how), 2)
    else:
        addresses, started = free_addresses(2), []
        with contextlib.ExitStack() as scope:
            for i in range(2):
                text = scope.enter_context((folder / f"{i}.txt").open("w"))
                environment = jax_engines.environment(i, addresses)
                command = "-c", PROGRAM, folder, how
                process = programs.started(*command, stdout=text, **environment)
                started.append(scope.enter_context(process))
            statuses = [process.wait(timeout=200) for process in started]
        said = [(folder / f"{i}.txt").read_text()[-3000:] for i in range(2)]
        assert statuses == [0, 0], "\n".join(said)
    return [json.loads((folder / str(rank)).read_text("utf-8")) for rank in range(2)]


@pytest.mark.parametrize("how", ["callback", "repair"])
def test_all_repair_alike(tmp_path, how):
    first, second = together(tmp_path, how)
    assert first == second
    assert (first["layers"], first["why"]) == (["large"], ["matmul"])
    assert first["dtype"] == ["float32", "float32"]
    assert first["skipped"] == (3 if how == "callback" else 0)
    assert (first["steps"], first["scale"]) == (8, 2.0**15)


def test_all_stop_alike(tmp_path):
    first, second = together(tmp_path, "nan")
    assert first == second
    assert (first["layers"], first["verdict"]) == ([], "data")
    assert "The batch holds nan: 8 of 8 values of x." in first["stopped"]
    assert sorted(first["dtype"]) == ["float16", "float32"]
