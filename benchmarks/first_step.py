"""What people wait for before anything trains: until `fit` is through with its first batch.

python benchmarks/first_step.py [--backends BACKEND ...] [--models MODEL ...] [--layers N]
    [--modes MODE ...] [--variants VARIANT ...] [--repeat N] [--json FILE]

Each variant gets a process of its own, in turn, `--repeat` times: a fork of one that has imported
Keras. It builds the model, and then measures seconds of the processors from `compile` to the end of
a `fit` of one batch: tracing, compiling, one step. Importing and building are the same for all, and
not counted. No cache of compiled programs is used. Printed are the medians, their ratio to the
plain optimizer with its quartiles in parentheses, and the aim; "missed" is told where the median is
above it. All of it takes hours.

- dense: 200 layers Dense(64) (`--layers`); mobilenet: MobileNetV2 for images of 96x96;
  transformer: 12 blocks of 16 heads, 64 wide. The policy is mixed_float16.
- options: a quarter of the dense layers, with what an optimizer or a callback can do besides. Each
  is compared with the plain optimizer that does the same, where there is one.

The counts come from one more process of each. On JAX they are lines of the program before it is
optimised, fusions afterwards, and bytes of temporary memory; on TensorFlow nodes of the graph. And
on all backends programs that are compiled: by the first `fit`, by a second one, by one after
`load_weights`, and by one after a second `compile` (of `dense` only).
"""

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import first_step_counts, running
from keras_mp.diagnosis.benchmarking.recommending import in_turn, ratios

WIDTH, HEADS, BLOCKS, BATCH = 64, 16, 12, 8
PLAIN, KERAS, OURS = "plain", "Keras' own", "ours"
OPTIONS = "options"


# Settings of the plain optimizer that its counterpart has, too.
_SETTINGS: dict[str, dict[str, Any]] = {
    "accumulation": {"gradient_accumulation_steps": 2},
    "averages (EMA)": {"use_ema": True},
    "clipping": {"global_clipnorm": 1.0},
}


class Variant(NamedTuple):
    """What is measured.

    `make` returns the optimizer; `to` is the name of the variant that it is compared with, None
    for a plain one; `policy` is that of the model; `prepare` is handed the model before it is
    compiled; `callbacks` returns those of `fit`.
    """

    make: Callable[[], Any]
    to: str | None = None
    policy: str = "mixed_float16"
    prepare: Callable[[Any], Any] | None = None
    callbacks: Callable[[], list[Any]] = list


def variants() -> dict[str, Variant]:
    """Returns the variants on the backend of this process, plain ones first."""
    import keras

    import keras_mp

    adam = keras.optimizers.Adam

    def ours(**settings: Any) -> Any:
        return keras_mp.LossScaleOptimizer(adam(), **settings)

    def watched(**settings: Any) -> Callable[[], list[Any]]:
        return lambda: [keras_mp.LossScaleMonitor(**settings)]

    found = {
        PLAIN: Variant(adam),
        "plain, float32": Variant(adam, policy="float32"),
        "plain, bfloat16": Variant(adam, policy="bfloat16"),
        KERAS: Variant(lambda: keras.optimizers.LossScaleOptimizer(adam()), PLAIN),
        OURS: Variant(ours, PLAIN),
        "fused=True": Variant(lambda: ours(fused=True), PLAIN),
        "diagnose=True": Variant(lambda: ours(diagnose=True), PLAIN),
        "protect_state": Variant(ours, PLAIN, prepare=keras_mp.protect_state),
        "monitor": Variant(ours, PLAIN, callbacks=watched()),
        "trace": Variant(ours, PLAIN, callbacks=watched(trace=True)),
        "graph rewrite": Variant(
            lambda: keras_mp.graph_rewrite.enable(adam()), "plain, float32", "float32"
        ),
        "master weights": Variant(
            lambda: keras_mp.MasterWeights(adam()), "plain, bfloat16", "bfloat16"
        ),
        "stochastic rounding": Variant(
            lambda: keras_mp.StochasticRounding(adam()), "plain, bfloat16", "bfloat16"
        ),
    }
    for name, settings in _SETTINGS.items():
        plain = f"plain, {name}"
        found[plain] = Variant(lambda settings=settings: adam(**settings))
        found[name] = Variant(
            lambda settings=settings: keras_mp.LossScaleOptimizer(adam(**settings)), plain
        )
    if keras.backend.backend() == "jax":  # there is no kernel: it is "ours"
        del found["fused=True"]
    return found


# Backend -> way of running -> `jit_compile`.
MODES = {
    "jax": {"jit": True},
    "tensorflow": {"graph": False, "xla": True},
    "torch": {"eager": False, "torch.compile": True},
}
AIMS = {"jit": 1.20, "graph": 1.10, "xla": 1.25, "eager": 1.02, "torch.compile": 1.25}
AIM_OF_OPTIONS = 1.5


# -- what is trained -------------------------------------------------------------------------------


def dense(layers: int) -> Any:
    import keras

    x = inputs = keras.Input((WIDTH,))
    for _ in range(layers):
        x = keras.layers.Dense(WIDTH)(x)
    return keras.Model(inputs, x)


def mobilenet(_: int) -> Any:
    import keras

    last = keras.config.image_data_format() == "channels_last"
    shape = (96, 96, 3) if last else (3, 96, 96)
    return keras.applications.MobileNetV2(shape, weights=None, classes=10)


