"""What loss scaling costs on a CUDA GPU, with parameters as GPT models have them.

python benchmarks/cuda.py [--backends BACKEND ...] [--sizes SIZE ...] [--policies POLICY ...]
    [--repeat N] [--quick] [--json FILE] [--write benchmarks/RESULTS.md]

Per backend, in a process of its own, torch and JAX: a step of the optimizer alone, and a whole
training step of a decoder (causal attention, tied embeddings), of 125 million (12 blocks of 768)
and of 1.3 billion parameters (24 of 2048), with

- plain: keras.optimizers.Adam, without loss scaling under every policy;
- Keras' own: keras.optimizers.LossScaleOptimizer around it;
- ours: keras_mp.LossScaleOptimizer around it; "ours, fused" with `fused=True`, but on JAX;
- torch Adam: torch.optim.Adam(fused=True), in a loop of its own around the same model and loss;
- GradScaler: the same with torch.amp.GradScaler.

Training steps are those of mixed_float16, mixed_bfloat16 and float32. A step of the optimizer alone
has one line for all of them: variables, and so their gradients, are float32 under each. It takes
gradients that lie there, in torch as Keras' own `train_step` hands them over.

Printed are milliseconds, the median of the repetitions, and in parentheses their quartiles; the
ratio to plain, likewise; and the fraction of the copy bandwidth: the bytes that the update must
move, over its time and over what a copy on the device reads and writes in a second, measured here.
Adam must move 28 bytes a parameter (weight, two moments and gradient read, the first three
written), and 32 with the check, which has to read each gradient before anything is changed. 1.00
would be a step that does nothing else. Training steps have no such number.

A repetition makes the state of one variant anew, takes three steps, and then as many as fill
`--block` seconds, which are timed: by CUDA events in torch, by the clock and `block_until_ready` in
JAX. Variants take turns, in another order each time, and only one of them has its state in memory.
What is known not to fit, and what does not, is left out, and said so. The loss scale is 1 for the
optimizer alone, so that a variant that unscales in place leaves the gradients as they are, and 1024
for training; "skipped" marks a variant whose scale fell, so that its times are not those of steps.

`--quick` takes tiny sizes, and a CPU where there is no GPU: to try this program, not to measure.
`--write` puts the tables in the place of those in a file, with date, versions and device.
"""

import argparse
import dataclasses
import functools
import gc
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import running
from benchmarks.running import of_process, spread
from benchmarks.train_step import makers
from keras_mp.benchmarking.turns import in_turn, quartiles, ratios

BACKENDS = ("torch", "jax")
POLICIES = ("mixed_float16", "mixed_bfloat16", "float32")
BEGIN, END = "<!-- cuda: begin -->", "<!-- cuda: end -->"
BYTES = 28  # that Adam moves for a parameter; the check reads 4 more
WARM_UP = 3
RATE = 1e-5
KEPT = 100_000  # elements up to which a state is kept on the host, to begin with it again
NO_DEVICE = (
    "No CUDA device is visible to {}: nothing was measured there. --quick runs on a CPU, too."
)


