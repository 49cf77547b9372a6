"""Hooks into the ops of Keras: each ends in a function of the backend that is looked up by name."""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_mp.backends import keras_hooks
from keras_mp.graph_rewrite import decomposition
from keras_mp.graph_rewrite.hooks import own_ops
from keras_mp.graph_rewrite.hooks.dispatch import active, put

MODULES = ("numpy", "nn", "math", "linalg", "image")


_FROM_CORE = ("slice", "stop_gradient", "unstack", "scatter", "scatter_update", "slice_update")


_FROM_RANDOM = ("dropout",)


# Several ops, or on torch one that no module of the backend has.
FROM_OPS = {
    "_layer_normalization": "layer_normalization",
    "_rms_normalization": "rms_normalization",
}


# They run functions of the user, or say something about a tensor without computing.
_NOT_OPS = frozenset({"vectorize", "jvp", "ndim", "size", "shape", "wrap_flash_attention", "view"})


def functions() -> Iterator[tuple[Any, str]]:
    backend = keras_hooks.internal_backend()
    for part in MODULES:
        module = getattr(backend, part, None)
        yield from [(module, name) for name, value in vars(module).items() if _is_op(name, value)]
    for part, names in (("core", _FROM_CORE), ("random", _FROM_RANDOM)):
        module = getattr(backend, part, None)
        yield from [(module, name) for name in names if hasattr(module, name)]
    module = keras.src.ops.nn
    yield from [(module, name) for name in FROM_OPS if hasattr(module, name)]


def _is_op(name: str, value: Any) -> bool:
    if not inspect.isfunction(value) or name.startswith("_") or name in _NOT_OPS:
        return False
    # Imported helpers (convert_to_tensor, cast, draw_seed) stand among the ops of a module.
    home = value.__module__ or ""
    return home.startswith("keras.src.backend") and not home.endswith((".core", "backend_utils"))


def hook(module: Any, attribute: str, name: str) -> Callable[[], None]:
    original = vars(module)[attribute]
    split_up = decomposition.of(name)

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        dispatch = active.dispatch
        if dispatch is None or own_ops.is_inside():
            return original(*args, **kwargs)
        if split_up is not None:
            parts = split_up(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        return dispatch(name, original, args, kwargs)

    return put(module, attribute, hooked)
