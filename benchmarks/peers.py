"""What other loss scalers do where ours does something: each is asked, none is believed.

    python benchmarks/peers.py            # a table in Markdown, with the versions that were asked

One weight of 1.0, stochastic gradient descent or Adam, and a list of gradients that a script hands
in. Those who leave the skipping to their caller ("by hand") are asked with a caller who skips.
Peers that are not installed are left out: `pip install torch flax jmp tf_keras` beside
keras_mp[jax].
"""

import argparse
import importlib.metadata
import importlib.util
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

YES, NO, BY_HAND = "✓", "no", "by hand"
LARGE = 2.0**127


class Peer(ABC):
    """A loss scaler, with an optimizer of one weight."""

    package = ""
    skips = YES

    @abstractmethod
    def start(self, scale: float, growth: int, fixed: bool = False) -> None:
        """Makes both; where there is no fixed scale, the peer raises."""

    @abstractmethod
    def step(self, gradient: float) -> None:
        """Takes a step with a gradient of the loss, which the peer scales and unscales itself."""

    @abstractmethod
    def scale(self) -> float: ...

    @abstractmethod
    def weight(self) -> float: ...

    def slots(self) -> list[float]:
        return []


class OfKeras(Peer):
    """On JAX: an eager `apply` of Keras' own raises UnexpectedTracerError there."""

    package = "keras"

    def make(self, scale: float, growth: int, fixed: bool) -> Any:
        import keras

        more = {"dynamic": False} if fixed else {}
        return keras.optimizers.LossScaleOptimizer(
            keras.optimizers.Adam(0.01), initial_scale=scale, dynamic_growth_steps=growth, **more
        )

    def start(self, scale: float, growth: int, fixed: bool = False) -> None:
        import jax
        import keras

        self.variable = keras.Variable([1.0])
        self.optimizer = self.make(scale, growth, fixed)
        self.compiled = jax.jit(self.optimizer.stateless_apply)
        self.optimizer.build([self.variable])
        self.optimizer.scale_loss(1.0)  # ours warns of steps without
        self.state = [v.value for v in self.optimizer.variables]
        self.weights = [self.variable.value]

    def step(self, gradient: float) -> None:
        with np.errstate(all="ignore"):
            scaled = np.float32([gradient]) * np.float32(self.scale())
        self.weights, self.state = self.compiled(self.state, [scaled], self.weights)

    def _value(self, variable: Any) -> Any:
        return dict(zip(map(id, self.optimizer.variables), self.state, strict=True))[id(variable)]

    def scale(self) -> float:
        return float(self._value(self.optimizer.dynamic_scale))

    def weight(self) -> float:
        return float(self.weights[0][0])

    def slots(self) -> list[float]:
        inner = self.optimizer.inner_optimizer
        return [float(self._value(v)[0]) for v in (*inner._momentums, *inner._velocities)]


class Ours(OfKeras):
    package = "keras-mp"

    def make(self, scale: float, growth: int, fixed: bool) -> Any:
        import keras

        import keras_mp

        return keras_mp.LossScaleOptimizer(
            keras.optimizers.Adam(0.01),
            dynamic=not fixed,
            initial_scale=scale,
            dynamic_growth_steps=None if fixed else growth,
        )

    def scale(self) -> float:
        return self.fixed if self.fixed else super().scale()

    def start(self, scale: float, growth: int, fixed: bool = False) -> None:
        self.fixed = scale if fixed else 0.0
        super().start(scale, growth, fixed)


class OfTfKeras(Peer):
    package = "tf_keras"

    def start(self, scale: float, growth: int, fixed: bool = False) -> None:
        import tensorflow as tf
        import tf_keras

        self.variable = tf.Variable([1.0])
        self.optimizer = tf_keras.mixed_precision.LossScaleOptimizer(
            tf_keras.optimizers.Adam(0.01),
            dynamic=not fixed,
            initial_scale=scale,
            dynamic_growth_steps=None if fixed else growth,
        )
        self.optimizer.build([self.variable])

    def step(self, gradient: float) -> None:
        import tensorflow as tf

        scaled = tf.constant(np.float32([gradient])) * self.optimizer.loss_scale
        (unscaled,) = self.optimizer.get_unscaled_gradients([scaled])
        self.optimizer.apply_gradients([(unscaled, self.variable)])

    def scale(self) -> float:
        return float(self.optimizer.loss_scale)

    def weight(self) -> float:
        return float(self.variable[0])

    def slots(self) -> list[float]:
        inner = self.optimizer.inner_optimizer
        return [float(v[0]) for v in (*inner._momentums, *inner._velocities)]


class OfTorch(Peer):
    package = "torch"

    def start(self, scale: float, growth: int, fixed: bool = False) -> None:
        import torch

        self.parameter = torch.nn.Parameter(torch.tensor([1.0]))
        self.optimizer = torch.optim.Adam([self.parameter], 0.01)
        factors = {"growth_factor": 1.0, "backoff_factor": 1.0} if fixed else {}
        self.scaler = torch.amp.GradScaler(
            "cpu", init_scale=scale, growth_interval=growth, **factors
        )

    def step(self, gradient: float) -> None:
        self.optimizer.zero_grad()
        self.scaler.scale((self.parameter * gradient).sum()).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def scale(self) -> float:
        return float(self.scaler.get_scale())

    def weight(self) -> float:
        return float(self.parameter.detach()[0])

    def slots(self) -> list[float]:
        state = self.optimizer.state.get(self.parameter, {})
        return [float(state[name][0]) for name in ("exp_avg", "exp_avg_sq") if state]


