"""Whether a rewritten model learns as well as in float32: five tasks, several seeds.

python -m benchmarks.graph_rewrite_accuracy [--models MODEL ...] [--modes MODE ...] [--seeds N]
    [--epochs N] [--dtype DTYPE] [--json FILE]

Run from the root of the repository; KERAS_BACKEND chooses the backend. The convnet and the
transformer learn scikit-learn's digits, 1437 images to train on and 360 to test on. A bidirectional
LSTM tells good sentences from bad ones, in which "not" turns what follows. Two GRUs say what comes
next in a sum of waves with noise, after 48 steps and after 1,000; their score is the share of the
variance that they explain, in percent as the accuracies of the others. Each seed trains twice, in
float32 and rewritten, from the same weights, with the same batches in the same order; dropout draws
the same masks. Both have a loss scale. So the difference of a pair is that of the arithmetic, and
of what it leads to: a training run is chaotic, and any rounding leads to another model of the same
quality.

The verdict is "within noise" if the mean of the paired differences is no further from 0 than 2 of
its standard errors, or than 0.5 percentage points. The first bound is the usual one of a paired
comparison. The second is needed as the spread of few seeds may be 0, and is small: less than 2 of
the 360 images, while the standard error of one accuracy of 97 % is 0.9 points. Further below 0 than
both is "WORSE", and the program returns 1.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_mp

POINTS = 0.5
STANDARD_ERRORS = 2.0
BATCH = 64

MODES: dict[str, dict[str, bool]] = {
    "jit": {"jit_compile": True},
    "no jit": {"jit_compile": False, "run_eagerly": keras.backend.backend() != "tensorflow"},
}


def convnet() -> Any:
    x = inputs = keras.Input((8, 8, 1))
    for filters in (16, 32):
        x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = keras.layers.BatchNormalization(momentum=0.9)(x)
        x = keras.layers.ReLU()(x)
    x = keras.layers.Flatten()(keras.layers.MaxPooling2D()(x))
    x = keras.layers.Dropout(0.25)(keras.layers.Dense(64, activation="relu")(x))
    return keras.Model(inputs, keras.layers.Dense(10, activation="softmax")(x))


class Positions(keras.layers.Layer):  # type: ignore[misc]
    """Adds a learned vector to each token."""

    def build(self, shape: Any) -> None:
        self.table = self.add_weight(shape=shape[1:], initializer="uniform", name="table")

    def call(self, x: Any) -> Any:
        return x + self.table


def transformer() -> Any:
    """Each row of an image is a token."""
    inputs = keras.Input((8, 8, 1))
    x = keras.layers.Dense(48)(keras.layers.Reshape((8, 8))(inputs))
    x = Positions()(x)
    for _ in range(2):
        y = keras.layers.LayerNormalization()(x)
        x = keras.layers.Add()([x, keras.layers.MultiHeadAttention(4, 12)(y, y)])
        y = keras.layers.Dense(96, activation="gelu")(keras.layers.LayerNormalization()(x))
        x = keras.layers.Add()([x, keras.layers.Dense(48)(y)])
    x = keras.layers.Dropout(0.1)(keras.layers.Flatten()(keras.layers.LayerNormalization()(x)))
    return keras.Model(inputs, keras.layers.Dense(10, activation="softmax")(x))


def bilstm() -> Any:
    """Each word is a token."""
    inputs = keras.Input((WORDS,), dtype="int32")
    x = keras.layers.Embedding(VOCABULARY, 16, mask_zero=True)(inputs)
    x = keras.layers.Bidirectional(keras.layers.LSTM(16))(x)
    return keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(x))


def forecaster(steps: int) -> Any:
    inputs = keras.Input((steps, 1))
    x = keras.layers.GRU(24)(inputs)
    x = keras.layers.Dense(16, activation="relu")(x)
    return keras.Model(inputs, keras.layers.Dense(1)(x))


Data = tuple[Any, Any, Any, Any]
"""Inputs and targets to train on, and to test on."""
WORDS, VOCABULARY, NOT = 20, 40, 1


def digits() -> Data:
    """Returns images (., 8, 8, 1) and labels."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    x, y = (x[order] / 16.0).astype("float32").reshape(-1, 8, 8, 1), y[order].astype("int32")
    return x[360:], y[360:], x[:360], y[:360]


def sentences() -> Data:
    """Returns sentences of 8 to 20 words, filled up with 0, and whether they are good.

    Words 2 to 13 are good and 14 to 25 are bad, each more or less so; the others say nothing.
    """
    random = np.random.RandomState(0)
    worth = np.zeros(VOCABULARY)
    worth[2:14], worth[14:26] = random.rand(12) + 0.2, -random.rand(12) - 0.2
    words = random.randint(2, VOCABULARY, (6000, WORDS))
    words[random.rand(*words.shape) < 0.2] = NOT
    lengths = random.randint(8, WORDS + 1, len(words))
    words[np.arange(WORDS) >= lengths[:, None]] = 0
    before = np.concatenate([np.zeros((len(words), 1), int), words[:, :-1]], axis=1)
    total = (worth[words] * np.where(before == NOT, -1.0, 1.0)).sum(axis=1)
    clear = np.abs(total) > 0.3
    words, good = words[clear].astype("int32"), (total[clear] > 0).astype("int32")
    return words[1000:], good[1000:], words[:1000], good[:1000]


