"""Compiling in haste what runs once: on JAX each eager operation is a program of its own.

Or all of it as one program, where nothing in between has to be looked at.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

_OPTION = "jax_disable_most_optimizations"
_ROUNDED = {"xla_allow_excess_precision": False}
_EARLIER_EMITTERS = {"xla_cpu_use_fusion_emitters": False}  # compile in a third of the time

_lock = threading.Lock()
_open = 0
_before = False
_context: Any = None


@contextlib.contextmanager
def without_optimization() -> Iterator[None]:
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
    return _context("without_optimization")


def _switch(step: int) -> None:
    global _open, _before
    import jax

    with _lock:
        if _open == 0:
            _before = jax.config.read(_OPTION)
        _open += step
        jax.config.update(_OPTION, _open > 0 or _before)


def makes_programs() -> bool:
    """Returns whether `one_program` is to be had: on JAX, on a CPU.

    Another device compiles at length what a CPU compiles in haste.
    """
    return _entered() is not None


def trace() -> Any:
    """Returns what equals another one of the same function that JAX traces."""
    from jax.extend.core import get_opaque_trace_state

    return get_opaque_trace_state()


def traced(function: Callable[..., Any], *arguments: Any) -> None:
    """Calls a function with abstract arrays in place of `arguments`, which nest arrays."""
    import jax

    jax.eval_shape(function, *arguments)


def one_program(
    function: Callable[[Sequence[Any], Sequence[Any]], tuple[Any, Any]],
    weights: Sequence[Any],
    others: Sequence[Any],
) -> Callable[[Sequence[Any], Sequence[Any]], tuple[Sequence[Any], Any]]:
    """Returns a function like these arguments to gradients by `weights`, and what else it returned.

    Every value is rounded to its dtype, as it is where each operation is a program of its own.

    Args:
        function: Takes `weights` and `others`; returns a number, which is only needed where there
            are weights, and nested arrays.
        weights: Arrays of floats.
        others: Arrays and numbers.
    """
    import jax

    if weights:
        gradients = jax.grad(function, has_aux=True)
    else:
        gradients = lambda weights, others: ((), function(weights, others)[1])  # noqa: E731
    lowered = jax.jit(gradients).lower(weights, others)
    try:
        program: Any = lowered.compile({**_ROUNDED, **_EARLIER_EMITTERS})
    except jax.errors.JaxRuntimeError:  # an XLA that has them no more
        program = lowered.compile(_ROUNDED)
    compiled: Callable[[Sequence[Any], Sequence[Any]], tuple[Sequence[Any], Any]] = program
    return compiled
