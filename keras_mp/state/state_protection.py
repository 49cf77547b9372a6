"""`protect_state`: a skipped step leaves the state of layers, and metrics, alone too.

The optimizer cannot do this: a forward pass writes the statistics of BatchNormalization before
there is a gradient. So it hangs on the model's train step instead, and is opt-in.

What layers keep is known by how it was made. Weights, trained or frozen, that they assign to are
seen when it happens: `Assignments` keeps the value that a weight has before.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_mp import backends
from keras_mp.array_types import Layer, Model, Optimizer, Tensor, Variable
from keras_mp.backends import keras_hooks
from keras_mp.optimizer.errors import unwrapped
from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer


def protect_state(
    model: Model, *optimizers: Any, metrics: bool = False, variables: Iterable[Variable] = ()
) -> Any:
    """Makes the train step of `model` restore the state of its layers if a step is skipped.

    Without it, one batch whose activations overflow leaves inf or nan in the moving mean and
    variance of every later BatchNormalization, and `predict` returns nan for ever although the
    weights are fine. These are restored, bit for bit and inside the compiled step:

    - every variable that a layer made as not trainable: moving statistics, counters, codebooks; the
      states of stateful recurrent layers; on PyTorch the buffers of modules;
    - weights that a layer assigns to in its forward pass, frozen ones too. Of the layers of Keras
      SpectralNormalization does: it divides its kernel by the spectral norm, before there is a
      gradient, so without `protect_state` even a skipped step changes that weight on TensorFlow and
      PyTorch (`fit` on JAX drops what is assigned to a weight, unless it is frozen). Layers and
      train steps of your own are watched for `variable.assign`. Name in `variables` what cannot be
      seen: weights whose tensor is changed itself (`self.kernel.value.mul_(2)` on PyTorch), or
      that a `tf.function` inside the model assigns to which was called before;
    - with `metrics=True` the metrics.

    Seeds are not restored (the next dropout mask is a new one, as after any step), nor are other
    weights. Metrics are not restored by default: an epoch with a skipped step then logs a loss that
    is not finite.

    With `metrics=True` the logs are those of a run that never saw the batches of skipped steps, and
    `keras.callbacks.TerminateOnNaN` does not stop at such a step: its batch logs the means so far.
    Before the first good batch of an epoch or of `train_on_batch`, these are the results of empty
    metrics: a loss of 0. What a custom `train_step` returns beside metrics is unchanged. On JAX,
    where Keras has no metrics in a forward pass, these are the metrics of the train step.

    Costs a copy of these variables a step; on JAX under jit a choice between two values. For
    metrics their results are computed twice.

    Args:
        model: A `keras.Model`, compiled with a `keras_mp.LossScaleOptimizer` by the time it is
            trained. A `train_step` of its own is fine. Call this again after loading a model: it
            is not saved.
        *optimizers: The LossScaleOptimizers that its `train_step` steps with, where these are
            others than the one that it is compiled with. A step that one of them skips counts. Not
            on JAX, where a train step has the state of the compiled one only.
        metrics: Whether skipped steps are left out of the metrics: the mean of the loss, compiled
            metrics and those that models and layers hold.
        variables: More variables to put back, of any kind.

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
    watch()
    variables = tuple(variables)
    if keras.backend.backend() != "jax":
        step = functools.partial(_step, model, optimizers, metrics, variables, model.train_step)
    elif optimizers:
        raise ValueError(
            "On JAX a train step has the state of the optimizer that the model is compiled with, "
            "and of no other: leave the optimizers out."
        )
    else:
        step = functools.partial(_stateless_step, model, metrics, variables, model.train_step)
    model.train_step = step
    model.make_train_function = functools.partial(_make_train_function, model)
    model.train_function = None
    return model


def is_protected(model: Model) -> bool:
    """Returns whether `protect_state` was called on `model`."""
    step = vars(model).get("train_step")
    return isinstance(step, functools.partial) and step.func in (_step, _stateless_step)


