"""One training step of a model that changes nothing: a dry run.

Forward pass, loss, gradients and metrics are computed as in `fit`, but no weight, statistic, seed,
metric or optimizer changes. A custom `train_step` does not run.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mp import backends
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.optimizers import with_method
from keras_mp.backends.keras_hooks import layers_of
from keras_mp.diagnosis.dry_run.isolation import isolated, metrics_of
from keras_mp.diagnosis.dry_run.observers import Where, at_site, unobserved


@dataclass(eq=False)
class ForwardPass:
    """The results of a dry run before any gradient; None for parts that did not run.

    Attributes:
        outputs: The model's outputs.
        loss: The result of `compute_loss`, unscaled.
        scaled_loss: The loss times the loss scale.
        metrics: Result by name.
    """

    outputs: Any
    loss: Any = None
    scaled_loss: Any = None
    metrics: dict[str, Any] = field(default_factory=dict)


class DryRun:
    """A model with a batch.

    Args:
        model: A built `keras.Model`; compiled, if there is a loss.
        x: Input, as for `model(x)`: arrays or tensors, nested or not.
        y: Targets, or None.
        sample_weight: Weights of the samples, or None.
        loss_scale: Factor of the loss; None: the current one of the model's optimizer.
        training: Whether layers are called as in training.

    Raises:
        TypeError: `model` is not a `keras.Model`.
        ValueError: The model is not built, or not compiled although `y` is given; the arrays have
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
        self.x, self.y, self.sample_weight = (_as_tensors(part) for part in (x, y, sample_weight))
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
        observed: contextlib.AbstractContextManager[None],
    ) -> list[Any]:
        """Returns the gradients of the scaled loss; None for a variable that it does not depend on.

        Args:
            variables: Of the model, and `extra`.
            extra: Other variables, which the observer reads.
            observed: A scope for the forward pass. The backward pass is outside of it: JAX would
                recompile its ops for each scope.
        """
        passes: list[ForwardPass] = []

        def loss() -> Any:
            with observed, isolated(self.model, extra):
                passes[:] = [self._run(False)]
            return passes[0].scaled_loss

        backend = backends.current()
        gradients = backend.gradients(loss, list(variables))
        return [
            None if gradient is None else backend.to_dense_gradient(gradient, variable)
            for gradient, variable in zip(gradients, variables, strict=True)
        ]

    def _run(self, metrics: bool) -> ForwardPass:
        model, y, weight = self.model, self.y, self.sample_weight
        with unobserved():  # earlier sums of metrics are not part of this step
            for metric in metrics_of(model):
                metric.reset_state()
        kwargs = {"training": self.training} if _takes_training(model) else {}
        out = ForwardPass(model(self.x, **kwargs))
        if y is None and not (model.compiled and model.loss is None and _adds_losses(model)):
            return out
        with (
            _regularizers_at_sites(model),
            at_site("loss", "loss", "compute_loss"),
            _added_losses_once(model),
        ):
            out.loss = model._compute_loss(
                x=self.x, y=y, y_pred=out.outputs, sample_weight=weight, training=self.training
            )
        if out.loss is not None:
            with at_site("loss", "loss scale", type(model.optimizer).__name__, model.optimizer):
                out.scaled_loss = scaled(model.optimizer, out.loss, self.loss_scale)
        if metrics and y is not None:
            with _metrics_at_sites(model, y, out.outputs):
                out.metrics = dict(model.compute_metrics(self.x, y, out.outputs, weight))
        return out


def scaled(optimizer: Any, loss: Any, scale: float) -> Any:
    """Returns `loss` times `scale`, in float32 as loss scalers do it.

    A plain optimizer's `loss_scale_factor` is multiplied in the dtype of the loss.
    """
    plain = not isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if plain and getattr(optimizer, "loss_scale_factor", None) is not None:
        return ops.multiply(loss, scale)
    wide = "float64" if keras.backend.standardize_dtype(loss.dtype) == "float64" else "float32"
    return ops.multiply(ops.cast(loss, wide), ops.cast(scale, wide))


def _as_tensors(part: Any) -> Any:
    def convert(array: Any) -> Any:
        if array is None or ops.is_tensor(array):
            return array
        array = np.asarray(array)
        # As in the data adapters of fit.
        wide = array.dtype == np.float64
        return ops.convert_to_tensor(array, keras.config.floatx() if wide else None)

    if isinstance(part, list) and part and isinstance(part[0], int | float | list):
        part = np.asarray(part)  # numbers, not several inputs
    return keras.tree.map_structure(convert, part)


def _adds_losses(model: Any) -> bool:
    with unobserved():  # regularizers run at each read, but must be observed once
        return bool(model.losses)


@contextlib.contextmanager
def _added_losses_once(model: Any) -> Iterator[None]:
    """A scope in which losses that layers add are computed once instead of at each read.

    They are cast to one dtype: TensorFlow does not sum several dtypes eagerly.
    """
    wide = keras.config.floatx()
    added = [
        loss
        if keras.backend.standardize_dtype(loss.dtype) == wide
        else ops.cast(ops.sum(loss), wide)
        for loss in model.losses
    ]
    with keras_hooks.replaced([model], "_losses_override", added):
        yield


def _takes_training(model: Any) -> bool:
    return "training" in inspect.signature(model.call).parameters


@contextlib.contextmanager
def _regularizers_at_sites(model: Any) -> Iterator[None]:
    """A scope in which each weight's regularizer runs at a site of its layer."""
    seen: set[int] = set()
    with contextlib.ExitStack() as replaced:
        for path, layer in reversed(list(layers_of(model))):
            for variable in layer.trainable_variables:
                regularizer = variable.regularizer
                if regularizer is None or id(variable) in seen:
                    continue
                seen.add(id(variable))
                at_site = _at_site(regularizer, "regularizer", f"{path}/{variable.name}", layer)
                # Past the setter, which in Keras 3.10 takes no function.
                replaced.enter_context(keras_hooks.replaced([variable], "_regularizer", at_site))
        yield


@contextlib.contextmanager
def _metrics_at_sites(model: Any, y: Any, outputs: Any) -> Iterator[None]:
    """A scope in which each metric updates its state at its own site."""
    compiled = keras_hooks.compiled_metrics(model)
    if compiled is not None and not compiled.built:
        compiled.build(y, outputs)
    every = [*(compiled.metrics if compiled is not None else ()), *model.metrics]
    metrics = list({id(metric): metric for metric in every if metric is not compiled}.values())
    with contextlib.ExitStack() as replaced:
        for metric in metrics:
            update = _at_site(metric.update_state, "metric", str(metric.name), metric)
            replaced.enter_context(with_method(metric, "update_state", update))
        with at_site("metric", "metrics", "compute_metrics"):
            yield


def _at_site(
    function: Callable[..., Any], where: Where, path: str, owner: Any
) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with at_site(where, path, type(owner).__name__, owner):
            return function(*args, **kwargs)

    return run


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
