"""Where the ops go that a thread calls: to a `Dispatch`, or as always."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import keras

Dispatch = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


_jax_context: Callable[[Any], AbstractContextManager[Any]] = nullcontext


class _Active(threading.local):
    dispatch: Dispatch | None = None


active = _Active()


@contextmanager
def dispatching(dispatch: Dispatch | None, traced_as: Any = None) -> Iterator[None]:
    """Sends each keras op that this thread calls to `dispatch`; None: lets them be.

    Args:
        dispatch: Called with the name of the op, the original, and its arguments.
        traced_as: What a function that JAX jits inside is cached under, beside its arguments, so
            that no trace is taken up where the ops go elsewhere.
    """
    before = active.dispatch
    active.dispatch = dispatch
    try:
        with _jax_context(traced_as):
            yield
    finally:
        active.dispatch = before


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
