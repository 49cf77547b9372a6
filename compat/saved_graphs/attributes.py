"""What a node of a graph says of itself, as plain values.

| in the file        | here                                                     |
| ------------------ | -------------------------------------------------------- |
| s, i, f, b         | text (bytes if it is not UTF-8), int, float, bool         |
| type               | its name: "float32"                                      |
| shape              | a list, None for sizes that are not known; None          |
| tensor             | a NumPy array                                            |
| func               | a `Function`                                             |
| list               | a list of these                                          |
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from keras_mp.compat.checkpoints import wire
from keras_mp.compat.checkpoints.bundle import DTYPES
from keras_mp.compat.checkpoints.errors import Malformed
from keras_mp.compat.checkpoints.wire import Value
from keras_mp.compat.file_formats import saved_models, saved_objects

RESOURCE, VARIANT = "resource", "variant"
_TYPES = DTYPES | {20: RESOURCE, 21: VARIANT}
_REFERENCE = 100  # what is added to a type for variables of TF 1


@dataclass(frozen=True, slots=True)
class Function:
    """The name of a function that a node calls."""

    name: str


def type_name(number: int) -> str:
    """Returns the name of a dtype by its number in files; "type 24" of those without one here.

    >>> type_name(1), type_name(101), type_name(20)
    ('float32', 'float32', 'resource')
    """
    number = number - _REFERENCE if number > _REFERENCE else number
    return _TYPES.get(number, f"type {number}")


def attribute(message: memoryview) -> object:
    """Returns the value in an AttrValue, as in the table above."""
    found: object = None
    for number, value in wire.fields(message):
        found = _items(wire.content(value)) if number == 1 else _one(number, value)
    return found


def _one(number: int, value: Value) -> object:
    match number:
        case 2:
            return text_or_bytes(wire.content(value))
        case 3:
            return wire.signed(value)
        case 4:
            return _float(value)
        case 5:
            return bool(wire.integer(value))
        case 6:
            return type_name(wire.integer(value))
        case 7:
            return shape(wire.content(value))
        case 8:
            return saved_objects.tensor_of(wire.content(value))
        case 10:
            content = wire.content(value)
            return Function(next((wire.text(name) for name in wire.all_of(content, 1)), ""))
    return None


def _items(message: memoryview) -> list[object]:
    found: list[object] = []
    for number, value in wire.fields(message):
        if number in (3, 4, 5, 6) and not isinstance(value, int):
            found += _packed(number, wire.content(value))
        else:
            # A list has functions under another number than an attribute of its own.
            found.append(_one(10 if number == 9 else number, value))
    return found


def _packed(number: int, data: memoryview) -> Iterator[object]:
    if number == 4:
        if len(data) % 4:
            raise Malformed("ends within a number")
        for (one,) in struct.iter_unpack("<f", data):
            yield one
        return
    at = 0
    while at < len(data):
        one, at = wire.varint(data, at)
        yield _one(number, one)


def _float(value: Value) -> float:
    return float(struct.unpack("<f", struct.pack("<I", wire.integer(value) & 0xFFFFFFFF))[0])


def text_or_bytes(content: memoryview) -> object:
    """Returns a string of a file as text; as bytes where it is no UTF-8."""
    data = bytes(content)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def shape(message: memoryview) -> list[int | None] | None:
    """Returns a shape with None for sizes that are not known; None where the rank is not."""
    sizes = saved_models.shape_of(message)
    return None if sizes is None else [None if size < 0 else size for size in sizes]
