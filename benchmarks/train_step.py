"""What loss scaling costs in a whole training step, through `model.fit`.

python benchmarks/train_step.py [--backends BACKEND ...] [--models MODEL ...] [--policy POLICY]
    [--steps N] [--batch N] [--width N] [--sequence N] [--repeat N] [--json FILE]

Trained are a small convnet (images of 28x28x1, three convolutions and a dense layer) and a small
transformer (two blocks), with

- plain: keras.optimizers.Adam;
- Keras' own: keras.optimizers.LossScaleOptimizer around it;
- ours: keras_mp.LossScaleOptimizer around it;
- ours, fused: the same with `fused=True`. Not on JAX, where there is no kernel and it is "ours".

An epoch of each in turn, in another order each time, in a process for each backend, and per way of
running: JAX with jit, TensorFlow as graph and with XLA, torch eager. Printed are milliseconds a
step, and ratios to plain, of times and of processor times (which other programs disturb less, and
which count what threads spin): the median of the repetitions, in parentheses their quartiles. The
aim for ours is 1.03; "above" is told where both clocks say so. What `fit` does once an epoch is
part of the time, the same for each variant, and spread over `--steps` steps. On a machine that
others use, too, `taskset -c 1` before the command keeps to one core, where times scatter least.

The policy is float32 unless given: on a CPU 16 bits are emulated, and so slow that they would hide
what is looked for. The loss scale is there all the same. Before it is timed, each variant is
trained for two epochs, after which the loss must be a finite number, and below the first.
"""

import argparse
import functools
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import monitor, running
from benchmarks.running import CLOCKS, by_clock, spread, versions
from keras_mp.diagnosis.benchmarking.recommending import in_turn

AIMS = {"ours": 1.03, "ours, fused": 1.03}
# Why a median is above the aim, where it is: (backend, model, variant).
WHY = {("torch", "convnet", "ours"): "0.1 to 0.3 ms of Python a step, whatever its size"}
CLASSES = 10


def makers(rate: float = 1e-3, scale: float = 2.0**15) -> dict[str, Callable[[], Any]]:
    """Returns functions that make the optimizers, by variant; "plain" first.

    Args:
        rate: The learning rate.
        scale: The loss scale to begin with.
    """
    import keras

    import keras_mp

    def plain() -> Any:
        return keras.optimizers.Adam(rate)

    def own() -> Any:
        return keras.optimizers.LossScaleOptimizer(plain(), initial_scale=scale)

    def ours(**settings: Any) -> Any:
        return keras_mp.LossScaleOptimizer(plain(), initial_scale=scale, **settings)

    found: dict[str, Callable[[], Any]] = {"plain": plain, "Keras' own": own, "ours": ours}
    if keras.backend.backend() != "jax":
        found["ours, fused"] = functools.partial(ours, fused=True)
    return found


# -- what is trained -------------------------------------------------------------------------------


def convnet(_: argparse.Namespace) -> Any:
    import keras
    from keras import layers

    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(16, 3, strides=2, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(CLASSES, dtype="float32"),
        ]
    )


def _classes(rows: int, random: np.random.Generator) -> Any:
    return random.integers(CLASSES, size=(rows, 1))


def _numbers(rows: int, random: np.random.Generator) -> Any:
    return random.standard_normal((rows, 1), "float32")


# Name -> the model, its targets, its loss.
MODELS: dict[str, tuple[Callable[[argparse.Namespace], Any], Callable[..., Any], str]] = {
    "convnet": (convnet, _classes, "SparseCategoricalCrossentropy"),
    "transformer": (monitor.transformer, _numbers, "MeanSquaredError"),
}


