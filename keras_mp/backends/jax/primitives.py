"""The primitives that a traced function calls, seen at the one place that all of them pass.

`jax.extend.core.Primitive.bind` is public, as is the state of the trace by which inner functions
are told from the outer one. JAX has no other place: a jaxpr is there only after the call.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jax.extend import core

# handle(name, parameters, run, args) runs a primitive, and returns its result.
Handle = Callable[[str, dict[str, Any], Callable[..., Any], tuple[Any, ...]], Any]
_CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "core_closed_call"})
_REMAT = frozenset({"remat", "remat2", "checkpoint"})


class _Active(threading.local):
    handle: Handle | None = None
    loop: Callable[..., Any] | None = None
    is_recording = False
    is_seen: Callable[[], bool] = staticmethod(bool)
    trace: Any = None  # in which primitives are seen; None: nowhere


_active = _Active()


def are_seen() -> bool:
    """Returns whether this JAX tells one trace from another."""
    return hasattr(core, "get_opaque_trace_state")


@contextlib.contextmanager
def watched(
    handle: Handle, loop: Callable[..., Any], is_recording: bool, is_seen: Callable[[], bool]
) -> Iterator[None]:
    """A scope that sends the primitives of the trace of now to `handle`; outside of a trace, none.

    Functions that are traced inside, such as those of `jax.jit`, are seen as what they compute.

    Args:
        handle: Called with the name, the parameters, a function that runs it, and the arguments.
        loop: Called with the body, the state, the sequences and the options of a `jax.lax.scan`.
        is_recording: Whether only what is computed matters, and not how often.
        is_seen: Returns whether a primitive is to be sent now.
    """
    before = vars(_active).copy()
    _active.handle, _active.loop, _active.is_recording = handle, loop, is_recording
    _active.trace, _active.is_seen = _trace_of_now(), is_seen
    try:
        yield
    finally:
        vars(_active).clear()
        vars(_active).update(before)


@contextlib.contextmanager
def here() -> Iterator[None]:
    """A scope that sees the primitives of the trace of now, which is inside of the watched one."""
    before = _active.trace
    if _active.handle is not None:
        _active.trace = _trace_of_now()
    try:
        yield
    finally:
        _active.trace = before


def is_inside() -> bool:
    """Returns whether a function is traced by itself, inside of the watched trace."""
    if _active.handle is None or _active.trace is None:
        return False
    return bool(core.get_opaque_trace_state() != _active.trace)


def is_hidden() -> bool:
    """Returns whether a function is traced by itself in an eager call, which sees no primitives."""
    if _active.handle is None or _active.trace is not None:
        return False
    return bool(core.get_opaque_trace_state() != _eager())


@contextlib.contextmanager
def nowhere() -> Iterator[None]:
    """A scope in which no primitives are seen, but in `here` inside of it."""
    before, _active.trace = _active.trace, None
    try:
        yield
    finally:
        _active.trace = before


def _trace_of_now() -> Any:
    state = core.get_opaque_trace_state()
    return None if state == _eager() else state


@functools.cache
def _eager() -> Any:
    """Returns the state of a thread that traces nothing."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(core.get_opaque_trace_state).result()


def hook() -> tuple[type, str, Callable[..., Any]]:
    """Returns what to put where, so that primitives are seen: (class, attribute, function)."""
    original = core.Primitive.bind

    @functools.wraps(original)
    def bind(self: Any, *args: Any, **parameters: Any) -> Any:
        handle = _active.handle
        if handle is None or not _active.is_seen() or _active.trace is None or is_inside():
            return original(self, *args, **parameters)
        name = str(self.name)
        if name == "convert_element_type" and not isinstance(args[0], jax.core.Tracer):
            return np.asarray(args[0]).astype(parameters["new_dtype"])  # a constant, not an op
        name = _unit(name, parameters)
        if name in _CALLS:
            return core.jaxpr_as_fun(parameters["jaxpr"])(*args)
        if name in _REMAT:
            return _recomputed(parameters, args)
        if name == "scan":
            return _scanned(parameters, args)
        run = functools.partial(_run, functools.partial(original, self), parameters)
        return handle(name, parameters, run, tuple(map(_constant, args)))

    return core.Primitive, "bind", bind


def _unit(name: str, parameters: dict[str, Any]) -> str:
    """Returns the name of a function of jax.numpy or jax.nn that counts as one op, or `name`."""
    if name in _CALLS:
        called = str(parameters.get("name", "")).strip("_")
        return f"jnp.{called}" if called in UNITS else name
    if name == "custom_jvp_call":
        info = getattr((parameters.get("subfuns") or (None,))[0], "debug_info", None)
        called = str(getattr(info, "func_name", "")).strip("_")
        return f"jax.nn.{called}" if called in UNITS else name
    return name


# Functions of jax.numpy and jax.nn that TensorFlow has an op for.
UNITS = frozenset(
    {
        "mean", "var", "std", "relu", "relu6", "silu", "gelu", "elu", "selu", "celu", "leaky_relu",
        "softplus", "softmax", "log_softmax", "logsumexp", "soft_sign",
    }
)  # fmt: skip


def _run(bind: Callable[..., Any], parameters: dict[str, Any], *args: Any) -> Any:
    """Runs a primitive, which makes 16-bit products of 16-bit factors."""
    wanted = parameters.get("preferred_element_type")
    if wanted is not None and np.dtype(wanted) == np.float32:
        low = {x.dtype for x in args if x.dtype in (np.float16, jax.numpy.bfloat16)}
        if len(low) == 1:
            parameters = {**parameters, "preferred_element_type": low.pop()}
    return bind(*args, **parameters)


def _constant(x: Any) -> Any:
    """Returns numbers as arrays of NumPy, which says that they get no gradient."""
    if isinstance(x, jax.core.Tracer) or np.ndim(x) or not hasattr(x, "dtype"):
        return x
    return np.asarray(x) if jax.dtypes.issubdtype(x.dtype, np.number) else x


def _recomputed(parameters: dict[str, Any], args: Sequence[Any]) -> Any:
    function = core.jaxpr_as_fun(core.ClosedJaxpr(parameters["jaxpr"], ()))
    if _active.is_recording:
        return function(*args)

    def seen(*args: Any) -> Any:
        with here():
            return function(*args)

    with nowhere():
        options = {"prevent_cse": parameters["prevent_cse"], "policy": parameters["policy"]}
        return list(jax.checkpoint(seen, **options)(*args))


def _scanned(parameters: dict[str, Any], args: Sequence[Any]) -> Any:
    consts, carried = parameters["num_consts"], parameters["num_carry"]
    step = core.jaxpr_as_fun(parameters["jaxpr"])

    def body(state: Any, elements: Any) -> tuple[Any, Any]:
        found = step(*args[:consts], *state, *(elements or ()))
        return list(found[:carried]), list(found[carried:])

    assert _active.loop is not None
    state, whole = _active.loop(
        body,
        list(args[consts : consts + carried]),
        list(args[consts + carried :]) or None,
        {key: parameters[key] for key in ("length", "reverse", "unroll")},
    )
    return [*state, *whole]


def scan(
    f: Callable[..., Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int = 1,
) -> Any:
    """Runs `jax.lax.scan` with a body whose primitives are seen, and not the loop itself."""
    with nowhere():
        return jax.lax.scan(f, init, xs, length=length, reverse=reverse, unroll=unroll)
