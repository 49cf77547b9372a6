"""Variables whose initial values are computed when they are first asked for: loading never asks.

Computing them takes longer than all the rest where a program is compiled for each shape, as on JAX.
Knows where a Keras variable gets its first value; whose variables they are is not looked at.
"""

import contextlib
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from keras_mp import backends
from keras_mp.backends import keras_hooks

_HOOK = "_initialize_with_initializer"
_INITIALIZER = "_keras_mp_initializer"
_DTYPES = ("bfloat16", "float16", "float32")
# (module, function) that asks a variable for its tensor, and not for the numbers in it: to keep it,
# to know it by it, or to place another beside it.
_KEEPERS = {
    ("keras.src.backend.tensorflow.optimizer", "_var_key"),
    ("keras.src.backend.tensorflow.optimizer", "add_variable_from_reference"),
    ("keras.src.backend.torch.layer", "_post_track_variable"),
    ("keras.src.backend.torch.layer", "_track_variables"),
    ("keras.src.backend.torch.layer", "<dictcomp>"),  # the same, before Python 3.12
}
# What these compute depends on their arguments and a seed that is a number, and changes nothing.
_PURE = {
    getattr(keras.initializers, name)
    for name in (
        *("Constant", "GlorotNormal", "GlorotUniform", "HeNormal", "HeUniform", "LecunNormal"),
        *("LecunUniform", "Ones", "Orthogonal", "RandomNormal", "RandomUniform"),
        *("TruncatedNormal", "VarianceScaling", "Zeros"),
    )
}

# These make the bias of what they were given, and of ones for the gate that forgets.
_BIASES = {f"{cell}.build.<locals>.bias_initializer" for cell in ("LSTMCell", "ConvLSTMCell")}

_patching = threading.Lock()
_here = threading.local()
_scopes = 0
_before: Any = None


@contextlib.contextmanager
def late_values() -> Iterator[None]:
    """A scope in which this thread makes variables of zeros; their values come when asked for.

    A variable that is read gets the value that Keras would have given it, and one that is assigned
    to never had another. What nobody asked for is computed at the end, unless by an error: then it
    is computed when somebody asks. It holds for `keras.initializers` with a seed that is a number
    or None; what else makes values may count its calls, and makes them at once. So do variables in
    a layout of `keras.distribution`.

    >>> with late_values():
    ...     layer = keras.layers.Dense(2, kernel_initializer="ones")
    ...     layer.build((None, 1))
    ...     layer.bias.assign([3.0, 4.0]) is None
    ...     layer.kernel.numpy().tolist()
    False
    [[1.0, 1.0]]
    """
    waiting: list[weakref.ref[Any]] | None = getattr(_here, "waiting", None)
    if waiting is not None or not _is_possible():
        yield
        return
    _here.waiting = waiting = []
    _patch(1)
    try:
        yield
    finally:
        _patch(-1)
        _here.waiting = None
    for reference in waiting:
        variable = reference()
        if variable is not None:
            settle(variable)


def settle(variable: Any) -> None:
    """Computes the initial value of a variable that has none yet."""
    initializer = vars(variable).get(_INITIALIZER)
    if initializer is None:
        return
    with backends.current().init_scope():
        value = _computed(variable, initializer)
        _end_waiting(variable)
        # On torch, assigning reads the variable, which in a scope of 16 bits is a copy.
        autocast, variable._autocast = variable._autocast, False
        try:
            variable._direct_assign(value)
        finally:
            variable._autocast = autocast


def _is_possible() -> bool:
    is_nnx = getattr(keras.config, "is_nnx_enabled", bool)()  # where values are kept elsewhere
    return hasattr(keras.Variable, _HOOK) and not is_nnx


def _patch(more: int) -> None:
    global _scopes, _before
    with _patching:
        if _scopes == 0:
            _before = vars(keras.Variable).get(_HOOK)
            setattr(keras.Variable, _HOOK, _late(getattr(keras.Variable, _HOOK)))
        _scopes += more
        if _scopes == 0 and _before is None:
            delattr(keras.Variable, _HOOK)  # and so back to that of the backend
        elif _scopes == 0:
            setattr(keras.Variable, _HOOK, _before)


def _late(initialize: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def initialize_late(self: Any, initializer: Any) -> None:
        waiting = getattr(_here, "waiting", None)
        if waiting is None or not _can_wait(self, initializer):
            initialize(self, initializer)
            return
        initialize(self, _zeros)
        if type(initializer) is not keras.initializers.Zeros:
            vars(self)[_INITIALIZER] = initializer
            self.__class__ = _Waiting
            waiting.append(weakref.ref(self))

    return initialize_late


def _can_wait(variable: Any, initializer: Any) -> bool:
    return (
        type(variable) is keras.Variable
        and _is_pure(initializer)
        and variable._dtype in _DTYPES
        and getattr(variable, "_layout", None) is None
        and keras.distribution.distribution() is None
    )


def _is_pure(initializer: Any) -> bool:
    if getattr(initializer, "__qualname__", None) in _BIASES:
        cell = initializer.__closure__[0].cell_contents
        initializer = getattr(cell, "bias_initializer", None)
    return type(initializer) in _PURE and isinstance(getattr(initializer, "seed", 0), int)


def _zeros(shape: tuple[int, ...], dtype: str) -> Any:
    if keras.backend.backend() == "torch":  # which would keep the memory of NumPy's array
        return keras.ops.zeros(shape, dtype)
    # JAX would compile a program for each shape; so it would for an array whose dtype is not named.
    array = np.zeros(shape, "float32" if dtype == "bfloat16" else dtype)
    return keras.ops.convert_to_tensor(array, dtype)


def _computed(variable: Any, initializer: Any) -> Any:
    return variable._convert_to_tensor(initializer(variable._shape, dtype=variable._dtype))


def _end_waiting(variable: Any) -> None:
    vars(variable).pop(_INITIALIZER, None)
    variable.__class__ = keras.Variable


class _Waiting(keras.Variable):
    """A variable of zeros, which becomes a `keras.Variable` as soon as it has a value."""

    @property
    def value(self) -> Any:
        if keras_hooks.is_symbolic() or keras_hooks.is_replaced(self) or _is_kept():
            return super().value
        if backends.current().is_trace_constant(np.float32(0)):  # JAX would keep what it traces
            return self._maybe_autocast(_computed(self, vars(self)[_INITIALIZER]))
        settle(self)
        return self.value

    def _direct_assign(self, value: Any) -> None:
        _end_waiting(self)
        self._direct_assign(value)

    def __reduce_ex__(self, protocol: Any) -> Any:  # for a copy, too
        settle(self)
        return self.__reduce_ex__(protocol)

    def __repr__(self) -> str:
        settle(self)
        return repr(self)


def _is_kept() -> bool:
    asks = sys._getframe(2)
    return (asks.f_globals.get("__name__"), asks.f_code.co_name) in _KEEPERS
