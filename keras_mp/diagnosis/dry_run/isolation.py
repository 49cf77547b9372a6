"""A scope that restores a model and its metrics, whatever ran in it."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mp.backends import keras_hooks
from keras_mp.backends.common.generators import unchanged_generators
from keras_mp.backends.keras_hooks import layers_of


@contextlib.contextmanager
def isolated(model: Any, extra: Sequence[Any] = ()) -> Iterator[None]:
    """A scope that undoes every change to the model at its end.

    Inside, variables start with their outer values, also while a gradient is taken.
    """
    layers = [layer for _, layer in layers_of(model)]
    added = [keras_hooks.own_losses(layer) for layer in layers]
    before = [(list(losses), set(ids)) for losses, ids in added]
    # Modules of torch that a layer wraps keep statistics where Keras does not look.
    buffers = list(model.buffers()) if hasattr(model, "buffers") else []
    copies = [ops.copy(buffer) for buffer in buffers]
    known = {id(v): v for v in (*model.variables, *extra)}
    mapping = [(variable, variable.value) for variable in known.values()]
    try:
        with (
            _replaced_unbuilt(model),
            unchanged_generators(),
            unchanged_attributes(metrics_of(model)),
            keras.StatelessScope(mapping, collect_losses=True),
        ):
            yield
    finally:
        for (losses, ids), (losses_before, ids_before) in zip(added, before, strict=True):
            losses[:] = losses_before
            ids.clear()
            ids.update(ids_before)
        for buffer, value in zip(buffers, copies, strict=True):
            buffer.data = value


@contextlib.contextmanager
def _replaced_unbuilt(model: Any) -> Iterator[None]:
    """A scope in which copies stand for the loss and metrics that the first batch would build."""
    loss, metrics = keras_hooks.compiled_loss(model), keras_hooks.compiled_metrics(model)
    with contextlib.ExitStack() as scopes:
        if loss is not None and not loss.built:
            again = type(loss)(*keras_hooks.given_loss(loss), output_names=loss.output_names)
            scopes.enter_context(keras_hooks.replaced([model], "_compile_loss", again))
        if metrics is not None and not metrics.built:
            copies = map(copied_metrics, keras_hooks.given_metrics(metrics))
            again = type(metrics)(*copies, output_names=metrics.output_names)
            scopes.enter_context(keras_hooks.replaced([model], "_compile_metrics", again))
        yield


def copied_metrics(metrics: Any) -> Any:
    """Returns nested metrics; each one with a state is replaced by another of the same config."""

    def copy(metric: Any) -> Any:
        if isinstance(metric, keras.metrics.Metric):
            return type(metric).from_config(metric.get_config())
        return metric

    return keras.tree.map_structure(copy, metrics)


def metrics_of(model: Any) -> list[Any]:
    """Returns every metric that a step of a model may update, each once.

    `model.metrics` may be overridden, and omits those of models inside.

    >>> import keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse", metrics=["mae"])
    >>> [metric.name for metric in metrics_of(model)]
    ['loss', 'compile_metrics']
    """
    metrics = list(model.metrics)
    for _, layer in layers_of(model):
        metrics += keras_hooks.own_metrics(layer)
    for name in ("_compile_loss", "_compile_metrics"):
        metrics += getattr(getattr(model, name, None), "metrics", ())
    tracker = getattr(model, "_loss_tracker", None)
    metrics += [] if tracker is None else [tracker]
    return list({id(metric): metric for metric in metrics}.values())


@contextlib.contextmanager
def unchanged_attributes(metrics: Iterable[Any]) -> Iterator[None]:
    """A scope that restores the attributes of objects, and the items of lists among them.

    A metric may keep state besides its variables.
    """
    before = [(vars(metric), dict(vars(metric))) for metric in metrics]
    items = [
        (value, value.copy())
        for _, attributes in before
        for value in attributes.values()
        if isinstance(value, list | dict | set | np.ndarray)
    ]
    try:
        yield
    finally:
        for now, attributes in before:
            now.clear()
            now.update(attributes)
        for value, copy in items:
            _put_back(value, copy)


def _put_back(value: Any, copy: Any) -> None:
    if isinstance(value, np.ndarray):
        value[...] = copy
        return
    # Bypasses Keras' subclasses, which track items.
    cls: Any = next(cls for cls in (list, dict, set) if isinstance(value, cls))
    cls.clear(value)
    (list.extend if cls is list else cls.update)(value, copy)