def _make_train_function(model: Model, force: bool = False) -> None:
    """Makes the function that trains, from a step that was not compiled before.

    JAX compiles an object once. A bound method is another one each time, but the step of a
    protected model would be the same after a second `compile`, whose optimizer and loss it ignored.
    """
    if (force or model.train_function is None) and is_protected(model):
        step = model.train_step
        model.train_step = functools.partial(step.func, *step.args)
    type(model).make_train_function(model, force)


@contextlib.contextmanager
def protect_state_scope(
    model: Model,
    *optimizers: Any,
    metrics: bool | Iterable[Any] = False,
    variables: Iterable[Variable] = (),
) -> Iterator[None]:
    """A scope around one step of a custom loop: a skipped step restores the state of layers.

    For loops that assign to variables: TensorFlow, also inside a `tf.function`, and PyTorch; on JAX
    in a `keras.StatelessScope`. What is put back is what `protect_state` says, of layers that are
    built by then.

    Args:
        model: The built `keras.Model` or layer whose forward pass is in the scope.
        *optimizers: The LossScaleOptimizers that step in the scope; the model's if none is given.
        metrics: True for the metrics of the model, or the `keras.metrics.Metric`s that are updated
            in the scope.
        variables: More variables to put back, as for `protect_state`.

    Raises:
        TypeError: An optimizer is no LossScaleOptimizer.
        ValueError: An optimizer checks nothing (`skip_nonfinite=False`).

    >>> import numpy as np
    >>> norm = keras.layers.BatchNormalization()
    >>> opt = LossScaleOptimizer(keras.optimizers.SGD())
    >>> norm.build((None, 1))
    >>> with protect_state_scope(norm, opt):
    ...     _ = norm(np.array([[np.inf]]), training=True)
    ...     gradients = [np.array([np.inf], "float32")] * 2
    ...     pairs = zip(gradients, norm.trainable_variables)
    ...     _ = opt.apply_gradients(pairs, gradients_scaled=True)
    >>> float(norm.moving_mean.numpy()[0])
    0.0
    """
    with _scope(model, optimizers, metrics, tuple(variables)):
        yield


@contextlib.contextmanager
def _scope(
    model: Model,
    optimizers: Sequence[Optimizer],
    metrics: bool | Iterable[Any],
    named: Sequence[Variable],
) -> Iterator[list[Any]]:
    """Yields a list that holds, once the scope is left, whether all steps in it were taken."""
    for optimizer in optimizers:  # the model's own may be wrapped in here
        _check(optimizer)
    backend = backends.current()
    given = None if metrics is True else list(metrics or ())
    variables = [*named, *assigned_variables(model)]
    for metric in _metrics(model) if given is None else given:
        variables += metric.variables
    variables = list({id(v): v for v in variables}.values())
    before = {id(v): (v, ops.copy(backend.read(v))) for v in variables}
    buffers = [
        (buffer, ops.copy(buffer)) for buffer in backend.buffers(keras_hooks.all_layers(model))
    ]
    # Counted, not observed: the step may be in a function that was traced long ago. A model that
    # is built in here may get its optimizer wrapped meanwhile; a new one has skipped nothing.
    skipped = {
        id(o): o.skipped_steps
        for o in optimizers or (getattr(model, "optimizer", None),)
        if isinstance(o, LossScaleOptimizer)
    }
    finite_step: list[Any] = []
    weights = weights_of(model)
    assignments = Assignments(v for v in weights if id(v) not in before)
    assignments.start()
    try:
        yield finite_step
    finally:
        assignments.stop()
    before.update((id(variable), (variable, old)) for variable, old in assignments.before)
    for stepped in optimizers or (getattr(model, "optimizer", None),):
        optimizer = _check(stepped)
        finite = ops.equal(optimizer.skipped_steps, skipped.get(id(optimizer), 0))
        finite_step[:] = [ops.logical_and(finite_step[0], finite) if finite_step else finite]
    for metric in _metrics(model) if given is None else given:
        # Some make their variables when they are updated first.
        new = [variable for variable in metric.variables if id(variable) not in before]
        before.update({id(v): (v, old) for v, old in zip(new, _reset(metric, new), strict=True)})
    for variable, old in before.values():
        variable.assign(ops.where(finite_step[0], backend.read(variable), old))
    for buffer, old in buffers:
        buffer.copy_(ops.where(finite_step[0], buffer, old))


