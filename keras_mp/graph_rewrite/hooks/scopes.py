"""Whose code runs: own ops of the framework are seen where the code of a model's author calls them.

Not where Keras calls them, whose ops are seen by their own names.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import keras

from keras_mp.backends import keras_hooks
from keras_mp.graph_rewrite.hooks import own_ops
from keras_mp.graph_rewrite.hooks.dispatch import active, move, put, send

# Functions of Keras' backend that call the framework, and are no ops of a model.
HELPERS = ("cast", "convert_to_tensor", "convert_to_numpy")


@contextmanager
def seeing(is_seen: bool) -> Iterator[None]:
    """A scope in which own ops that this thread calls go to the dispatch, or are let be."""
    before = active.is_seen
    active.is_seen = is_seen
    try:
        with _mode():
            yield
    finally:
        active.is_seen = before


@contextmanager
def _mode() -> Iterator[None]:
    """A scope of the mode in which torch shows its functions, where one is needed."""
    needed = active.is_seen and hasattr(active.dispatch, "foreign")
    if active.has_mode or not needed or not own_ops.has_mode():
        yield
        return
    active.has_mode = True
    try:
        with own_ops.mode(send, move, _is_seen):
            yield
    finally:
        active.has_mode = False


def _is_seen() -> bool:
    return active.is_seen


def in_layer(layer: Any) -> AbstractContextManager[None]:
    """Returns a scope for the call of a layer or another operation of Keras.

    Args:
        layer: Own ops are seen in it if it runs code of its user, and not only Keras' own.
    """
    if not hasattr(active.dispatch, "foreign"):
        return nullcontext()
    return seeing(_runs_code_of_user(layer))


def _runs_code_of_user(layer: Any) -> bool:
    if not keras_hooks.is_of_keras(type(layer)):
        return True
    if isinstance(layer, (keras.layers.TorchModuleWrapper, keras.layers.JaxLayer)):
        return True
    return any(map(_is_function_of_user, vars(layer).values()))  # of Lambda; an activation


def _is_function_of_user(x: Any) -> bool:
    is_function = callable(x) and not inspect.isclass(x) and not isinstance(x, keras.Operation)
    return is_function and not keras_hooks.is_of_keras(x)


def as_now() -> Callable[[], AbstractContextManager[None]]:
    """Returns what makes a scope for a function that is called later, or in a trace of its own.

    Own ops are seen in it if they are now.
    """
    return _seeing_here if active.is_seen else own_ops.here


@contextmanager
def _seeing_here() -> Iterator[None]:
    with own_ops.here(), seeing(True):
        yield


def hook_layers() -> Callable[[], None]:
    """Hooks the call of layers: `Layer.__call__` ends in it, when the inputs are converted."""
    original = keras.Operation.__call__

    @functools.wraps(original)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not hasattr(active.dispatch, "foreign"):
            return original(self, *args, **kwargs)
        with in_layer(self):
            return original(self, *args, **kwargs)

    return put(keras.Operation, "__call__", hooked)


def hook_helpers() -> Iterator[Callable[[], None]]:
    """Hooks functions of Keras' backend whose calls of the framework are no ops of the model."""
    backend = keras_hooks.internal_backend()
    for module in (backend, backend.core):
        for name in HELPERS:
            yield put(module, name, _unseen(vars(module)[name]))
    for name, original in list(vars(backend.random).items()):
        home = getattr(original, "__module__", "") or ""
        if inspect.isfunction(original) and home == backend.random.__name__ and name != "dropout":
            yield put(backend.random, name, _unseen(original))


def _unseen(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of Keras whose own calls of the framework are not seen."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not active.is_seen:
            return function(*args, **kwargs)
        with seeing(False):
            return function(*args, **kwargs)

    return run
