"""Protocol buffers, as far as TensorFlow's checkpoints need them: fields of a message, in order.

The messages are a handful with a handful of fields; protobuf's runtime would bring generated code
for each. Every length is checked against what is there before anything is read.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from keras_mp.compat.checkpoints.errors import Malformed

Value = int | memoryview

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """Returns the variable-length number at a position, and the position after it.

    Raises:
        Malformed: It does not end within `data`, or within ten bytes.

    >>> varint(memoryview(b"\\xac\\x02"), 0)
    (300, 2)
    """
    value = shift = 0
    while True:
        if at >= len(data):
            raise Malformed("ends within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 64:
                raise Malformed("holds a number of more than 64 bits")
            return value, at
        shift += 7
        if shift > 63:
            raise Malformed("holds a number of more than ten bytes")


def fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    """Yields (field number, value): an unsigned integer, or the bytes of what has a length.

    Raises:
        Malformed: It is not a message.

    >>> [(n, bytes(v) if isinstance(v, memoryview) else v) for n, v in
    ...     fields(memoryview(b"\\x08\\x01\\x12\\x02hi"))]
    [(1, 1), (2, b'hi')]
    """
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise Malformed("holds a field without a number")
        if kind == VARINT:
            value, at = varint(message, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = varint(message, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise Malformed(f"holds a field of the unknown kind {kind}")
        if size > len(message) - at:
            raise Malformed("ends within a field")
        content = message[at : at + size]
        at += size
        if kind == BYTES:
            yield number, content
        else:
            yield number, struct.unpack("<I" if kind == FIXED32 else "<Q", content)[0]


def all_of(message: memoryview, number: int) -> Iterator[memoryview]:
    """Yields the values of a field that may be there several times, and must be bytes.

    >>> [bytes(value) for value in all_of(memoryview(b"\\x12\\x01a\\x12\\x01b\\x08\\x07"), 2)]
    [b'a', b'b']
    """
    return (content(value) for found, value in fields(message) if found == number)


def single(message: memoryview, readers: Mapping[int, Callable[[Value], Any]]) -> dict[int, Any]:
    """Returns the fields that are read, by their numbers; of one that is there twice, the last.

    >>> single(memoryview(b"\\x08\\x01\\x12\\x02hi\\x18\\x05"), {1: integer, 2: text})
    {1: 1, 2: 'hi'}
    """
    return {
        number: readers[number](value) for number, value in fields(message) if number in readers
    }


def integer(value: Value) -> int:
    """Returns a value that must be a number."""
    if isinstance(value, int):
        return value
    raise Malformed("holds bytes where a number belongs")


def signed(value: Value) -> int:
    """Returns an int64 or int32, which is written as 64 bits of two's complement.

    >>> signed(2**64 - 1)
    -1
    """
    number = integer(value)
    return number - (1 << 64) if number >= 1 << 63 else number


def content(value: Value) -> memoryview:
    """Returns a value that must be bytes."""
    if isinstance(value, memoryview):
        return value
    raise Malformed("holds a number where bytes belong")


def text(value: Value) -> str:
    """Returns a value that must be UTF-8."""
    try:
        return bytes(content(value)).decode()
    except UnicodeDecodeError:
        raise Malformed("holds a name that is not UTF-8") from None
