"""Checks whether a model can run on a batch, and at which loss scale, with a remedy if not."""

from typing import Any

import keras
from keras import ops

from keras_mp import backends


def check_model(model: Any, compiled: bool) -> None:
    """Raises TypeError or ValueError if a model cannot run."""
    if not isinstance(model, keras.Model):
        raise TypeError(
            f"model must be a keras.Model, but got {model!r:.80} of type {type(model).__name__}."
        )
    if not model.built:
        raise ValueError(
            f"Model {model.name!r} is not built, so it has no weights yet: call it on a batch "
            "once, or model.build(input_shape)."
        )
    if compiled and not model.compiled:
        raise ValueError(
            f"Model {model.name!r} is not compiled, so there is no loss: model.compile(optimizer, "
            "loss), or leave y out for the forward pass only."
        )
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()  # in a callback of fit, the compiled step holds the values


def check_lengths(**parts: Any) -> None:
    """Raises ValueError if a batch has no samples, or arrays with different numbers of them."""
    lengths = {
        name: {int(array.shape[0]) for array in keras.tree.flatten(part) if _has_side(array)}
        for name, part in parts.items()
    }
    all_lengths = set().union(*lengths.values())
    if len(all_lengths) > 1:
        differences = ", ".join(
            f"{name} has {' and '.join(map(str, sorted(n)))}" for name, n in lengths.items() if n
        )
        raise ValueError(f"One batch is needed, but the numbers of samples differ: {differences}.")
    if all_lengths == {0}:
        raise ValueError("The batch is empty: x has 0 samples.")


def _has_side(array: Any) -> bool:
    shape: Any = getattr(array, "shape", ())
    return len(shape) > 0 and isinstance(shape[0], int)


def checked_scale(model: Any, loss_scale: float | None) -> float:
    """Returns the given loss scale, or that of the model's optimizer."""
    value = (
        current_scale(getattr(model, "optimizer", None))
        if loss_scale is None
        else float(loss_scale)
    )
    if 0 < value < float("inf"):
        return value
    if loss_scale is None:
        raise ValueError(
            f"The loss scale of the model's optimizer is {value}: pass loss_scale=, a positive "
            "number."
        )
    raise ValueError(f"loss_scale must be a positive number, but is {value}.")


def current_scale(optimizer: Any) -> float:
    """Returns the current loss scale of `optimizer`; 1 without one."""
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        variable = getattr(optimizer, "dynamic_scale", None)
        if variable is None:
            return float(optimizer.initial_scale)
        return float(ops.convert_to_numpy(backends.current().read(variable)))
    return float(getattr(optimizer, "loss_scale_factor", None) or 1.0)
