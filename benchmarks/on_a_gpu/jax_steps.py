"""Steps on JAX, each variant one jitted program, whose state is given away to it and comes back."""

import functools
import gc
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.on_a_gpu.models import batch_of
from benchmarks.on_a_gpu.policies import RATE, compiled, optimizers
from benchmarks.on_a_gpu.sizes import Size, Work
from benchmarks.on_a_gpu.states import remembered
from benchmarks.on_a_gpu.steps import Steps, Variants, WholePrograms
from benchmarks.train_step import makers


class Jax(WholePrograms):
    def __init__(self, quick: bool) -> None:
        import jax

        self.device = jax.devices()[0]
        self.cuda = self.device.platform == "gpu"
        self.name = self.device.device_kind if self.cuda else "cpu"
        self.failures = (RuntimeError, ValueError)
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

    def copying(self, elements: int) -> Steps:
        import jax

        given = jax.numpy.ones(elements)
        negated = jax.jit(lambda array: -array)  # a read and a write, which nothing elides
        taken = [given]

        def take() -> None:
            taken[0] = negated(given)

        return Steps(take, lambda: jax.block_until_ready(taken), lambda: None)

    def updates(self, size: Size) -> Variants:
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

            def in_order(trained: Any, gradients: Any, slots: Any) -> Any:
                # What is given away comes back in its order, or XLA copies it.
                return optimizer.stateless_apply(slots, gradients, trained)

            apply = Compiled(jax.jit(in_order, donate_argnums=(0, 2)))

            def step(state: Any) -> Any:
                trained, slots = apply(state[0], gradients, state[1])
                return trained, slots

            return self._variant(step, (variables, optimizer.variables), optimizer, 1, apply)

        return {name: variant(make) for name, make in makers(RATE, 1.0).items()}

    def training(self, size: Work, scale: float, policy: str = "float32") -> Variants:
        import jax

        batch = tuple(jax.numpy.asarray(array) for array in batch_of(size))

        def variant(make: Callable[[], Any]) -> Callable[[], Steps]:
            model, optimizer = compiled(policy, size, make)
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
