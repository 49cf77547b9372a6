"""Who trains on the GPU in `benchmarks/cuda.py`: a decoder, and steps in torch and in JAX."""

import dataclasses
import functools
import gc
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.train_step import makers

RATE = 1e-5
KEPT = 100_000  # elements up to which a state is kept on the host, to begin with it again


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
