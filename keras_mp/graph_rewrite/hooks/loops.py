"""Hooks into what runs a function of the caller's again: loops, recurrent layers, remat."""

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_mp.backends import keras_hooks
from keras_mp.graph_rewrite.hooks import own_ops
from keras_mp.graph_rewrite.hooks.dispatch import active, dispatching, put
from keras_mp.graph_rewrite.hooks.scopes import as_now, seeing

# They run a function of the caller's once a step.
LOOPS = ("while_loop", "fori_loop", "scan", "map")
# They run one of several.
BRANCHES = ("cond", "switch")
# They run it in a trace of its own.
FUNCTIONAL = (*BRANCHES, "vectorized_map", "associative_scan")


def recurrent() -> Iterator[tuple[Any, str]]:
    """Yields loops of Keras that call the framework, where no kernel of cuDNN runs."""
    backend = keras_hooks.internal_backend()
    if keras.backend.backend() == "jax":
        yield from [(backend, name) for name in ("gru",) if hasattr(backend, name)]
    if keras.backend.backend() == "torch":
        module = sys.modules[backend.gru.__module__]
        names = ("_fallback_lstm", "_fallback_gru")
        yield from [(module, name) for name in names if hasattr(module, name)]


def refuse(module: Any, name: str) -> Callable[[], None]:
    original = vars(module)[name]

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        if active.dispatch is not None:
            raise NotImplementedError  # the layer then runs its loop of keras ops
        return original(*args, **kwargs)

    return put(module, name, hooked)


def hook_loop(module: Any, name: str) -> Callable[[], None]:
    original = getattr(module, name)

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        loop = getattr(active.dispatch, "loop", None)
        if loop is None or own_ops.is_inside():
            return original(*args, **kwargs)
        return loop(name, _unseen(original), args, kwargs)

    return put(module, name, hooked)


def hook_functional(module: Any, name: str) -> Callable[[], None]:
    """Hooks what runs functions of the caller's, whose ops are as those around it."""
    original = getattr(module, name)

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        if active.dispatch is None or own_ops.is_inside():
            return original(*args, **kwargs)
        if name in BRANCHES and hasattr(active.dispatch, "branch"):
            active.dispatch.branch(name, None, (), ())
        if name == "vectorized_map" and keras.backend.backend() == "tensorflow":
            # It makes other ops of those that it traced.
            return _unseen(original)(*args, **kwargs)
        given, named = keras.tree.map_structure(_seen_here, (args, kwargs))
        return _unseen(original)(*given, **named)

    return put(module, name, hooked)


def _unseen(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of Keras whose own calls of the framework are not seen."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with own_ops.nowhere(), seeing(False):
            return function(*args, **kwargs)

    return run


def _seen_here(x: Any) -> Any:
    return _seen(x) if callable(x) and not keras.ops.is_tensor(x) else x


def _seen(function: Callable[..., Any]) -> Callable[..., Any]:
    scope = as_now()

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with scope():
            return function(*args, **kwargs)

    return run


def hook_remat() -> Callable[[], None]:
    module, name = keras_hooks.internal_backend().core, "remat"
    if keras.backend.backend() == "torch":
        import torch.utils.checkpoint

        # What Keras' remat looks up at each call: it may have been called long before.
        module, name = torch.utils.checkpoint, "checkpoint"
    original = getattr(module, name)

    @functools.wraps(original)
    def hooked(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if own_ops.is_inside():
            return original(function, *args, **kwargs)
        result = original(_with_dispatch_of_now(function), *args, **kwargs)
        return _unseen(result) if active.dispatch is not None and callable(result) else result

    return put(module, name, hooked)


def _with_dispatch_of_now(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function` so that a later call, for the gradient, computes as a call now does."""
    dispatch: Any = active.dispatch
    if dispatch is None:
        return function
    if not hasattr(dispatch, "resumed"):
        return _seen(function)
    again, scope = dispatch.resumed(), as_now()
    state = keras_hooks.global_state
    scopes = list(state.get_global_attribute("name_scope_stack", default=[]))

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if active.dispatch is not None:
            with scope():
                return function(*args, **kwargs)
        before = state.get_global_attribute("name_scope_stack")
        state.set_global_attribute("name_scope_stack", list(scopes))
        try:
            with dispatching(again()), scope():
                return function(*args, **kwargs)
        finally:
            state.set_global_attribute("name_scope_stack", before)

    return run
