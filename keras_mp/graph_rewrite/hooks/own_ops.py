"""Hooks into the ops of the framework itself, which layers call beside those of Keras."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras

from keras_mp.graph_rewrite import jax_primitives, torch_lists
from keras_mp.graph_rewrite.foreign_ops import ForeignOp

Handler = Callable[[ForeignOp, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def are_seen() -> bool:
    """Returns whether ops of this framework are recorded and painted."""
    match keras.backend.backend():
        case "torch":
            return True
        case "jax":
            from keras_mp.backends.jax import primitives

            return primitives.are_seen()
    return False


def watched(
    handle: Handler,
    move: Callable[[Any, Any], None],
    loop: Callable[..., Any],
    is_recording: bool,
) -> AbstractContextManager[Any]:
    """Returns a scope that sends each op of the framework, called in this thread, to `handle`.

    Args:
        handle: Called with the op, the function that computes it, and its arguments.
        move: Called with a tensor of torch, and another one that is to have its value.
        loop: Called with the name of a loop, the function that runs it, and its arguments.
        is_recording: Whether the ops are recorded, and not replayed.
    """
    if not are_seen():
        return nullcontext()
    if keras.backend.backend() == "jax":
        return _watched_primitives(handle, loop, is_recording)
    from keras_mp.backends.torch import functions

    def named(
        name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return handle(torch_lists.op_of(name), function, args, kwargs)

    return functions.Watching(named, move)


def _watched_primitives(
    handle: Handler, loop: Callable[..., Any], is_recording: bool
) -> AbstractContextManager[Any]:
    from keras_mp.backends.jax import primitives

    def named(
        name: str, parameters: dict[str, Any], run: Callable[..., Any], args: tuple[Any, ...]
    ) -> Any:
        return handle(jax_primitives.op_of(name, parameters), run, args, {})

    def looped(body: Any, state: Any, sequences: Any, options: dict[str, Any]) -> Any:
        return loop("scan", primitives.scan, (body, state, sequences), options)

    return primitives.watched(named, looped, is_recording)


def hook_primitives() -> tuple[type, str, Callable[..., Any]]:
    """Returns (class, attribute, function): where primitives of JAX are hooked."""
    from keras_mp.backends.jax import primitives

    return primitives.hook()


def is_inside() -> bool:
    """Returns whether JAX traces a function by itself: its primitives are seen afterwards."""
    if not _has_primitives():
        return False
    from keras_mp.backends.jax import primitives

    return primitives.is_inside()


@functools.cache
def _has_primitives() -> bool:
    return keras.backend.backend() == "jax" and are_seen()


def here() -> AbstractContextManager[Any]:
    """Returns a scope for a function that is traced by itself, such as the body of a loop."""
    if not _has_primitives():
        return nullcontext()
    from keras_mp.backends.jax import primitives

    return primitives.here()


def nowhere() -> AbstractContextManager[Any]:
    """Returns a scope for what calls the framework on behalf of Keras: only `here` sees ops."""
    if not _has_primitives():
        return nullcontext()
    from keras_mp.backends.jax import primitives

    return primitives.nowhere()


def is_weight(x: Any) -> bool:
    """Returns whether a tensor is a parameter of a module of torch."""
    from keras_mp.backends.torch import functions

    return functions.is_weight(x)


def autocast(dtype: str, x: Any) -> AbstractContextManager[Any]:
    """Returns the scope of `torch.autocast`, for the device of a tensor."""
    from keras_mp.backends.torch import functions

    return functions.autocast(dtype, x)
