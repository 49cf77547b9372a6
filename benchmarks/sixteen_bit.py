"""How weights in 16 bits learn, and what a step with them costs, beside a mixed policy.

python -m benchmarks.sixteen_bit [--tasks TASK ...] [--seeds N] [--steps N] [--time] [--json FILE]

Run from the root of the repository; KERAS_BACKEND chooses the backend. The tasks:

- `regression`: weights near 1 whose targets are a few thousandths away, with small steps of SGD;
- `digits`: a convolutional net on scikit-learn's digits;
- `language`: a small transformer that predicts the next letter of this repository's pages.

Each seed trains every variant from the same weights, with the same batches. The figure is the loss
of the last tenth of the steps: mean over the seeds, and their standard deviation. With `--time`: a
training step of a dense net of 6 million parameters, in turns, as quartiles of the ratio to the
mixed policy's. With 64 rows a batch most of a step is the optimizer's; 512 are more like training.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_mp
from benchmarks.running import machine, spread, versions
from keras_mp.diagnosis.benchmarking.recommending import in_turn, ratios

Make = Callable[[Any], Any]
# Name -> (policy, what is around the optimizer).
VARIANTS: dict[str, tuple[str, Make]] = {
    "float32": ("float32", lambda inner: inner),
    "mixed": ("mixed_bfloat16", lambda inner: inner),
    "plain bfloat16": ("bfloat16", lambda inner: inner),
    "MasterWeights": ("bfloat16", keras_mp.MasterWeights),
    "split": ("bfloat16", lambda inner: keras_mp.MasterWeights(inner, "split")),
    "split, slots": (
        "bfloat16",
        lambda inner: keras_mp.MasterWeights(inner, "split", slots="bfloat16"),
    ),
    "StochasticRounding": ("bfloat16", keras_mp.StochasticRounding),
    "StochasticRounding, slots": (
        "bfloat16",
        lambda inner: keras_mp.StochasticRounding(inner, slots="bfloat16"),
    ),
}
LETTERS, LENGTH = 96, 32
# How a step can run -> `jit_compile` of `compile`.
_MODES: dict[str, dict[str, bool]] = {
    "jax": {"jitted": True},
    "tensorflow": {"jitted": True, "graph": False},
    "torch": {"eager": False},
}


class Task:
    """What is learned.

    Args:
        model: Makes it, under the policy of the moment.
        optimizer: Makes the inner optimizer.
        loss: As of `compile`.
        data: Returns (x, y) of a seed.
        batch: Rows of a step.
        steps: How many.
    """

    def __init__(
        self, model: Any, optimizer: Any, loss: Any, data: Any, batch: int, steps: int
    ) -> None:
        self.model, self.optimizer, self.loss, self.data = model, optimizer, loss, data
        self.batch, self.steps = batch, steps


def _regression() -> Any:
    ones = keras.initializers.Ones()
    dense = keras.layers.Dense(1, use_bias=False, kernel_initializer=ones)
    return keras.Sequential(
        [keras.Input((16,)), dense, keras.layers.Activation("linear", dtype="float32")]
    )


def _near_one(seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(4096, 16)).astype("float32")
    weights = 1 + random.uniform(-0.01, 0.01, size=(16, 1))
    return x, (x @ weights).astype("float32")


def _convnet() -> Any:
    layers = keras.layers
    x = inputs = keras.Input((8, 8, 1))
    for filters in (16, 32):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    x = layers.Dense(64, activation="relu")(layers.Flatten()(layers.MaxPooling2D()(x)))
    return keras.Model(inputs, layers.Dense(10, dtype="float32")(x))


def _digits(seed: int) -> tuple[Any, Any]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return (x / 16.0).astype("float32").reshape(-1, 8, 8, 1), y.astype("int32")


class _Positions(keras.layers.Layer):  # type: ignore[misc]
    """Adds a learned vector to each letter."""

    def build(self, shape: Any) -> None:
        self.table = self.add_weight(shape=shape[1:], initializer="uniform", name="table")

    def call(self, x: Any) -> Any:
        return x + self.table


def _transformer() -> Any:
    layers = keras.layers
    inputs = keras.Input((LENGTH,), dtype="int32")
    x = _Positions()(layers.Embedding(LETTERS, 64)(inputs))
    for _ in range(2):
        y = layers.LayerNormalization(dtype="float32")(x)
        y = layers.MultiHeadAttention(4, 16)(y, y, use_causal_mask=True)
        x = layers.Add()([x, y])
        y = layers.Dense(128, activation="gelu")(layers.LayerNormalization(dtype="float32")(x))
        x = layers.Add()([x, layers.Dense(64)(y)])
    return keras.Model(inputs, layers.Dense(LETTERS, dtype="float32")(x))


def _letters(seed: int) -> tuple[Any, Any]:
    root = Path(__file__).parents[1]
    pages = [*sorted((root / "docs").rglob("*.md")), root / "README.md"]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    codes = np.array([ord(letter) - 32 for letter in text if 32 <= ord(letter) < 128], "int32")
    starts = np.random.default_rng(seed).integers(0, len(codes) - LENGTH - 1, 8192)
    rows = codes[starts[:, None] + np.arange(LENGTH + 1)]
    return rows[:, :-1], rows[:, 1:]


def tasks() -> dict[str, Task]:
    """Returns the tasks by name."""
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    sgd, adam = keras.optimizers.SGD, keras.optimizers.Adam
    return {
        "regression": Task(_regression, lambda: sgd(2e-3), "mse", _near_one, 32, 1000),
        "digits": Task(_convnet, lambda: adam(5e-4), cross_entropy, _digits, 64, 400),
        "language": Task(_transformer, lambda: adam(1e-3), cross_entropy, _letters, 32, 400),
    }


def train(task: Task, variant: str, seed: int, steps: int) -> list[float]:
    """Returns the loss of each step."""
    policy, wrap = VARIANTS[variant]
    keras.utils.set_random_seed(seed)
    keras.config.set_dtype_policy("float32")
    start = [np.asarray(weight) for weight in task.model().get_weights()]
    keras.utils.clear_session()
    keras.config.set_dtype_policy(policy)
    model = task.model()
    keras.config.set_dtype_policy("float32")
    model.set_weights(start)
    model.compile(wrap(task.optimizer()), task.loss)
    x, y = task.data(seed)
    order = np.random.default_rng(seed).integers(0, len(x), (steps, task.batch))
    losses = []
    for rows in order:
        model.reset_metrics()  # which are means of all steps
        losses.append(float(model.train_on_batch(x[rows], y[rows])))
    return losses


def quality(names: Sequence[str], seeds: int, steps: int | None) -> dict[str, Any]:
    """Returns, for each task and variant, the losses of the end, one a seed."""
    found: dict[str, Any] = {}
    for name in names:
        task = tasks()[name]
        found[name] = {}
        for variant in VARIANTS:
            ends = []
            for seed in range(seeds):
                losses = train(task, variant, seed, steps or task.steps)
                ends.append(statistics.mean(losses[-max(1, len(losses) // 10) :]))
                sys.stderr.write(f"{name}, {variant}, seed {seed}: {ends[-1]:.4g}\n")
            found[name][variant] = ends
    return found


def times(
    batch: int, jit: bool | str, width: int = 1024, repeat: int = 15
) -> dict[str, dict[str, Any]]:
    """Returns quartiles of the ratio of a training step to that of the mixed policy."""
    x = np.random.default_rng(0).normal(size=(batch, width)).astype("float32")
    models = {}
    for variant, (policy, wrap) in VARIANTS.items():
        keras.config.set_dtype_policy(policy)
        layers = [keras.layers.Dense(width, activation="relu") for _ in range(6)]
        models[variant] = keras.Sequential([keras.Input((width,)), *layers])
        keras.config.set_dtype_policy("float32")
        models[variant].compile(wrap(keras.optimizers.Adam(1e-4)), "mse", jit_compile=jit)
        for _ in range(3):
            models[variant].train_on_batch(x, x)
    taken: dict[str, list[float]] = {name: [] for name in models}
    for name in in_turn(list(models), repeat):
        start = time.perf_counter()
        models[name].train_on_batch(x, x)
        taken[name].append(time.perf_counter() - start)
    return {
        name: {
            "milliseconds": 1e3 * statistics.median(each),
            "ratio": ratios(each, taken["mixed"]),
        }
        for name, each in taken.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="*", choices=list(tasks()), default=list(tasks()))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    backend = keras.backend.backend()
    found: dict[str, Any] = {"backend": backend, "machine": machine(), "versions": versions()}
    found["quality"] = quality(options.tasks, options.seeds, options.steps)
    print(f"{backend}; {found['machine']}")
    for name, variants in found["quality"].items():
        print(f"\n{name}: loss of the last tenth of the steps, {options.seeds} seeds")
        for variant, ends in variants.items():
            apart = statistics.stdev(ends) if len(ends) > 1 else 0.0
            print(f"  {variant:26} {statistics.mean(ends):.4g} (standard deviation {apart:.2g})")
    if options.time:
        found["times"] = {}
        for mode, jit in _MODES[backend].items():
            for batch in (64, 512):
                name = f"{mode}, batch {batch}"
                found["times"][name] = rows = times(batch, jit)
                print(f"\na training step, {name}: ratio to the mixed policy's, median (quartiles)")
                for variant, each in rows.items():
                    print(
                        f"  {variant:26} {spread(each['ratio'], 2)}, {each['milliseconds']:.1f} ms"
                    )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
