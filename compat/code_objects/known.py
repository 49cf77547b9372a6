"""Values that are known while a function is read, such as what loops go over.

Numbers, text and sequences that stand in the function, in the variables around it, or in the
defaults of its parameters. These last may be given otherwise, so it is noted which were used.
"""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_mp.compat.code_objects.expressions import Expressions, is_constant
from keras_mp.compat.code_objects.steps import Names

MOST_ITEMS = 64  # of what a loop or a comprehension goes over

_LARGEST = 1 << 53  # numbers, and so what can come of them
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: lambda a, b: a is b if a is None or b is None else a == b,
    ast.IsNot: lambda a, b: a is not b if a is None or b is None else a != b,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


class Unknown(Exception):
    """It is not known."""


class Known:
    """What is known in one function.

    Args:
        make: Makes the nodes.
        names: Of the result.
        closure: Values of the variables around the function.
        defaults: Those of its parameters.
        spend: Called with the size of each piece of work; raises when there was too much.

    Attributes:
        assumed: Parameters whose defaults decided something.
    """

    def __init__(
        self,
        make: Expressions,
        names: Names,
        closure: Mapping[str, object],
        defaults: Mapping[str, object],
        spend: Callable[[int], None],
    ) -> None:
        self._make = make
        self._names = names
        self._closure = closure
        self._defaults = defaults
        self._spend = spend
        self.assumed: set[str] = set()

    def items(self, of: ast.expr) -> tuple[ast.expr, ...] | None:
        """Returns what there is to go over, or None if that is not known, or is too much."""
        try:
            found = self._items(of)
        except Unknown:
            return None
        return found if len(found) <= MOST_ITEMS else None

    def truth(self, of: ast.expr) -> bool | None:
        """Returns whether an expression is true, or None if that is not known."""
        if isinstance(of, ast.Dict):
            return bool(of.keys)
        try:
            return bool(self.value(of))
        except Unknown:
            return None

    def integer(self, of: ast.expr) -> int | None:
        """Returns a whole number, or None if it is none or is not known."""
        try:
            value = self.value(of)
        except Unknown:
            return None
        return value if type(value) is int else None

    def value(self, of: ast.expr) -> Any:
        """Returns the value of an expression.

        Raises:
            Unknown: It has none that is known.
        """
        self._spend(1)
        match of:
            case ast.Constant(int() | float() | str() | None as value):
                return _small(value)
            case ast.Name(name):
                return self._named(name)
            case ast.Tuple(items) | ast.List(items):
                return [self.value(one) for one in items[: MOST_ITEMS + 1]]
            case ast.UnaryOp(ast.USub(), operand):
                return -_number(self.value(operand))
            case ast.UnaryOp(ast.Not(), operand):
                return not self.value(operand)
            case ast.BinOp(left, sign, right):
                return self._computed(sign, self.value(left), self.value(right))
            case ast.Compare(left, [sign], [right]):
                return _compared(sign, self.value(left), self.value(right))
            case ast.Subscript(value, key):
                return self._item(self.value(value), self.value(key))
            case ast.Call(ast.Name("len"), [value], []) if self._names.is_global("len"):
                return len(self._items(value))
            case ast.Call(ast.Name("int"), [value], []) if self._names.is_global("int"):
                return int(_number(self.value(value)))
        raise Unknown

    def _named(self, name: str) -> Any:
        if name in self._names.values:
            return self.value(self._names.values[name])
        if name in self._closure:
            return _small(self._closure[name])
        if name in self._defaults:
            value = _small(self._defaults[name])
            self.assumed.add(name)
            return value
        raise Unknown

    def _computed(self, sign: ast.operator, left: Any, right: Any) -> int | float:
        if type(sign) not in _BINARY:
            raise Unknown
        try:
            result = _BINARY[type(sign)](_number(left), _number(right))
        except (ArithmeticError, ValueError):
            raise Unknown from None
        return _number(_small(result))

    def _item(self, of: Any, key: Any) -> Any:
        if not isinstance(of, list | tuple) or type(key) is not int:
            raise Unknown
        if not -len(of) <= key < len(of):
            raise Unknown
        return of[key]

    def _items(self, of: ast.expr) -> tuple[ast.expr, ...]:
        self._spend(1)
        match of:
            case ast.Tuple(items) | ast.List(items):
                if any(isinstance(one, ast.Starred) for one in items):
                    raise Unknown
                self._spend(len(items) // 8)
                return tuple(items)
            case ast.Name(name) if name in self._names.values:
                return self._of_step(of, self._names.values[name])
            case ast.Call(ast.Name(name), arguments, []) if self._names.is_global(name):
                return self._of_call(name, arguments)
        value = self.value(of)
        if not isinstance(value, list | tuple) or len(value) > MOST_ITEMS:
            raise Unknown
        return tuple(self._make.plain(one) for one in value)

    def _of_step(self, name: ast.expr, value: ast.expr) -> tuple[ast.expr, ...]:
        if not isinstance(value, ast.Tuple | ast.List):
            return self._items(value)
        return tuple(
            one if is_constant(one) else self._make.item(name, self._make.constant(place))
            for place, one in enumerate(self._items(value))
        )

    def _of_call(self, name: str, arguments: Sequence[ast.expr]) -> tuple[ast.expr, ...]:
        match name, arguments:
            case "range", [_, *_] if len(arguments) <= 3:
                counted = self._range(arguments)
                return tuple(self._make.constant(number) for number in counted)
            case "enumerate", [over, *start] if len(start) <= 1:
                first = self.value(start[0]) if start else 0
                if type(first) is not int:
                    raise Unknown
                return tuple(
                    self._make.sequence(ast.Tuple, [self._make.constant(first + i), item])
                    for i, item in enumerate(self._bounded(over))
                )
            case "zip", [_, *_]:
                rows = zip(*[self._bounded(one) for one in arguments], strict=False)
                return tuple(self._make.sequence(ast.Tuple, row) for row in rows)
            case "reversed", [over]:
                return tuple(reversed(self._bounded(over)))
            case "list" | "tuple", [over]:
                return self._bounded(over)
        raise Unknown

    def _bounded(self, over: ast.expr) -> tuple[ast.expr, ...]:
        found = self._items(over)
        if len(found) > MOST_ITEMS:
            raise Unknown
        return found

    def _range(self, arguments: Sequence[ast.expr]) -> range:
        numbers = [self.value(one) for one in arguments]
        if any(type(number) is not int for number in numbers) or numbers[2:] == [0]:
            raise Unknown
        counted = range(*numbers)
        if len(counted[: MOST_ITEMS + 1]) > MOST_ITEMS:
            raise Unknown
        return counted


def _small(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return value
    if value is None or isinstance(value, str):
        return value
    return _number(value)


def _number(value: Any) -> int | float:
    """Returns a number again, if it is one and not so large that it takes time."""
    if not isinstance(value, int | float) or not abs(value) < _LARGEST:
        raise Unknown
    return value


def _compared(sign: ast.cmpop, left: Any, right: Any) -> bool:
    try:
        return bool(_COMPARISONS[type(sign)](left, right))
    except TypeError:
        raise Unknown from None
