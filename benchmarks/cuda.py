"""What loss scaling and mixed precision cost and bring on a CUDA GPU; the best parts first.

python benchmarks/cuda.py [--backends BACKEND ...] [--sizes SIZE ...] [--policies POLICY ...]
    [--seconds N] [--repeat N] [--quick] [--json FILE] [--write benchmarks/RESULTS.md]

Ten minutes (`--seconds 600`) give, in a process for each backend, torch and JAX, in this order and
as far as the time goes: a step of the optimizer alone for the parameters of a decoder of 125
million (causal attention, tied embeddings; 12 blocks of 768); a whole training step of it, and of a
ResNet-50, in mixed_float16, float32, mixed_bfloat16, by the graph rewrite and with 16-bit weights;
and the same of a decoder of 1.3 billion (24 of 2048). Each part is printed, and written to the
files, as soon as it is measured: what interrupts the program costs the part that it was at.
Compared are

- plain: keras.optimizers.Adam, without loss scaling under every policy;
- Keras' own: keras.optimizers.LossScaleOptimizer around it;
- ours: keras_mp.LossScaleOptimizer around it; "ours, fused" with `fused=True`, but on JAX;
- torch Adam: torch.optim.Adam(fused=True), in a loop of its own around the same model and loss;
- GradScaler: the same with torch.amp.GradScaler;
- MasterWeights, StochasticRounding: with `sixteen_bit_policy("bfloat16")`; "split" is the storage.

A step of the optimizer alone has one line for all policies: variables, and so their gradients, are
float32 under each. It takes gradients that lie there, in torch as Keras' own `train_step` hands
them over.

Printed are milliseconds, the median of the repetitions, and in parentheses their quartiles; the
ratio to plain, likewise; "x" how many times as fast a training step is as the plain one in float32;
the fraction of the copy bandwidth: the bytes that the update must move, over its time and over what
a copy on the device reads and writes in a second, measured here; GB, the peak of the device's
memory (torch), or what the compiled step needs (JAX); and waits, how often a step of torch waited
for the device. Adam must move 28 bytes a parameter (weight, two moments and gradient read, the
first three written), and 32 with the check, which has to read each gradient before anything is
changed. 1.00 would be a step that does nothing else. Training steps have no such number.

A repetition makes the state of one variant anew, takes three steps, and then as many as fill
`--block` seconds, which are timed: by CUDA events in torch, by the clock and `block_until_ready` in
JAX. Variants take turns, in another order each time, and only one of them has its state in memory.
What is known not to fit, and what does not, is left out, and said so. The loss scale is 1 for the
optimizer alone, so that a variant that unscales in place leaves the gradients as they are, and 1024
for training; "skipped" marks a variant whose scale fell, so that its times are not those of steps.
Of `--seconds`, torch has three fifths where JAX comes after it.

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
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import running
from benchmarks.running import spread
from benchmarks.train_step import makers
from keras_mp.benchmarking.turns import in_turn, quartiles, ratios

BACKENDS = ("torch", "jax")
REWRITE, NARROW = "graph rewrite", "16-bit weights"
# Of training steps, in the order of what it is worth to know.
POLICIES = ("mixed_float16", "float32", "mixed_bfloat16", REWRITE, NARROW)
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

        >>> [round(SIZES[name].parameters() / 1e6) for name in ("125M", "1.3B")]
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

    def model(self) -> Any:
        """Returns the decoder, under the policy that holds."""
        return decoder(self)

    def data(self) -> tuple[Any, Any]:
        """Returns a batch, and the tokens that follow."""
        return tokens(self)


@dataclasses.dataclass(frozen=True)
class Images:
    """A ResNet-50, He et al. 2015; or where `blocks` is 0, a net of three convolutions.

    It has no line of its own for the optimizer alone.
    """

    blocks: int = 50
    side: int = 224
    classes: int = 1000
    batch: int = 64

    def parameters(self) -> int:
        """Returns how many numbers are trained, about."""
        return 25_600_000 if self.blocks else 30_000

    def needed(self, policy: str | None = None) -> int:
        """Returns about how many bytes a training step takes; 250 MB an image in float32."""
        images = self.batch * (250_000_000 if self.blocks else 1_000_000)
        return (16 + 12) * self.parameters() + images // (1 if policy == "float32" else 2)

    def model(self) -> Any:
        """Returns the net, under the policy that holds; its logits are float32."""
        import keras

        shape = (self.side, self.side, 3)
        if self.blocks:
            body = keras.applications.ResNet50(
                include_top=False, weights=None, input_shape=shape, pooling="avg"
            )
        else:
            convolutions = [keras.layers.Conv2D(8, 3, activation="relu") for _ in range(3)]
            pooled = [keras.layers.BatchNormalization(), keras.layers.GlobalAveragePooling2D()]
            body = keras.Sequential([keras.Input(shape), *convolutions, *pooled])
        logits = keras.layers.Dense(self.classes, dtype="float32")
        return keras.Sequential([keras.Input(shape), body, logits])

    def data(self) -> tuple[Any, Any]:
        """Returns a batch, and its classes."""
        random = np.random.default_rng(0)
        x = random.standard_normal((self.batch, self.side, self.side, 3), "float32")
        return x, random.integers(self.classes, size=(self.batch,), dtype="int32")


Work = Size | Images
SIZES: dict[str, Work] = {
    "125M": Size(12, 768, 12),
    "ResNet-50": Images(),
    "1.3B": Size(24, 2048, 16),
}
QUICK: dict[str, Work] = {
    "quick": Size(2, 64, 4, vocabulary=512, sequence=32, batch=2),
    "quick images": Images(blocks=0, side=12, classes=10, batch=2),
}


def parts(sizes: Sequence[str], policies: Sequence[str | None]) -> Iterator[tuple[str, str | None]]:
    """Yields (size, policy) in the order of their worth; None is the optimizer alone.

    What most people do comes first: mixed_float16 on each kind of net. The largest decoder is last.

    >>> for size, policy in parts(["125M", "ResNet-50", "1.3B"], ["mixed_float16", "float32"]):
    ...     print(size, policy)
    125M None
    125M mixed_float16
    ResNet-50 mixed_float16
    125M float32
    ResNet-50 float32
    1.3B None
    1.3B mixed_float16
    1.3B float32
    """
    last = [name for name in sizes if name == "1.3B"]
    for names in ([name for name in sizes if name not in last], last):
        for policy in (None, *policies):
            for name in names:
                if policy is not None or isinstance((SIZES | QUICK)[name], Size):
                    yield name, policy


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


def under(policy: str, work: Work) -> Any:
    """Returns the model of some work with a policy; afterwards the global one is float32."""
    import keras

    import keras_mp

    chosen: Any = {REWRITE: "float32", NARROW: keras_mp.sixteen_bit_policy("bfloat16")}
    keras.config.set_dtype_policy(chosen.get(policy, policy))
    try:
        model = work.model()
    finally:
        keras.config.set_dtype_policy("float32")
    if policy == REWRITE:
        keras_mp.graph_rewrite.apply(model)
    return model


def optimizers(policy: str, scale: float) -> dict[str, Callable[[], Any]]:
    """Returns what makes the optimizers of training steps under a policy, by variant."""
    import keras_mp

    found = makers(RATE, scale)
    if policy == REWRITE:
        return {name: make for name, make in found.items() if name.startswith("ours")}
    if policy == NARROW:
        plain = found["plain"]
        return {
            "MasterWeights": lambda: keras_mp.MasterWeights(plain()),
            "MasterWeights, split": lambda: keras_mp.MasterWeights(plain(), "split"),
            "StochasticRounding": lambda: keras_mp.StochasticRounding(plain()),
        }
    return found


# -- torch -----------------------------------------------------------------------------------------


@dataclasses.dataclass
class Steps:
    """Steps of one variant, whose state exists from here on."""

    take: Callable[[], Any]  # one, which the device may still be at
    wait: Callable[[], None]
    scale: Callable[[], float | None]
    fallback: Callable[[], str | None] = lambda: None  # why the kernels were not used, if so
    memory: Callable[[], int | None] = lambda: None  # bytes that a step needs, if it is known


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

    def begin_peak(self) -> None:
        """Begins to look for the most memory."""
        import torch

        if self.cuda:
            torch.cuda.reset_peak_memory_stats()

    def peak(self, _: Steps) -> int | None:
        """Returns the most bytes that were in use since; None on a CPU."""
        import torch

        return torch.cuda.max_memory_allocated() if self.cuda else None

    def waits(self, steps: Steps) -> int | None:
        """Returns how often Python waits for the device in a step; None on a CPU."""
        import torch

        if not self.cuda:
            return None
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                steps.take()
            finally:
                torch.cuda.set_sync_debug_mode(before)
        return sum("synchroniz" in str(each.message) for each in told)

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

    def training(self, size: Work, scale: float, policy: str = "float32") -> Variants:
        """Returns functions that make the state of each variant of a training step."""
        import keras
        import torch

        keras.utils.set_random_seed(0)
        model = under(policy, size)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        batch = tuple(torch.tensor(array, device=self.device) for array in size.data())

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
            n: functools.partial(in_keras, make) for n, make in optimizers(policy, scale).items()
        }
        if policy not in (REWRITE, NARROW):
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

    def begin_peak(self) -> None:
        """Does nothing: XLA says what a program needs."""

    def peak(self, steps: Steps) -> int | None:
        """Returns the bytes that the compiled step needs."""
        return steps.memory()

    def waits(self, _: Steps) -> int | None:
        """Returns None: a step is one program."""
        return None

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
            apply = Compiled(jax.jit(optimizer.stateless_apply, donate_argnums=(0, 2)))

            def step(state: Any) -> Any:
                trained, slots = apply(state[1], gradients, state[0])
                return trained, slots

            return self._variant(step, (variables, optimizer.variables), optimizer, 1, apply)

        return {name: variant(make) for name, make in makers(RATE, 1.0).items()}

    def training(self, size: Work, scale: float, policy: str = "float32") -> Variants:
        """Returns functions that make the state of each variant of a training step."""
        import jax
        import keras

        batch = tuple(jax.numpy.asarray(array) for array in size.data())

        def variant(make: Callable[[], Any]) -> Callable[[], Steps]:
            keras.utils.set_random_seed(0)  # each variant has a model of its own, all alike
            model = under(policy, size)
            optimizer = make()
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(optimizer, loss, auto_scale_loss=False)
            optimizer.build(model.trainable_variables)
            if hasattr(model, "_record_training_state_sharding_spec"):  # Keras 3.10 asks for it
                model._record_training_state_sharding_spec()
            trained = Compiled(jax.jit(model.train_step, donate_argnums=0))
            groups = (
                model.trainable_variables,
                model.non_trainable_variables,
                optimizer.variables,
                model.metrics_variables,
            )
            step = lambda state: trained(state, batch)[1]  # noqa: E731
            return self._variant(step, groups, optimizer, 2, trained)

        return {name: variant(make) for name, make in optimizers(policy, scale).items()}

    def _variant(
        self,
        step: Callable[[Any], Any],
        groups: tuple[list[Any], ...],
        optimizer: Any,
        of: int,
        program: "Compiled",
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

            wait = functools.partial(jax.block_until_ready, state)
            return Steps(take, wait, scale, memory=program.memory)

        return start


class Compiled:
    """A jitted function, compiled at its first call, so that it tells what memory it needs."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.program: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self.program is None:
            self.program = self.function.lower(*arguments).compile()
        return self.program(*arguments)

    def memory(self) -> int | None:
        """Returns bytes of what it takes, returns and holds meanwhile; None if XLA does not say."""
        found = self.program.memory_analysis()
        if found is None:
            return None
        given = found.argument_size_in_bytes + found.output_size_in_bytes
        return int(given + found.temp_size_in_bytes - found.alias_size_in_bytes)


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