class Run:
    """A model with one of the optimizers, and the data of an epoch."""

    def __init__(self, name: str, make: Any, jit: bool, options: argparse.Namespace) -> None:
        import keras

        keras.utils.set_random_seed(0)
        build, targets, loss = MODELS[name]
        self.model = build(options)
        self.optimizer = make()
        settings = {"from_logits": True} if name == "convnet" else {}
        self.model.compile(
            self.optimizer,
            getattr(keras.losses, loss)(**settings),
            jit_compile=jit,
            auto_scale_loss=False,  # would wrap the plain one under mixed_float16
        )
        self.batch = options.batch
        random = np.random.default_rng(0)
        rows = options.batch * options.steps
        self.x = random.standard_normal((rows, *self.model.inputs[0].shape[1:]), "float32")
        self.y = targets(rows, random)
        self.losses: list[float] = []

    def fit(self) -> tuple[float, float]:
        """Returns the seconds, and the seconds of processors, that an epoch takes."""
        wall, processor = time.perf_counter(), time.process_time()
        # Its end has the loss on the host: the device is through.
        history = self.model.fit(
            self.x, self.y, batch_size=self.batch, shuffle=False, verbose=0
        ).history
        taken = time.perf_counter() - wall, time.process_time() - processor
        self.losses.append(history["loss"][0])
        return taken

    def warm_up(self) -> None:
        """Compiles, and then trains once more with all that is kept from then on.

        Raises:
            ArithmeticError: The loss is not finite, or did not fall: this does not train.
        """
        self.fit()
        self.fit()
        first, second = self.losses
        if not (math.isfinite(second) and second < first):
            raise ArithmeticError(f"the loss went from {first} to {second}: this does not train")

    @property
    def fallback(self) -> str | None:
        """Why the fused kernels were not used, if they were asked for."""
        return getattr(self.optimizer, "fused_fallback", None)


# -- times -----------------------------------------------------------------------------------------


def measure(name: str, mode: str, options: argparse.Namespace) -> dict[str, Any]:
    import keras

    jit = monitor.MODES[keras.backend.backend()][mode]
    runs = {variant: Run(name, make, jit, options) for variant, make in makers().items()}
    for run in runs.values():
        run.warm_up()
    times: dict[str, list[tuple[float, float]]] = {variant: [] for variant in runs}
    for variant in in_turn(list(runs), options.repeat):
        times[variant].append(runs[variant].fit())
    found: dict[str, Any] = {"model": name, "mode": mode, "variants": {}}
    for variant, taken in times.items():
        found["variants"][variant] = {
            "loss": runs[variant].losses[-1],
            "fallback": runs[variant].fallback,
            **by_clock(taken, times["plain"], options.steps),
        }
    return found


# -- the command -----------------------------------------------------------------------------------


def inside(options: argparse.Namespace) -> dict[str, Any]:
    """Measures on the backend that this process was started with."""
    import keras

    keras.config.set_dtype_policy(options.policy)
    backend = keras.backend.backend()
    return {
        "backend": backend,
        "versions": versions(backend, f"{backend}-cpu"),
        "times": [
            measure(name, mode, options)
            for mode in monitor.MODES[backend]
            for name in options.models
        ],
    }


def show(found: dict[str, Any]) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    print(f"\n{found['backend']}: {versions}")
    for times in found["times"]:
        print(
            f"\n  {times['model']}, {times['mode']}\n"
            f"  {'':14}{'ms':>9}  {'time to plain':24}processor time to plain"
        )
        for variant, each in times["variants"].items():
            ratios = "".join(f"{spread(each[clock]['ratio']):24}" for clock in CLOCKS)
            aim = AIMS.get(variant, math.inf)
            over = all(each[clock]["ratio"][1] > aim for clock in CLOCKS)
            notes = [f"aim {aim}{', above' if over else ''}"] if variant in AIMS else []
            reason = WHY.get((found["backend"], times["model"], variant))
            notes += [reason] if over and reason else []
            notes += [f"not fused: {each['fallback']}"] if each["fallback"] else []
            print(f"  {variant:14}{each['wall']['milliseconds']:9.3f}  {ratios}{'; '.join(notes)}")


def settings(options: argparse.Namespace) -> str:
    return (
        f"{options.policy}, batches of {options.batch}, {options.steps} steps an epoch, "
        f"{options.repeat} repetitions; transformer of width {options.width}, sequences of "
        f"{options.sequence}"
    )


def main() -> int:
    parser = running.parser(__doc__)
    whole = functools.partial(parser.add_argument, type=int)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--policy", default="float32")
    whole("--steps", default=20, help="of an epoch, which is what is timed")
    whole("--batch", default=16)
    whole("--width", default=128, help="of the transformer")
    whole("--sequence", default=64, help="of the transformer")
    whole("--repeat", default=15)
    return running.command(__file__, parser, inside, show, settings)


if __name__ == "__main__":
    raise SystemExit(main())
