"""The loop of a recurrent layer, step by step, so that each step can be observed."""

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import keras

_MOST = 10  # JAX compiles each step outside of a loop


class _Active(threading.local):
    most: float = _MOST


_active = _Active()


@contextmanager
def every_step() -> Iterator[None]:
    """A scope in which JAX also runs the steps of long loops one by one, which takes long."""
    before, _active.most = _active.most, float("inf")
    try:
        yield
    finally:
        _active.most = before


def run_by_steps(
    rnn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    at_time_step: Callable[[int, int], AbstractContextManager[None]],
) -> Any:
    """Runs Keras' loop of a recurrent layer with each step in its own scope.

    If its steps cannot be observed, as in a long loop that JAX traces, it runs unchanged.

    Args:
        rnn: The function of the backend.
        args, kwargs: Its arguments.
        at_time_step: Called with the number of a step, from 1, and the number of steps.
    """
    call = inspect.signature(rnn).bind(*args, **kwargs)
    call.apply_defaults()
    given = call.arguments
    step, time_axis = given["step_function"], 0 if given["time_major"] else 1
    count = keras.tree.flatten(given["inputs"])[0].shape[time_axis]
    traced = keras.backend.backend() == "jax"
    if not count or (traced and (count > _active.most or given["mask"] is not None)):
        return rnn(*args, **kwargs)
    # Unrolling changes masked steps. The loop then calls its step once for the shapes.
    is_unrolled = given["unroll"] or given["mask"] is None
    number = 0 if is_unrolled else -1

    def numbered(*args: Any, **kwargs: Any) -> Any:
        nonlocal number
        number += 1
        with at_time_step(max(number, 1), count):
            return step(*args, **kwargs)

    given["step_function"], given["unroll"] = numbered, is_unrolled
    return rnn(*call.args, **call.kwargs)
