"""Warns once when `compile` of a float16 model does not use our loss scaler."""

import importlib
import logging
from typing import Any

import keras

from keras_mp.array_types import Model, Optimizer
from keras_mp.backends.common import trainer_hook

_REMEDY = "Pass keras_mp.LossScaleOptimizer(...) to compile, or call keras_mp.auto_wrap() before it"
_logger = logging.getLogger("keras_mp")
_watching = False
_advised = False


def watch() -> None:
    """Checks each `compile` from now on."""
    global _watching
    if not _watching:
        _watching = True
        trainer_hook.install(_before_compile, _after_compile)


def _before_compile(model: Model, optimizer: Optimizer) -> bool:
    return isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


def _after_compile(model: Model, chosen: bool, auto_scale_loss: bool) -> None:
    global _advised
    if chosen or not auto_scale_loss or _advised or not _logger.isEnabledFor(logging.WARNING):
        return
    # Late: wrapping imports the optimizer, which policies do not need.
    if importlib.import_module("keras_mp.policies.auto_wrapping").is_active():
        return
    if what := _problem(model):
        _advised = True
        _logger.warning("keras_mp: compile of the model %r %s. %s", model.name, what, _REMEDY)


def _problem(model: Any) -> str | None:
    optimizer = model.optimizer
    if type(optimizer) is keras.optimizers.LossScaleOptimizer:
        return "wrapped the optimizer in Keras' own LossScaleOptimizer, not in ours"
    policy = model.dtype_policy
    is_map = isinstance(policy, keras.dtype_policies.DTypePolicyMap)
    if optimizer is not None and is_map and policy.compute_dtype == "float16":
        return "wraps no optimizer if the policy is a map: nothing scales the float16 loss"
    return None
