"""Compiling in haste what runs once: on JAX each eager operation is a program of its own."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import keras

_OPTION = "jax_disable_most_optimizations"

_lock = threading.Lock()
_open = 0
_before = False
_context: Any = None


@contextlib.contextmanager
def hastily() -> Iterator[None]:
    """A scope in which JAX, on a CPU, hardly optimizes what it compiles; elsewhere nothing.

    What is compiled in it is not used outside. The option holds for the process, so that another
    thread that compiles meanwhile does so in haste, too.
    """
    scope = _entered()
    if scope is None:
        yield
        return
    _switch(1)
    try:
        with scope:
            yield
    finally:
        _switch(-1)


def _entered() -> Any:
    """Returns a scope of JAX with programs of its own, the same for all; None where there is none.

    A GPU chooses by measuring how it convolves, which is optimizing too.
    """
    global _context
    if keras.backend.backend() != "jax":
        return None
    import jax

    if jax.default_backend() != "cpu" or not hasattr(jax, "make_user_context"):
        return None
    with _lock:
        if _context is None:
            _context = jax.make_user_context(None)
    return _context("hastily")


def _switch(step: int) -> None:
    global _open, _before
    import jax

    with _lock:
        if _open == 0:
            _before = jax.config.read(_OPTION)
        _open += step
        jax.config.update(_OPTION, _open > 0 or _before)
