"""Python expressions as they are put together: `ast` nodes, and what must be known about them.

A node that is made once stands for one evaluation. The walk hands the same node on where Python
would hand on the same value, so a node that is met twice would be evaluated twice by whoever
reads the result: `copying.py` refuses that where a call is in it.
"""

import ast
import cmath
import keyword
import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from keras_mp.compat.code_objects.errors import Malformed, Refused
from keras_mp.compat.code_objects.marshalled import MOST_DIGITS, Code, Constant, Constants

MOST_MADE = 20_000  # nodes, for one function
LARGEST = 10_000  # nodes in what is returned, where long names and texts count as several
DEEPEST = 80  # nodes within each other: ast.unparse is recursive

Node = TypeVar("Node", bound=ast.expr)

_KEEPING = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.IfExp, ast.BoolOp)


@dataclass(frozen=True, slots=True)
class Array:
    """A NumPy array or a tensor in the defaults or the closure of a function.

    Attributes:
        items: Its numbers, as nested lists.
        dtype: As it was written.
    """

    items: list[object]
    dtype: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of an expression.

    Attributes:
        age: How many nodes were made before it.
        depth: How many nodes are within each other.
        size: How many nodes there are; long names and texts count as several.
        calls: Whether it calls something: then how often it is evaluated can matter.
        slices: Whether it is a slice, or a tuple with one: these belong into `[]` only.
        missing: What in it was not read; empty if all was.
    """

    age: int
    depth: int = 1
    size: int = 1
    calls: bool = False
    slices: bool = False
    missing: str = ""


class Expressions:
    """Makes the nodes of one function, and keeps count of them.

    Args:
        spend: Called with the size of each piece of work; raises when there was too much.

    Attributes:
        owners: List that may be changed -> who may change it.
        owed: Values that must be in the result.
    """

    def __init__(self, spend: Callable[[int], None]) -> None:
        self.spend = spend
        self._facts: dict[ast.expr, Facts] = {}
        self._used: set[ast.expr] = set()
        self._held: set[ast.expr] = set()
        self.owners: dict[ast.expr, object] = {}
        self._members: dict[int, list[ast.expr]] = {}
        self._generators: set[ast.expr] = set()
        self.owed: list[ast.expr] = []

    def facts(self, node: ast.expr) -> Facts:
        """Returns what is known of a node."""
        return self._facts[node]

    def is_lost(self, node: ast.expr) -> bool:
        """Returns whether a value that nobody takes had a call to make it."""
        return self._facts[node].calls and node not in self._used

    def is_held(self, node: ast.expr) -> bool:
        """Returns whether a value is within another that keeps it."""
        return node in self._held

    def owe(self, node: ast.expr) -> None:
        """Takes note of a value that must be in the result if there is a call in it."""
        if self._facts[node].calls:
            self.owed.append(node)

    def register(self, node: Node, children: Iterable[ast.expr] = (), missing: str = "") -> Node:
        """Takes a new node in, and returns it.

        Args:
            node: The node.
            children: All expressions in it.
            missing: What it stands for, where that was not read.

        Raises:
            Refused: The expression is too large.
        """
        parts = [self._facts[child] for child in children]
        self.spend(len(parts) // 16)
        self._used.update(children)
        if isinstance(node, _KEEPING):
            self._held.update(children)
        facts = Facts(
            len(self._facts),
            1 + max((part.depth for part in parts), default=0),
            _weight(node) + sum(part.size for part in parts),
            isinstance(node, ast.Call) or any(part.calls for part in parts),
            isinstance(node, ast.Slice)
            or (isinstance(node, ast.Tuple) and any(part.slices for part in parts)),
            missing or next((part.missing for part in parts if part.missing), ""),
        )
        if facts.depth > DEEPEST or facts.size > LARGEST or len(self._facts) >= MOST_MADE:
            raise Refused(
                f"an expression of more than {LARGEST} parts, or nested more than {DEEPEST} deep"
            )
        self._facts[node] = facts
        return node

    def missing(self, name: str, what: str) -> ast.expr:
        """Returns a stand-in for what is not read, such as `<function>`."""
        return self.register(ast.Name(id=f"<{name}>", ctx=ast.Load()), missing=what)

    def name(self, text: str) -> ast.expr:
        """Returns a variable, read anew."""
        return self.register(ast.Name(id=identifier(text), ctx=ast.Load()))

    def attribute(self, of: ast.expr, text: str) -> ast.expr:
        """Returns `of.text`."""
        return self.register(ast.Attribute(value=of, attr=identifier(text), ctx=ast.Load()), [of])

    def item(self, of: ast.expr, index: ast.expr) -> ast.expr:
        """Returns `of[index]`."""
        return self.register(ast.Subscript(value=of, slice=index, ctx=ast.Load()), [of, index])

    def sequence(
        self, kind: type[ast.Tuple] | type[ast.List], members: Sequence[ast.expr]
    ) -> ast.expr:
        """Returns a tuple or list of what is given."""
        return self.register(kind(elts=list(members), ctx=ast.Load()), members)

    def starred(self, of: ast.expr) -> ast.expr:
        """Returns `*of`, which belongs into a list, a tuple or a call."""
        return self.register(ast.Starred(value=of, ctx=ast.Load()), [of])

    def set_of(self, members: Sequence[ast.expr]) -> ast.expr:
        """Returns a set of what is given."""
        return self.register(ast.Set(elts=list(members)), members)

    def generator(self, members: Sequence[ast.expr]) -> ast.expr:
        """Returns what a generator gives, which is a list only where `listed` takes it."""
        node = self.sequence(ast.List, members)
        self._facts[node] = replace(self._facts[node], missing="a generator as a value")
        self._generators.add(node)
        return node

    def listed(self, node: ast.expr) -> ast.expr:
        """Returns the argument of `sum` and its like, where a generator may stand for a list."""
        if isinstance(node, ast.List) and node in self._generators:
            return self.sequence(ast.List, node.elts)
        return node

    def dictionary(self, keys: Sequence[ast.expr], values: Sequence[ast.expr]) -> ast.Dict:
        """Returns `{key: value, ...}`."""
        return self.register(ast.Dict(keys=[*keys], values=[*values]), [*keys, *values])

    def call(
        self, of: ast.expr, arguments: Sequence[ast.expr], keywords: Sequence[tuple[str, ast.expr]]
    ) -> ast.expr:
        """Returns `of(*arguments, **keywords)`, with the arguments one by one."""
        names = [identifier(name) for name, _ in keywords]
        if len(set(names)) != len(names):
            raise Malformed("gives a keyword twice")
        node = ast.Call(
            func=of,
            args=list(arguments),
            keywords=[ast.keyword(arg=name, value=value) for name, value in keywords],
        )
        return self.register(node, [of, *arguments, *(value for _, value in keywords)])

    def unary(self, operator: ast.unaryop, operand: ast.expr) -> ast.expr:
        """Returns `-operand` and its like; `not` of a constant is one, as from 3.7 on."""
        known = truth(operand) if isinstance(operator, ast.Not) else None
        if known is not None:
            return self.constant(not known)
        return self.register(ast.UnaryOp(op=operator, operand=operand), [operand])

    def binary(self, left: ast.expr, operator: ast.operator, right: ast.expr) -> ast.expr:
        """Returns `left + right` and its like."""
        return self.register(ast.BinOp(left=left, op=operator, right=right), [left, right])

    def comparison(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> ast.expr:
        """Returns `left < right` and its like."""
        return self.register(
            ast.Compare(left=left, ops=[operator], comparators=[right]), [left, right]
        )

    def constant(self, value: Constant) -> ast.expr:
        """Returns a constant as it would be written: `-1` is a minus and a number.

        Raises:
            Refused: It cannot be written.
        """
        if isinstance(value, tuple):
            # Their members may be shared, and stay alive with the code that has them.
            if id(value) not in self._members:
                self._members[id(value)] = [self.constant(member) for member in value]
            return self.sequence(ast.Tuple, self._members[id(value)])
        if isinstance(value, Constants):
            return self.set_of([self.constant(member) for member in value.members])
        if isinstance(value, Code):
            raise Malformed("has a code object where a value belongs")
        if isinstance(value, int | float | complex) and not isinstance(value, bool):
            return self._number(value)
        return self.register(ast.Constant(value=value))

    def plain(self, value: object) -> ast.expr:
        """Returns a value of a file: None, numbers, text, and lists and tuples of these."""
        if isinstance(value, list | tuple):
            kind = ast.List if isinstance(value, list) else ast.Tuple
            return self.sequence(kind, [self.plain(one) for one in value])
        if value is None or isinstance(value, int | float | str):
            return self.constant(value)
        raise Refused("a value that is not plain")

    def _number(self, value: int | float | complex) -> ast.expr:
        if isinstance(value, complex):
            if value.real or math.copysign(1, value.real) < 0 or cmath.isnan(value):
                raise Refused("a complex number with a real part")
            negative = math.copysign(1, value.imag) < 0
        else:
            if math.isnan(value):
                raise Refused("a number that is nan")
            negative = math.copysign(1, value) < 0 if isinstance(value, float) else value < 0
        if not negative:
            return self.register(ast.Constant(value=value))
        return self.unary(ast.USub(), self.register(ast.Constant(value=-value)))

    def text(self, node: ast.expr, longest: int = 300) -> str:
        """Returns an expression as Python, cut where it is long."""
        if self._facts[node].size > longest:
            return "..."
        text = ast.unparse(node)
        return text if len(text) <= longest else text[: longest - 3] + "..."


def identifier(text: str) -> str:
    """Returns a name that Python can write.

    Raises:
        Malformed: It is other text, so that the expression would not be what it looks like.
    """
    plain = text.isidentifier() and not keyword.iskeyword(text)
    if not plain or unicodedata.normalize("NFKC", text) != text:
        raise Malformed(f"has the name {text[:40]!r}, which Python cannot write")
    return text


def is_plain(value: object, depth: int = 0) -> bool:
    """Returns whether a value of a file is None, a number, text, a list or tuple of these, or an
    array.
    """
    if isinstance(value, Array):
        return not depth and is_plain(value.items, 1)
    if isinstance(value, list | tuple):
        return depth < DEEPEST // 4 and all(is_plain(one, depth + 1) for one in value)
    if isinstance(value, int):
        return value.bit_length() < 15 * MOST_DIGITS
    return value is None or isinstance(value, float | str)


def truth(node: ast.expr) -> bool | None:
    """Returns whether a constant is true, and None for all else."""
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, ast.Tuple | ast.UnaryOp) and is_constant(node):
        return bool(node.elts) if isinstance(node, ast.Tuple) else truth(node.operand)
    return None


def is_constant(node: ast.expr) -> bool:
    """Returns whether a node is a constant, a negative one, or a tuple of these."""
    if isinstance(node, ast.Tuple):
        return all(is_constant(one) for one in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant)


def _weight(node: ast.expr) -> int:
    """Returns the size of a node without what is in it, by the text that it takes."""
    if isinstance(node, ast.Name):
        return 1 + len(node.id) // 16
    if isinstance(node, ast.Attribute):
        return 1 + len(node.attr) // 16
    if isinstance(node, ast.Call):
        return 1 + sum(1 + len(keyword.arg or "") // 16 for keyword in node.keywords)
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str | bytes):
            return 1 + len(node.value) // 16
        if isinstance(node.value, int):
            return 1 + node.value.bit_length() // 64
    return 1
