"""Hooks into the ops of the framework itself, which layers call beside those of Keras."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras

from keras_mp.graph_rewrite import torch_lists
from keras_mp.graph_rewrite.foreign_ops import ForeignOp

Handler = Callable[[ForeignOp, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def are_seen() -> bool:
    """Returns whether ops of this framework are recorded and painted."""
    return bool(keras.backend.backend() == "torch")


def watched(handle: Handler, move: Callable[[Any, Any], None]) -> AbstractContextManager[Any]:
    """Returns a scope that sends each op of the framework, called in this thread, to `handle`.

    Args:
        handle: Called with the op, the function that computes it, and its arguments.
        move: Called with a tensor, and another one that is to have its value.
    """
    if not are_seen():
        return nullcontext()
    from keras_mp.backends.torch import functions

    def named(
        name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return handle(torch_lists.op_of(name), function, args, kwargs)

    return functions.Watching(named, move)


def is_weight(x: Any) -> bool:
    """Returns whether a tensor is a parameter of a module of torch."""
    from keras_mp.backends.torch import functions

    return functions.is_weight(x)


def autocast(dtype: str, x: Any) -> AbstractContextManager[Any]:
    """Returns the scope of `torch.autocast`, for the device of a tensor."""
    from keras_mp.backends.torch import functions

    return functions.autocast(dtype, x)
