"""The items on the stack, and the values of variables, while a function is walked."""

import ast
from dataclasses import dataclass
from typing import TypeAlias

from keras_mp.compat.code_objects.marshalled import Code


@dataclass(frozen=True, slots=True, eq=False)
class Marker:
    """What the interpreter puts on the stack that is no value of the program: NULL."""


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """A variable that is handed to a function within this one."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """A tuple of these."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Going:
    """An iterator.

    Attributes:
        items: What it goes over; None if that is not known.
        at: How many items were taken.
        over: The expression that it was made of.
    """

    items: tuple[ast.expr, ...] | None
    at: int
    over: ast.expr


@dataclass(slots=True, eq=False)
class Frame:
    """A function that is walked.

    Attributes:
        variables: What they are now.
        is_open: Whether the walk is not over.
    """

    variables: "Variables"
    is_open: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A function that is made within this one.

    Attributes:
        code: Its code.
        frame: The function that makes it, which has the variables that it shares.
        where: The instruction that makes it, with its line.
        defaults: Of its last positional parameters.
        kwdefaults: Of parameters that are given by keyword only.
    """

    code: Code
    frame: Frame
    where: str
    defaults: tuple[ast.expr, ...] = ()
    kwdefaults: tuple[tuple[str, ast.expr], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """A module that is imported, or what is in it: its dotted name."""

    name: str


Item: TypeAlias = "ast.expr | Marker | Cell | Cells | Going | Made | Module | Code"
# Of a variable: the name that stands for it in the result, the value itself, or None where some
# ways do not set it.
Variables: TypeAlias = "dict[str, str | ast.expr | Going | Made | Module | None]"

NULL = Marker()
LEFT = Marker()  # what is called at the end of a `with`