# -- sizes -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Size:
    """A decoder: the shapes of GPT-3, Brown et al. 2020, table 2.1, but heads that divide width."""

    blocks: int
    width: int
    heads: int
    vocabulary: int = 50257
    sequence: int = 1024
    batch: int = 4

    def shapes(self) -> list[tuple[int, ...]]:
        """Returns the shape of each variable, in the order of the model."""
        d, h = self.width, self.heads
        norm = [(d,), (d,)]
        projection = [(d, h, d // h), (h, d // h)]
        attention = [*3 * projection, (h, d // h, d), (d,)]
        dense = [(d, 4 * d), (4 * d,), (4 * d, d), (d,)]
        block = [*norm, *attention, *norm, *dense]
        return [(self.vocabulary, d), (self.sequence, d), *self.blocks * block, *norm]

    def parameters(self) -> int:
        """Returns how many numbers are trained.

        >>> [round(size.parameters() / 1e6) for size in SIZES.values()]
        [124, 1314]
        """
        return sum(math.prod(shape) for shape in self.shapes())

    def needed(self, policy: str | None = None) -> int:
        """Returns about how many bytes a step takes: of the optimizer, or of training in `policy`.

        16 a parameter for weight, moments and gradient, and 12 for temporaries of Keras' Adam in
        torch; activations after Korthikanti et al. 2022, section 4.1, without parallelism, and four
        times the logits.
        """
        needed = (16 + 12) * self.parameters()
        if policy is not None:
            tokens = self.batch * self.sequence
            block = tokens * (34 * self.width + 5 * self.heads * self.sequence)
            needed += block * self.blocks * (2 if policy == "float32" else 1)
            needed += 4 * 4 * tokens * self.vocabulary
        return needed


SIZES = {"125M": Size(12, 768, 12), "1.3B": Size(24, 2048, 16)}
QUICK = {"quick": Size(2, 64, 4, vocabulary=512, sequence=32, batch=2)}


# -- what is trained -------------------------------------------------------------------------------


def decoder(size: Size) -> Any:
    import keras
    from keras import layers, ops

    class Tied(layers.Layer):  # type: ignore[misc]
        """Embeds tokens and their places, and tells tokens by the same table."""

        def build(self, _: Any) -> None:
            def table(rows: int, name: str) -> Any:
                normal = keras.initializers.RandomNormal()
                return self.add_weight((rows, size.width), normal, name=name)

            self.tokens = table(size.vocabulary, "tokens")
            self.places = table(size.sequence, "places")

        def call(self, x: Any, reverse: bool = False) -> Any:
            if reverse:
                return ops.matmul(x, ops.transpose(ops.cast(self.tokens, x.dtype)))
            return ops.take(self.tokens, x, axis=0) + ops.convert_to_tensor(self.places)

        def compute_output_spec(self, x: Any, reverse: bool = False) -> Any:
            last = size.vocabulary if reverse else size.width
            return keras.KerasTensor((*x.shape[:2], last), self.compute_dtype)

    tied = Tied()
    inputs = keras.Input((size.sequence,), dtype="int32")
    x = tied(inputs)
    for _ in range(size.blocks):
        y = layers.LayerNormalization()(x)
        attention = layers.MultiHeadAttention(size.heads, size.width // size.heads)
        x = layers.Add()([x, attention(y, y, use_causal_mask=True)])
        y = layers.Dense(4 * size.width, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(size.width)(y)])
    logits = tied(layers.LayerNormalization()(x), reverse=True)
    return keras.Model(inputs, layers.Activation("linear", dtype="float32")(logits))


def tokens(size: Size) -> tuple[Any, Any]:
    """Returns a batch, and the tokens that follow."""
    random = np.random.default_rng(0)
    drawn = random.integers(size.vocabulary, size=(size.batch, size.sequence + 1), dtype="int32")
    return drawn[:, :-1].copy(), drawn[:, 1:].copy()


# -- torch -----------------------------------------------------------------------------------------


@dataclasses.dataclass
class Steps:
    """Steps of one variant, whose state exists from here on."""

    take: Callable[[], Any]  # one, which the device may still be at
    wait: Callable[[], None]
    scale: Callable[[], float | None]
    fallback: Callable[[], str | None] = lambda: None  # why the kernels were not used, if so


Variants = dict[str, Callable[[], Steps]]


class Torch:
    def __init__(self, quick: bool) -> None:
        import torch

        self.cuda = torch.cuda.is_available()
        if quick and not self.cuda:
            torch.set_num_threads(1)  # tiny products only, for which threads would spin
        self.name = torch.cuda.get_device_name() if self.cuda else "cpu"
        self.device = "cuda" if self.cuda else "cpu"
        self.versions = {"torch": torch.__version__, "CUDA": torch.version.cuda or "none"}

    def free(self) -> int | None:
        """Returns how many bytes are free; None if that is not known."""
        import torch

        gc.collect()
        if not self.cuda:
            return None
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info()[0])

    def wait(self) -> None:
        import torch

        if self.cuda:
            torch.cuda.synchronize()

    def timed(self, steps: Steps, count: int) -> float:
        """Returns the milliseconds that a step takes, in `count` of them."""
        import torch

        self.wait()
        if not self.cuda:
            return by_clock(steps, count)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            steps.take()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / count

    def copying(self, elements: int) -> Steps:
        import torch

        given = torch.ones(elements, device=self.device)
        taken = torch.empty_like(given)
        return Steps(lambda: taken.copy_(given), self.wait, lambda: None)

    def updates(self, size: Size) -> Variants:
        """Returns functions that make the state of each variant of the optimizer alone."""
        import keras
        import torch

        from benchmarks import step_variants

        generator = torch.Generator(self.device).manual_seed(0)

        def drawn(shape: tuple[int, ...]) -> Any:
            return torch.randn(shape, generator=generator, device=self.device).mul_(1e-2)

        variables = [
            keras.Variable(lambda _, shape=shape, **__: drawn(shape), shape, name=f"v{i}")
            for i, shape in enumerate(size.shapes())
        ]
        gradients = [drawn(shape) for shape in size.shapes()]
        nothing, no_loss = (torch.zeros(shape, device=self.device) for shape in ((1, 1), ()))

        def in_keras(make: Callable[[], Any]) -> Steps:
            optimizer = make()
            optimizer.build(variables)
            model = step_variants._model(optimizer, variables)
            model.gradients = gradients
            type(model)._compute_loss = lambda *_, **__: no_loss  # its own would come from the host
            return self._steps(lambda: model.train_step((nothing, nothing)), optimizer)

        def alone(scaled: bool) -> Steps:
            parameters = [variable.value for variable in variables]
            adam = torch.optim.Adam(parameters, RATE, eps=1e-7, fused=True)
            scaler = torch.amp.GradScaler(self.device, init_scale=1.0, enabled=scaled)
            scaler.scale(torch.zeros((), device=self.device))
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient

            def take() -> None:
                scaler.step(adam)
                scaler.update()

            return Steps(take, self.wait, lambda: scaler.get_scale() if scaled else None)

        found: Variants = {
            n: functools.partial(in_keras, make) for n, make in makers(RATE, 1.0).items()
        }
        found["torch Adam"] = functools.partial(alone, False)
        found["GradScaler"] = functools.partial(alone, True)
        return found

    def training(self, size: Size, scale: float) -> Variants:
        """Returns functions that make the state of each variant of a training step."""
        import keras
        import torch

        keras.utils.set_random_seed(0)
        model = decoder(size)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        batch = tuple(torch.tensor(array, device=self.device) for array in tokens(size))

        def compiled(optimizer: Any) -> None:
            model.compile(optimizer, loss, jit_compile=False, auto_scale_loss=False)
            gc.collect()  # the state of the one before, which was the model's until now

        def in_keras(make: Callable[[], Any]) -> Steps:
            optimizer = make()
            compiled(optimizer)
            optimizer.build(model.trainable_variables)
            return self._steps(lambda: model.train_step(batch), optimizer)

        def alone(scaled: bool) -> Steps:
            compiled(None)
            parameters = [variable.value for variable in model.trainable_variables]
            adam = torch.optim.Adam(parameters, RATE, eps=1e-7, fused=True)
            scaler = torch.amp.GradScaler(self.device, init_scale=scale, enabled=scaled)

            def take() -> None:
                adam.zero_grad(set_to_none=True)
                value = loss(batch[1], model(batch[0], training=True))
                scaler.scale(value).backward()
                scaler.step(adam)
                scaler.update()

            return Steps(take, self.wait, lambda: scaler.get_scale() if scaled else None)

        found: Variants = {
            n: functools.partial(in_keras, make) for n, make in makers(RATE, scale).items()
        }
        found["torch Adam"] = functools.partial(alone, False)
        found["GradScaler"] = functools.partial(alone, True)
        return found

    def _steps(self, take: Callable[[], Any], optimizer: Any) -> Steps:
        kept = getattr(optimizer, "dynamic_scale", None)
        return Steps(
            take,
            self.wait,
            lambda: None if kept is None else float(kept.value),
            lambda: getattr(optimizer, "fused_fallback", None),
        )


# -- JAX -------------------------------------------------------------------------------------------


class Jax:
    def __init__(self, quick: bool) -> None:
        import jax

        self.device = jax.devices()[0]
        self.cuda = self.device.platform == "gpu"
        self.name = self.device.device_kind if self.cuda else "cpu"
        self.versions = {"jax": jax.__version__}

    def free(self) -> int | None:
        """Returns how many bytes are free; None if that is not known."""
        gc.collect()
        told = self.device.memory_stats() or {}
        if not self.cuda or "bytes_limit" not in told:
            return None
        return int(told["bytes_limit"] - told["bytes_in_use"])

    def timed(self, steps: Steps, count: int) -> float:
        """Returns the milliseconds that a step takes, in `count` of them."""
        steps.wait()
        return by_clock(steps, count)

    def copying(self, elements: int) -> Steps:
        import jax

        given = jax.numpy.ones(elements)
        negated = jax.jit(lambda array: -array)  # a read and a write, which nothing elides
        taken = [given]

        def take() -> None:
            taken[0] = negated(given)

        return Steps(take, lambda: jax.block_until_ready(taken), lambda: None)

    def updates(self, size: Size) -> Variants:
        """Returns functions that make the state of each variant of the optimizer alone."""
        import jax
        import keras

        shapes = size.shapes()
        gradients = drawn([(shape, np.float32) for shape in shapes], seed=1)

        def variant(make: Callable[[], Any]) -> Callable[[], Steps]:
            # Nothing but shapes: values come with each step.
            optimizer = make()
            variables = [keras.Variable("zeros", shape) for shape in shapes]
            optimizer.build(variables)
            optimizer.scale_loss(1.0)  # which gradients of a loss have been through
            apply = jax.jit(optimizer.stateless_apply, donate_argnums=(0, 2))

            def step(state: Any) -> Any:
                trained, slots = apply(state[1], gradients, state[0])
                return trained, slots

            return self._variant(step, (variables, optimizer.variables), optimizer, 1)

        return {name: variant(make) for name, make in makers(RATE, 1.0).items()}

    def training(self, size: Size, scale: float) -> Variants:
        """Returns functions that make the state of each variant of a training step."""
        import jax
        import keras

        batch = tuple(jax.numpy.asarray(array) for array in tokens(size))

        def variant(make: Callable[[], Any]) -> Callable[[], Steps]:
            keras.utils.set_random_seed(0)  # each variant has a model of its own, all alike
            model = decoder(size)
            optimizer = make()
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(optimizer, loss, auto_scale_loss=False)
            optimizer.build(model.trainable_variables)
            if hasattr(model, "_record_training_state_sharding_spec"):  # Keras 3.10 asks for it
                model._record_training_state_sharding_spec()
            trained = jax.jit(model.train_step, donate_argnums=0)
            groups = (
                model.trainable_variables,
                model.non_trainable_variables,
                optimizer.variables,
                model.metrics_variables,
            )
            return self._variant(lambda state: trained(state, batch)[1], groups, optimizer, 2)

        return {name: variant(make) for name, make in makers(RATE, scale).items()}

    def _variant(
        self, step: Callable[[Any], Any], groups: tuple[list[Any], ...], optimizer: Any, of: int
    ) -> Callable[[], Steps]:
        """Returns a function that makes the values of `groups` anew: weights, ..., optimizer's.

        The variables' own values are given up, to hold those of one variant only.
        """
        import jax

        kept = [[remembered(variable.value) for variable in group] for group in groups]
        scaled = getattr(optimizer, "dynamic_scale", None)
        index = next((i for i, v in enumerate(groups[of]) if v is scaled), None)
        for variable in {id(v): v for group in groups for v in group}.values():
            variable.value.delete()

        def start() -> Steps:
            weights, *others = kept
            state = [(drawn(weights, seed=0), *map(zeros, others))]

            def take() -> None:
                state[0] = step(state[0])

            def scale() -> float | None:
                return None if index is None else float(state[0][of][index])

            return Steps(take, lambda: jax.block_until_ready(state), scale)

        return start


def remembered(value: Any) -> Any:
    """Returns a small array itself, and of a large one shape and dtype."""
    return np.array(value) if value.size <= KEPT else (value.shape, value.dtype)


def zeros(kept: list[Any]) -> list[Any]:
    """Returns arrays on the device, as `kept`, or zero."""
    import jax.numpy as jnp

    return [jnp.zeros(*k) if isinstance(k, tuple) else jnp.array(k) for k in kept]


def drawn(kept: list[Any], seed: int) -> list[Any]:
    """Returns arrays on the device, as `kept`, or small and random."""
    import jax

    keys = jax.random.split(jax.random.key(seed), len(kept))
    return [
        0.01 * jax.random.normal(key, *k) if isinstance(k, tuple) else jax.numpy.array(k)
        for key, k in zip(keys, kept, strict=True)
    ]


def by_clock(steps: Steps, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        steps.take()
    steps.wait()
    return 1e3 * (time.perf_counter() - start) / count


# -- times -----------------------------------------------------------------------------------------


def why_left_out(error: Exception, native: Any) -> str:
    """Returns what to say of a variant that did not run; raises what is no fault of the device."""
    text = str(error)
    if "out of memory" in text.lower() or "RESOURCE_EXHAUSTED" in text:
        return "out of memory"
    if not native.cuda and "not supported" in text:
        return f"not on a CPU: {text.splitlines()[0]}"  # as 16 bits in JAX's attention
    raise error


def measure(
    native: Any, variants: Variants, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Returns the times of each variant, or why there are none."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    found: dict[str, dict[str, Any]] = {name: {"skipped": False} for name in variants}
    # The first round compiles, and is not counted.
    for name in [*variants, *in_turn(list(variants), options.repeat)]:
        if "failed" in found[name]:
            continue
        steps = None
        try:
            steps = variants[name]()
            scale = steps.scale()
            guess = max(native.timed(steps, WARM_UP), 1e-6)
            count = min(max(1, round(1e3 * options.block / guess)), 200)
            times[name].append(native.timed(steps, count))
            found[name]["skipped"] |= scale is not None and (steps.scale() or 0.0) < scale
            found[name]["fallback"] = steps.fallback()
        except (RuntimeError, ValueError) as error:
            found[name]["failed"] = why_left_out(error, native)
        del steps
        native.free()
    for name, taken in times.items():
        if "failed" not in found[name]:
            found[name]["milliseconds"] = quartiles(taken[1:])
        if "failed" not in found[name] and "failed" not in found["plain"]:
            found[name]["ratio"] = ratios(taken[1:], times["plain"][1:])
    return found


def bandwidth(native: Any, options: argparse.Namespace) -> float:
    """Returns the bytes that a copy on the device reads and writes in a second."""
    elements = 2**20 if options.quick else 2**28
    steps = native.copying(elements)
    native.timed(steps, WARM_UP)
    taken = statistics.median(native.timed(steps, 10) for _ in range(options.repeat))
    return float(2 * 4 * elements / (taken / 1e3))


def inside(options: argparse.Namespace) -> dict[str, Any]:
    """Measures on the backend that this process was started with."""
    import keras

    import keras_mp

    backend = keras.backend.backend()
    native: Any = {"torch": Torch, "jax": Jax}[backend](options.quick)
    if not native.cuda and not options.quick:
        return {"backend": backend, "missing": True}
    found: dict[str, Any] = {
        "backend": backend,
        "device": native.name,
        "versions": {
            "python": platform.python_version(),
            "keras": keras.__version__,
            "keras_mp": keras_mp.__version__,
            **native.versions,
        },
        "copy": bandwidth(native, options) if native.cuda else 0.0,
        "tables": [],
    }
    for name in options.sizes:
        size = (SIZES | QUICK)[name]
        for policy in (None, *options.policies):
            table: dict[str, Any] = {"size": name, "parameters": size.parameters()}
            table["policy"] = policy
            free, needed = native.free(), size.needed(policy)
            if free is not None and needed > free:
                table["left out"] = f"needs about {needed / 1e9:.0f} GB, {free / 1e9:.0f} GB free"
            else:
                table["variants"] = of_size(native, size, policy, options)
            found["tables"].append(table)
            print(f"{backend}, {name}, {policy or 'optimizer'}: done", file=sys.stderr)
    return found


def of_size(native: Any, size: Size, policy: str | None, options: argparse.Namespace) -> Any:
    """Returns the times, or {"all": {"failed": why}} where not even the model fits."""
    import keras

    keras.config.set_dtype_policy(policy or "float32")
    try:
        variants = native.updates(size) if policy is None else native.training(size, 1024.0)
    except (RuntimeError, ValueError) as error:
        return {"all": {"failed": why_left_out(error, native)}}
    return measure(native, variants, options)


# -- the table -------------------------------------------------------------------------------------


def fraction(table: dict[str, Any], variant: str, copy: float) -> float | None:
    """Returns the part of the copy bandwidth at which the update moves what it must."""
    each = table["variants"][variant]
    if table["policy"] is not None or "milliseconds" not in each or not copy:
        return None
    needed = BYTES + (0 if variant in ("plain", "torch Adam") else 4)
    return float(needed * table["parameters"] / (each["milliseconds"][1] / 1e3) / copy)


def markdown(results: list[dict[str, Any]], date: str, options: argparse.Namespace) -> str:
    """Returns what was measured as Markdown, a table for each backend."""
    lines = []
    for found in results:
        versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
        copy = f"; a copy reads and writes {found['copy'] / 1e9:.0f} GB/s" if found["copy"] else ""
        lines += [
            f"### {found['backend']}, {found['device']}",
            "",
            f"{date}; {versions}. {options.repeat} repetitions{copy}.",
            "",
            "| parameters | step | variant | ms (quartiles) | to plain (quartiles) | of copy |",
            "|---|---|---|---|---|---|",
        ]
        for table in found["tables"]:
            step = f"training, {table['policy']}" if table["policy"] else "optimizer"
            begin = f"| {table['size']} | {step} |"
            if "left out" in table:
                lines.append(f"{begin} all | left out: {table['left out']} | | |")
                continue
            for name, each in table["variants"].items():
                if "failed" in each:
                    lines.append(f"{begin} {name} | {each['failed']} | | |")
                    continue
                part = fraction(table, name, found["copy"])
                ratio = spread(each["ratio"]) if "ratio" in each else "-"
                mark = " (skipped)" if each["skipped"] else ""
                mark += f" (not fused: {each['fallback']})" if each["fallback"] else ""
                lines.append(
                    f"{begin} {name}{mark} | {spread(each['milliseconds'])} | {ratio} | "
                    f"{'-' if part is None else f'{part:.2f}'} |"
                )
        lines.append("")
    return "\n".join(lines)


def replaced(text: str, section: str) -> str:
    """Returns `text` with `section` between the two marks, and all else as it was.

    Raises:
        ValueError: The marks are not there, once each and in order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in before + after:
        raise ValueError(f"has not {BEGIN} and {END}, once each")
    return f"{before}{BEGIN}\n\n{section.strip()}\n\n{END}{after}"


# -- the command -----------------------------------------------------------------------------------


def main() -> int:
    parser = running.parser(__doc__, BACKENDS)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--policies", nargs="*", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--block", type=float, default=0.3, help="seconds that are timed at once")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, also on a CPU")
    parser.add_argument("--write", type=Path, help="put the table into this file, too")
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(inside(argparse.Namespace(**options.inside))))
        return 0
    if options.write and options.quick:
        parser.error("--write keeps results, and --quick gives none: leave one of them out")
    if options.write:
        try:  # before all the measuring
            replaced(options.write.read_text(encoding="utf-8"), "")
        except (OSError, ValueError) as error:
            parser.error(f"--write {options.write}: {error}")
    if options.quick:
        options.sizes, options.block = list(QUICK), 0.02
    # JAX takes three quarters of the memory unless told.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.92")
    kept = ("sizes", "policies", "repeat", "block", "quick")
    results, missing = [], []
    for backend in options.backends:
        found = of_process(__file__, backend, {name: getattr(options, name) for name in kept})
        if found.get("missing"):
            missing.append(backend)
            continue
        results.append(found)
        if found["device"] == "cpu":
            print("On the CPU, with tiny sizes: this says nothing about a GPU.\n")
        print(markdown([found], time.strftime("%Y-%m-%d"), options), flush=True)
    if missing:
        print(NO_DEVICE.format(" or ".join(missing)), file=sys.stderr)
    if not results:
        return 2
    running.keep(results, options.json)
    if options.write:
        text = options.write.read_text(encoding="utf-8")
        section = markdown(results, time.strftime("%Y-%m-%d"), options)
        options.write.write_text(replaced(text, section), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