class NoTime(Exception):
    """The time that was given is over."""


def measure(
    native: Any, variants: Variants, options: argparse.Namespace, until: float = math.inf
) -> dict[str, dict[str, Any]]:
    """Returns the times of each variant, or why there are none.

    Args:
        native: The backend.
        variants: What makes their state.
        options: Of the command.
        until: When to stop, by `time.monotonic`: after the last round that was whole.

    Raises:
        NoTime: Not even one was.
    """
    times: dict[str, list[float]] = {name: [] for name in variants}
    found: dict[str, dict[str, Any]] = {name: {"skipped": False} for name in variants}
    # The first round compiles, and is not counted.
    order = [*variants, *in_turn(list(variants), options.repeat)]
    for place, name in enumerate(order):
        rounds, beginning = divmod(place, len(variants))
        if time.monotonic() > until and (beginning == 0 or rounds < 2):
            if rounds < 2:
                raise NoTime
            break
        if "failed" in found[name]:
            continue
        steps = None
        try:
            native.begin_peak()
            steps = variants[name]()
            scale = steps.scale()
            guess = max(native.timed(steps, WARM_UP), 1e-6)
            count = min(max(1, round(1e3 * options.block / guess)), 200)
            times[name].append(native.timed(steps, count))
            found[name]["skipped"] |= scale is not None and (steps.scale() or 0.0) < scale
            found[name]["fallback"] = steps.fallback()
            if rounds == 0:
                found[name]["memory"] = native.peak(steps)
                found[name]["waits"] = native.waits(steps)
        except (RuntimeError, ValueError) as error:
            found[name]["failed"] = why_left_out(error, native)
        del steps
        native.free()
    for name, taken in times.items():
        if "failed" not in found[name]:
            found[name]["milliseconds"] = quartiles(taken[1:])
        base = found.get("plain", {"failed": True})
        if "failed" not in found[name] and "failed" not in base:
            found[name]["ratio"] = ratios(taken[1:], times["plain"][1:])
    return found


