"""Where the ops go that a thread calls: to a `Dispatch`, or as always."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import keras

from keras_mp.graph_rewrite.foreign_ops import ForeignOp
from keras_mp.graph_rewrite.hooks import own_ops

Dispatch = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


_jax_context: Callable[[Any], AbstractContextManager[Any]] = nullcontext


class _Active(threading.local):
    dispatch: Dispatch | None = None
    is_seen = False  # whether ops of the framework itself go there, too
    has_mode = False  # whether torch shows its functions


active = _Active()


@contextmanager
def dispatching(dispatch: Dispatch | None, traced_as: Any = None) -> Iterator[None]:
    """Sends each keras op that this thread calls to `dispatch`; None: lets them be.

    Args:
        dispatch: Called with the name of the op, the original, and its arguments. Its method
            `foreign`, if it has one, gets the ops of the framework itself, in a scope that sees
            them.
        traced_as: What a function that JAX jits inside is cached under, beside its arguments, so
            that no trace is taken up where the ops go elsewhere.
    """
    before, was_seen = active.dispatch, active.is_seen
    active.dispatch, active.is_seen = dispatch, False
    try:
        with _jax_context(traced_as), _watched(dispatch):
            yield
    finally:
        active.dispatch, active.is_seen = before, was_seen


def _watched(dispatch: Any) -> AbstractContextManager[Any]:
    if not hasattr(dispatch, "foreign"):
        return own_ops.nowhere()
    is_recording = getattr(dispatch, "is_recording", False)
    return own_ops.watched(send, _loop, is_recording, lambda: active.is_seen, _tell)


def _tell(what: str, *args: Any) -> None:
    method = getattr(active.dispatch, what, None)
    if method is not None:
        method(*args)


def _loop(name: str, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return active.dispatch.loop(name, original, args, kwargs)  # type: ignore[union-attr]


def send(
    op: ForeignOp, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Sends an op of the framework to the dispatch of now."""
    foreign = getattr(active.dispatch, "foreign", None)
    if foreign is None:
        return original(*args, **kwargs)
    return foreign(op, original, args, kwargs)


def move(made: Any, x: Any) -> None:
    """Gives `x` the value of `made` in place."""
    moved = getattr(active.dispatch, "moved", None)
    with dispatching(None):
        x.copy_(made)  # whoever holds x sees it
    if moved is not None:
        moved(made, x)


def is_dispatching() -> bool:
    """Returns whether `dispatching` is in force in this thread."""
    return active.dispatch is not None


def prepare_jax() -> None:
    global _jax_context
    if keras.backend.backend() == "jax" and _jax_context is nullcontext:
        import jax

        if hasattr(jax, "make_user_context"):
            _jax_context = jax.make_user_context(None)


def put(owner: Any, name: str, hook: Any) -> Callable[[], None]:
    """Replaces an attribute; returns what puts it back, unless somebody has replaced it since."""
    own, original = name in vars(owner), getattr(owner, name)
    setattr(owner, name, hook)

    def restore() -> None:
        if vars(owner).get(name) is not hook:
            return
        if own:
            setattr(owner, name, original)
        else:  # it was inherited
            delattr(owner, name)

    return restore
