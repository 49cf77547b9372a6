"""Code objects out of the bytes that `marshal.dumps` wrote, without making one.

Source: Python/marshal.c of CPython 3.5 to 3.11. Python's own reader makes what the Python that
runs it can run, and reads that version only. What is read here is numbers, text and tuples. Each
length is compared with the bytes that are left before anything is made.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from types import EllipsisType
from typing import TypeAlias, cast

from keras_mp.compat.code_objects.errors import Malformed
from keras_mp.compat.code_objects.opcodes import Version

# Far above what a function has; they bound the time and the memory that bytes can ask for.
LONGEST = 1 << 18  # bytes
DEEPEST = 40  # tuples and code objects within each other
MOST_DIGITS = 136  # of 15 bits: a number that Python prints whatever its limit is

# The versions that brought another order of fields; the others have that of the one before.
LAYOUTS: tuple[Version, ...] = ((3, 5), (3, 8), (3, 11))

Scalar = int | float | complex | str | bytes | EllipsisType | None
Constant: TypeAlias = "Scalar | tuple[Constant, ...] | Constants | Code"


@dataclass(frozen=True, slots=True, eq=False)
class Constants:
    """A frozenset, as the list that was written: to hash its members could take forever."""

    members: tuple[Constant, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Code:
    """A code object.

    Attributes:
        name: Of the function; "<lambda>" and "<listcomp>" are such names.
        positional: How many parameters can be given by position.
        keyword_only: How many parameters come after these.
        flags: As `inspect.CO_*`.
        stack: How many values it keeps at once, at most.
        code: The instructions.
        constants: What LOAD_CONST counts.
        names: Of globals and attributes.
        variables: What LOAD_FAST counts; the parameters come first.
        cells: What LOAD_DEREF counts.
        free: Those of `cells` that belong to a function around it.
        line: Where it begins in its source.
        lines: The line table, in the format of its version.
        handlers: The exception table of 3.11; empty before.
        file: Where its source was.
    """

    name: str
    positional: int
    keyword_only: int
    flags: int
    stack: int
    code: bytes
    constants: tuple[Constant, ...]
    names: tuple[str, ...]
    variables: tuple[str, ...]
    cells: tuple[str, ...]
    free: tuple[str, ...]
    line: int
    lines: bytes
    handlers: bytes
    file: str

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that are not `*args` or `**kwargs`."""
        return self.variables[: self.positional + self.keyword_only]

    @property
    def starred(self) -> tuple[tuple[str, str], ...]:
        """The names of `*args` and `**kwargs`, each with its stars."""
        stars = ["*"] * bool(self.flags & _VARARGS) + ["**"] * bool(self.flags & _VARKEYWORDS)
        begin = self.positional + self.keyword_only
        return tuple(zip(self.variables[begin:], stars, strict=False))


def layout_of(python: Version) -> Version:
    """Returns which of `LAYOUTS` a version has.

    >>> layout_of((3, 9))
    (3, 8)
    """
    return max(layout for layout in LAYOUTS if layout <= python)


def read_code(data: bytes, layout: Version) -> Code:
    """Returns the code object that some bytes are.

    Args:
        data: The bytes.
        layout: One of `LAYOUTS`.

    Raises:
        Malformed: They are not one of this layout.
    """
    if len(data) > LONGEST:
        raise Malformed(f"has {len(data)} bytes, more than the {LONGEST} that are read")
    reader = _Reader(data, layout)
    value = reader.value(0)
    if not isinstance(value, Code):
        raise Malformed("is not a code object")
    if reader.at != len(data):
        raise Malformed(f"goes on for {len(data) - reader.at} bytes after its end")
    return value


_FLAG_REF = 0x80
_UNDER_CONSTRUCTION = object()
_FLOAT = re.compile(rb"[-+]?(?:[0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?|inf|nan)")
_LOCAL, _CELL, _FREE = 0x20, 0x40, 0x80  # Include/internal/pycore_code.h of 3.11
_VARARGS, _VARKEYWORDS = 0x04, 0x08


