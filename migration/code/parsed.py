"""A parsed program: where its names come from, what text a node is, what surrounds it."""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import libcst as cst
from libcst.metadata import (
    ImportAssignment,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    Scope,
    ScopeProvider,
)

from keras_mp.migration.code.edits import Lines
from keras_mp.migration.code.libcst_limits import are_too_many, is_too_deep
from keras_mp.migration.code.names import Old, legacy_name
from keras_mp.migration.code.syntax import syntax_error
from keras_mp.migration.code.versions import Answer, answer

_VERSION = re.compile(r"__version__|\bVERSION\b|LooseVersion|StrictVersion|parse_version")
_ASKS = re.compile(
    _VERSION.pattern + r"|version\.parse|\bVersion\("
    r"|hasattr\(\s*(tf|tensorflow|keras|tf_keras|[\w.]*(mixed_precision|experimental))\b"
)
_WORD = re.compile(r"\w+")
_OF_TENSORFLOW = re.compile(r"\b(tf|tensorflow|keras|tf_keras|\w*mixed_precision|experimental)\b")
# Dotted name -> of which package it is the version.
_PACKAGES = {
    "tensorflow.__version__": "tensorflow",
    "tensorflow.version.VERSION": "tensorflow",
    "tensorflow.VERSION": "tensorflow",
    "tensorflow.keras.__version__": "keras",
    "keras.__version__": "keras",
}
_PLAIN_IMPORT = re.compile(r"\bimport\s+(tensorflow|keras|tf_keras)(\.compat\.v[12])?\b(?!\.)")
_MOST_ALIASES = 50  # of aliases of aliases: each takes some of the stack
_IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError", "AttributeError")
Node = TypeVar("Node", bound=cst.CSTNode)
Import = cst.Import | cst.ImportFrom


TOO_DEEP = "it is nested too deeply"
TOO_MANY = "too complex to resolve: a name has too many bindings"
TOO_MUCH = "too complex to resolve: too many places depend on each other"
# Looks at places: in any program, and more for each of its characters. Programs of people take one.
_LOOKS, _LOOKS_EACH = 1_000_000, 20


