"""`protect_state`: a skipped step leaves the state of layers alone too.

The optimizer cannot do this: a forward pass writes the statistics of BatchNormalization before
there is a gradient. So it hangs on the model's train step instead, and is opt-in.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras import ops

from keras_mp.loss_scale_optimizer import LossScaleOptimizer


def protect_state(model: Any, *optimizers: Any) -> Any:
    """Makes the train step of `model` put the state of its layers back where a step is skipped.

    Without it, one batch whose activations overflow leaves inf or nan in the moving mean and
    variance of every BatchNormalization behind it, and `predict` returns nan for ever while the
    weights are fine. Put back, bit for bit and inside the compiled step, is every variable that a
    layer made as not trainable: moving statistics, spectral norms, counters, codebooks. Left alone
    are

    - seeds: the next dropout mask is a new one, as after any step;
    - metrics, the mean of the loss among them: they tell what happened, so an epoch with a skipped
      step has a loss that is not finite in its logs;
    - weights that are frozen (`layer.trainable = False`): a forward pass does not write them.

    Costs a copy of these variables a step.

    Args:
        model: A `keras.Model`, compiled with a `keras_mp.LossScaleOptimizer` by the time it is
            trained. A `train_step` of its own is fine. Call this again after loading a model: it
            is not saved.
        *optimizers: The LossScaleOptimizers that its `train_step` steps with, where these are
            others than the one that it is compiled with. A step that one of them skips counts. Not
            on JAX, where a train step has the state of the compiled one only.

    Returns:
        The model.

    Raises:
        TypeError: An optimizer is no LossScaleOptimizer; of the one that the model is compiled
            with this is said when it is trained.
        ValueError: An optimizer checks nothing (`skip_nonfinite=False`); optimizers on JAX.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization()])
    >>> protect_state(model) is model
    True
    """
    for optimizer in optimizers:
        _check(optimizer)
    if keras.backend.backend() != "jax":
        step = functools.partial(_step, model, optimizers, model.train_step)
    elif optimizers:
        raise ValueError(
            "On JAX a train step has the state of the optimizer that the model is compiled with, "
            "and of no other: leave the optimizers out."
        )
    else:
        step = functools.partial(_stateless_step, model, model.train_step)
    model.train_step = step
    model.train_function = None
    return model


@contextlib.contextmanager
def protection_scope(model: Any, *optimizers: Any) -> Iterator[None]:
    """A scope around one step of a loop of your own, after which the state is put back if skipped.

    For loops that assign to variables: TensorFlow, also inside a `tf.function`, and PyTorch; on JAX
    in a `keras.StatelessScope`. What is put back is what `protect_state` says, of layers that are
    built by then.

    Args:
        model: The built `keras.Model` or layer whose forward pass is in the scope.
        *optimizers: The LossScaleOptimizers that step in the scope; the model's if none is given.

    Raises:
        TypeError: An optimizer is no LossScaleOptimizer.
        ValueError: An optimizer checks nothing (`skip_nonfinite=False`).

    >>> import numpy as np
    >>> norm = keras.layers.BatchNormalization()
    >>> opt = LossScaleOptimizer(keras.optimizers.SGD())
    >>> norm.build((None, 1))
    >>> with protection_scope(norm, opt):
    ...     _ = norm(np.array([[np.inf]]), training=True)
    ...     gradients = [np.array([np.inf], "float32")] * 2
    ...     pairs = zip(gradients, norm.trainable_variables)
    ...     _ = opt.apply_gradients(pairs, gradients_scaled=True)
    >>> float(norm.moving_mean.numpy()[0])
    0.0
    """
    for optimizer in optimizers:  # the model's own may be wrapped in here
        _check(optimizer)
    written = _written(model)
    variables = [v for v in model.non_trainable_variables if id(v) in written]
    before = [ops.copy(v.value) for v in variables]
    # Counted, not observed: the step may be in a function that was traced long ago. A model that
    # is built in here may get its optimizer wrapped meanwhile; a new one has skipped nothing.
    skipped = {
        id(o): o.skipped_steps
        for o in optimizers or (getattr(model, "optimizer", None),)
        if isinstance(o, LossScaleOptimizer)
    }
    yield
    for optimizer in optimizers or (getattr(model, "optimizer", None),):
        _check(optimizer)
        finite = ops.equal(optimizer.skipped_steps, skipped.get(id(optimizer), 0))
        for variable, old in zip(variables, before, strict=True):
            variable.assign(ops.where(finite, ops.convert_to_tensor(variable.value), old))


def _step(model: Any, optimizers: Sequence[Any], train_step: Any, data: Any) -> Any:
    """A train step that assigns to variables (TensorFlow, PyTorch)."""
    with protection_scope(model, *optimizers):
        return train_step(data)


def _stateless_step(model: Any, train_step: Any, state: Any, data: Any) -> Any:
    """A train step that takes and returns the state (JAX)."""
    optimizer = _check(model.optimizer)
    logs, (trainable, updated, optimizer_state, *rest) = train_step(state, data)
    finite = ops.equal(optimizer.skipped_in(optimizer_state), optimizer.skipped_in(state[2]))
    written = _written(model)
    updated = [
        ops.where(finite, new, old) if id(variable) in written else new
        for variable, new, old in zip(model.non_trainable_variables, updated, state[1], strict=True)
    ]
    return logs, (trainable, updated, optimizer_state, *rest)


def _check(optimizer: Any) -> LossScaleOptimizer:
    if not isinstance(optimizer, LossScaleOptimizer):
        raise TypeError(
            "protect_state and protection_scope need a keras_mp.LossScaleOptimizer (it tells which "
            f"steps are skipped), but the optimizer is {type(optimizer).__name__}."
        )
    if not optimizer.skip_nonfinite:
        raise ValueError(
            "protect_state and protection_scope need an optimizer that skips steps, but this one "
            "was made with skip_nonfinite=False."
        )
    return optimizer


def _written(model: Any) -> set[int]:
    """Returns the ids of the variables that a forward pass may write, seeds apart."""
    frozen = {id(v) for layer in model._flatten_layers() for v in layer._trainable_variables}
    return {
        id(v)
        for v in model.non_trainable_variables
        if id(v) not in frozen and v.name != "seed_generator_state"
    }
