"""Shows observers each call of a layer, and of each keras op in it, while a model runs.

Only detects calls; an `Observer` decides what to do with them. Layers are detected in `__call__` of
`keras.layers.Layer` and `keras.Operation`, losses in that of `keras.losses.Loss`, parts of foreign
modules by `foreign_parts`, ops by the hooks of the graph rewrite. All are removed when the last
observer of any thread ends.
"""

import contextlib
import functools
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import keras

from keras_mp.backends.common import foreign_parts
from keras_mp.backends.keras_hooks import layers_of
from keras_mp.diagnosis.dry_run.source_lines import SourceLine, calling_line
from keras_mp.graph_rewrite import hooks, rewritten

Where = Literal["input", "weights", "forward", "regularizer", "loss", "metric", "backward"]
Key = tuple[str, str, int]


@dataclass(frozen=True, eq=False)
class Site:
    """The code that is running: a layer, or a loss, metric or regularizer.

    Attributes:
        where: The part of the step.
        path: Names from the model down, such as "encoder/dense"; "" for the model's own code.
        class_name: Its class.
        owner: The layer, or a `foreign_parts.Part` of it, or None.
        given: The arguments and keyword arguments of the layer, before Keras casts them.
        in_call: Whether the layer's `call` has been entered.
        running: The layer, loss or metric that is running, or None.
        source: The line that calls it.
    """

    where: Where
    path: str
    class_name: str
    owner: Any = None
    given: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    in_call: bool = False
    running: Any = None
    source: SourceLine | None = None


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a keras op, or of a layer.

    Attributes:
        site: Its site in the step.
        key: Identifies the same call in every run of the step.
        op: Name of the op; None for a layer.
        function: The called function.
        args, kwargs: Its arguments; those of a layer after Keras' casts.
        source: The line that calls it.
        time_step: (which, of how many) in a recurrent layer, from 1.
    """

    site: Site
    key: Key
    op: str | None
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    source: SourceLine | None = None
    time_step: tuple[int, int] | None = None

    def run(self) -> Any:
        """Calls the function and returns its result."""
        return self.function(*self.args, **self.kwargs)

    def with_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "Call":
        """Returns the same call with other arguments."""
        return replace(self, args=args, kwargs=kwargs)


class KeyCounter:
    """Numbers the calls of one run, in their order.

    >>> keys, site = KeyCounter(), Site("forward", "net/out", "Dense")
    >>> keys.next(site, "add"), keys.next(site, "add")
    (('forward net/out', 'add', 1), ('forward net/out', 'add', 2))
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def next(self, site: Site, name: str) -> Key:
        """Returns the key of the next call of `name` at a site."""
        path = f"{site.where} {site.path}"
        self._counts[path, name] += 1
        return path, name, self._counts[path, name]


_OF_NO_LAYER = Site("forward", "", "")


class Observer:
    """Receives calls, runs them and returns their results; this class changes nothing."""

    def op(self, call: Call) -> Any:
        """Runs one keras op. Ops inside it are not observed."""
        return call.run()

    def layer(self, call: Call) -> Any:
        """Runs `call` of a layer. Calls inside it are observed."""
        return call.run()


class _Active(threading.local):
    most_steps: float = 10  # of a loop that are observed: JAX compiles each outside of it

    def __init__(self) -> None:
        self.observer: Observer | None = None
        self.sites: list[Site] = []
        self.keys = KeyCounter()
        self.paths: Mapping[int, str] = {}
        self.time_step: tuple[int, int] | None = None
        self.change: Callable[[Call], Call] | None = None


class _Dispatch:
    """The target of the op hooks."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def __call__(
        self, name: str, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        with hooks.dispatching(None):
            call = _call(name, original, args, kwargs)
            return self._observer.op(call if _active.change is None else _active.change(call))

    def loop(
        self, name: str, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Runs a loop; the steps of a recurrent layer one by one."""
        if name != "rnn":
            return original(*args, **kwargs)
        return _run_by_steps(original, args, kwargs)


_active = _Active()
_lock = threading.Lock()
_open = _with_ops = 0  # observers, and those that observe ops
_hooked = False  # whether the op hooks are installed for observers only
_undo: list[Callable[[], None]] = []


@contextlib.contextmanager
def observed_by(observer: Observer, model: Any, ops: bool = True) -> Iterator[None]:
    """A scope in which `observer` receives the calls of this thread.

    Args:
        observer: Runs the calls.
        model: For the paths of its layers.
        ops: Whether to observe ops too; otherwise only layers.
    """
    _install(ops)
    before = vars(_active).copy()
    _active.observer, _active.sites, _active.keys = observer, [], KeyCounter()
    _active.time_step = None
    _active.paths = {id(layer): path for path, layer in layers_of(model)}

    try:
        # Not the observer itself: JAX keeps the keys of its cache alive, and so all observations.
        to = _Dispatch(observer)
        with hooks.dispatching(to, traced_as=object()) if ops else contextlib.nullcontext():
            yield
    finally:
        vars(_active).clear()
        vars(_active).update(before)
        _uninstall(ops)