def waves(count: int, steps: int) -> Data:
    """Returns sequences (., steps, 1) of two waves with noise, and what comes next."""
    random = np.random.RandomState(0)
    time = np.arange(steps + 1)
    period = random.uniform(8, 24, (2, count, 1))
    phase = random.uniform(0, 2 * np.pi, (2, count, 1))
    x = np.sin(2 * np.pi * time / period + phase).sum(axis=0)
    x = (x + 0.05 * random.randn(*x.shape)).astype("float32")
    tested = count // 4
    x, y = x[:, :-1, None], x[:, -1:]
    return x[tested:], y[tested:], x[:tested], y[:tested]


@dataclass(frozen=True)
class Task:
    """What a model learns.

    Attributes:
        build: Returns the model.
        data: Returns the data.
        epochs: How long it learns.
        classes: Whether it tells classes apart; else it foretells a number.
    """

    build: Callable[[], Any]
    data: Callable[[], Data]
    epochs: int
    classes: bool = True


TASKS: dict[str, Task] = {
    "convnet": Task(convnet, digits, 6),
    "transformer": Task(transformer, digits, 12),
    "bilstm": Task(bilstm, sentences, 10),
    "forecaster": Task(lambda: forecaster(48), lambda: waves(4000, 48), 12, classes=False),
    "1000 steps": Task(lambda: forecaster(1000), lambda: waves(640, 1000), 12, classes=False),
}


def train(
    name: str,
    seed: int,
    rewritten: bool,
    epochs: int,
    data: Data,
    dtype: str = "float16",
    **compile: bool,
) -> tuple[float, Any]:
    """Returns the score on the test data in percent, and the model."""
    x, y, x_test, y_test = data
    keras.utils.set_random_seed(seed)
    model = TASKS[name].build()
    optimizer = keras.optimizers.Adam(2e-3)
    if rewritten:
        optimizer = keras_mp.graph_rewrite.enable(optimizer, dtype=dtype)
    else:
        # On TensorFlow plain Adam squares the gradients of a word that stands twice one by one.
        optimizer = keras_mp.LossScaleOptimizer(optimizer)
    if TASKS[name].classes:
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"], **compile)
    else:
        model.compile(optimizer, "mse", metrics=["mse"], **compile)
    keras.utils.set_random_seed(seed)  # the same order of batches
    model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=0)
    found = model.evaluate(x_test, y_test, batch_size=360, verbose=0)[1]
    score = found if TASKS[name].classes else 1.0 - found / float(np.var(y_test))
    return 100 * score, model


def compare(name: str, mode: str, options: argparse.Namespace) -> dict[str, Any]:
    """Trains every pair; returns the scores and what the rewritten models say of themselves."""
    data = TASKS[name].data()
    epochs = options.epochs or TASKS[name].epochs
    found: dict[str, Any] = {"model": name, "mode": mode, "epochs": epochs}
    found.update({"float32": [], "rewritten": [], "scale": [], "share": [], "missed": 0})
    for seed in range(options.seeds):
        found["float32"].append(train(name, seed, False, epochs, data, **MODES[mode])[0])
        accuracy, model = train(name, seed, True, epochs, data, options.dtype, **MODES[mode])
        report = keras_mp.graph_rewrite.report(model)
        found["rewritten"].append(accuracy)
        found["scale"].append(float(model.optimizer.loss_scale))
        found["share"].append(report.low_flops_share)
        found["missed"] += sum(report.missed.values())
        keras_mp.graph_rewrite.disable()
    return found


def paired(reference: Sequence[float], other: Sequence[float]) -> tuple[float, float, str]:
    """Returns mean and standard error of the differences, in points, and the verdict.

    Args:
        reference: Accuracies in percent, at least two.
        other: Those of the same seeds.
    """
    differences = [b - a for a, b in zip(reference, other, strict=True)]
    mean = statistics.mean(differences)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    if abs(mean) <= max(POINTS, STANDARD_ERRORS * error):
        return mean, error, "within noise"
    return mean, error, "better" if mean > 0 else "WORSE"


def line(found: Mapping[str, Any]) -> str:
    text = f"{found['model']:12}{found['mode']:8}"
    for kind in ("float32", "rewritten"):
        text += f"{statistics.mean(found[kind]):8.2f} ± {statistics.stdev(found[kind]):4.2f} "
    mean, error, verdict = paired(found["float32"], found["rewritten"])
    scales = f"{min(found['scale']):.7g} to {max(found['scale']):.7g}"
    share = f"{100 * min(found['share']):.1f} %"
    return text + f"{mean:+9.2f} ± {error:4.2f}  {verdict:13}{share:>8}  {scales}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--seeds", type=int, default=5, help="at least 2")
    parser.add_argument("--epochs", type=int, help="default: as many as each task needs")
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="float16")
    parser.add_argument("--json", type=Path, help="write what was measured to this file, too")
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error("a spread needs --seeds of at least 2")
    print(
        f"keras {keras.__version__} on {keras.backend.backend()}, {options.dtype}, "
        f"{options.seeds} seeds; score on test data in percent, mean ± standard deviation; "
        "difference ± standard error\n"
        f"{'model':12}{'mode':8}{'float32':>14}{'rewritten':>17}{'difference':>16}  "
        f"{'verdict':13}{'low ops':>8}  loss scale at the end"
    )
    results = []
    for name in options.models:
        for mode in options.modes:
            results.append(compare(name, mode, options))
            print(line(results[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    worse = [f for f in results if paired(f["float32"], f["rewritten"])[2] == "WORSE"]
    return 1 if worse else 0


if __name__ == "__main__":
    raise SystemExit(main())
