"""The policies and optimizers that `benchmark` compares."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras

from keras_mp.array_types import Model, Optimizer
from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer
from keras_mp.sixteen_bit.policies import sixteen_bit_policy
from keras_mp.sixteen_bit.wrapper import MasterWeights, SixteenBitOptimizer


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to train the model.

    Attributes:
        policy: The layers' policy: a name, or a function that returns a map for the float32 model.
        wrap: Wraps the model's own optimizer, from which loss scaling was removed.
        how: The same as code, for the report.
        rewritten: Whether the graph rewrite decides op by op what computes in float16.
    """

    policy: str | Callable[[Model], Any]
    wrap: Callable[[Optimizer, dict[str, Any]], Optimizer]
    how: str
    rewritten: bool = False


def _plain(optimizer: Optimizer, _: dict[str, Any]) -> Optimizer:
    return optimizer


def _scaled(optimizer: Optimizer, settings: dict[str, Any]) -> Optimizer:
    return LossScaleOptimizer(optimizer, **settings)


def _fused(optimizer: Optimizer, settings: dict[str, Any]) -> Optimizer:
    return LossScaleOptimizer(optimizer, **{**settings, "fused": True})


def _with_masters(optimizer: Optimizer, _: dict[str, Any]) -> Optimizer:
    return MasterWeights(optimizer, "split")


FLOAT32 = "float32"
# Simpler variants first: of two equally fast ones the first is recommended.
VARIANTS: dict[str, Variant] = {
    FLOAT32: Variant("float32", _plain, 'policy "float32", the optimizer as it is'),
    "mixed_bfloat16": Variant(
        "mixed_bfloat16", _plain, 'policy "mixed_bfloat16", the optimizer as it is'
    ),
    "mixed_float16": Variant(
        "mixed_float16", _scaled, 'policy "mixed_float16", keras_mp.LossScaleOptimizer(optimizer)'
    ),
    "mixed_float16, fused": Variant(
        "mixed_float16",
        _fused,
        'policy "mixed_float16", keras_mp.LossScaleOptimizer(optimizer, fused=True)',
    ),
    "graph rewrite": Variant(
        "float32",
        _scaled,
        'policy "float32", keras_mp.graph_rewrite.enable(optimizer)',
        rewritten=True,
    ),
    "16-bit weights": Variant(
        lambda model: sixteen_bit_policy("bfloat16", model),
        _with_masters,
        'policy keras_mp.sixteen_bit_policy("bfloat16"), '
        'keras_mp.MasterWeights(optimizer, "split")',
    ),
}


def innermost(optimizer: Optimizer) -> Optimizer:
    """Returns an optimizer without wrappers that scale the loss or keep masters.

    >>> innermost(LossScaleOptimizer(keras.optimizers.SGD())).__class__.__name__
    'SGD'
    """
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer | SixteenBitOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer


def scaling_settings(optimizer: Optimizer) -> dict[str, Any]:
    """Returns the loss-scale settings of an optimizer, as our arguments; empty without any.

    >>> scaling_settings(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), 128.0))
    {'initial_scale': 128.0, 'dynamic_growth_steps': 2000}
    """
    if isinstance(optimizer, LossScaleOptimizer):
        config = optimizer.get_config()
        return {k: v for k, v in config.items() if k not in ("name", "inner_optimizer", "fused")}
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return {
            "initial_scale": float(optimizer.initial_scale),
            "dynamic_growth_steps": int(optimizer.dynamic_growth_steps),
        }
    return {}
