"""What it costs to watch the loss scale: `LossScaleMonitor` and `diagnose=True`, in `model.fit`.

python benchmarks/monitor.py [--backends BACKEND ...] [--policy POLICY] [--width N] [--sequence N]
    [--batch N] [--steps N] [--bare-steps N] [--repeat N] [--json FILE]

Trained are a small transformer (two blocks) and one layer of one number, whose step is nothing but
what Keras and the optimizer need: there the microseconds that are added stand out of the noise.
Each with Adam in a LossScaleOptimizer, in five variants; an epoch of each in turn, in another order
each time, in a process for each backend. Printed are ratios to the first, of times and of processor
times (which other programs disturb less, and which count what threads spin): the median of the
repetitions, in parentheses their quartiles. The aims are 1.02 with the callback, 1.05 with the
diagnosis; "above" is told where both clocks say so. An epoch has `--steps` steps; a longer one
reads the device less often. On a machine that others use, too, `taskset -c 1` before the command
keeps to one core, where times scatter least.

And what a step has more of, with 10 and with 100 variables to train, which no noise disturbs:

- JAX: equations of the traced `stateless_apply`, and bytes that the compiled one reads and writes;
- TensorFlow: nodes of the traced graph;
- torch: calls of aten, times that Python waits for the device, and numbers that Python sends there
  (each a wait, too), in a step that is taken and in one that is skipped.

The policy is float32 unless given: on a CPU 16 bits are emulated, and so slow that they would hide
what is looked for. The loss scale is there all the same.
"""

import argparse
import functools
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import running
from benchmarks.running import CLOCKS, by_clock, spread, versions
from keras_mp.diagnosis.benchmarking.recommending import in_turn, quartiles

# Settings of the optimizer, and of the callback, if there is one.
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "without": ({}, None),
    "monitor": ({}, {}),
    "trace": ({}, {"trace": True}),
    "diagnose": ({"diagnose": True}, None),
    "diagnose, trace": ({"diagnose": True}, {"trace": True}),
}
AIMS = {"monitor": 1.02, "trace": 1.02, "diagnose": 1.05, "diagnose, trace": 1.05}
# `jit_compile`, as Keras would choose it unless told: True on TensorFlow.
MODES = {
    "jax": {"jit": True},
    "tensorflow": {"graph": False, "xla": True},
    "torch": {"eager": False},
}
# What a step may do more: (rows of the table, settings of the optimizer).
WATCHES: dict[str, tuple[int, dict[str, Any]]] = {
    "trace": (1024, {}),
    "diagnose": (0, {"diagnose": True}),
    "diagnose, trace": (1024, {"diagnose": True}),
}
BLOCKS = 2


# -- counts ----------------------------------------------------------------------------------------


@functools.cache
def costs(variables: int, rows: int = 0, *, skipped: bool = False, **settings: Any) -> Counter[str]:
    """Returns what a step of the optimizer consists of, without the model; see above.

    Args:
        variables: To train, of 4 numbers each.
        rows: Of the table that steps are written to; 0 for none.
        skipped: Whether the gradients hold an inf; only torch takes another way then.
        settings: Of the LossScaleOptimizer.
    """
    import keras

    import keras_mp

    trained = [keras.Variable(np.ones(4, "float32"), name=f"v{i}") for i in range(variables)]
    optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.Adam(1e-3), **settings)
    optimizer.build(trained)
    if rows:
        optimizer._log_steps(rows)
    optimizer.scale_loss(1.0)
    gradient = np.full(4, np.inf if skipped else 1.0, "float32")
    gradients = [keras.ops.array(gradient) for _ in trained]
    of_step = {"jax": _of_jax, "tensorflow": _of_tensorflow, "torch": _of_torch}
    return of_step[keras.backend.backend()](optimizer, gradients, trained)


def _of_jax(optimizer: Any, gradients: list[Any], variables: list[Any]) -> Counter[str]:
    import jax

    given = [[v.value for v in optimizer.variables], gradients, [v.value for v in variables]]
    equations = sum(1 for _ in _equations(jax.make_jaxpr(optimizer.stateless_apply)(*given).jaxpr))
    # Keras gives the state away, too.
    lowered = jax.jit(optimizer.stateless_apply, donate_argnums=(0, 2)).lower(*given)
    accessed = lowered.compile().cost_analysis()["bytes accessed"]
    return Counter(equations=equations, bytes=int(accessed))


def _equations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        for parameter in equation.params.values():
            for each in parameter if isinstance(parameter, list | tuple) else [parameter]:
                if hasattr(each, "jaxpr"):
                    yield from _equations(each.jaxpr)


def _of_tensorflow(optimizer: Any, gradients: list[Any], variables: list[Any]) -> Counter[str]:
    import tensorflow as tf

    step = tf.function(lambda: optimizer.apply(gradients, variables))
    graph = step.get_concrete_function().graph.as_graph_def()
    bodies = sum(len(function.node_def) for function in graph.library.function)
    return Counter(nodes=len(graph.node) + bodies)


