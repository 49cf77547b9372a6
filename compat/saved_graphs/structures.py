"""Signatures of functions: what they are called with and return, as plain values and `Spec`s.

Source: tensorflow/core/protobuf/struct.proto, TF 2.15.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from keras_mp.compat.checkpoints import wire
from keras_mp.compat.checkpoints.errors import Malformed
from keras_mp.compat.saved_graphs import attributes

_MOST_LEVELS = 50


@dataclass(frozen=True, slots=True)
class Spec:
    """A tensor that a function takes or returns.

    Attributes:
        name: Of the argument or result; may be empty.
        shape: With None for sizes that are not known; None where the rank is not.
        dtype: Its name.
    """

    name: str
    shape: tuple[int | None, ...] | None
    dtype: str


@dataclass(frozen=True, slots=True)
class Other:
    """A value of another kind, such as a ragged or sparse tensor, by what it is called."""

    kind: str


def structure(message: memoryview, level: int = 0) -> object:
    """Returns a StructuredValue: None, numbers, text, lists, tuples, dicts, `Spec`, `Other`.

    Raises:
        Malformed: It is nested too deeply.
    """
    if level > _MOST_LEVELS:
        raise Malformed("has a signature that is nested too deeply")
    found: object = None
    for number, value in wire.fields(message):
        match number:
            case 11:
                found = struct.unpack("<d", struct.pack("<Q", wire.integer(value)))[0]
            case 12:
                zigzag = wire.integer(value)
                found = (zigzag >> 1) ^ -(zigzag & 1)
            case 13:
                found = wire.text(value)
            case 14:
                found = bool(wire.integer(value))
            case 31:
                found = attributes.shape(wire.content(value))
            case 32:
                found = attributes.type_name(wire.integer(value))
            case 33 | 35:
                found = _spec(wire.content(value))
            case 34:
                found = Other(_kind(wire.content(value)))
            case 51 | 52:
                parts = [structure(v, level + 1) for v in wire.all_of(wire.content(value), 1)]
                found = parts if number == 51 else tuple(parts)
            case 53:
                found = dict(_entries(wire.content(value), 1, level))
            case 54:
                found = dict(_entries(wire.content(value), 2, level))
    return found


def _entries(message: memoryview, field: int, level: int) -> Iterator[tuple[str, object]]:
    for entry in wire.all_of(message, field):
        key = next((wire.text(name) for name in wire.all_of(entry, 1)), "")
        yield key, next((structure(v, level + 1) for v in wire.all_of(entry, 2)), None)


def _spec(message: memoryview) -> Spec:
    name, dtype = "", 0
    shape: list[int | None] | None = []
    for number, value in wire.fields(message):
        if number == 1:
            name = wire.text(value)
        elif number == 2:
            shape = attributes.shape(wire.content(value))
        elif number == 3:
            dtype = wire.integer(value)
    return Spec(name, None if shape is None else tuple(shape), attributes.type_name(dtype))


def _kind(message: memoryview) -> str:
    name = next((wire.text(value) for value in wire.all_of(message, 3)), "")
    return name.rpartition(".")[2] or "a type of its own"


def flat(value: object) -> list[object]:
    """Returns the leaves of a structure in TensorFlow's order: dicts by their sorted keys.

    >>> flat(({"b": 1, "a": [2, None]}, True))
    [2, None, 1, True]
    """
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in flat(value[key])]
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in flat(part)]
    return [value]


def specs(value: object) -> list[Spec]:
    """Returns the tensors among the leaves."""
    return [leaf for leaf in flat(value) if isinstance(leaf, Spec)]


def packed(value: object, leaves: Iterator[object]) -> object:
    """Returns a structure with other leaves in the place of its `Spec`s, in order.

    >>> packed({"a": Spec("a", (), "float32"), "b": None}, iter([7]))
    {'a': 7, 'b': None}
    """
    if isinstance(value, dict):
        found = {key: packed(value[key], leaves) for key in sorted(value)}
        return {key: found[key] for key in value}
    if isinstance(value, list):
        return [packed(part, leaves) for part in value]
    if isinstance(value, tuple):
        return tuple(packed(part, leaves) for part in value)
    return next(leaves) if isinstance(value, Spec) else value


def as_json(value: object) -> object:
    """Returns a structure as JSON.

    Raises:
        ValueError: It has something else in it than tensors, numbers and texts.

    >>> as_json((Spec("x", (None, 2), "float32"), True))
    {'tuple': [{'spec': ['x', [None, 2], 'float32']}, True]}
    """
    match value:
        case Spec(name, shape, dtype):
            return {"spec": [name, None if shape is None else list(shape), dtype]}
        case tuple():
            return {"tuple": [as_json(one) for one in value]}
        case list():
            return [as_json(one) for one in value]
        case dict():
            return {"dict": {str(key): as_json(one) for key, one in value.items()}}
        case str() | bool() | int() | float() | None:
            return value
        case Other(kind):
            raise ValueError(f"{kind} is no tensor")
    raise ValueError(f"{type(value).__name__} is no part of a signature")


def from_json(said: object) -> object:
    """Returns the structure that `as_json` gave.

    Raises:
        ValueError: It is none.
    """
    match said:
        case {"spec": [str(name), shape, str(dtype)]}:
            if shape is None:
                return Spec(name, None, dtype)
            if isinstance(shape, list) and all(_is_size(one) for one in shape):
                return Spec(name, tuple(shape), dtype)
        case {"tuple": list(parts)}:
            return tuple(from_json(one) for one in parts)
        case {"dict": dict(parts)}:
            return {str(key): from_json(one) for key, one in parts.items()}
        case list():
            return [from_json(one) for one in said]
        case str() | bool() | int() | float() | None:
            return said
    raise ValueError(f"{said!r:.80} is no part of a signature")


def _is_size(one: object) -> bool:
    return one is None or (isinstance(one, int) and one >= 0)