@contextlib.contextmanager
def _active_with(**values: Any) -> Iterator[None]:
    before = {name: getattr(_active, name) for name in values}
    vars(_active).update(values)
    try:
        yield
    finally:
        vars(_active).update(before)


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """A scope in which no call of this thread is observed."""
    with _active_with(observer=None), hooks.dispatching(None):
        yield


def changed_by(change: Callable[[Call], Call]) -> contextlib.AbstractContextManager[None]:
    """A scope that replaces each observed op by another call, as an experiment."""
    return _active_with(change=change)


@contextlib.contextmanager
def at_site(
    where: Where, path: str, class_name: str, owner: Any = None, *, running: Any = None
) -> Iterator[None]:
    """A scope in which ops count as those of a loss, metric or regularizer."""
    running = owner if running is None else running
    _active.sites.append(Site(where, path, class_name, owner, running=running))
    try:
        yield
    finally:
        _active.sites.pop()


def at_time_step(number: int, of: int) -> contextlib.AbstractContextManager[None]:
    """A scope in which calls belong to one step of a recurrent layer."""
    return _active_with(time_step=(number, of))


def _call(
    op: str | None, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Call:
    site = _active.sites[-1] if _active.sites else _OF_NO_LAYER
    key = _active.keys.next(site, op or "")
    source = site.source if op is None else calling_line()
    return Call(site, key, op, function, args, kwargs, source, _active.time_step)


def _install(ops: bool) -> None:
    global _open, _with_ops, _hooked
    with _lock:
        if _open == 0:
            _undo.append(_wrap_call(keras.layers.Layer, _around_layer))
            _undo.append(_wrap_call(keras.Operation, _around_call))
            _undo.append(_wrap_call(keras.losses.Loss, _around_loss))
        if ops and not hooks.is_installed():
            with contextlib.suppress(RuntimeError):  # a Keras without op hooks: layers only
                hooks.install()
                _hooked = True
        _open += 1
        _with_ops += ops


def _uninstall(ops: bool) -> None:
    global _open, _with_ops, _hooked
    with _lock:
        _open -= 1
        _with_ops -= ops
        if _hooked and _with_ops == 0:
            _hooked = False
            # Models that the graph rewrite has changed since use the same hooks.
            if not rewritten.all_models():
                hooks.uninstall()
        while _open == 0 and _undo:
            _undo.pop()()


def _wrap_call(cls: type, around: Callable[..., Any]) -> Callable[[], None]:
    original = cls.__dict__["__call__"]

    @functools.wraps(original)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _active.observer is None:
            return original(self, *args, **kwargs)
        return around(original, self, args, kwargs)

    cls.__call__ = hooked  # type: ignore[method-assign]

    def restore() -> None:
        if cls.__dict__["__call__"] is hooked:
            cls.__call__ = original  # type: ignore[method-assign]

    return restore


def _around_layer(original: Any, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    path = _active.paths.get(id(layer)) or layer.path or layer.name
    name, source = type(layer).__name__, calling_line()
    given = (args, kwargs)
    _active.sites.append(
        Site("forward", path, name, layer, given=given, running=layer, source=source)
    )
    try:
        return original(layer, *args, **kwargs)
    finally:
        _active.sites.pop()


def _around_call(original: Any, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    sites, observer = _active.sites, _active.observer
    if not sites or sites[-1].owner is not layer or sites[-1].in_call or observer is None:
        return original(layer, *args, **kwargs)
    sites[-1] = replace(sites[-1], in_call=True)
    with foreign_parts.observed(layer, _around_part):
        outputs = observer.layer(_call(None, functools.partial(original, layer), args, kwargs))
    # What follows in Layer.__call__ is its activity regularizer.
    sites[-1] = replace(sites[-1], where="regularizer")
    return outputs


def _around_part(
    part: foreign_parts.Part, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    observer = _active.observer
    if observer is None:
        return run(*args, **kwargs)
    layer, given, source = part.layer, (args, kwargs), calling_line()
    path = f"{_active.paths.get(id(layer)) or layer.path or layer.name}/{part.name}"
    _active.sites.append(
        Site("forward", path, part.kind, part, given, in_call=True, running=layer, source=source)
    )
    try:
        return observer.layer(_call(None, run, args, kwargs))
    finally:
        _active.sites.pop()


def _around_loss(original: Any, loss: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with at_site("loss", str(loss.name), type(loss).__name__, running=loss):
        return original(loss, *args, **kwargs)


def every_step() -> contextlib.AbstractContextManager[None]:
    """A scope in which JAX also runs the steps of long loops one by one, which takes long."""
    return _active_with(most_steps=float("inf"))


def _run_by_steps(rnn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs Keras' loop of a recurrent layer with each step in its own scope.

    If its steps cannot be observed, as in a long loop that JAX traces, it runs unchanged.

    Args:
        rnn: The function of the backend.
        args, kwargs: Its arguments.
    """
    call = inspect.signature(rnn).bind(*args, **kwargs)
    call.apply_defaults()
    given = call.arguments
    step, time_axis = given["step_function"], 0 if given["time_major"] else 1
    count = keras.tree.flatten(given["inputs"])[0].shape[time_axis]
    traced = keras.backend.backend() == "jax"
    if not count or (traced and (count > _active.most_steps or given["mask"] is not None)):
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