def _step(
    model: Model,
    optimizers: Sequence[Optimizer],
    metrics: bool,
    named: Sequence[Variable],
    train_step: Any,
    data: Any,
) -> Any:
    """A train step that assigns to variables (TensorFlow, PyTorch)."""
    with _scope(model, optimizers, metrics, named) as finite_step:
        logs = train_step(data)
    return _logs(finite_step[0], logs, model.get_metrics_result()) if metrics else logs


def _stateless_step(
    model: Model,
    metrics: bool,
    named: Sequence[Variable],
    train_step: Any,
    state: Any,
    data: Any,
) -> Any:
    """A train step that takes and returns the state (JAX)."""
    optimizer = _check(model.optimizer)
    logs, new_state = train_step(state, data)
    skipped_in = optimizer._statistics.skipped_in
    before, after = (skipped_in(optimizer.variables, each[2]) for each in (state, new_state))
    finite = ops.equal(after, before)

    def put_back(
        part: int, variables: Sequence[Variable], only: Sequence[Variable] | None = None
    ) -> list[Any]:
        ids = None if only is None else {id(v) for v in only}
        return [
            # Nothing was written where the new value is the old one.
            ops.where(finite, new, old)
            if new is not old and v.name != SEED and (ids is None or id(v) in ids)
            else new
            for v, new, old in zip(variables, new_state[part], state[part], strict=True)
        ]

    # Keras drops what a forward pass assigns to trained weights: only the optimizer changed them.
    trained = put_back(0, model.trainable_variables, named)
    others = put_back(1, model.non_trainable_variables)
    variables = model.metrics_variables
    measured = put_back(3, variables) if metrics else new_state[3]
    if metrics:
        with keras.StatelessScope(zip(variables, measured, strict=True)):
            logs = _logs(finite, logs, model.get_metrics_result())
    return logs, (trained, others, new_state[2], measured)


def _logs(finite: Tensor, logs: Any, results: Mapping[str, Any]) -> Any:
    """Returns the logs of a step, of a skipped one with the results of the metrics put back."""
    if not isinstance(logs, Mapping):
        return logs

    def chosen(new: Any, old: Any) -> Any:
        new = ops.convert_to_tensor(new)
        return ops.where(finite, new, ops.cast(old, new.dtype))

    return {
        name: chosen(value, results[name])
        if name in results and not keras.tree.is_nested(value)
        else value
        for name, value in logs.items()
    }


def _metrics(model: Model) -> list[Any]:
    """Returns the metrics that a step may update, those of models inside included."""
    found = list(model.metrics)
    for layer in keras_hooks.all_layers(model):
        found += layer.metrics if isinstance(layer, keras.Model) else keras_hooks.own_metrics(layer)
    return list({id(metric): metric for metric in found}.values())


def _reset(metric: Any, variables: Sequence[Variable]) -> list[Any]:
    """Returns the values that `variables` have when `metric` is reset, which it is not."""
    with keras.StatelessScope():
        metric.reset_state()
        return [ops.convert_to_tensor(variable) for variable in variables]


def _check(optimizer: Optimizer) -> LossScaleOptimizer:
    if not isinstance(optimizer, LossScaleOptimizer):
        raise TypeError(
            "protect_state and protect_state_scope need a keras_mp.LossScaleOptimizer, which tells "
            f"which steps are skipped, but the optimizer is {unwrapped(optimizer)}."
        )
    if not optimizer.skip_nonfinite:
        raise ValueError(
            "protect_state and protect_state_scope need an optimizer that skips steps, but this "
            "one was made with skip_nonfinite=False."
        )
    return optimizer


SEED = "seed_generator_state"  # what Keras calls every variable of a SeedGenerator
_SEEN = "_keras_mp_assigned"  # marks a weight that was assigned to in a forward pass


