"""What the graph rewrite costs: a training step, against float32 and against a policy set by hand.

python benchmarks/graph_rewrite.py [--models MODEL ...] [--modes MODE ...] [--batch N] [--width N]
    [--repeat N] [--dtype DTYPE] [--lists LISTS] [--cpu-time] [--json FILE]

KERAS_BACKEND chooses the backend. Prints ratios of times, for each model and mode:

- rewrite/policy: `graph_rewrite.enable` against layers made under `mixed_float16` with a
  `LossScaleOptimizer` and the softmax in float32: what one pays for not editing a model. The aim is
  at most 1.1 where the step is compiled.
- rewrite/float32 and policy/float32: what 16 bits save, or cost.
- first step: from `compile` to the end of the first step (recording, painting, tracing, compiling).

Each repetition runs all variants in another order, so that what else the machine does hits all
alike; a number is the median of the repetitions, in parentheses their quartiles. On a GPU the peak
of its memory is printed, too, each measured in a process of its own.

`--cpu-time` is for a CPU that other programs use, too; it counts what threads spin.

On a CPU only rewrite/policy means something: float16 is emulated there (XLA computes in float32
between casts, TensorFlow by slow scalar code, Keras on torch multiplies matrices in float32), and
bfloat16 often, too. Modes: TensorFlow: graph, xla, eager; JAX: jit, eager; torch: eager, compile.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Or the first process would hold all memory of a GPU.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

import keras
import numpy as np

import keras_mp
from keras_mp.graph_rewrite import hooks

VARIANTS = ("float32", "policy", "rewrite")
AIM = 1.1
FIRST_STEPS = 3  # models made to measure the first step; the last of each is kept
BLOCK = 0.3  # seconds that one measurement takes at least
CLASSES = 10

# What to tell `compile`.
MODES: dict[str, dict[str, dict[str, bool]]] = {
    "jax": {"jit": {"jit_compile": True}, "eager": {"run_eagerly": True, "jit_compile": False}},
    "tensorflow": {
        "graph": {"jit_compile": False},
        "xla": {"jit_compile": True},
        "eager": {"run_eagerly": True, "jit_compile": False},
    },
    "torch": {"eager": {"jit_compile": False}, "compile": {"jit_compile": True}},
}
COMPILED = ("jit", "graph", "xla", "compile")


def mlp(width: int, **dtype: Any) -> Any:
    x = inputs = keras.Input((256,))
    for _ in range(4):
        x = keras.layers.Dense(512 * width, activation="relu", **dtype)(x)
    return inputs, x


def convnet(width: int, **dtype: Any) -> Any:
    x = inputs = keras.Input((16, 16, 8))
    for filters in (32, 64, 64):
        x = keras.layers.Conv2D(filters * width, 3, padding="same", use_bias=False, **dtype)(x)
        x = keras.layers.BatchNormalization(**dtype)(x)
        x = keras.layers.ReLU(**dtype)(x)
    return inputs, keras.layers.GlobalAveragePooling2D(**dtype)(
        keras.layers.MaxPooling2D(**dtype)(x)
    )


def transformer(width: int, **dtype: Any) -> Any:
    size = 64 * width
    inputs = keras.Input((32, 64))
    x = keras.layers.Dense(size, **dtype)(inputs)
    for _ in range(2):
        y = keras.layers.LayerNormalization(**dtype)(x)
        y = keras.layers.MultiHeadAttention(4, size // 4, dropout=0.1, **dtype)(y, y)
        x = keras.layers.Add(**dtype)([x, y])
        y = keras.layers.LayerNormalization(**dtype)(x)
        y = keras.layers.Dense(4 * size, activation="gelu", **dtype)(y)
        x = keras.layers.Add(**dtype)([x, keras.layers.Dense(size, **dtype)(y)])
    return inputs, keras.layers.GlobalAveragePooling1D(**dtype)(x)


def lstm(width: int, **dtype: Any) -> Any:
    inputs = keras.Input((16,), dtype="int32")
    x = keras.layers.Embedding(1000, 64 * width, **dtype)(inputs)
    return inputs, keras.layers.LSTM(128 * width, **dtype)(x)


def gru(width: int, **dtype: Any) -> Any:
    inputs = keras.Input((16,), dtype="int32")
    x = keras.layers.Embedding(1000, 64 * width, **dtype)(inputs)
    return inputs, keras.layers.GRU(128 * width, **dtype)(x)


def bilstm(width: int, **dtype: Any) -> Any:
    inputs = keras.Input((16,), dtype="int32")
    x = keras.layers.Embedding(1000, 64 * width, **dtype)(inputs)
    both = keras.layers.Bidirectional(keras.layers.LSTM(64 * width, **dtype), **dtype)
    return inputs, both(x)


MODELS: dict[str, Callable[..., Any]] = {
    "mlp": mlp,
    "convnet": convnet,
    "transformer": transformer,
    "lstm": lstm,
    "gru": gru,
    "bilstm": bilstm,
}


def build(
    name: str, variant: str, dtype: str, width: int, lists: str = "tf1.15"
) -> tuple[Any, Any]:
    """Returns a model that is not compiled, and the optimizer for it."""
    keras.utils.set_random_seed(0)
    # Not by the global policy, which cannot be mixed while the rewrite is enabled.
    policy = f"mixed_{dtype}" if variant == "policy" else "float32"
    inputs, x = MODELS[name](width, dtype=policy)
    x = keras.layers.Dense(CLASSES, dtype=policy)(x)
    model = keras.Model(inputs, keras.layers.Activation("softmax", dtype="float32")(x))
    optimizer = keras.optimizers.Adam(1e-3)
    if variant == "policy":
        # With bfloat16, too, which needs none: the ratio is to be that of the rewrite alone.
        optimizer = keras_mp.LossScaleOptimizer(optimizer)
    elif variant == "rewrite":
        optimizer = keras_mp.graph_rewrite.enable(optimizer, dtype=dtype, lists=lists)
    return model, optimizer


def batch_of(model: Any, size: int) -> tuple[Any, Any]:
    random = np.random.RandomState(0)
    shape = (size, *model.inputs[0].shape[1:])
    if "int" in model.inputs[0].dtype:
        x = random.randint(0, 1000, shape).astype("int32")
    else:
        x = random.randn(*shape).astype("float32")
    return x, random.randint(0, CLASSES, size).astype("int32")


def wait(model: Any) -> None:
    """Returns when the device has done everything it was asked to."""
    match keras.backend.backend():
        case "jax":
            import jax

            jax.block_until_ready([v._value for v in model.variables])
        case "torch":
            import torch

            if torch.cuda.is_available():
                torch.cuda.synchronize()
        case "tensorflow":
            import tensorflow as tf

            if tf.config.list_physical_devices("GPU"):
                tf.test.experimental.sync_devices()


def on_gpu() -> bool:
    match keras.backend.backend():
        case "jax":
            import jax

            return any(device.platform != "cpu" for device in jax.local_devices())
        case "torch":
            import torch

            return torch.cuda.is_available()
        case "tensorflow":
            import tensorflow as tf

            return bool(tf.config.list_physical_devices("GPU"))
    return False


def peak_of_gpu() -> int:
    """Returns the most memory of the GPU that this process ever had in use, in bytes."""
    match keras.backend.backend():
        case "jax":
            import jax

            return int(jax.local_devices()[0].memory_stats()["peak_bytes_in_use"])
        case "torch":
            import torch

            return int(torch.cuda.max_memory_allocated())
    import tensorflow as tf

    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])


class Run:
    """A variant of a model on its way."""

    def __init__(self, name: str, variant: str, mode: str, options: argparse.Namespace) -> None:
        self.clock = time.process_time if options.cpu_time else time.perf_counter
        self.hook = hooks.install if variant == "rewrite" else hooks.uninstall
        self.model, optimizer = build(name, variant, options.dtype, options.width, options.lists)
        x, y = batch_of(self.model, options.batch)
        self.hook()
        start = self.clock()
        self.model.compile(
            optimizer,
            "sparse_categorical_crossentropy",
            **MODES[keras.backend.backend()][mode],
        )
        self.model.train_on_batch(x, y)
        wait(self.model)
        self.first_step = self.clock() - start
        self.x, self.y, self.batch = x, y, options.batch
        self.steps = 1

    def fit(self) -> float:
        """Returns the seconds that a step of `fit` takes."""
        x, y = (np.tile(a, (self.steps,) + (1,) * (a.ndim - 1)) for a in (self.x, self.y))
        self.hook()  # what is not rewritten must not pay for hooks
        start = self.clock()
        self.model.fit(x, y, batch_size=self.batch, shuffle=False, verbose=0)
        wait(self.model)
        return (self.clock() - start) / self.steps

    def warm_up(self) -> None:
        """Runs until nothing is compiled any more, and finds how many steps to measure at once."""
        self.steps = 2
        self.fit()
        self.steps = max(4, min(200, round(BLOCK / self.fit())))
        self.fit()


def measure(name: str, mode: str, options: argparse.Namespace) -> dict[str, Any]:
    first: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    runs: dict[str, Run] = {}
    for _ in range(options.first_steps):
        for variant in VARIANTS:
            runs.pop(variant, None)
            gc.collect()
            runs[variant] = Run(name, variant, mode, options)
            first[variant].append(runs[variant].first_step)
    for run in runs.values():
        run.warm_up()
    times: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for repetition in range(options.repeat):
        turn = repetition % len(VARIANTS)
        for variant in (*VARIANTS[turn:], *VARIANTS[:turn]):
            times[variant].append(runs[variant].fit())
    del runs
    gc.collect()
    found: dict[str, Any] = {"model": name, "mode": mode}
    found["milliseconds"] = {v: round(1e3 * statistics.median(times[v]), 3) for v in VARIANTS}
    for a, b in (("rewrite", "policy"), ("rewrite", "float32"), ("policy", "float32")):
        found[f"{a}/{b}"] = quartiles(times[a], times[b])
        found[f"{a}/{b}, first step"] = quartiles(first[a], first[b])
    found["first step, seconds"] = {v: round(statistics.median(first[v]), 3) for v in VARIANTS}
    if on_gpu():
        found["peak MB"] = {v: peak(name, v, mode, options) for v in VARIANTS}
    return found


def quartiles(a: list[float], b: list[float]) -> list[float]:
    """Returns lower quartile, median and upper quartile of the ratios."""
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    if len(ratios) < 2:
        return [round(ratios[0], 3)] * 3
    return [round(x, 3) for x in statistics.quantiles(ratios, n=4, method="inclusive")]


def peak(name: str, variant: str, mode: str, options: argparse.Namespace) -> float:
    arguments = [__file__, "--peak", name, variant, mode, "--batch", str(options.batch)]
    arguments += ["--width", str(options.width), "--dtype", options.dtype]
    arguments += ["--lists", options.lists]
    found = subprocess.run(
        [sys.executable, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return round(int(found.stdout.split()[-1]) / 2**20, 1)


def line(found: Mapping[str, Any]) -> str:
    def ratio(key: str) -> str:
        low, middle, high = found[key]
        return f"{middle:5.2f} ({low:.2f} to {high:.2f})"

    times = found["milliseconds"]
    text = f"{found['model']:12}{found['mode']:8}" + "".join(f"{times[v]:9.2f}" for v in VARIANTS)
    for key in ("rewrite/policy", "rewrite/float32", "policy/float32"):
        text += f"  {ratio(key):21}"
    text += f"  {ratio('rewrite/policy, first step')}"
    if found["mode"] in COMPILED and found["rewrite/policy"][1] > AIM:
        text += f"  above {AIM}"
    if "peak MB" in found:
        text += "  MB " + " ".join(f"{found['peak MB'][v]:.0f}" for v in VARIANTS)
    return text


def main() -> int:
    modes = MODES[keras.backend.backend()]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--modes", nargs="+", choices=modes, default=list(modes))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=1, help="wider layers, for a GPU")
    parser.add_argument("--repeat", type=int, default=12)
    parser.add_argument("--first-steps", type=int, default=FIRST_STEPS)
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="float16")
    parser.add_argument("--lists", default="tf1.15", help="the op lists of the rewrite")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="measure the time of the processors: what other programs do disturbs it less",
    )
    parser.add_argument("--json", type=Path, help="write what was measured to this file, too")
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        name, variant, mode = options.peak
        run = Run(name, variant, mode, options)
        run.steps = 4
        run.fit()
        print(peak_of_gpu())
        return 0
    print(
        f"keras {keras.__version__} on {keras.backend.backend()}, {options.dtype}, lists of "
        f"{options.lists}, batches of {options.batch}, {options.repeat} repetitions"
        f"{', processor time' if options.cpu_time else ''}"
    )
    if not on_gpu():
        print("On a CPU, which emulates 16 bits: only rewrite/policy means something.")
    print(
        f"{'':20}{'milliseconds a step':>27}  {'ratios: median (quartiles)':67}  first step\n"
        f"{'model':12}{'mode':8}" + "".join(f"{v:>9}" for v in VARIANTS)
        + f"  {'rewrite/policy':21}  {'rewrite/float32':21}  {'policy/float32':21}  rewrite/policy"
    )  # fmt: skip
    for variant in VARIANTS:  # whatever the first model of a process pays
        Run("mlp", variant, options.modes[0], options)
    results = []
    for name in options.models:
        for mode in options.modes:
            results.append(measure(name, mode, options))
            print(line(results[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