def transformer(_: int) -> Any:
    import keras
    from keras import layers

    x = inputs = keras.Input((16, WIDTH))
    for _ in range(BLOCKS):
        y = layers.LayerNormalization()(x)
        # Without dropout JAX has no attention in float16 on CPUs ("F16_F16_F32").
        attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, dropout=0.1)
        x = layers.Add()([x, attention(y, y)])
        y = layers.Dense(4 * WIDTH, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(WIDTH)(y)])
    return keras.Model(inputs, layers.Dense(1)(x))


MODELS: dict[str, Callable[[int], Any]] = {
    "dense": dense,
    "mobilenet": mobilenet,
    "transformer": transformer,
    OPTIONS: lambda layers: dense(layers // 4),
}


class Run:
    """A model with a variant, and a batch for it."""

    def __init__(self, model: str, variant: str, jit: bool, layers: int) -> None:
        import keras

        self.variant = variants()[variant]
        keras.utils.set_random_seed(0)
        keras.config.set_dtype_policy(self.variant.policy)
        self.model = MODELS[model](layers)
        if self.variant.prepare is not None:
            self.variant.prepare(self.model)
        self._jit = jit
        random = np.random.default_rng(0)
        self.x, self.y = (
            random.standard_normal((BATCH, *shape[1:]), "float32")
            for shape in (self.model.input_shape, self.model.output_shape)
        )

    def compile(self) -> None:
        """Compiles the model with a new optimizer."""
        # Keras would wrap the plain one under mixed_float16.
        self.model.compile(self.variant.make(), "mse", jit_compile=self._jit, auto_scale_loss=False)

    def fit(self) -> None:
        """Trains for one batch."""
        callbacks = self.variant.callbacks()
        self.model.fit(self.x, self.y, batch_size=BATCH, verbose=0, callbacks=callbacks)


# -- measuring -------------------------------------------------------------------------------------


def first_step(ask: str, model: str, variant: str, jit: bool, layers: int) -> dict[str, Any]:
    """Returns the seconds of the first step of this process, or the counts of it."""
    run = Run(model, variant, jit, layers)
    if ask == "counts":
        # Of large models four compilations take many minutes, and tell nothing else; with averages
        # a second `fit` of the plain optimizer fails on JAX.
        count = first_step_counts.of if model == "dense" else first_step_counts.of_program
        return count(run)
    began = time.process_time()
    run.compile()
    run.fit()
    return {"seconds": time.process_time() - began}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the rows of all models, on the backend of this process."""
    import keras

    backend = keras.backend.backend()
    to = {name: variant.to for name, variant in variants().items() if variant.to is not None}
    rows = []
    for mode, jit in MODES[backend].items():
        if options.modes is not None and mode not in options.modes:
            continue
        for model in options.models:
            names = list(to) if model == OPTIONS else [KERAS, OURS]
            names = [each for each in names if each in (options.variants or names)]
            if not names:
                continue
            aim = AIM_OF_OPTIONS if model == OPTIONS else AIMS[mode]
            for row in _of_variants(names, to, model, jit, options):
                row_aim = None if row["variant"] == KERAS else aim
                rows.append({"mode": mode, "model": model, "aim": row_aim, **row})
    return {"backend": backend, "rows": rows}


def _of_variants(
    names: Sequence[str],
    to: dict[str, str],
    model: str,
    jit: bool,
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    turns = list(dict.fromkeys([*names, *(to[name] for name in names)]))
    times: dict[str, list[float]] = {name: [] for name in turns}
    # Importing takes longer than most of what is measured, so it is done once, before the forks.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["keras", "tensorflow"])
    with context.Pool(1, maxtasksperchild=1) as pool:

        def ask(what: str, name: str) -> dict[str, Any]:
            found: dict[str, Any] = pool.apply(first_step, (what, model, name, jit, options.layers))
            print(f"{model}, jit_compile={jit}, {name}: {found}", file=sys.stderr, flush=True)
            return found

        for name in in_turn(turns, options.repeat):
            times[name].append(ask("times", name)["seconds"])
        counts = {name: ask("counts", name) for name in turns}
    return [
        {
            "variant": name,
            "to": to[name],
            "seconds": statistics.median(times[name]),
            "seconds of plain": statistics.median(times[to[name]]),
            "ratio": ratios(times[name], times[to[name]]),
            "counts": counts[name],
            "counts of plain": counts[to[name]],
        }
        for name in names
    ]


def show(result: dict[str, Any]) -> None:
    """Prints what was measured on a backend."""
    place = None
    for row in result["rows"]:
        if place != (place := (row["mode"], row["model"])):
            print(f"\n{', '.join((result['backend'], *place))}")
        _show(row)


def _show(row: dict[str, Any]) -> None:
    aim = row["aim"]
    missed = aim is not None and row["ratio"][1] > aim
    said = "" if aim is None else f"{aim:5.2f}{' missed' if missed else ''}"
    print(
        f"  {row['variant']:20}{row['seconds']:7.2f} s{row['seconds of plain']:7.2f} s   "
        f"{running.spread(row['ratio'], 2):24}{said}"
    )
    for name, count in row["counts"].items():
        base = row["counts of plain"][name]
        ratio = f"{count / base:8.2f}" if base else ""
        print(f"      {name:40}{count:12}{base:12}{ratio}")


def main() -> int:
    parser = running.parser(__doc__)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    modes = [mode for each in MODES.values() for mode in each]
    parser.add_argument("--modes", nargs="+", choices=modes, help="leave out the others")
    parser.add_argument("--variants", nargs="+", metavar="VARIANT", help="leave out the others")
    parser.add_argument("--layers", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=5)
    return running.command(
        __file__,
        parser,
        measure,
        show,
        lambda options: f"{options.layers} layers, {options.repeat} repetitions",
    )


if __name__ == "__main__":
    raise SystemExit(main())
