"""Builds models that a file will fill of zeros.

Computing initial values takes longer than the rest of a load if a program is compiled for each
shape, as on JAX.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np

from keras_mp.backends import keras_hooks

_INITIALIZE, _ASSIGN = "_initialize_with_initializer", "_direct_assign"
_OF_KERAS = "keras."
# Keras imports these if a config names them.
_PACKAGES = ("keras_cv.", "keras_hub.", "keras_nlp.")
_DTYPES = ("bfloat16", "float16", "float32")

_patching = threading.Lock()
_here = threading.local()
_scopes = 0
_before: dict[str, Any] = {}


def scope_for(config: object, custom_objects: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Returns `late_values()` for a config that names no classes of the program.

    A layer of the program may read a weight while it is built, and would read zeros. If the config
    names one, the scope does nothing.

    Args:
        config: JSON.
        custom_objects: The program's objects for loading. Its registered ones are included.
    """
    own = {*custom_objects, *keras.saving.get_custom_objects()}
    own = {name for name in own if not name.startswith("keras_mp>")}
    own |= {name.rpartition(">")[2] for name in own}
    texts = [text for text in keras.tree.flatten(config) if isinstance(text, str)]
    is_own = not own.isdisjoint(texts) or any(text.startswith(_PACKAGES) for text in texts)
    return contextlib.nullcontext() if is_own else late_values()


@contextlib.contextmanager
def late_values() -> Iterator[None]:
    """A scope in which this thread creates variables of zeros.

    At its end, variables that nothing was assigned to get their usual initial value, unless there
    was an error. This applies to initializers of Keras whose seed is a number or None; others may
    count their calls, and compute at once, as do variables in a layout of `keras.distribution`. See
    `scope_for`.

    >>> with late_values():
    ...     layer = keras.layers.Dense(2, kernel_initializer="ones")
    ...     layer.build((None, 1))
    ...     _ = layer.bias.assign([3.0, 4.0])
    >>> layer.kernel.numpy().tolist(), layer.bias.numpy().tolist()
    ([[1.0, 1.0]], [3.0, 4.0])
    """
    if getattr(_here, "waiting", None) is not None or not _is_possible():
        yield
        return
    waiting: dict[int, tuple[Any, Any]] = {}
    _here.waiting = waiting
    _patch(1)
    try:
        yield
    finally:
        _patch(-1)
        _here.waiting = None
    for variable, initializer in waiting.values():
        variable.assign(initializer(variable.shape, dtype=variable.dtype))


def _is_possible() -> bool:
    is_nnx = getattr(keras.config, "is_nnx_enabled", bool)()  # which stores values elsewhere
    return all(hasattr(keras.Variable, name) for name in (_INITIALIZE, _ASSIGN)) and not is_nnx


def _patch(more: int) -> None:
    global _scopes
    wrappers = {_INITIALIZE: _late, _ASSIGN: _noticed}
    with _patching:
        if _scopes == 0:
            for name, wrapper in wrappers.items():
                _before[name] = vars(keras.Variable).get(name)
                setattr(keras.Variable, name, wrapper(getattr(keras.Variable, name)))
        _scopes += more
        if _scopes == 0:
            for name, function in _before.items():
                if function is None:
                    delattr(keras.Variable, name)  # which uncovers the base class' method
                else:
                    setattr(keras.Variable, name, function)


def _late(initialize: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def initialize_late(self: Any, initializer: Any) -> None:
        waiting = getattr(_here, "waiting", None)
        if waiting is None or not _can_wait(self, initializer):
            initialize(self, initializer)
            return
        initialize(self, _zeros)
        if type(initializer) is not keras.initializers.Zeros:
            waiting[id(self)] = self, initializer

    return initialize_late


def _noticed(assign: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def assign_noticed(self: Any, value: Any) -> None:
        assign(self, value)
        waiting = getattr(_here, "waiting", None)
        if waiting is not None:
            waiting.pop(id(self), None)

    return assign_noticed


def _can_wait(variable: Any, initializer: Any) -> bool:
    # A function comes from a layer of Keras itself, such as the bias of an LSTM's gates.
    kind = initializer if hasattr(initializer, "__qualname__") else type(initializer)
    return (
        type(variable) is keras.Variable
        and str(kind.__module__).startswith(_OF_KERAS)
        and isinstance(getattr(initializer, "seed", 0), int)
        and variable._dtype in _DTYPES
        and keras_hooks.layout_of(variable) is None
        and keras.distribution.distribution() is None
    )


def _zeros(shape: tuple[int, ...], dtype: str) -> Any:
    if keras.backend.backend() == "torch":  # NumPy's array would stay in memory
        return keras.ops.zeros(shape, dtype)
    # JAX would compile a program for each shape, also for an array without a given dtype.
    array = np.zeros(shape, "float32" if dtype == "bfloat16" else dtype)
    return keras.ops.convert_to_tensor(array, dtype)
