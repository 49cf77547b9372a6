"""Expressions that are made up, compiled by the Python that runs the tests, and read back.

What is read gives what the function gives, whatever the names in it are, and calls nothing that the
function does not call. Only 3.11 can be compiled here; record.py is for the others.
"""

import ast
import base64
import hashlib
import marshal
import sys
from collections import Counter
from random import Random
from typing import ClassVar

import pytest
from hypothesis import given, settings, strategies as st

from keras_mp.compat.code_objects import CodeError, from_config
from tests.fuzzing import examples

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="3.11 is what is compiled")

NAMES = ["x", "x", "a", "b", "c", "K"]
CONSTANTS = ["0", "1", "-1", "2.5", "'s'", "None", "True", "(1, 2)", "300"]
# {} is an expression. In what is called, indexed or right of an operator, {:c} may be a constant.
FORMS = [
    *("({} + {:c})", "({} - {:c})", "({} * {:c})", "({} / {:c})", "({} ** {:c})", "({} @ {:c})"),
    *("({} < {})", "({} == {:c})", "({} not in {})", "({} < {} <= {:c})", "({} is not None)"),
    *("({} and {})", "({} or {})", "({} and {} and {})", "({} or {} or {})", "(not {})", "(-{})"),
    *("({} if {} else {})", "({} if {} else {})", "f({:c}, k={:c})", "f()", "f({}).m({:c})"),
    *("a.t", "a[{:c}]", "x[:{}, {:c}::2, ...]", "f(({:c}, {}))", "f([{:c}, {}, 3])"),
    *("f({{'a': {:c}, 'b': {}}})", "f([x[i] for i in (0, 1)])", "f({} if {} is None else {})"),
]


class Hole:
    """Fills a `{}` of a form."""

    def __init__(self, random, depth):
        self.random = random
        self.depth = depth

    def __format__(self, kind):
        if kind == "c" and self.random.random() < 0.3:
            return self.random.choice(CONSTANTS)
        return expression(self.random, self.depth - 1)


def expression(random, depth):
    if depth <= 0 or random.random() < 0.15:
        return random.choice(NAMES)
    return random.choice(FORMS).format(*[Hole(random, depth)] * 3)


def function(random, more=()):
    """A function of several statements, some of which are chosen."""
    lines = []

    def value():
        return expression(random, random.randint(0, 3))

    kinds = ["set", "add", "unpack", "if", "else", "return"]
    for _ in range(random.randint(0, 3)):
        name = random.choice("xyz")
        match random.choice([*kinds, *more]):
            case "set":
                lines.append(f"{name} = {value()}")
            case "add":
                lines.append(f"x += {value()}")
            case "unpack":
                lines.append(f"y, x = {value()}")
            case "if":
                lines += [f"if {value()}:", f"    x = {value()}"]
            case "else":
                lines += [f"if {value()}:", f"    {name} = {value()}", "else:"]
                lines.append(f"    {name} = {value()}")
            case "return":
                lines += [f"if {value()}:", f"    return {value()}"]
            case "for":
                end = random.choice(["x += i", "continue", "break", f"return {value()}", "pass"])
                lines += [f"for i, j in enumerate([{value()}, {value()}, 2]):"]
                lines += [f"    {name} = f(j, {value()}) if i else {value()}"]
                lines += [f"    if {random.choice(['i == 1', value()])}:", f"        {end}"]
                lines += [f"    x = {value()}"]
            case "list":
                lines += [f"p = q = [{value()}]", f"p.append({value()})", f"x = f(p, {value()})"]
                lines += [f"if {value()}:", f"    p += [{value()}]", f"y = f(q, {value()})"]
            case "def":
                lines += [f"z = {value()}", f"def h(t, u={value()}, *v):"]
                lines += ["    y = f(t)", f"    if {value()}:", "        return f(y, z, u)"]
                lines += [f"    return {value()}", f"x = h({value()}) + h({value()}, x, 1)"]
            case "guard":
                lines += [f"assert {value()}, f'no {{x}}'", f"if {value()} and {value()}:"]
                lines += ["    raise ValueError"]
    return "def g(x):\n" + "".join(f"    {line}\n" for line in [*lines, f"return {value()}"])