class _Reader:
    def __init__(self, data: bytes, layout: Version) -> None:
        self.at = 0
        self._data = data
        self._layout = layout
        self._references: list[object] = []
        self._kinds: dict[str, Callable[[], Scalar]] = {
            "N": lambda: None,
            "F": lambda: False,
            "T": lambda: True,
            ".": lambda: ...,
            "i": self._number,
            "l": self._long,
            "g": self._float,
            "f": self._float_text,
            "y": lambda: complex(self._float(), self._float()),
            "x": lambda: complex(self._float_text(), self._float_text()),
            "s": lambda: self._take(self._size()),
            "u": self._text,
            "t": self._text,
            "a": lambda: self._ascii(self._size()),
            "A": lambda: self._ascii(self._size()),
            "z": lambda: self._ascii(self._byte()),
            "Z": lambda: self._ascii(self._byte()),
        }

    def value(self, depth: int) -> Constant:
        if depth > DEEPEST:
            raise Malformed(f"is nested more than {DEEPEST} deep")
        byte = self._byte()
        kind = chr(byte & ~_FLAG_REF)
        if kind == "r":
            return self._reference()
        flagged = bool(byte & _FLAG_REF) and kind not in "NFT."
        place = len(self._references)
        if flagged:
            self._references.append(_UNDER_CONSTRUCTION)
        value = self._content(kind, depth)
        if flagged:
            self._references[place] = value
        return value

    def _content(self, kind: str, depth: int) -> Constant:
        if kind in self._kinds:
            return self._kinds[kind]()
        if kind == "(":
            return self._tuple(self._size(), depth)
        if kind == ")":
            return self._tuple(self._byte(), depth)
        if kind == ">":
            return Constants(self._tuple(self._size(), depth))
        if kind == "c":
            return self._code(depth)
        raise Malformed(f"holds a value of the kind {kind!r}, which no function has")

    def _reference(self) -> Constant:
        place = self._number()
        if not 0 <= place < len(self._references):
            raise Malformed(f"refers to its value {place}, of {len(self._references)}")
        value = self._references[place]
        if value is _UNDER_CONSTRUCTION:
            raise Malformed(f"refers to its value {place} within that value")
        return cast("Constant", value)

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self.at:
            raise Malformed(f"is cut off: it ends within a value of {size} bytes")
        self.at += size
        return self._data[self.at - size : self.at]

    def _byte(self) -> int:
        return self._take(1)[0]

    def _number(self) -> int:
        number: int = struct.unpack("<i", self._take(4))[0]
        return number

    def _size(self) -> int:
        size = self._number()
        if not 0 <= size <= len(self._data) - self.at:
            left = len(self._data) - self.at
            raise Malformed(f"is cut off: it says that {size} come where {left} can")
        return size

    def _long(self) -> int:
        count = self._number()
        if not 0 < abs(count) <= MOST_DIGITS:
            raise Malformed(f"holds a number of {abs(count)} digits, of 1 to {MOST_DIGITS}")
        digits = struct.unpack(f"<{abs(count)}H", self._take(2 * abs(count)))
        if max(digits) >> 15 or not digits[-1]:
            raise Malformed("holds a number that is not written as Python does")
        value: int = sum(digit << 15 * place for place, digit in enumerate(digits))
        return value if count > 0 else -value

    def _float(self) -> float:
        number: float = struct.unpack("<d", self._take(8))[0]
        return number

    def _float_text(self) -> float:
        text = self._take(self._byte())
        if not _FLOAT.fullmatch(text):
            raise Malformed("holds a number that is not one")
        return float(text)

    def _text(self) -> str:
        try:
            return self._take(self._size()).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise Malformed("holds text that is not UTF-8") from None

    def _ascii(self, size: int) -> str:
        try:
            return self._take(size).decode("ascii")
        except UnicodeDecodeError:
            raise Malformed("holds text that is not ASCII") from None

    def _tuple(self, size: int, depth: int) -> tuple[Constant, ...]:
        left = len(self._data) - self.at
        if size > left:
            raise Malformed(f"is cut off: it says that {size} values come in {left} bytes")
        return tuple([self.value(depth + 1) for _ in range(size)])

    def _code(self, depth: int) -> Code:
        if self._layout >= (3, 11):
            return self._code_of_3_11(depth)
        positional = self._count()
        positional_only = self._count() if self._layout >= (3, 8) else 0
        keyword_only, count, stack, flags = (self._count() for _ in range(4))
        code = self._bytes(depth)
        constants, (names, variables, free, cells) = (
            self._constants(depth),
            [self._names(depth) for _ in range(4)],
        )
        file, name = self._named(depth), self._named(depth)
        line, lines = self._number(), self._bytes(depth)
        if count != len(variables):
            raise Malformed(f"says that it has {count} variables, and names {len(variables)}")
        _check_parameters(positional, positional_only, keyword_only, flags, len(variables))
        return Code(
            *(name, positional, keyword_only, flags, stack, code, constants, names, variables),
            *(cells + free, free, line, lines, b"", file),
        )

    def _code_of_3_11(self, depth: int) -> Code:
        positional, positional_only, keyword_only, stack, flags = (self._count() for _ in range(5))
        code, constants, names = self._bytes(depth), self._constants(depth), self._names(depth)
        variables, kinds = self._names(depth), self._bytes(depth)
        file, name = self._named(depth), self._named(depth)
        self._named(depth)  # the qualified name
        line, lines, handlers = self._number(), self._bytes(depth), self._bytes(depth)
        if len(kinds) != len(variables):
            raise Malformed(f"has {len(variables)} variables, and kinds of {len(kinds)}")
        count = sum(1 for kind in kinds if kind & _LOCAL)
        _check_parameters(positional, positional_only, keyword_only, flags, count)
        if not all(kind & _LOCAL for kind in kinds[: positional + keyword_only]):
            raise Malformed("has a parameter that is no variable of its own")
        free = tuple(n for n, kind in zip(variables, kinds, strict=True) if kind & _FREE)
        return Code(
            *(name, positional, keyword_only, flags, stack, code, constants, names, variables),
            *(variables, free, line, lines, handlers, file),
        )

    def _count(self) -> int:
        count = self._number()
        if count < 0:
            raise Malformed(f"counts {count}")
        return count

    def _bytes(self, depth: int) -> bytes:
        value = self.value(depth + 1)
        if not isinstance(value, bytes):
            raise Malformed("has something else where bytes belong")
        return value

    def _named(self, depth: int) -> str:
        value = self.value(depth + 1)
        if not isinstance(value, str):
            raise Malformed("has something else where a name belongs")
        return value

    def _constants(self, depth: int) -> tuple[Constant, ...]:
        value = self.value(depth + 1)
        if not isinstance(value, tuple):
            raise Malformed("has something else where a tuple belongs")
        return value

    def _names(self, depth: int) -> tuple[str, ...]:
        names = self._constants(depth)
        texts = tuple(name for name in names if isinstance(name, str))
        if len(texts) != len(names):
            raise Malformed("has something else where a name belongs")
        return texts


def _check_parameters(
    positional: int, positional_only: int, keyword_only: int, flags: int, variables: int
) -> None:
    stars = bool(flags & _VARARGS) + bool(flags & _VARKEYWORDS)
    if positional_only > positional or positional + keyword_only + stars > variables:
        raise Malformed(f"has more parameters than its {variables} variables")
