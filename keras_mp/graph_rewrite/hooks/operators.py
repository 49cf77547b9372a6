"""Hooks into the operators of tensors: `x + y`, `x[0]`, `x += y`."""

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import keras

from keras_mp.graph_rewrite.hooks import own_ops
from keras_mp.graph_rewrite.hooks.dispatch import active, dispatching, put
from keras_mp.graph_rewrite.hooks.scopes import seeing

OPERATORS = {
    "__add__": "add",
    "__radd__": "add",
    "__sub__": "subtract",
    "__rsub__": "subtract",
    "__mul__": "multiply",
    "__rmul__": "multiply",
    "__truediv__": "true_divide",
    "__rtruediv__": "true_divide",
    "__matmul__": "matmul",
    "__rmatmul__": "matmul",
    "__pow__": "power",
    "__rpow__": "power",
    "__neg__": "negative",
    "__abs__": "abs",
    "__getitem__": "get_item",
}


# torch changes its left side; elsewhere `x += y` is `x = x + y`.
IN_PLACE = {
    "__iadd__": ("add", operator.add),
    "__isub__": ("subtract", operator.sub),
    "__imul__": ("multiply", operator.mul),
    "__itruediv__": ("true_divide", operator.truediv),
}


_OF_KERAS = "keras.src.backend."
_LIBRARIES = ("jax.", "jaxlib.", "tensorflow.", "torch.", "keras.src.backend.", "optree.", "numpy.")


def hook_operator(cls: type, method: str, name: str) -> Callable[[], None]:
    original = getattr(cls, method)

    @functools.wraps(original)
    def hooked(*args: Any) -> Any:
        dispatch = active.dispatch
        if dispatch is None or own_ops.is_inside():
            return original(*args)
        caller = _caller()
        if caller.startswith(_LIBRARIES):
            # What Keras computes so is no op of the model's; what JAX does is seen as primitives.
            with seeing(False) if caller.startswith(_OF_KERAS) else nullcontext():
                return original(*args)
        return dispatch(name, run, args, {})

    def run(*args: Any) -> Any:
        # What was an array may be a tracer of JAX by now, which is of another class.
        return original(*args) if isinstance(args[0], cls) else getattr(args[0], method)(*args[1:])

    return put(cls, method, hooked)


def hook_in_place(
    cls: type, method: str, name: str, operation: Callable[[Any, Any], Any]
) -> Callable[[], None]:
    original = getattr(cls, method)

    @functools.wraps(original)
    def hooked(x: Any, other: Any) -> Any:
        dispatch = active.dispatch
        moved = getattr(dispatch, "moved", None)
        if dispatch is None or moved is None or _caller().startswith(_LIBRARIES):
            return original(x, other)
        if not _fits(x, other):
            return original(x, other)
        made = dispatch(name, operation, (x, other), {})
        with dispatching(None):
            x.copy_(made)  # whoever holds x sees it
        moved(made, x)
        return x

    return put(cls, method, hooked)


def _fits(x: Any, other: Any) -> bool:
    """Returns whether `x + other` has the shape and dtype of `x`."""
    if isinstance(other, keras.Variable):
        other = other.value
    if not keras.ops.is_tensor(other):
        return isinstance(other, (int, float)) and bool(x.is_floating_point())
    sides = zip(reversed(other.shape), reversed(x.shape), strict=False)
    fits = len(other.shape) <= len(x.shape) and all(a in (1, b) for a, b in sides)
    return fits and bool(other.dtype == x.dtype)


def _caller() -> str:
    # JAX keeps what it traced inside its own jitted functions: a cast there would outlive us. An
    # operator gets nothing but its operands, so only the stack tells who computes.
    hooked = inspect.currentframe().f_back  # type: ignore[union-attr]
    caller = hooked.f_back.f_globals.get("__name__", "")  # type: ignore[union-attr]
    return f"{caller}."


def tensor_classes() -> Sequence[type]:
    match keras.backend.backend():
        case "jax":
            import jax

            with jax.ensure_compile_time_eval():  # an array, also where JAX traces
                return (jax.core.Tracer, type(jax.numpy.zeros(())))
        case "tensorflow":
            import tensorflow as tf

            return (tf.Tensor,)
        case "torch":
            import torch

            return (torch.Tensor,)
    return ()