class Symbol:
    """Stands for a tensor: what is done with it is text, and whether it is true is drawn by it."""

    calls: ClassVar[list[str]] = []
    salt = 0

    def __init__(self, text):
        self.text = text

    def __bool__(self):
        digest = hashlib.md5(f"{Symbol.salt}{self.text}".encode(), usedforsecurity=False).digest()
        return digest[0] % 2 == 1

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Symbol(f"{self.text}.{name}")

    def __call__(self, *arguments, **keywords):
        text = f"{self.text}({[shown(a) for a in arguments]}, {shown(keywords)})"
        Symbol.calls.append(text)
        return Symbol(text)

    def __getitem__(self, index):
        return Symbol(f"{self.text}[{shown(index)}]")

    def __contains__(self, item):
        return bool(Symbol(f"{shown(item)} in {self.text}"))

    def __iter__(self):
        return iter([self[0], self[1]])

    def __neg__(self):
        return Symbol(f"-{self.text}")


def shown(value):
    match value:
        case Symbol():
            return value.text
        case tuple() | list():
            return type(value).__name__ + str([shown(one) for one in value])
        case dict():
            return str({name: shown(one) for name, one in value.items()})
        case slice():
            return f"{shown(value.start)}:{shown(value.stop)}:{shown(value.step)}"
    return repr(value)


def _does(name):
    return lambda self, other: Symbol(f"({self.text} {name} {shown(other)})")


BOTH = ("add", "sub", "mul", "truediv", "pow", "matmul")
for _name in (*BOTH, "lt", "le", "eq", "ne", "gt", "ge"):
    setattr(Symbol, f"__{_name}__", _does(_name))
for _name in BOTH:
    setattr(Symbol, f"__r{_name}__", _does("r" + _name))
Symbol.__hash__ = object.__hash__


def compiled(tree, name):
    space = {one: Symbol(one) for one in (*NAMES[2:], "f")}
    exec(compile(ast.fix_missing_locations(tree), "here.py", "exec"), space)
    return space[name]


def as_function(found):
    """Returns what was read as a function that can be called."""
    tree = ast.parse("def read(x):\n    return x")
    body = [
        ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=value)
        for name, value in found.steps
    ]
    tree.body[0].body = [*body, ast.Return(value=found.result)]
    return compiled(tree, "read")


# A program that is made up need not work; a text may be too short, as `'s'[1]`.
FAILURES = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, NameError),
    *(TypeError, ValueError),
)


def result(function):
    """Returns what a function gives and what it called, or None if it fails."""
    Symbol.calls = []
    try:
        value = function(Symbol("x"))
    except FAILURES:
        return None
    return shown(value), Counter(Symbol.calls)


def read(source):
    """Returns a function, and what is read of it: None if it is refused."""
    made = compiled(ast.parse(source), "g")
    code = base64.b64encode(marshal.dumps(made.__code__)).decode()
    try:
        return made, from_config([code, None, None])
    except CodeError as error:
        assert "no function of" not in error.why, source  # noqa: PT017
        return made, None


def compare(source):
    made, found = read(source)
    if found is None:
        return
    again = as_function(found)
    for Symbol.salt in range(5):
        expected = result(made)
        if expected is not None:
            value, calls = result(again)
            assert value == expected[0], found.source()
            assert not calls - expected[1], found.source()


# The programs are drawn by a number: hypothesis would take minutes to draw, and to make smaller.
NUMBERS = st.integers(0, 1 << 32)


@settings(max_examples=examples(150), deadline=None)
@given(NUMBERS)
def test_expressions(number):
    compare(f"def g(x):\n    return {expression(Random(number), 4)}")


@settings(max_examples=examples(150), deadline=None)
@given(NUMBERS)
def test_functions(number):
    compare(function(Random(number)))


MORE = ("for", "list", "def", "guard") * 3


@settings(max_examples=examples(150), deadline=None)
@given(NUMBERS)
def test_functions_with_loops_lists_helpers_and_guards(number):
    compare(function(Random(number), MORE))


def test_many_with_more_are_read():
    sources = [function(Random(number), MORE) for number in range(100)]
    assert sum(read(source)[1] is not None for source in sources) > 30


def test_most_are_read():
    sources = [function(Random(number)) for number in range(100)]
    assert sum(read(source)[1] is not None for source in sources) > 60


def test_the_comparison_can_fail():
    function = compiled(ast.parse("def g(x):\n    return a if x else f(b)"), "g")
    other = compiled(ast.parse("def g(x):\n    return a if f(x) else f(b)"), "g")
    results = []
    for Symbol.salt in range(5):
        results += [result(function), result(other)]
    assert len({str(one) for one in results}) > 2