class Unparsable(ValueError):
    """A program that is not Python, or not that of today.

    Attributes:
        line: Where, from 1.
        column: From 1.
        message: What is wrong.
    """

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.line, self.column, self.message = line, column, message

    def __reduce__(self) -> Any:
        return type(self), (self.line, self.column, self.message)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a chain of names means.

    Attributes:
        full: Its name, resolved through imports and aliases: "tensorflow.keras.layers.Dense".
        guarded: Whether what it was imported from is imported in a `try` or a test of versions.
        several: Whether other imports or assignments give it other meanings.
    """

    full: str
    guarded: bool = False
    several: bool = False


class Program:
    """A module, its names resolved.

    Args:
        text: Its source; line ends of any kind.
        names: Name that it has from another file of the program -> its full name.

    Raises:
        Unparsable: It does not parse.
    """

    def __init__(self, text: str, names: Mapping[str, str] | None = None) -> None:
        self.text = text
        self._names = names or {}
        if is_too_deep(text):
            raise Unparsable(1, 1, TOO_DEEP)
        if are_too_many(text):
            raise Unparsable(1, 1, TOO_MANY)
        try:
            parsed = cst.parse_module(text)
        except cst.ParserSyntaxError as error:
            place = error.raw_line, error.raw_column + 1
            raise _unparsable(text, *place, error.message) from None
        except (RecursionError, SyntaxError, ValueError) as error:
            raise _unparsable(text, 1, 1, str(error)) from None
        wrapper = MetadataWrapper(parsed, unsafe_skip_copy=True)
        self.module = wrapper.module
        # Where libcst does not give the text back, its positions are those of another text.
        self.has_positions = wrapper.module.code.rstrip("\r\n") == text.rstrip("\r\n")
        try:
            found = wrapper.resolve_many([PositionProvider, ScopeProvider, ParentNodeProvider])
        except RecursionError:
            raise Unparsable(1, 1, TOO_DEEP) from None
        except NotImplementedError as error:
            raise Unparsable(1, 1, f"its names cannot be resolved: {_first(str(error))}") from None
        self._positions: Any = found[PositionProvider]
        self._scopes: Any = found[ScopeProvider]
        self._parents: Any = found[ParentNodeProvider]
        self.lines = Lines(text)
        self._known: dict[tuple[Scope, str], tuple[list[Meaning], bool]] = {}
        self._open: set[tuple[Scope, str]] = set()  # names that are being resolved
        self._decided: dict[cst.CSTNode, Answer | None] = {}
        self._guards: dict[tuple[cst.CSTNode, bool], bool] = {}
        self._imports: dict[cst.CSTNode, list[ImportAssignment]] | None = None
        self._looks_left = _LOOKS + _LOOKS_EACH * len(text)

    # -- text ------------------------------------------------------------------------------------

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Returns the offsets of a node, without parentheses around it."""
        self._look()
        where = self._positions[node]
        start, end = where.start, where.end
        return self.lines.offset(start.line, start.column), self.lines.offset(end.line, end.column)

    def source(self, node: cst.CSTNode) -> str:
        """Returns the text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def value(self, argument: cst.Arg) -> str:
        """Returns the text of what an argument is given, with its parentheses."""
        start, end = self.span(argument)
        if argument.keyword is not None:
            start = self.span(argument.keyword)[1]
            start += self.text[start:end].index("=") + 1
        return self.text[start:end].strip()

    def where(self, node: cst.CSTNode) -> tuple[int, int]:
        """Returns line and column, both from 1."""
        start = self._positions[node].start
        return start.line, start.column + 1

    def lines_of(self, node: cst.CSTNode) -> range:
        """Returns the numbers of the lines that a node is on."""
        where = self._positions[node]
        return range(where.start.line, where.end.line + 1)

    # -- surroundings ----------------------------------------------------------------------------

    @functools.cached_property
    def nodes(self) -> "Nodes":
        """All nodes."""
        return Nodes(self.module)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Returns what a node is directly in."""
        self._look()
        found: cst.CSTNode | None = self._parents.get(node)
        return found

    def above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yields what a node is in, from the inside out."""
        current = self.parent(node)
        while current is not None:
            yield current
            current = self.parent(current)

    def around(self, node: cst.CSTNode, *kinds: type[Node]) -> Node | None:
        """Returns the innermost node of these kinds that a node is in."""
        return next((up for up in self.above(node) if isinstance(up, kinds)), None)

    def is_label(self, node: cst.Name) -> bool:
        """Returns whether a name is no value: of a function, a class, a parameter or a keyword."""
        parent = self.parent(node)
        if isinstance(parent, cst.Arg):
            return parent.keyword is node
        if isinstance(parent, cst.MatchKeywordElement):
            return parent.key is node
        named = (cst.FunctionDef, cst.ClassDef, cst.Param, cst.NameItem)
        return isinstance(parent, named) and parent.name is node

    def call_of(self, node: cst.CSTNode) -> cst.Call | None:
        """Returns the call of an expression; None where it is not called."""
        parent = self.parent(node)
        return parent if isinstance(parent, cst.Call) and parent.func is node else None

    def function(self, node: cst.CSTNode) -> cst.CSTNode:
        """Returns the outermost function that a node is in, or the module."""
        functions = [n for n in self.above(node) if isinstance(n, cst.FunctionDef)]
        return functions[-1] if functions else self.module

    def is_guarded(self, node: cst.CSTNode) -> bool:
        """Returns whether a node is where the program asks what there is: by version or import."""
        inner = node
        for outer in self.above(node):
            key = outer, isinstance(outer, cst.Try) and inner is outer.finalbody
            if key not in self._guards:
                self._guards[key] = self._guards_what_is_in(*key)
            if self._guards[key]:
                return True
            inner = outer
        return False

    def is_dead(self, node: cst.CSTNode) -> bool:
        """Returns whether no TensorFlow that Keras 3 runs on gets to a node, by its version."""
        inner = node
        for outer in self.above(node):
            if isinstance(outer, (cst.If, cst.IfExp)) and inner is not outer.test:
                found = self._answer(outer.test)
                if found and not found.is_by_text and found.value != (inner is outer.body):
                    return True
            elif isinstance(outer, cst.BooleanOperation) and inner is outer.right:
                found = self._answer(outer.left)
                if found and not found.is_by_text:
                    return found.value != isinstance(outer.operator, cst.And)
            inner = outer
        return False

    def compared_as_text(self, node: cst.CSTNode) -> tuple[str, bool] | None:
        """Returns the test around a node that compares versions as text, and which way it goes."""
        for outer in self.above(node):
            tests = [getattr(outer, "test", None), getattr(outer, "left", None)]
            for test in tests:
                if test is not None and (found := self._answer(test)) and found.is_by_text:
                    return self.source(test), found.value
        return None

    def _answer(self, test: cst.CSTNode) -> Answer | None:
        """Returns which way a test of versions goes wherever there is Keras 3."""
        if test not in self._decided:
            asks = self._asks(test)
            self._decided[test] = (
                answer(self.source(test), functools.partial(self._package_of, test), self._value_of)
                if asks
                else None
            )
        return self._decided[test]

    def _package_of(self, test: cst.CSTNode, name: str) -> str | None:
        """Returns of which package a dotted name is the version."""
        scope, (root, *rest) = self.scope(test), name.split(".")
        found = (
            None if scope is None else self._of_name(scope, root, "".join(f".{p}" for p in rest))
        )
        if found is None or found.several:
            return None
        return _PACKAGES.get(found.full)

    def _value_of(self, name: str) -> str | None:
        """Returns what a name about versions is assigned, where it is one expression."""
        values = self._answers.get(name, [])
        return values[0] if len(values) == 1 else None

    def _guards_what_is_in(self, outer: cst.CSTNode, finally_: bool) -> bool:
        if isinstance(outer, (cst.If, cst.IfExp, cst.While)):
            return self._asks_in_vain(outer.test)
        if isinstance(outer, cst.BooleanOperation):
            return self._asks_in_vain(outer.left)
        if isinstance(outer, cst.Match):
            return self._asks(outer.subject)
        if isinstance(outer, cst.Try) and not finally_:
            handlers = [h.type for h in outer.handlers if h.type is not None]
            caught = any(name in self.source(h) for h in handlers for name in _IMPORT_ERRORS)
            caught |= self._only_imports(outer)
            return (
                caught
                and bool(_OF_TENSORFLOW.search(self.source(outer.body)))
                and (not self._asks_for_tensorflow(outer))
            )
        return isinstance(outer, cst.With) and any(
            name in self.source(item.item) for item in outer.items for name in _IMPORT_ERRORS
        )

    def _asks_for_tensorflow(self, tried: cst.Try) -> bool:
        """Returns whether a `try` asks whether TensorFlow is there at all, not which one."""
        body = self.source(tried.body)
        others = "".join(self.source(handler.body) for handler in tried.handlers)
        return bool(_PLAIN_IMPORT.search(body)) and "precision" not in others

    def _only_imports(self, tried: cst.Try) -> bool:
        """Returns whether a `try` that catches anything holds imports and nothing else."""
        anything = any(
            handler.type is None or "Exception" in self.source(handler.type)
            for handler in tried.handlers
        )
        body = tried.body.body
        return anything and all(
            isinstance(line, cst.SimpleStatementLine)
            and all(isinstance(one, (cst.Import, cst.ImportFrom)) for one in line.body)
            for line in body
        )

    def _asks_in_vain(self, test: cst.CSTNode) -> bool:
        """Returns whether a test asks which TensorFlow there is, and the answer is not known."""
        found = self._answer(test)
        return self._asks(test) and (found is None or found.is_by_text)

    def _asks(self, test: cst.CSTNode) -> bool:
        source = self.source(test)
        return bool(_ASKS.search(source)) or any(
            word in self._answers for word in _WORD.findall(source)
        )

    @functools.cached_property
    def _answers(self) -> dict[str, list[str]]:
        """Names that were assigned something about versions, and all that they were assigned."""
        values: dict[str, list[str]] = {}
        for node in self.nodes.of(cst.Assign):
            for each in node.targets:
                if isinstance(target := each.target, cst.Name):
                    values.setdefault(target.value, []).append(self.source(node.value))
        return {name: texts for name, texts in values.items() if any(map(_VERSION.search, texts))}

    # -- names -----------------------------------------------------------------------------------

    def meaning(self, node: cst.CSTNode) -> Meaning | None:
        """Returns what a name or a chain of attributes means; None for the program's own."""
        parts = chain(node)
        scope = self.scope(parts[0]) if parts is not None else None
        if parts is None or scope is None:
            return None
        rest = "".join(f".{part.value}" for part in parts[1:])
        return self._of_name(scope, parts[0].value, rest)

    def full_name(self, node: cst.CSTNode, *, is_sole: bool = False) -> str:
        """Returns the full name that an expression means; "" for the program's own.

        Args:
            node: It.
            is_sole: Whether "" is also returned where it may mean several things.
        """
        found = self.meaning(node)
        return "" if found is None or (is_sole and found.several) else found.full

    def old(self, node: cst.CSTNode) -> Old | None:
        """Returns which old name a node is, as a whole."""
        found = self.meaning(node)
        if found is None:
            return None
        name = legacy_name(found.full)
        return name if name is not None and name.length == found.full.count(".") + 1 else None

    def is_bound(self, node: cst.CSTNode) -> bool:
        """Returns whether a name or an attribute is assigned or deleted where it stands."""
        parent = self.parent(node)
        if isinstance(parent, cst.Element):
            outer = self.parent(parent)
            return outer is not None and self.is_bound(outer)
        if isinstance(parent, (cst.AssignTarget, cst.Del, cst.AsName)):
            return True
        return isinstance(parent, (cst.AugAssign, cst.AnnAssign, cst.For, cst.CompFor)) and (
            parent.target is node
        )

    def is_unbound(self, node: cst.Name) -> bool:
        """Returns whether nothing in the program gives a name a meaning."""
        scope = self.scope(node)
        return scope is not None and not scope[node.value] and node.value not in self._names

    def bindings(self, statement: cst.CSTNode, name: str) -> list[ImportAssignment]:
        """Returns what an import statement binds to a name."""
        if self._imports is None:
            self._imports = {}
            for scope in {*self._scopes.values()} - {None}:
                for one in scope.assignments:
                    if isinstance(one, ImportAssignment):
                        self._imports.setdefault(one.node, []).append(one)
        return [one for one in self._imports.get(statement, ()) if one.name.split(".")[0] == name]

    def scope(self, node: cst.CSTNode) -> Scope | None:
        """Returns the scope that a node is evaluated in."""
        found: Scope | None = self._scopes.get(node)
        return found

    def bound(self, scope: Scope, name: str) -> Meaning | None:
        """Returns what a name means in a scope; None for what is the program's own."""
        return self._of_name(scope, name, "")

    def _look(self) -> None:
        self._looks_left -= 1
        if self._looks_left < 0:
            raise Unparsable(1, 1, TOO_MUCH)

    def _of_name(self, scope: Scope, name: str, rest: str) -> Meaning | None:
        self._look()
        meanings, others = self._assigned(scope, name)
        if not meanings:
            return None
        if self._names:
            meanings = [replace(one, full=self._in_full(one.full + rest)) for one in meanings]
            rest = ""
        spelled = {_canonical(one.full + rest) for one in meanings}
        guarded = any(one.guarded for one in meanings)
        several = others or len(spelled) > 1 or any(one.several for one in meanings)
        known = next((one for one in meanings if legacy_name(one.full + rest)), meanings[0])
        return Meaning(known.full + rest, guarded, several)

    def _in_full(self, name: str) -> str:
        """Returns a dotted name, with what it has from another file of the program in full."""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            known = self._names.get(".".join(parts[:end]))
            if known is not None:
                return ".".join([known, *parts[end:]])
        return name

    def _assigned(self, scope: Scope, name: str) -> tuple[list[Meaning], bool]:
        """Returns what a name is imported as or assigned, and whether anything else, too."""
        key = (scope, name)
        if key in self._known:
            return self._known[key]
        if key in self._open or len(self._open) >= _MOST_ALIASES:
            return [], True
        self._open.add(key)
        meanings: list[Meaning] = []
        others = False
        for assignment in scope[name]:
            node = getattr(assignment, "node", None)
            if isinstance(node, cst.CSTNode) and self.is_dead(node):
                continue
            if isinstance(assignment, ImportAssignment):
                found = self._of_import(assignment, name)
                others |= not found
            else:
                target = getattr(assignment, "node", None)
                found = self._of_alias(target)
                others |= not found and not self._is_nothing(target)
            meanings += found
        self._open.remove(key)
        if not scope[name] and name in self._names:  # after an import of everything
            meanings = [Meaning(self._names[name])]
        meanings = list(dict.fromkeys(meanings))
        self._known[key] = meanings, others
        return meanings, others

    def _of_import(self, assignment: ImportAssignment, name: str) -> list[Meaning]:
        names = [one.name for one in assignment.get_qualified_names_for(name)]
        guarded = self.is_guarded(assignment.node)
        # That TensorFlow itself may be missing says nothing about its version.
        return [
            Meaning(full, guarded and ("precision" in full or "experimental" in full))
            for full in names
            if not full.startswith(".") or self._in_full(full) != full
        ]

    def _of_alias(self, target: cst.CSTNode | None) -> list[Meaning]:
        """Returns what NAME means where there is NAME = some.module."""
        if not isinstance(target, cst.Name):
            return []
        of = self.parent(target)
        statement = self.parent(of) if of is not None else None
        if isinstance(of, cst.AnnAssign) and of.target is target and of.value is not None:
            statement = of
        elif not isinstance(of, cst.AssignTarget) or not isinstance(statement, cst.Assign):
            return []
        value, guarded = statement.value, self.is_guarded(target)
        values = [value] if value is not None else []
        if isinstance(value, cst.IfExp):
            guarded |= self._asks(value.test)
            values = [value.body, value.orelse]
        found = [one for value in values if (one := self.meaning(value))]
        return [Meaning(one.full, one.guarded or guarded, one.several) for one in found]

    def _is_nothing(self, target: cst.CSTNode | None) -> bool:
        """Returns whether NAME = None, as where an import failed."""
        of = self.parent(target) if target is not None else None
        statement = self.parent(of) if of is not None else None
        value = statement.value if isinstance(statement, (cst.Assign, cst.AnnAssign)) else None
        return isinstance(value, cst.Name) and value.value in ("None", "False")


