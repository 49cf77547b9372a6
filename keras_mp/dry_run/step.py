"""One training step of a model as a trial: what it computes, and nothing of it stays.

Forward, loss, gradients and metrics as `fit` has them, except that no weight, statistic, seed,
metric or optimizer is changed. A `train_step` of the model's own is not run.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mp import backends
from keras_mp.backends.generators import unchanged_generators
from keras_mp.dry_run import observing
from keras_mp.overflow_search.report import Where


@dataclass(eq=False)
class ForwardPass:
    """What a trial computed before any gradient; None for what was not run.

    Attributes:
        outputs: What the model returned.
        loss: As `compute_loss` returned it, unscaled.
        scaled: The loss times the loss scale.
        metrics: Result by name.
    """

    outputs: Any
    loss: Any = None
    scaled: Any = None
    metrics: dict[str, Any] = field(default_factory=dict)


class Trial:
    """A model with a batch.

    Args:
        model: A built `keras.Model`; compiled, where there is a loss.
        x: Input, as `model(x)` takes it: arrays or tensors, nested or not.
        y: Targets, or None.
        sample_weight: Weights of the samples, or None.
        loss_scale: What the loss is multiplied by; None: what the optimizer of the model has now.
        training: Whether layers are called as in training.

    Raises:
        TypeError: `model` is no `keras.Model`.
        ValueError: The model is not built, or not compiled where `y` is given; the arrays have
            different lengths; a scale that is not positive.
    """

    def __init__(
        self,
        model: Any,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        loss_scale: float | None = None,
        training: bool = True,
    ) -> None:
        check_model(model, compiled=y is not None)
        check_lengths(x=x, y=y, sample_weight=sample_weight)
        self.model = model
        self.x, self.y, self.sample_weight = (_tensors(part) for part in (x, y, sample_weight))
        self.training = training
        self.loss_scale = checked_scale(model, loss_scale)

    def run(self, metrics: bool = False) -> ForwardPass:
        """Computes everything but gradients."""
        with isolated(self.model):
            return self._run(metrics)

    def gradients(
        self,
        variables: Sequence[Any],
        extra: Sequence[Any],
        watched: contextlib.AbstractContextManager[None],
    ) -> list[Any]:
        """Returns the gradients of the scaled loss by `variables`; None where it hangs on none.

        Args:
            variables: Of the model, and `extra`.
            extra: Variables that are not the model's, and that the watcher reads.
            watched: A scope that the forward pass is in. Not the backward pass, whose ops JAX
                would compile anew for each scope.
        """
        passes: list[ForwardPass] = []

        def loss() -> Any:
            with watched, isolated(self.model, extra):
                passes[:] = [self._run(False)]
            return passes[0].scaled

        native = backends.current()
        found = native.gradients(loss, list(variables))
        return [
            None if gradient is None else native.densified(gradient, variable)
            for gradient, variable in zip(found, variables, strict=True)
        ]

    def _run(self, metrics: bool) -> ForwardPass:
        model, y, weight = self.model, self.y, self.sample_weight
        kwargs = {"training": self.training} if getattr(model, "_call_has_training_arg", 1) else {}
        out = ForwardPass(model(self.x, **kwargs))
        if y is None and not (model.compiled and model.loss is None and _adds_losses(model)):
            return out
        with (
            _regularizers_placed(model),
            observing.at("loss", "loss", "compute_loss"),
            _added_losses_once(model),
        ):
            out.loss = model._compute_loss(
                x=self.x, y=y, y_pred=out.outputs, sample_weight=weight, training=self.training
            )
        if out.loss is not None:
            with observing.at(
                "loss", "loss scale", type(model.optimizer).__name__, model.optimizer
            ):
                out.scaled = scaled(model.optimizer, out.loss, self.loss_scale)
        if metrics and y is not None:
            with _metrics_placed(model, y, out.outputs):
                out.metrics = dict(model.compute_metrics(self.x, y, out.outputs, weight))
        return out


def check_model(model: Any, compiled: bool) -> None:
    """Raises TypeError or ValueError where a model cannot be run."""
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
        model.jax_state_sync()  # in a callback of fit, whose compiled step has the values on loan


def check_lengths(**parts: Any) -> None:
    """Raises ValueError where a batch has no samples, or arrays of it different numbers."""
    lengths = {
        name: {int(array.shape[0]) for array in keras.tree.flatten(part) if _has_side(array)}
        for name, part in parts.items()
    }
    found = set().union(*lengths.values())
    if len(found) > 1:
        told = ", ".join(
            f"{name} has {' and '.join(map(str, sorted(n)))}" for name, n in lengths.items() if n
        )
        raise ValueError(f"One batch is needed, but the numbers of samples differ: {told}.")
    if found == {0}:
        raise ValueError("The batch is empty: x has 0 samples.")


def _has_side(array: Any) -> bool:
    shape: Any = getattr(array, "shape", ())
    return len(shape) > 0 and isinstance(shape[0], int)


def _tensors(part: Any) -> Any:
    def convert(array: Any) -> Any:
        if array is None or ops.is_tensor(array):
            return array
        array = np.asarray(array)
        # As the data adapters of fit have it.
        wide = array.dtype == np.float64
        return ops.convert_to_tensor(array, keras.config.floatx() if wide else None)

    if isinstance(part, list) and part and isinstance(part[0], int | float | list):
        part = np.asarray(part)  # numbers, not several inputs
    return keras.tree.map_structure(convert, part)


def checked_scale(model: Any, loss_scale: float | None) -> float:
    """Returns the loss scale that is asked for, or that of the model's optimizer."""
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
    """Returns what `optimizer` multiplies the loss by now; 1 where it does not."""
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        variable = getattr(optimizer, "dynamic_scale", None)
        if variable is None:
            return float(optimizer.initial_scale)
        return float(ops.convert_to_numpy(backends.current().read(variable)))
    return float(getattr(optimizer, "loss_scale_factor", None) or 1.0)


