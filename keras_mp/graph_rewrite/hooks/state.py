"""What Keras and the frameworks know of the call that is running: its layer, masks, tracing."""

from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_mp.backends import keras_hooks


def layer_path() -> str:
    """Returns the path of the layer that is being called in this thread."""
    return str(keras_hooks.internal_backend().common.name_scope.current_path())


def path_of(model: Any) -> str:
    """Returns the path of `model` while it is called: below that in which it was first built."""
    parent = getattr(model, "_parent_path", None)
    return f"{parent}/{model.name}" if parent else str(model.name)


def mask_of(x: Any) -> Any:
    """Returns the mask that Keras has put on a tensor, or None."""
    return keras_hooks.mask_of(x)


def set_mask(x: Any, mask: Any) -> None:
    """Puts a mask on a tensor, as Keras does."""
    keras_hooks.internal_backend().set_keras_mask(x, mask)


def in_symbolic_call() -> bool:
    """Returns whether Keras only wants to know shapes."""
    return bool(keras_hooks.internal_backend().in_symbolic_scope())


def is_compiling() -> bool:
    """Returns whether torch.compile is tracing: what hangs on a tensor is not seen there."""
    if keras.backend.backend() != "torch":
        return False
    import torch

    return bool(torch.compiler.is_compiling())


def runs_eagerly() -> bool:
    """Returns whether Python calls each op of a loop whenever it runs: torch, not compiled."""
    return keras.backend.backend() == "torch" and not is_compiling()


def traced(
    function: Callable[..., Sequence[Any]], examples: Sequence[Any], variables: Sequence[Any]
) -> Any:
    """Returns a `keras_mp.backends.torch.traced.Traced`, or None for what cannot be traced."""
    from keras_mp.backends.torch import traced as traced_torch

    return traced_torch.traced(function, examples, variables)


def is_inference_tensor(x: Any) -> bool:
    """Returns whether `x` is of torch's inference mode, which counts no changes in place."""
    return keras.backend.backend() == "torch" and bool(x.is_inference())


def without_compiler(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function`, which torch.compile does not trace, but calls as it is."""
    if keras.backend.backend() != "torch":
        return function
    import torch

    return torch.compiler.disable(function)  # type: ignore[no-any-return]


def at_compile_time(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function`, which torch.compile calls while it compiles instead of tracing it.

    Its tensors are examples then, and what it returns is a constant of what is compiled.
    """
    if keras.backend.backend() != "torch":
        return function
    import torch

    return torch.compiler.assume_constant_result(function)  # type: ignore[no-any-return]
