"""What it costs that all devices agree on skipping a step: JAX, `keras.distribution.DataParallel`.

python benchmarks/agreement.py [--replicas N ...] [--width N] [--rows N] [--repeat N] [--json FILE]

Devices are the host's, as many as asked for (`XLA_FLAGS`), in a process for each number of them.
There a training step of an MLP is timed with the plain optimizer and with a LossScaleOptimizer
around it, in turn; printed is the median of the ratios, with their quartiles, and how many
collectives each compiled step has. On one CPU more devices share the same cores: only the ratios
mean something. What scaling itself costs (a product, a sum for each gradient, a select for each
weight) is in the ratio, too.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import running
from keras_mp.diagnosis.benchmarking.recommending import ratios

BLOCK = 0.2  # seconds that one measurement takes at least


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Times both, on the devices that this process was started with."""
    import jax
    import keras
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import keras_mp

    keras.distribution.set_distribution(keras.distribution.DataParallel())
    steps = {}
    collectives = {}
    for name in ("plain", "scaled"):
        keras.utils.set_random_seed(0)
        x = inputs = keras.Input((options.width,))
        for _ in range(3):
            x = keras.layers.Dense(options.width, activation="relu")(x)
        model = keras.Model(inputs, keras.layers.Dense(1)(x))
        optimizer = keras.optimizers.Adam(1e-3)
        if name == "scaled":
            optimizer = keras_mp.LossScaleOptimizer(optimizer)
        model.compile(optimizer, "mse")
        random = np.random.RandomState(0)
        rows = options.rows * jax.device_count()
        batch = (
            random.randn(rows, options.width).astype("float32"),
            random.randn(rows, 1).astype("float32"),
        )
        model.train_on_batch(*batch)
        mesh = Mesh(np.array(jax.devices()), ("batch",))
        batch = tuple(jax.device_put(a, NamedSharding(mesh, PartitionSpec("batch"))) for a in batch)
        groups = (
            model.trainable_variables,
            model.non_trainable_variables,
            optimizer.variables,
            model.metrics_variables,
        )
        state = tuple([v.value for v in group] for group in groups)
        jitted = jax.jit(lambda state, batch, model=model: model.train_step(state, batch))
        compiled = jitted.lower(state, batch).compile()
        kinds = "all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all"
        collectives[name] = len(re.findall(rf" ({kinds})(?:-start)?\(", compiled.as_text()))
        steps[name] = (compiled, state, batch)

    def seconds(name: str, count: int) -> float:
        compiled, state, batch = steps[name]
        start = time.perf_counter()
        for _ in range(count):
            _, state = compiled(state, batch)
        jax.block_until_ready(state)
        return (time.perf_counter() - start) / count

    seconds("plain", 3)
    count = max(3, round(BLOCK / seconds("plain", 3)))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for repetition in range(options.repeat):
        for name in list(steps)[:: 1 if repetition % 2 else -1]:
            times[name].append(seconds(name, count))
    return {
        "replicas": jax.device_count(),
        "milliseconds": {name: round(1e3 * statistics.median(t), 3) for name, t in times.items()},
        "ratio": [round(r, 3) for r in ratios(times["scaled"], times["plain"])],
        "collectives": collectives,
    }


def of_process(replicas: int, arguments: list[str]) -> dict[str, Any]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={replicas}"
    done = subprocess.run(
        [sys.executable, __file__, "--inside", *arguments],
        env={**os.environ, "XLA_FLAGS": flags, "KERAS_BACKEND": "jax"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = running.parser(__doc__, backends=())
    parser.add_argument("--replicas", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--rows", type=int, default=64, help="of a batch, for each replica")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(measure(options)))
        return 0
    arguments = ["--width", str(options.width), "--rows", str(options.rows)]
    arguments += ["--repeat", str(options.repeat)]
    print(
        f"{'replicas':>8}{'plain':>10}{'scaled':>10}  scaled/plain (quartiles)  collectives\n"
        f"{'':8}{'ms':>10}{'ms':>10}"
    )
    results = []
    for replicas in options.replicas:
        found = of_process(replicas, arguments)
        low, middle, high = found["ratio"]
        times = "".join(f"{found['milliseconds'][name]:10.2f}" for name in ("plain", "scaled"))
        counts = found["collectives"]
        print(
            f"{replicas:8}{times}  {middle:5.2f} ({low:.2f} to {high:.2f})       "
            f"{counts['plain']}, {counts['scaled']}",
            flush=True,
        )
        results.append(found)
    running.keep(results, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