def _canonical(full: str) -> str:
    found = legacy_name(full)
    if found is None:
        return full
    return f"{found} {'.'.join(full.split('.')[found.length :])}"


class ExpressionVisitor(cst.CSTVisitor):
    """Passes over import statements."""

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False


class Nodes(cst.CSTVisitor):
    """The nodes in a tree, itself included, in the order of the text.

    >>> [one.value for one in Nodes(cst.parse_expression("f(a, 1)")).of(cst.Name)]
    ['f', 'a']
    """

    def __init__(self, tree: cst.CSTNode) -> None:
        self._all: list[cst.CSTNode] = []
        tree.visit(self)

    def on_visit(self, node: cst.CSTNode) -> bool:
        self._all.append(node)
        return True

    def of(self, *kinds: type[Node]) -> list[Node]:
        """Returns those of some kinds."""
        return [one for one in self._all if isinstance(one, kinds)]


def chain(node: cst.CSTNode) -> list[cst.Name] | None:
    """Returns the names of a chain of attributes, a.b.c, from the left; None for anything else."""
    names: list[cst.Name] = []
    while isinstance(node, cst.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, cst.Name):
        return None
    return [node, *reversed(names)]


def keywords(call: cst.Call) -> dict[str, cst.Arg]:
    """Returns the arguments of a call that are given by name."""
    return {one.keyword.value: one for one in call.args if one.keyword is not None}