def scaled(optimizer: Any, loss: Any, scale: float) -> Any:
    """Returns `loss` times `scale`, in float32 as loss scalers do it.

    A plain optimizer's `loss_scale_factor` is multiplied in the dtype of the loss.
    """
    plain = not isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if plain and getattr(optimizer, "loss_scale_factor", None) is not None:
        return ops.multiply(loss, scale)
    wide = "float64" if keras.backend.standardize_dtype(loss.dtype) == "float64" else "float32"
    return ops.multiply(ops.cast(loss, wide), ops.cast(scale, wide))


@contextlib.contextmanager
def isolated(model: Any, extra: Sequence[Any] = ()) -> Iterator[None]:
    """A scope after which nothing that ran in it has changed the model.

    Inside, variables have the values that they had outside, also while a gradient is taken.
    """
    layers = [layer for _, layer in observing.layers_of(model)]
    before = [(layer, list(layer._losses), set(layer._loss_ids)) for layer in layers]
    # Modules of torch that a layer wraps keep statistics where Keras does not look.
    buffers = list(model.buffers()) if hasattr(model, "buffers") else []
    kept = [ops.copy(buffer) for buffer in buffers]
    known = {id(v): v for v in (*model.variables, *extra)}
    mapping = [(variable, variable.value) for variable in known.values()]
    unbuilt = _replaced_unbuilt(model)
    try:
        with (
            unchanged_generators(),
            keras.StatelessScope(mapping, collect_losses=True),
        ):
            yield
    finally:
        for name, value in unbuilt.items():
            object.__setattr__(model, name, value)
        for layer, losses, ids in before:
            layer._losses[:] = losses
            layer._loss_ids.clear()
            layer._loss_ids.update(ids)
        for buffer, value in zip(buffers, kept, strict=True):
            buffer.data = value


def _replaced_unbuilt(model: Any) -> dict[str, Any]:
    """Puts copies where compile left a loss and metrics that the first batch would build.

    Returns:
        What was there, by attribute.
    """
    found: dict[str, Any] = {}
    loss = getattr(model, "_compile_loss", None)
    if loss is not None and not loss.built:
        found["_compile_loss"] = loss
        weights = loss._user_loss_weights
        again = type(loss)(loss._user_loss, weights, output_names=loss.output_names)
        object.__setattr__(model, "_compile_loss", again)
    metrics = getattr(model, "_compile_metrics", None)
    if metrics is not None and not metrics.built:
        found["_compile_metrics"] = metrics
        again = type(metrics)(
            _copied(metrics._user_metrics),
            _copied(metrics._user_weighted_metrics),
            output_names=metrics.output_names,
        )
        object.__setattr__(model, "_compile_metrics", again)
    return found


def _copied(metrics: Any) -> Any:
    def copy(metric: Any) -> Any:
        if isinstance(metric, keras.metrics.Metric):
            return type(metric).from_config(metric.get_config())
        return metric

    return keras.tree.map_structure(copy, metrics)


def _adds_losses(model: Any) -> bool:
    with observing.unwatched():  # regularizers run at each look, and are to be seen once
        return bool(model.losses)


@contextlib.contextmanager
def _added_losses_once(model: Any) -> Iterator[None]:
    """Computes the losses that layers add, which else run at each look, of one dtype.

    TensorFlow sums no list of several dtypes eagerly.
    """
    wide = keras.config.floatx()
    added = [
        loss
        if keras.backend.standardize_dtype(loss.dtype) == wide
        else ops.cast(ops.sum(loss), wide)
        for loss in model.losses
    ]
    before = model._losses_override
    model._losses_override = added
    try:
        yield
    finally:
        model._losses_override = before


@contextlib.contextmanager
def _regularizers_placed(model: Any) -> Iterator[None]:
    """Has each regularizer of a weight run at the place of its layer."""
    replaced: list[tuple[Any, Any]] = []
    for path, layer in reversed(list(observing.layers_of(model))):
        for variable in layer.trainable_variables:
            regularizer = variable.regularizer
            if regularizer is None or any(variable is done for done, _ in replaced):
                continue
            replaced.append((variable, regularizer))
            # Past the setter, which in Keras 3.10 takes no function.
            variable._regularizer = _placed(
                regularizer, "regularizer", f"{path}/{variable.name}", layer
            )
    try:
        yield
    finally:
        for variable, regularizer in replaced:
            variable._regularizer = regularizer


@contextlib.contextmanager
def _metrics_placed(model: Any, y: Any, outputs: Any) -> Iterator[None]:
    """Has each metric update its state at a place of its own."""
    compiled = getattr(model, "_compile_metrics", None)
    if compiled is not None and not compiled.built:
        compiled.build(y, outputs)
    found = [*(compiled.metrics if compiled is not None else ()), *model.metrics]
    metrics = list({id(metric): metric for metric in found if metric is not compiled}.values())
    for metric in metrics:
        update = _placed(metric.update_state, "metric", str(metric.name), metric)
        object.__setattr__(metric, "update_state", update)
    try:
        with observing.at("metric", "metrics", "compute_metrics"):
            yield
    finally:
        for metric in metrics:
            object.__delattr__(metric, "update_state")


def _placed(
    function: Callable[..., Any], where: Where, path: str, owner: Any
) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with observing.at(where, path, type(owner).__name__, owner):
            return function(*args, **kwargs)

    return run
