"""Shows observers each call of a layer, and of each keras op in it, while a model runs.

Only detects calls; an `Observer` decides what to do with them. Layers are detected in `__call__` of
`keras.layers.Layer` and `keras.Operation`, losses in that of `keras.losses.Loss`, parts of foreign
modules by `foreign_parts`, ops by the hooks of the graph rewrite. All are removed when the last
observer of any thread ends.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import keras

from keras_mp.backends.common import foreign_parts
from keras_mp.diagnosis.dry_run.calls import Call, KeyCounter, Site, Where
from keras_mp.diagnosis.dry_run.layers import layers_of
from keras_mp.diagnosis.dry_run.source_lines import calling_line
from keras_mp.diagnosis.dry_run.time_steps import run_by_steps
from keras_mp.graph_rewrite import hooks, rewritten

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
        return run_by_steps(original, args, kwargs, at_time_step)


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
def unobserved() -> Iterator[None]:
    """A scope in which no call of this thread is observed."""
    before = _active.observer
    _active.observer = None
    try:
        with hooks.dispatching(None):
            yield
    finally:
        _active.observer = before


@contextlib.contextmanager
def changed_by(change: Callable[[Call], Call]) -> Iterator[None]:
    """A scope that replaces each observed op by another call, as an experiment."""
    before, _active.change = _active.change, change
    try:
        yield
    finally:
        _active.change = before


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


@contextlib.contextmanager
def at_time_step(number: int, of: int) -> Iterator[None]:
    """A scope in which calls belong to one step of a recurrent layer."""
    before, _active.time_step = _active.time_step, (number, of)
    try:
        yield
    finally:
        _active.time_step = before


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
