"""The metrics of a model: those of `compile`, its losses, and its layers."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from keras_mp.backends import keras_hooks
from keras_mp.diagnosis.dry_run.layers import layers_of


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
