"""Hooks into the ops of the framework itself, which layers call beside those of Keras."""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras

from keras_mp.graph_rewrite import jax_primitives, tf_ops, torch_lists
from keras_mp.graph_rewrite.foreign_ops import ForeignOp

Handler = Callable[[ForeignOp, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def are_seen() -> bool:
    """Returns whether ops of this framework are recorded and painted."""
    match keras.backend.backend():
        case "torch":
            return True
        case "tensorflow":
            return _is_tensorflow()
        case "jax":
            from keras_mp.backends.jax import primitives

            return primitives.are_seen()
    return False


def has_mode() -> bool:
    """Returns whether a mode shows the ops of this framework: that of torch."""
    return bool(keras.backend.backend() == "torch")


def mode(
    handle: Handler, move: Callable[[Any, Any], None], is_seen: Callable[[], bool]
) -> AbstractContextManager[Any]:
    """Returns the mode that sends each function of torch, called in this thread, to `handle`.

    Args:
        handle: Called with the op, the function that computes it, and its arguments.
        move: Called with a tensor, and another one that is to have its value.
        is_seen: Returns whether a function is to be sent now.
    """
    from keras_mp.backends.torch import functions

    def named(
        name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return handle(torch_lists.op_of(name), function, args, kwargs)

    return functions.Watching(named, move, is_seen)


def watched(
    handle: Handler,
    loop: Callable[..., Any],
    is_recording: bool,
    is_seen: Callable[[], bool],
    tell: Callable[..., None],
) -> AbstractContextManager[Any]:
    """Returns a scope that sends each op of JAX or TensorFlow, called in this thread, to `handle`.

    Args:
        handle: Called with the op, the function that computes it, and its arguments.
        loop: Called with the name of a loop, the function that runs it, and its arguments.
        is_recording: Whether the ops are recorded, and not replayed.
        is_seen: Returns whether a primitive is to be sent now.
        tell: Called with the name of a method of the dispatch, and its arguments.
    """
    if _is_tensorflow():
        return _watched_calls(handle, loop, is_seen, tell)
    if not _has_primitives():
        return nullcontext()
    from keras_mp.backends.jax import primitives

    def named(
        name: str, parameters: dict[str, Any], run: Callable[..., Any], args: tuple[Any, ...]
    ) -> Any:
        return handle(jax_primitives.op_of(name, parameters), run, args, {})

    def looped(body: Any, state: Any, sequences: Any, options: dict[str, Any]) -> Any:
        return loop("scan", primitives.scan, (body, state, sequences), options)

    return primitives.watched(named, looped, is_recording, is_seen)


def _watched_calls(
    handle: Handler,
    loop: Callable[..., Any],
    is_seen: Callable[[], bool],
    tell: Callable[..., None],
) -> AbstractContextManager[Any]:
    from keras_mp.backends.tensorflow import calls

    def signed(
        signature: calls.Signature,
        attributes: Mapping[str, Any],
        run: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> Any:
        op = tf_ops.op_of(
            signature.name,
            attributes,
            signature.fixed,
            signature.outputs,
            signature.takes_16_bits,
        )
        return handle(op, run, args, {})

    def whole(name: str, run: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return handle(tf_ops.unit_of(name), run, args, {})

    return calls.watched(signed, whole, loop, tell, is_seen)


def hooks_of_primitives() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Yields (owner, attribute, function): where ops of JAX and TensorFlow are hooked."""
    if _is_tensorflow():
        from keras_mp.backends.tensorflow import calls

        yield from calls.hooks()
    if not _has_primitives():
        return
    from keras_mp.backends.jax import primitives

    yield primitives.hook()


def is_inside() -> bool:
    """Returns whether JAX traces a function by itself: its primitives are seen afterwards."""
    if not _has_primitives():
        return False
    from keras_mp.backends.jax import primitives

    return primitives.is_inside()


def is_hidden() -> bool:
    """Returns whether an eager call runs a function that JAX traces by itself.

    Its ops were recorded as primitives, which are not seen here.
    """
    if not _has_primitives():
        return False
    from keras_mp.backends.jax import primitives

    return primitives.is_hidden()


def is_eager() -> bool:
    """Returns whether TensorFlow runs each op when it is called."""
    if not _is_tensorflow():
        return False
    from keras_mp.backends.tensorflow import calls

    return calls.is_eager()


def _is_tensorflow() -> bool:
    return keras.backend.backend() == "tensorflow" and _has_hooked_names()


@functools.cache
def _has_hooked_names() -> bool:
    """Returns whether this TensorFlow has all that is hooked."""
    try:
        from keras_mp.backends.tensorflow import calls

        return bool([*calls.hooks()])
    except (ImportError, AttributeError):
        return False


def _has_primitives() -> bool:
    return keras.backend.backend() == "jax" and are_seen()


def here() -> AbstractContextManager[Any]:
    """Returns a scope for a function that is traced by itself, such as the body of a loop."""
    if _is_tensorflow():
        from keras_mp.backends.tensorflow import calls

        return calls.here()
    if not _has_primitives():
        return nullcontext()
    from keras_mp.backends.jax import primitives

    return primitives.here()


def nowhere() -> AbstractContextManager[Any]:
    """Returns a scope for what calls the framework on behalf of Keras: only `here` sees ops."""
    if _is_tensorflow():
        from keras_mp.backends.tensorflow import calls

        return calls.nowhere()
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
