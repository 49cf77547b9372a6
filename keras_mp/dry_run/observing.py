"""Where the values of a running model are seen: each call of a layer, and each keras op in it.

Knows how to look, not what for: `Watcher`s decide. Layers are seen through `__call__` of
`keras.layers.Layer` and `keras.Operation`, losses through that of `keras.losses.Loss`; ops through
the hooks of the graph rewrite. All are put back where the last watcher of any thread ends.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from keras_mp.graph_rewrite import hooks, rewritten
from keras_mp.graph_rewrite.tensors import dtype_of, is_sparse, tensors
from keras_mp.overflow_search.report import Where


@dataclass(eq=False)
class Place:
    """What is being called: a layer, or a loss, metric or regularizer.

    Attributes:
        where: The part of the step.
        path: Names from the model down, such as "encoder/dense".
        kind: Name of the class.
        owner: The layer, or None.
        given: The arguments and keyword arguments that it was called with, before any cast.
        running: Whether `call` of the layer has been entered.
    """

    where: Where
    path: str
    kind: str
    owner: Any = None
    given: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    running: bool = False


class Watcher:
    """Is told what happens, and hands on what is to go on with; this one changes nothing."""

    def op(
        self,
        place: Place | None,
        name: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Runs one keras op and returns its result. Ops inside are not seen."""
        return original(*args, **kwargs)

    def layer(
        self,
        place: Place,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[..., Any],
    ) -> Any:
        """Runs `call` of a layer, on what Keras has cast for it, and returns its result."""
        return run(*args, **kwargs)


class _Active(threading.local):
    def __init__(self) -> None:
        self.watcher: Watcher | None = None
        self.places: list[Place] = []
        self.paths: Mapping[int, str] = {}


_active = _Active()
_lock = threading.Lock()
_open = _with_ops = 0  # watchers, and those of them that are shown ops
_hooked = False  # whether the hooks of the ops are there for watchers only
_undo: list[Callable[[], None]] = []


@contextlib.contextmanager
def watching(watcher: Watcher, model: Any, ops: bool = True) -> Iterator[None]:
    """Shows `watcher` what this thread calls.

    Args:
        watcher: Is told.
        model: For the paths of its layers.
        ops: Whether to show ops too; without, layers only.
    """
    _install(ops)
    before = vars(_active).copy()
    _active.watcher, _active.places = watcher, []
    _active.paths = {id(layer): path for path, layer in layers_of(model)}

    def dispatch(
        name: str, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        with hooks.dispatching(None):
            return watcher.op(place(), name, original, args, kwargs)

    try:
        # Not the watcher: JAX keeps what it files traces under, and with it all that was seen.
        with hooks.dispatching(dispatch, traced_as=object()) if ops else contextlib.nullcontext():
            yield
    finally:
        vars(_active).clear()
        vars(_active).update(before)
        _uninstall(ops)


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """A scope in which this thread shows nothing."""
    before = _active.watcher
    _active.watcher = None
    try:
        with hooks.dispatching(None):
            yield
    finally:
        _active.watcher = before


def place() -> Place | None:
    """Returns what is being called now, if anything."""
    return _active.places[-1] if _active.places else None


@contextlib.contextmanager
def at(where: Where, path: str, kind: str, owner: Any = None) -> Iterator[None]:
    """A scope in which ops count as those of a loss, metric or regularizer."""
    _active.places.append(Place(where, path, kind, owner))
    try:
        yield
    finally:
        _active.places.pop()


def layers_of(model: Any) -> Iterator[tuple[str, Any]]:
    """Yields (path, layer) for the model and all in it, each once; a container before its parts.

    >>> dense = keras.layers.Dense(1, name="out")
    >>> inner = keras.Sequential([keras.Input((2,)), dense], name="head")
    >>> model = keras.Sequential([keras.Input((2,)), inner], name="net")
    >>> [path for path, _ in layers_of(model)]
    ['net', 'head', 'head/out']
    """
    yield model.name, model
    yield from _below(model, "", {id(model)})


def _below(layer: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    for child in layer._flatten_layers(include_self=False, recursive=False):
        if id(child) in seen or isinstance(child, keras.layers.InputLayer):
            continue
        seen.add(id(child))
        below = f"{path}/{child.name}" if path else child.name
        yield below, child
        yield from _below(child, below, seen)


def floats(*values: Any) -> list[Any]:
    """Returns the dense floating-point tensors in nested `values`; variables are not among them."""
    return [
        x
        for x in keras.tree.flatten(values)
        if keras.ops.is_tensor(x)
        and not isinstance(x, keras.Variable)
        and not is_sparse(x)
        and keras.backend.is_float_dtype(dtype_of(x))
    ]


def map_floats(change: Callable[[Any], Any], value: Any) -> Any:
    """Returns nested `value` with `change` applied to each of its `floats`."""
    return keras.tree.map_structure(lambda x: change(x) if floats(x) else x, value)


def variables_in(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Returns the trainable variables among the arguments of an op."""
    return [x for x in tensors(args, kwargs) if isinstance(x, keras.Variable) and x.trainable]


def _install(ops: bool) -> None:
    global _open, _with_ops, _hooked
    with _lock:
        if _open == 0:
            _undo.append(_replace(keras.layers.Layer, _around_layer))
            _undo.append(_replace(keras.Operation, _around_call))
            _undo.append(_replace(keras.losses.Loss, _around_loss))
        if ops and not hooks.is_installed():
            with contextlib.suppress(RuntimeError):  # a Keras whose ops cannot be seen: layers only
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
            # Models that the graph rewrite has changed since compute through the same hooks.
            if not rewritten.all_models():
                hooks.uninstall()
        while _open == 0 and _undo:
            _undo.pop()()


def _replace(cls: type, around: Callable[..., Any]) -> Callable[[], None]:
    original = cls.__dict__["__call__"]

    @functools.wraps(original)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _active.watcher is None:
            return original(self, *args, **kwargs)
        return around(_active.watcher, original, self, args, kwargs)

    cls.__call__ = hooked  # type: ignore[method-assign]

    def restore() -> None:
        if cls.__dict__["__call__"] is hooked:
            cls.__call__ = original  # type: ignore[method-assign]

    return restore


def _around_layer(
    watcher: Watcher, original: Any, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    path = _active.paths.get(id(layer)) or layer.path or layer.name
    here = Place("forward", path, type(layer).__name__, layer, (args, kwargs))
    _active.places.append(here)
    try:
        return original(layer, *args, **kwargs)
    finally:
        _active.places.pop()


def _around_call(
    watcher: Watcher, original: Any, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    here = place()
    if here is None or here.owner is not layer or here.running:
        return original(layer, *args, **kwargs)
    here.running = True
    outputs = watcher.layer(here, args, kwargs, functools.partial(original, layer))
    # What follows in Layer.__call__ is its activity regularizer.
    here.where = "regularizer"
    return outputs


def _around_loss(
    watcher: Watcher, original: Any, loss: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    with at("loss", str(loss.name), type(loss).__name__):
        return original(loss, *args, **kwargs)
