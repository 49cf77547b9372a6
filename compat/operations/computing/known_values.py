"""Python's own functions, on what is known when a model is called."""

from typing import Any

from keras_mp.compat.operations.computing.values import Value, is_tensor


def item(value: Value, key: Value) -> Value:
    """An entry, or a part, of a list of results."""
    return value[key]


def length(value: Value) -> int:
    return int(value.shape[0]) if is_tensor(value) else len(value)


def as_list(value: Value) -> list[Any]:
    return list(value)


def join_lists(x1: Value, x2: Value) -> list[Any]:
    return [*x1, *x2]


def int_(value: Value) -> Value:
    return value if is_tensor(value) else int(value)


def float_(value: Value) -> float:
    return float(value)


def is_none(value: Value) -> bool:
    return value is None
