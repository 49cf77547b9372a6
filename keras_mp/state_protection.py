"""`guard_statistics`: a skipped step leaves moving statistics alone too.

The optimizer cannot do this: a forward pass writes the statistics of BatchNormalization before
there is a gradient. So it hangs on the model's train step instead, and is opt-in.
"""

import functools
from typing import Any

import keras
from keras import ops

from keras_mp.loss_scale_optimizer import LossScaleOptimizer


def guard_statistics(model: Any) -> Any:
    """Makes the train step of `model` put moving statistics back where the optimizer skips.

    Without it, one batch whose activations overflow leaves inf or nan in the moving mean and
    variance of every BatchNormalization behind it, and `predict` returns nan for ever while the
    weights are fine. Every float variable of the model that is not trainable is put back; seeds
    go on. Costs a copy of these variables a step.

    Args:
        model: A `keras.Model`, compiled with a `keras_mp.LossScaleOptimizer` by the time it is
            trained. Call it again after loading a model: it is not saved.

    Returns:
        The model.

    Raises:
        TypeError: When the model is trained with another optimizer.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization()])
    >>> guard_statistics(model) is model
    True
    """
    guard = _stateless_step if keras.backend.backend() == "jax" else _step
    model.train_step = functools.partial(guard, model, model.train_step)
    model.train_function = None
    return model


def _step(model: Any, train_step: Any, data: Any) -> Any:
    """A train step that assigns to variables (TensorFlow, PyTorch)."""
    variables = [v for v in model.non_trainable_variables if _is_float(v)]
    before = [ops.copy(v.value) for v in variables]
    with _optimizer(model).observed() as finite:
        logs = train_step(data)
    for variable, old in zip(variables, before, strict=True):
        for kept in finite:
            variable.assign(ops.where(kept, ops.convert_to_tensor(variable.value), old))
    return logs


def _stateless_step(model: Any, train_step: Any, state: Any, data: Any) -> Any:
    """A train step that takes and returns the state (JAX)."""
    statistics = state[1]
    with _optimizer(model).observed() as finite:
        logs, (trainable, updated, *rest) = train_step(state, data)
    for kept in finite:
        updated = [
            ops.where(kept, new, old) if _is_float(new) else new
            for new, old in zip(updated, statistics, strict=True)
        ]
    return logs, (trainable, updated, *rest)


def _optimizer(model: Any) -> LossScaleOptimizer:
    if not isinstance(model.optimizer, LossScaleOptimizer):
        raise TypeError(
            "guard_statistics needs a model compiled with keras_mp.LossScaleOptimizer (it tells "
            f"which steps are skipped), but the optimizer is {type(model.optimizer).__name__}."
        )
    return model.optimizer


def _is_float(value: Any) -> bool:
    return bool(keras.backend.is_float_dtype(keras.backend.standardize_dtype(value.dtype)))
