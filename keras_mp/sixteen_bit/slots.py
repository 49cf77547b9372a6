"""Slots in bfloat16: moments that are rounded at random, for rules known to tolerate it."""

import contextlib
from collections.abc import Iterator, Set
from typing import Any

from keras_mp.array_types import Optimizer, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.optimizers import class_path
from keras_mp.sixteen_bit.storages import Rounded, Transient

# Rules whose slots are means, in which rounding errors average out.
KNOWN = ("Adam", "AdamW", "Lion", "SGD", "RMSprop", "Adafactor")
DTYPES = ("float32", "bfloat16")
# Keras' variables besides the rule's own slots: sums, which are exact, and final weights.
_WIDE = ("gradient_accumulator", "average")


def check_slots(dtype: str, optimizer: Optimizer) -> None:
    """Raises ValueError unless `optimizer` can have slots of `dtype`.

    >>> import keras
    >>> check_slots("bfloat16", keras.optimizers.Adam())
    >>> check_slots("bfloat16", keras.optimizers.Ftrl())
    Traceback (most recent call last):
    ValueError: slots='bfloat16' supports Adam, AdamW, Lion, SGD, RMSprop, Adafactor, but this is \
keras.optimizers.Ftrl: leave slots out.
    """
    if dtype not in DTYPES:
        raise ValueError(f"slots must be 'float32' or 'bfloat16', but got {dtype!r}.")
    if dtype == "float32":
        return
    parts = getattr(optimizer, "optimizers", None) or [optimizer]
    for part in parts:
        cls = type(part)
        if cls.__name__ not in KNOWN or not cls.__module__.startswith("keras.src."):
            raise ValueError(
                f"slots={dtype!r} supports {', '.join(KNOWN)}, but this is {class_path(part)}: "
                "leave slots out."
            )


@contextlib.contextmanager
def sixteen_bit_slots(
    optimizer: Optimizer, targets: Set[int], dtype: str
) -> Iterator[list[tuple[Variable, Rounded]]]:
    """A scope in which `optimizer` creates its slots of some weights in `dtype`.

    Args:
        optimizer: Built in the scope.
        targets: Ids of the weights.
        dtype: "bfloat16"; "float32" changes nothing.

    Returns:
        A list that holds (weight, slot) pairs after the scope.
    """
    pairs: list[tuple[Variable, Rounded]] = []
    if dtype == "float32":
        yield pairs
        return
    make = optimizer.add_variable_from_reference

    def add(
        reference_variable: Variable, name: str | None = None, initializer: Any = "zeros"
    ) -> Any:
        if id(reference_variable) not in targets or name in _WIDE:
            return make(reference_variable, name=name, initializer=initializer)
        stored = optimizer.add_variable(
            shape=reference_variable.shape,
            initializer=initializer,
            dtype=dtype,
            name=f"{reference_variable.path.replace('/', '_')}_{name or 'var'}",
            layout=keras_hooks.layout_of(reference_variable),
        )
        target = Transient(reference_variable, stored.name, stored.path)
        target.constraint = None
        pairs.append((reference_variable, Rounded(stored, target)))
        return target

    object.__setattr__(optimizer, "add_variable_from_reference", add)
    try:
        yield pairs
    finally:
        object.__setattr__(optimizer, "add_variable_from_reference", make)