class OfFlax(Peer):
    package, skips = "flax", BY_HAND

    def start(self, scale: float, growth: int, fixed: bool = False) -> None:
        from flax.training import dynamic_scale

        factors = {"growth_factor": 1.0, "backoff_factor": 1.0} if fixed else {}
        self.scaler = dynamic_scale.DynamicScale(growth_interval=growth, scale=scale, **factors)
        self.value = np.float32(1)

    def step(self, gradient: float) -> None:
        import jax.numpy as jnp

        graded = self.scaler.value_and_grad(lambda w: w * jnp.float32(gradient))
        self.scaler, finite, _, found = graded(jnp.float32(self.value))
        self.value = jnp.where(finite, self.value - 0.01 * found, self.value)

    def scale(self) -> float:
        return float(self.scaler.scale)

    def weight(self) -> float:
        return float(self.value)


class OfJmp(Peer):
    package, skips = "jmp", BY_HAND

    def start(self, scale: float, growth: int, fixed: bool = False) -> None:
        import jax.numpy as jnp
        import jmp

        initial = jnp.float32(scale)
        self.scaler = (
            jmp.StaticLossScale(initial) if fixed else jmp.DynamicLossScale(initial, period=growth)
        )
        self.value = jnp.float32(1)

    def step(self, gradient: float) -> None:
        import jax
        import jax.numpy as jnp
        import jmp

        found = jax.grad(lambda w: self.scaler.scale(w * jnp.float32(gradient)))(self.value)
        found = self.scaler.unscale(found)
        finite = jmp.all_finite(found)
        self.scaler = self.scaler.adjust(finite)
        self.value = jmp.select_tree(finite, self.value - 0.01 * found, self.value)

    def scale(self) -> float:
        return float(self.scaler.loss_scale)

    def weight(self) -> float:
        return float(self.value)


PEERS: dict[str, type[Peer]] = {
    "keras-mp": Ours,
    "Keras": OfKeras,
    "tf_keras": OfTfKeras,
    "torch GradScaler": OfTorch,
    "flax DynamicScale": OfFlax,
    "jmp": OfJmp,
}


# -- what is asked: a peer -> a cell ---------------------------------------------------------------


def skips(peer: Peer) -> str:
    """Whether inf, -inf and nan change no bit of the weight and the slots."""
    if peer.skips != YES:
        return peer.skips
    peer.start(1024.0, 2000)
    peer.step(0.5)
    before = (peer.weight(), peer.slots())
    for bad in (np.inf, -np.inf, np.nan):
        peer.step(bad)
    return YES if (peer.weight(), peer.slots()) == before else NO


def survives(peer: Peer) -> str:
    """Whether, after 200 steps that overflow, ten good ones still train."""
    peer.start(1024.0, 2000)
    for _ in range(200):
        peer.step(np.inf)
    for _ in range(10):
        peer.step(0.5)
    return YES if np.isfinite(peer.weight()) and peer.weight() < 1 else NO


def is_capped(peer: Peer) -> str:
    """Whether a scale that would grow to inf stays finite."""
    peer.start(LARGE, 1)
    for _ in range(3):
        peer.step(1e-3)
    return YES if np.isfinite(peer.scale()) else NO


def is_fixed(peer: Peer) -> str:
    """Whether there is a fixed scale, and steps that overflow are skipped all the same."""
    try:
        peer.start(128.0, 2000, fixed=True)
        peer.step(np.inf)
    except (TypeError, ValueError, AssertionError):
        return NO
    held = peer.scale() == 128 and peer.weight() == 1
    return (YES if peer.skips == YES else peer.skips) if held else NO


PROBES: dict[str, Callable[[Peer], str]] = {
    "a bad gradient changes no weight and no slot": skips,
    "trains on after 200 steps that overflow": survives,
    "the scale never grows to inf": is_capped,
    "a fixed scale, with bad steps skipped": is_fixed,
}


def installed() -> Iterator[str]:
    """Yields the names of peers whose package is there."""
    for name, peer in PEERS.items():
        if importlib.util.find_spec(peer.package.replace("-", "_")):
            yield name


def ask(names: list[str]) -> dict[str, dict[str, str]]:
    """Returns a row for each probe: the cell of each peer."""
    return {row: {name: probe(PEERS[name]()) for name in names} for row, probe in PROBES.items()}


def version(name: str) -> str:
    return importlib.metadata.version(PEERS[name].package).partition("+")[0]


def main() -> int:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    names = list(installed())
    print("| |", " | ".join(f"{name} {version(name)}" for name in names), "|")
    print("|---|" + "---|" * len(names))
    for row, cells in ask(names).items():
        print(f"| {row} |", " | ".join(cells[name] for name in names), "|")
    return 0


if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = "jax"
    sys.exit(main())
