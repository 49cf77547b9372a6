"""Evaluates tests of versions for every TensorFlow that Keras 3 runs on.

Knows expressions of Python, as `ast` has them, and no program: who asks says which names are the
versions of what.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# TensorFlow and Keras since Keras 3. What is decided is the same for all of them.
VERSIONS: Mapping[str, tuple[str, ...]] = {
    "tensorflow": ("2.16.2", "2.21.0"),
    "keras": ("3.0.5", "3.15.1"),
}
_PARSERS = ("LooseVersion", "StrictVersion", "Version", "parse", "parse_version")
_OPERATORS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """Which way a test goes.

    Attributes:
        value: True or False.
        is_by_text: Whether it goes that way only because versions were compared as text.
    """

    value: bool
    is_by_text: bool = False


class _Unknown(Exception):
    """An expression is not known."""


def answer(
    test: str,
    package_of: Callable[[str], str | None],
    assigned: Callable[[str], str | None] = lambda _name: None,
) -> Answer | None:
    """Returns which way a test goes; None where that is not known.

    Args:
        test: An expression.
        package_of: Says for a dotted name, such as "tf.__version__", of which package it is the
            version: "tensorflow", "keras" or None.
        assigned: Returns the expression that a name is assigned, where it is only one.

    >>> of = {"tf.__version__": "tensorflow"}.get
    >>> answer("LooseVersion(tf.__version__) >= LooseVersion('2.4')", of)
    Answer(value=True, is_by_text=False)
    >>> answer("tf.__version__ >= '2.4'", of)
    Answer(value=False, is_by_text=True)
    >>> answer("tf.__version__.startswith('1.')", of)
    Answer(value=False, is_by_text=False)
    >>> answer("x and tf.__version__ > '2'", of) is None
    True
    """
    found: set[tuple[bool, ...]] = set()
    for i in range(2):
        named = {package: each[i] for package, each in VERSIONS.items()}
        try:
            readers = [_Reader(named, package_of, assigned, as_text) for as_text in (True, False)]
            found.add(tuple(reader.is_true(_parsed(test)) for reader in readers))
        except (_Unknown, RecursionError):
            return None
    if len(found) > 1:
        return None
    by_text, by_number = found.pop()
    return Answer(by_text, is_by_text=by_text != by_number)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads expressions for one version of each package.

    Attributes:
        named: Package -> its version.
        of, assigned: As of `answer`.
        as_text: Whether text is compared as text, as Python does, or as versions, as is meant.
    """

    named: Mapping[str, str]
    of: Callable[[str], str | None]
    assigned: Callable[[str], str | None]
    as_text: bool

    def is_true(self, node: ast.expr) -> bool:
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.is_true(operand)
            case ast.BoolOp(op=op, values=values):
                found = [self.is_true(value) for value in values]  # each must be known
                return all(found) if isinstance(op, ast.And) else any(found)
            case ast.Name(id=name):
                return self.is_true(self._expanded(name))
            case ast.Call(
                func=ast.Attribute(value=value, attr="startswith"),
                args=[ast.Constant(value=str() as start)],
            ):
                text = self._value(value)
                if isinstance(text, str):
                    return text.startswith(start)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                return self._compared(type(op), self._value(left), self._value(right))
        raise _Unknown

    def _compared(self, op: type[ast.cmpop], a: Any, b: Any) -> bool:
        is_text = isinstance(a, str) and isinstance(b, str)
        if isinstance(a, tuple) or isinstance(b, tuple) or (is_text and not self.as_text):
            a, b = _numbers(a), _numbers(b)
        elif type(a) is not type(b) and not {type(a), type(b)} <= {int, float}:
            raise _Unknown
        return _OPERATORS[op](a, b)

    def _value(self, node: ast.expr) -> Any:
        """Returns text, a number, a list of parts, or a version as a tuple of numbers."""
        match node:
            case ast.Constant(value=str() | int() | float() as value):
                return value
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return tuple(self._value(each) for each in elements)
            case ast.Attribute(value=value, attr="major" | "minor" as attr):
                return _item(self._value(value), ("major", "minor").index(attr))
            case ast.Attribute() | ast.Name():
                package = self.of(ast.unparse(node))
                if package is not None:
                    return self.named[package]
                if isinstance(node, ast.Name):
                    return self._value(self._expanded(node.id))
            case ast.Call(
                func=ast.Attribute(value=value, attr="split"),
                args=[ast.Constant(value="."), *_],
            ):
                text = self._value(value)
                if isinstance(text, str):
                    return text.split(".")
            case ast.Call(func=func, args=[argument], keywords=[]):
                return self._called(ast.unparse(func).rpartition(".")[2], self._value(argument))
            case ast.Subscript(value=value, slice=ast.Constant(value=int() as index)):
                return _item(self._value(value), index)
            case ast.Subscript(
                value=value, slice=ast.Slice(lower=None, upper=ast.Constant(value=int() as upper))
            ):
                whole = self._value(value)
                # "2.21"[:3] is "2.2", which is not meant.
                return whole[:upper] if self.as_text or not isinstance(whole, str) else whole
        raise _Unknown

    def _expanded(self, name: str) -> ast.expr:
        text = self.assigned(name)
        if text is None:
            raise _Unknown
        return _parsed(text)

    def _called(self, name: str, argument: Any) -> Any:
        if name in _PARSERS and isinstance(argument, str):
            return _numbers(argument)
        if name == "float" and isinstance(argument, str) and not self.as_text:
            return _numbers(argument)
        if name in ("int", "float") and isinstance(argument, str):
            try:
                return float(argument)
            except ValueError:
                raise _Unknown from None
        raise _Unknown


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError):
        raise _Unknown from None


def _numbers(version: object) -> tuple[int, ...]:
    """Returns a version as numbers, without zeros at its end, which do not count."""
    if isinstance(version, tuple) and all(isinstance(each, int) for each in version):
        numbers = list(version)
    else:
        found = re.match(r"v?(\d+(?:\.\d+)*)", str(version))
        if found is None:
            raise _Unknown
        numbers = [int(each) for each in found[1].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _item(value: Any, index: int) -> Any:
    try:
        return value[index]
    except (IndexError, TypeError):
        raise _Unknown from None
