"""Compiles code that runs once without optimization: JAX compiles each eager operation.

Or compiles all of it as one program, if no intermediate value is needed.
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
    """A scope in which JAX, on a CPU, compiles with little optimization; elsewhere nothing.

    Programs compiled in it are not used outside. The option holds for the process, so it also
    affects another thread that compiles meanwhile.
    """
    scope = _separate_programs()
    if scope is None:
        yield
        return
    _switch(1)
    try:
        with scope:
            yield
    finally:
        _switch(-1)


def _separate_programs() -> Any:
    """Returns a JAX scope with separate programs, the same for all; None where there is none.

    None on a GPU, which chooses its convolutions by measuring: that is optimization, too.
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
    """Returns whether `one_program` is available: on JAX, on a CPU.

    Other devices compile slowly even without optimization.
    """
    return _separate_programs() is not None


def trace() -> Any:
    """Returns a value that equals another one while JAX traces the same function."""
    from jax.extend.core import get_opaque_trace_state

    return get_opaque_trace_state()


def traced(function: Callable[..., Any], *arguments: Any) -> None:
    """Traces a function with abstract arrays in place of `arguments`, which are nested arrays."""
    import jax

    jax.eval_shape(function, *arguments)


def one_program(
    function: Callable[[Sequence[Any], Sequence[Any]], tuple[Any, Any]],
    weights: Sequence[Any],
    others: Sequence[Any],
) -> Callable[[Sequence[Any], Sequence[Any]], tuple[Sequence[Any], Any]]:
    """Returns the gradients of a function by `weights`, and its other results, as a function.

    Every value is rounded to its dtype, as if each operation were a separate program.

    Args:
        function: Takes `weights` and `others`; returns a number, needed only if there are weights,
            and nested arrays.
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
    except jax.errors.JaxRuntimeError:  # an XLA that no longer has these options
        program = lowered.compile(_ROUNDED)
    compiled: Callable[[Sequence[Any], Sequence[Any]], tuple[Sequence[Any], Any]] = program
    return compiled


def forget_compiled() -> None:
    """Has torch.compile compile all functions anew: it knows them by their code. Elsewhere nothing.

    What they read of objects it takes for constant, as far as it does not guard it.
    """
    if keras.backend.backend() == "torch":
        import torch

        torch.compiler.reset()