def bandwidth(native: Any, options: argparse.Namespace) -> float:
    """Returns the bytes that a copy on the device reads and writes in a second."""
    elements = 2**20 if options.quick else 2**28
    steps = native.copying(elements)
    native.timed(steps, WARM_UP)
    taken = statistics.median(native.timed(steps, 10) for _ in range(options.repeat))
    return float(2 * 4 * elements / (taken / 1e3))


def inside(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measures on the backend that this process was started with.

    Yields:
        What is known beforehand, or that there is no device; then a table for each part.
    """
    import keras

    import keras_mp

    until = time.monotonic() + options.seconds
    backend = keras.backend.backend()
    native: Any = {"torch": Torch, "jax": Jax}[backend](options.quick)
    if not native.cuda and not options.quick:
        yield {"backend": backend, "missing": True}
        return
    yield {
        "backend": backend,
        "device": native.name,
        "versions": {
            "python": platform.python_version(),
            "keras": keras.__version__,
            "keras_mp": keras_mp.__version__,
            **native.versions,
        },
        "copy": bandwidth(native, options) if native.cuda else 0.0,
    }
    for name, policy in parts(options.sizes, options.policies):
        yield table_of(native, name, policy, options, until)


def table_of(
    native: Any, name: str, policy: str | None, options: argparse.Namespace, until: float
) -> dict[str, Any]:
    """Returns the times of a part, or why it is left out."""
    size = (SIZES | QUICK)[name]
    table: dict[str, Any] = {"size": name, "parameters": size.parameters(), "policy": policy}
    free, needed = native.free(), size.needed(policy)
    if free is not None and needed > free:
        return table | {"left out": f"needs about {needed / 1e9:.0f} GB, {free / 1e9:.0f} GB free"}
    try:
        if time.monotonic() > until:
            raise NoTime
        return table | {"variants": of_size(native, size, policy, options, until)}
    except NoTime:
        return table | {"left out": "no time was left"}


def of_size(
    native: Any, size: Work, policy: str | None, options: argparse.Namespace, until: float
) -> Any:
    """Returns the times, or {"all": {"failed": why}} where not even the model fits."""
    try:
        training = functools.partial(native.training, size, 1024.0)
        variants = native.updates(size) if policy is None else training(policy)
    except (RuntimeError, ValueError) as error:
        return {"all": {"failed": why_left_out(error, native)}}
    return measure(native, variants, options, until)


# -- the table -------------------------------------------------------------------------------------


def fraction(table: dict[str, Any], variant: str, copy: float) -> float | None:
    """Returns the part of the copy bandwidth at which the update moves what it must."""
    each = table["variants"][variant]
    if table["policy"] is not None or "milliseconds" not in each or not copy:
        return None
    needed = BYTES + (0 if variant in ("plain", "torch Adam") else 4)
    return float(needed * table["parameters"] / (each["milliseconds"][1] / 1e3) / copy)


def gain(found: dict[str, Any], table: dict[str, Any], each: dict[str, Any]) -> float | None:
    """Returns how many times as fast a training step is as the plain one of the size in float32."""
    if table["policy"] is None:
        return None
    for other in found["tables"]:
        if (other["size"], other["policy"]) == (table["size"], "float32"):
            base = other.get("variants", {}).get("plain", {})
            if "milliseconds" in base:
                return float(base["milliseconds"][1] / each["milliseconds"][1])
    return None


def markdown(results: list[dict[str, Any]], date: str, options: argparse.Namespace) -> str:
    """Returns what was measured as Markdown, a table for each backend."""
    lines = []
    for found in results:
        versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
        copy = f"; a copy reads and writes {found['copy'] / 1e9:.0f} GB/s" if found["copy"] else ""
        lines += [
            f"### {found['backend']}, {found['device']}",
            "",
            f"{date}; {versions}. At most {options.repeat} repetitions{copy}.",
            "",
            f"| {' | '.join(HEADS)} |",
            f"|{len(HEADS) * '---|'}",
        ]
        for table in found["tables"]:
            lines += [f"| {' | '.join(row)} |" for row in rows_of(found, table)]
        lines.append("")
    return "\n".join(lines)


HEADS = (
    *("size", "step", "variant", "ms (quartiles)", "to plain (quartiles)"),
    *("x", "of copy", "GB", "waits"),
)


def rows_of(found: dict[str, Any], table: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yields the cells of each row of a part."""
    step = f"training, {table['policy']}" if table["policy"] else "optimizer"
    begin, empty = (table["size"], step), ("",) * 5
    if "left out" in table:
        yield (*begin, "all", f"left out: {table['left out']}", *empty)
        return
    for name, each in table["variants"].items():
        if "failed" in each:
            yield (*begin, name, each["failed"], *empty)
            continue
        mark = " (skipped)" if each["skipped"] else ""
        mark += f" (not fused: {each['fallback']})" if each["fallback"] else ""
        ratio = spread(each["ratio"]) if "ratio" in each else "-"
        memory = each.get("memory")
        others = (
            (gain(found, table, each), ".2f"),
            (fraction(table, name, found["copy"]), ".2f"),
            (None if memory is None else memory / 1e9, ".2f"),
            (each.get("waits"), "d"),
        )
        told = ("-" if number is None else format(number, form) for number, form in others)
        yield (*begin, f"{name}{mark}", spread(each["milliseconds"]), ratio, *told)


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


def as_measured(backend: str, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields what a process for a backend prints, JSON in each line, as it comes.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    process = subprocess.Popen(
        [sys.executable, __file__, "--inside", json.dumps(options)],
        env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, "KERAS_BACKEND": backend},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        for text in process.stdout:
            if text.startswith("{"):
                yield json.loads(text)
    finally:
        process.stdout.close()
        if process.poll() is None and sys.exc_info()[0] is not None:
            process.kill()
        code = process.wait()
    if code:
        raise subprocess.CalledProcessError(code, backend)


def shares(seconds: float, backends: Sequence[str]) -> dict[str, float]:
    """Returns the seconds of each backend: where there are two, torch has three fifths.

    >>> shares(600, ["torch", "jax"]), shares(600, ["jax"])
    ({'torch': 360.0, 'jax': 240.0}, {'jax': 600.0})
    """
    if len(backends) == 1:
        return {backends[0]: float(seconds)}
    return {name: (0.6 if name == "torch" else 0.4) * seconds for name in backends}


def main() -> int:
    parser = running.parser(__doc__, BACKENDS)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--policies", nargs="*", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--seconds", type=float, default=600.0, help="for all of it")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--block", type=float, default=0.2, help="seconds that are timed at once")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, also on a CPU")
    parser.add_argument("--write", type=Path, help="put the table into this file, too")
    options = parser.parse_args()
    if options.inside:
        for found in inside(argparse.Namespace(**options.inside)):
            print(json.dumps(found), flush=True)
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
    given = {name: getattr(options, name) for name in kept}
    results: list[dict[str, Any]] = []
    missing = []
    for backend, seconds in shares(options.seconds, options.backends).items():
        for found in as_measured(backend, given | {"seconds": seconds}):
            if found.get("missing"):
                missing.append(backend)
            elif "device" in found:
                results.append(found | {"tables": []})
                if found["device"] == "cpu":
                    print("On the CPU, with tiny sizes: this says nothing about a GPU.\n")
                print(markdown(results[-1:], time.strftime("%Y-%m-%d"), options).rstrip())
            else:
                results[-1]["tables"].append(found)
                for row in rows_of(results[-1], found):
                    print(f"| {' | '.join(row)} |", flush=True)
                write(results, options)
    if missing:
        print(NO_DEVICE.format(" or ".join(missing)), file=sys.stderr)
    return 0 if results else 2


def write(results: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Writes what there is so far into the files that were named."""
    running.keep(results, options.json)
    if options.write:
        text = options.write.read_text(encoding="utf-8")
        section = markdown(results, time.strftime("%Y-%m-%d"), options)
        options.write.write_text(replaced(text, section), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    raise SystemExit(main())