def _of_torch(optimizer: Any, gradients: list[Any], variables: list[Any]) -> Counter[str]:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found: Counter[str] = Counter()
    names = {"_local_scalar_dense": "waits", "lift_fresh": "sent"}

    class Count(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            found["calls"] += 1
            if function.overloadpacket.__name__ in names:
                found[names[function.overloadpacket.__name__]] += 1
            return function(*args, **(kwargs or {}))

    with torch.no_grad():
        optimizer.apply(gradients, variables)  # what only the first step does
        with Count():
            optimizer.apply(gradients, variables)
    return found


def added(variables: int, watch: str, *, skipped: bool = False) -> dict[str, int]:
    """Returns what a step has more of than without: 0 where it has not more."""
    rows, settings = WATCHES[watch]
    plain = costs(variables, skipped=skipped)
    watched = costs(variables, rows, skipped=skipped, **settings)
    return {name: watched[name] - plain[name] for name in plain | watched}


def counts(backend: str) -> list[dict[str, Any]]:
    found = []
    for skipped in (False, True) if backend == "torch" else (False,):
        for watch in WATCHES:
            more = {n: added(n, watch, skipped=skipped) for n in (10, 100)}
            found.append({"watch": watch, "skipped": skipped, "added": more})
    return found


# -- times -----------------------------------------------------------------------------------------


def transformer(options: argparse.Namespace) -> Any:
    import keras
    from keras import layers

    x = inputs = keras.Input((options.sequence, options.width))
    for _ in range(BLOCKS):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(4, options.width // 4)(y, y)])
        y = layers.Dense(4 * options.width, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(options.width)(y)])
    return keras.Model(inputs, layers.Dense(1, dtype="float32")(layers.GlobalAveragePooling1D()(x)))


def bare(options: argparse.Namespace) -> Any:
    import keras

    return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])


MODELS = {"transformer": transformer, "bare": bare}


class Run:
    """A variant of a model, and the data of an epoch."""

    def __init__(self, name: str, variant: str, jit: bool, options: argparse.Namespace) -> None:
        import keras

        import keras_mp

        keras.utils.set_random_seed(0)
        settings, callback = VARIANTS[variant]
        self.model = MODELS[name](options)
        optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.Adam(1e-3), **settings)
        self.model.compile(optimizer, "mse", jit_compile=jit)
        self.callbacks = [] if callback is None else [keras_mp.LossScaleMonitor(**callback)]
        self.batch = options.batch
        rows = self.batch * (options.steps if name == "transformer" else options.bare_steps)
        random = np.random.RandomState(0)
        self.x = random.randn(rows, *self.model.inputs[0].shape[1:]).astype("float32")
        self.y = random.randn(rows, 1).astype("float32")

    def fit(self) -> tuple[float, float]:
        """Returns the seconds, and the seconds of processors, that an epoch takes."""
        wall, processor = time.perf_counter(), time.process_time()
        # Its end has the loss on the host: the device is through.
        self.model.fit(
            self.x,
            self.y,
            batch_size=self.batch,
            shuffle=False,
            verbose=0,
            callbacks=list(self.callbacks),
        )
        return time.perf_counter() - wall, time.process_time() - processor


def measure(name: str, mode: str, options: argparse.Namespace) -> dict[str, Any]:
    import keras

    jit = MODES[keras.backend.backend()][mode]
    runs = {variant: Run(name, variant, jit, options) for variant in VARIANTS}
    for _ in range(2):  # compiles, and then once more with all that is kept from then on
        for run in runs.values():
            run.fit()
    times: dict[str, list[tuple[float, float]]] = {variant: [] for variant in VARIANTS}
    for variant in in_turn(list(VARIANTS), options.repeat):
        times[variant].append(runs[variant].fit())
    steps = options.steps if name == "transformer" else options.bare_steps
    found: dict[str, Any] = {"model": name, "mode": mode, "steps": steps, "variants": {}}
    for variant, taken in times.items():
        each = by_clock(taken, times["without"], steps)
        for i, clock in enumerate(CLOCKS):
            pairs = zip(taken, times["without"], strict=True)
            added = quartiles([1e6 * (a[i] - b[i]) / steps for a, b in pairs])
            each[clock]["added microseconds"] = added
        found["variants"][variant] = each
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
        "counts": counts(backend),
        "times": [measure(name, mode, options) for mode in MODES[backend] for name in MODELS],
    }


def show(found: dict[str, Any]) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    print(f"\n{found['backend']}: {versions}\n\n  more in a step{'':26}10 and 100 variables")
    for row in found["counts"]:
        few, many = row["added"]["10"], row["added"]["100"]
        more = ", ".join(f"{name} {few[name]}, {many[name]}" for name in few)
        print(f"  {row['watch'] + (' (skipped)' if row['skipped'] else ''):40}{more}")
    for times in found["times"]:
        print(
            f"\n  {times['model']}, {times['mode']}, {times['steps']} steps an epoch\n"
            f"  {'':17}{'ms':>8}  {'time':24}{'processor time':24}microseconds added (processor)"
        )
        for variant, each in times["variants"].items():
            ratios = "".join(f"{spread(each[clock]['ratio']):24}" for clock in CLOCKS)
            more, spent = (each[clock]["added microseconds"][1] for clock in CLOCKS)
            over = times["model"] == "transformer" and variant in AIMS
            over = over and all(each[clock]["ratio"][1] > AIMS[variant] for clock in CLOCKS)
            print(
                f"  {variant:17}{each['wall']['milliseconds']:8.3f}  {ratios}"
                f"{more:8.0f} ({spent:.0f}){f'  above {AIMS[variant]}' if over else ''}"
            )


def settings(options: argparse.Namespace) -> str:
    return (
        f"{options.policy}, width {options.width}, sequences of {options.sequence}, batches of "
        f"{options.batch}, {options.repeat} repetitions"
    )


def main() -> int:
    parser = running.parser(__doc__)
    parser.add_argument("--policy", default="float32")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20, help="an epoch, of the transformer")
    parser.add_argument("--bare-steps", type=int, default=300, help="an epoch, of one layer")
    parser.add_argument("--repeat", type=int, default=15)
    return running.command(__file__, parser, inside, show, settings)


if __name__ == "__main__":
    raise SystemExit(main())
