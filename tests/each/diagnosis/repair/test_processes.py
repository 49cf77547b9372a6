"""Two processes with DistributedDataParallel, of which one has the batches that overflow."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_mp
from tests.engines import torch as engines

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(keras.backend.backend() != "torch", reason="about torch.distributed"),
]


def _train(rank, folder):
    keras.utils.set_random_seed(0)
    with engines.group(f"{folder}/store", rank, 2):
        keras_mp.set_global_policy("mixed_float16")
        start = keras.initializers.Constant(1.0)
        large = keras.layers.Dense(1, kernel_initializer=start, name="large")
        out = keras.layers.Dense(1, kernel_initializer=start, dtype="float32", name="out")
        model = engines.in_parallel(keras.Sequential([keras.Input((4,)), large, out]))
        model.build((None, 4))
        optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(1e-9))
        model.compile(optimizer, "mae")
        x = np.full((16, 4), 30000.0 if rank else 1.0, "float32")
        repair = keras_mp.PrecisionRepair(skips=3)
        model.fit(x, x[:, :1], batch_size=2, shuffle=False, verbose=0, callbacks=[repair])
        found = {
            "layers": repair.repairs.layers,
            "said": str(repair.repairs),
            "skipped": int(optimizer.skipped_steps),
            "scale": float(optimizer.loss_scale),
            "dtype": large.compute_dtype,
            "weights": [w.tolist() for w in model.get_weights()],
        }
        Path(folder, str(rank)).write_text(json.dumps(found), encoding="utf-8")


def test_all_repair_alike(tmp_path):
    engines.in_processes(_train, (str(tmp_path),), 2)
    first, second = (json.loads((tmp_path / str(rank)).read_text("utf-8")) for rank in range(2))
    assert first["weights"] == second["weights"]
    assert first["dtype"] == second["dtype"] == "float32", (first, second)
    assert first["skipped"] == second["skipped"] == 3
    assert first["scale"] == second["scale"]
