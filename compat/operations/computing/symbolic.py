"""Shapes of results, where sizes are not known before there are numbers.

Keras tries a layer with the size 83, and 89, on PyTorch, and with a symbol on JAX. By both not
everything can be divided that a real size can be: `reshape(x, [-1, 10, 64])` raises. Nor does it
know that an axis is the product of two others: `reshape(x, [batch, -1, 4])` raises.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import keras

SIZES = (240, 480)  # 2**4 * 3 * 5, and twice that: images of them fit into memory
_TRYING: ContextVar[bool] = ContextVar("trying", default=False)


def is_trying() -> bool:
    """Returns whether shapes are looked for with sizes that may not fit together."""
    return _TRYING.get()


@contextlib.contextmanager
def _trying() -> Iterator[None]:
    token = _TRYING.set(True)
    try:
        yield
    finally:
        _TRYING.reset(token)


def spec(infer: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Returns what `infer` says of tensors, or what it says of two sizes, where they agree.

    Args:
        infer: The `compute_output_spec` of a layer.
        *arguments: What the layer is called with.
        **options: The same.

    Raises:
        Exception: What `infer` raised first.
    """
    try:
        return infer(*arguments, **options)
    except Exception as error:
        given = keras.tree.flatten((arguments, options))
        if not any(isinstance(one, keras.KerasTensor) and None in one.shape for one in given):
            raise
        found = []
        for size in SIZES:
            try:
                known, named = keras.tree.map_structure(
                    lambda one, size=size: _sized(one, size), (arguments, options)
                )
                with _trying():
                    found.append(infer(*known, **named))
            except Exception:  # noqa: BLE001  nor does it fit with this size
                raise error from None
        return keras.tree.map_structure(_common, *found)


def _sized(value: Any, size: int) -> Any:
    if not isinstance(value, keras.KerasTensor):
        return value
    return keras.KerasTensor([size if one is None else one for one in value.shape], value.dtype)


def _common(first: Any, second: Any) -> Any:
    if not isinstance(first, keras.KerasTensor):
        return first
    pairs = zip(first.shape, second.shape, strict=True)
    return keras.KerasTensor([a if a == b else None for a, b in pairs], first.dtype)