def parts_of(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yields a chain of attributes and what it begins with, from the whole to the first name."""
    yield node
    while isinstance(node, cst.Attribute):
        node = node.value
        yield node


def dotted(node: cst.CSTNode) -> str:
    """Returns the text of a dotted name.

    >>> dotted(cst.parse_expression("a . b.c"))
    'a.b.c'
    """
    return ".".join(part.value for part in chain(node) or ())


def imported(statement: Import) -> list[tuple[cst.ImportAlias | None, str]]:
    """Returns what a statement imports: each alias, and its full name; nothing of a relative one.

    >>> [full for _, full in imported(cst.parse_module("from a import b, c").body[0].body[0])]
    ['a.b', 'a.c']
    >>> imported(cst.parse_module("from a import *").body[0].body[0])
    [(None, 'a.*')]
    """
    if isinstance(statement, cst.Import):
        return [(alias, dotted(alias.name)) for alias in statement.names]
    if statement.relative or statement.module is None:
        return []
    module = dotted(statement.module)
    if isinstance(statement.names, cst.ImportStar):
        return [(None, f"{module}.*")]
    return [(alias, f"{module}.{dotted(alias.name)}") for alias in statement.names]


def root_of(node: cst.CSTNode) -> cst.CSTNode:
    """Returns what a chain of attributes begins with."""
    while isinstance(node, cst.Attribute):
        node = node.value
    return node


def number(node: cst.CSTNode) -> float | None:
    """Returns the value of a number that is written out, such as 128, 2 ** 15 or 1e4.

    >>> number(cst.parse_expression("2 ** 15")), number(cst.parse_expression("x"))
    (32768.0, None)
    """
    if isinstance(node, (cst.Integer, cst.Float)):
        try:
            return float(node.evaluated_value)
        except (OverflowError, ValueError, SyntaxError):
            return None
    if isinstance(node, cst.BinaryOperation):
        left, right = number(node.left), number(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.operator, cst.Power) and abs(right) <= 128 and 0 < left <= 100:
            return float(left**right)
        if isinstance(node.operator, cst.Multiply):
            return left * right
        if isinstance(node.operator, cst.LeftShift) and 0 <= right < 200:
            return left * 2**right
    return None


def string(node: cst.CSTNode) -> str | None:
    """Returns the value of a string that is written out."""
    if isinstance(node, (cst.SimpleString, cst.ConcatenatedString)):
        try:
            value = node.evaluated_value
        except (ValueError, SyntaxError):
            return None
        return value if isinstance(value, str) else None
    return None


def _unparsable(text: str, line: int, column: int, message: str) -> Unparsable:
    """Returns what Python itself says, which names the place better, where it agrees."""
    its = syntax_error(text)
    if its is not None:
        return Unparsable(its.lineno or 1, its.offset or 1, its.msg)
    return Unparsable(line, column, _first(message))


def _first(text: str) -> str:
    return (text.strip().split("\n") or [""])[0]