def assigned_variables(model: Model) -> list[Any]:
    """Returns the variables that a step of `model` may write although it is skipped; no seeds.

    Those are the variables that layers made as not trainable, the states of stateful recurrent
    layers, the kernels of SpectralNormalization, and weights that `Assignments` saw before.

    >>> norm = keras.layers.BatchNormalization()
    >>> norm.build((None, 4))
    >>> [variable.name for variable in assigned_variables(norm)]
    ['moving_mean', 'moving_variance']
    """
    weights = {id(v): v for v in weights_of(model)}
    found = {id(v): v for v in model.variables if id(v) not in weights and v.name != SEED}
    for layer in keras_hooks.all_layers(model):
        if getattr(layer, "stateful", False) and getattr(layer, "states", None) is not None:
            found.update((id(v), v) for v in keras.tree.flatten(layer.states))
        found.update((id(v), v) for v in self_assigned_weights(layer))
    found.update((key, v) for key, v in weights.items() if hasattr(v, _SEEN))
    return list(found.values())


def weights_of(model: Model) -> Iterator[Any]:
    """Yields the weights of the layers: what an optimizer trains, or would if it was not frozen."""
    for layer in keras_hooks.all_layers(model):
        yield from keras_hooks.own_weights(layer)


def self_assigned_weights(layer: Layer) -> list[Any]:
    """Returns the weights that a layer of Keras is known to assign to while it is trained.

    >>> layer = keras.layers.SpectralNormalization(keras.layers.Dense(2))
    >>> layer.build((None, 4))
    >>> [variable.name for variable in self_assigned_weights(layer)]
    ['kernel']
    """
    return [layer.kernel] if isinstance(layer, keras.layers.SpectralNormalization) else []


class Assignments:
    """Keeps the values that weights had before a step first assigned to them.

    Seen is each `variable.assign`, `assign_add` and `assign_sub` of the same thread between `start`
    and `stop`, but for those of an optimizer's step. Not seen are changes of the tensor that a
    variable holds, and functions that TensorFlow traced earlier.

    Attributes:
        before: (variable, value) for each weight that was assigned to, in that order.

    >>> weight = keras.Variable([2.0])
    >>> assignments = Assignments([weight])
    >>> assignments.start()
    >>> weight.assign([3.0]), weight.assign([4.0])  # doctest: +ELLIPSIS
    (...)
    >>> assignments.stop()
    >>> [float(value[0]) for _, value in assignments.before]
    [2.0]
    """

    def __init__(self, weights: Iterable[Any]) -> None:
        self.before: list[tuple[Any, Any]] = []
        self._waiting = {id(weight) for weight in weights}
        self._optimizers = 0  # that step now

    def start(self) -> None:
        """Sees assignments from now on."""
        watch()
        self._thread = backends.current().thread()
        self._copy = backends.current().copier()
        _active.append(self)

    def stop(self) -> None:
        """Sees no more of them."""
        _active.remove(self)

    def note(self, variable: Any) -> None:
        """Keeps the value of `variable`, if this is the first assignment to one of the weights."""
        if self._optimizers or id(variable) not in self._waiting:
            return
        self._waiting.remove(id(variable))
        with keras_hooks.without_autocast():
            self.before.append((variable, self._copy(variable)))
        if not backends.current().is_compiling():  # torch.compile would compile the step again
            setattr(variable, _SEEN, True)

    def optimizer_steps(self, change: int) -> None:
        """Counts the optimizers that step: 1 when one begins, -1 when it ends."""
        self._optimizers += change

    def is_of_this_thread(self) -> bool:
        """Returns whether the calling thread is the one that called `start`."""
        return self._thread == backends.current().thread()


_active: list[Assignments] = []


def watch() -> None:
    """Has Keras tell `Assignments` of what is assigned; only the first call does anything.

    It cannot be done while torch.compile traces the step.
    """
    keras_hooks.watch_assignments(
        functools.partial(_tell, Assignments.note),
        functools.partial(_tell, Assignments.optimizer_steps),
    )


def _tell(method: Callable[[Assignments, Any], None], value: Any) -> None:
    for assignments in _active:
        if assignments.is_of_this_thread():
            method(assignments, value)
