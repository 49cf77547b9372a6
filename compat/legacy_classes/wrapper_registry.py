"""How each family of optimizers is wrapped for loss scaling: a registry by class.

Knows classes and what was registered for them; `graph_rewriting.py` wraps.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How the optimizers of one class are wrapped.

    Attributes:
        fn: Takes an optimizer and a loss scale, returns the wrapped optimizer.
        cls: The class of what `fn` returns; None where that is not known.
    """

    fn: Callable[[Any, Any], Any]
    cls: type | None


def _keras_wrapper(optimizer: Any, loss_scale: Any) -> Any:
    # Late: importing it registers its class with Keras.
    from keras_mp.compat.legacy_classes.loss_scale_optimizers import ExperimentalLossScaleOptimizer

    return ExperimentalLossScaleOptimizer(optimizer, loss_scale, count_skipped_steps=False)


_lock = threading.Lock()
_registered: dict[type, Wrapper] = {
    keras.optimizers.Optimizer: Wrapper(_keras_wrapper, keras.optimizers.LossScaleOptimizer)
}


def register_loss_scale_wrapper(
    optimizer_cls: type,
    wrapper_fn: Callable[[Any, Any], Any],
    wrapper_cls: type | None = None,
) -> None:
    """Says how optimizers of a class are wrapped by `enable_mixed_precision_graph_rewrite`.

    Holds for `optimizer_cls` and its subclasses; where several registered classes are bases of an
    optimizer's class, the first along its `__mro__` holds. All of `keras.optimizers` is registered
    already.

    Args:
        optimizer_cls: The class of the optimizers. It need not be one of Keras.
        wrapper_fn: Called as `wrapper_fn(optimizer, loss_scale)`, with the loss scale as it was
            given ("dynamic", a number or a `LossScale`); returns the wrapped optimizer.
        wrapper_cls: The class of what `wrapper_fn` returns: optimizers of this class are refused,
            as they are wrapped already. Defaults to `wrapper_fn` if that is a class. For a function
            without it, wrapped optimizers are not recognised.

    Raises:
        TypeError: An argument of another kind.
        ValueError: `optimizer_cls` is registered already with another wrapper. The same once more
            is fine.

    Source: TF 2.4, python/training/experimental/mixed_precision.py; there the last registration
    won, and of several bases the first one registered.

    >>> class MyOptimizer:
    ...     pass
    >>> class MyLossScaleOptimizer:
    ...     def __init__(self, optimizer, loss_scale):
    ...         self.optimizer, self.loss_scale = optimizer, loss_scale
    >>> register_loss_scale_wrapper(MyOptimizer, MyLossScaleOptimizer)
    >>> wrapped(MyOptimizer(), 128).loss_scale
    128
    >>> unregister_loss_scale_wrapper(MyOptimizer)
    """
    _check_class("optimizer_cls", optimizer_cls)
    if not callable(wrapper_fn):
        raise TypeError(
            "wrapper_fn must be a callable that takes an optimizer and a loss scale, but got "
            f"{wrapper_fn!r} of type {type(wrapper_fn).__name__}."
        )
    if wrapper_cls is not None:
        _check_class("wrapper_cls", wrapper_cls)
    elif isinstance(wrapper_fn, type):
        wrapper_cls = wrapper_fn
    new = Wrapper(wrapper_fn, wrapper_cls)
    with _lock:
        old = _registered.setdefault(optimizer_cls, new)
    if old != new:
        raise ValueError(
            f"optimizer_cls={optimizer_cls.__name__} is registered already, with the wrapper "
            f"{_name(old.fn)} and not {_name(wrapper_fn)}. Register a subclass of it, or call "
            f"unregister_loss_scale_wrapper({optimizer_cls.__name__}) first."
        )


def unregister_loss_scale_wrapper(optimizer_cls: type) -> None:
    """Forgets what was registered for exactly this class.

    Raises:
        ValueError: Nothing was.
    """
    with _lock:
        if _registered.pop(optimizer_cls, None) is None:
            raise ValueError(f"optimizer_cls={_name(optimizer_cls)} is not registered.")


def wrapper_for(optimizer: Any) -> Wrapper | None:
    """Returns the wrapper of the first registered class along the `__mro__`, or None."""
    with _lock:
        found = (_registered.get(cls) for cls in type(optimizer).__mro__)
        return next((wrapper for wrapper in found if wrapper is not None), None)


def wrapped_already(optimizer: Any) -> type | None:
    """Returns the registered class of wrappers that `optimizer` is an instance of, or None."""
    with _lock:
        classes = [wrapper.cls for wrapper in _registered.values() if wrapper.cls is not None]
    return next((cls for cls in classes if isinstance(optimizer, cls)), None)


def wrapped(optimizer: Any, loss_scale: Any) -> Any:
    """Returns `optimizer`, wrapped as it was registered for its class.

    Raises:
        ValueError: It is wrapped already, or nothing is registered for it.
        TypeError: What was registered returned something else than it was to.

    >>> wrapped(keras.optimizers.SGD(), "dynamic").dynamic
    True
    """
    if (cls := wrapped_already(optimizer)) is not None:
        raise ValueError(
            f'"opt" must not already be an instance of a {cls.__name__}. '
            "`enable_mixed_precision_graph_rewrite` will automatically wrap the optimizer with a "
            f"{cls.__name__}. Pass the optimizer inside it to a new one, or use it as it is, "
            f"without this call: {optimizer}"
        )
    wrapper = wrapper_for(optimizer)
    if wrapper is None:
        raise ValueError(
            '"opt" must be an instance of a tf.train.Optimizer or a tf.keras.optimizers.Optimizer, '
            f"that is, of keras.optimizers.Optimizer today, but got: {optimizer!r} of type "
            f"{type(optimizer).__name__}. For an optimizer of your own call "
            "keras_mp.compat.train.experimental.register_loss_scale_wrapper first."
        )
    result = wrapper.fn(optimizer, loss_scale)
    if wrapper.cls is not None and not isinstance(result, wrapper.cls):
        raise TypeError(
            f"wrapper_fn={_name(wrapper.fn)} must return a {wrapper.cls.__name__}, the wrapper_cls "
            f"it was registered with, but returned {result!r} of type {type(result).__name__}."
        )
    return result


def _check_class(name: str, value: Any) -> None:
    if not isinstance(value, type):
        raise TypeError(
            f"{name} must be a class, but got {value!r} of type {type(value).__name__}."
        )


def _name(value: Any) -> str:
    return getattr(value, "__qualname__", repr(value))
