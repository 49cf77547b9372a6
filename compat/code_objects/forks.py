"""Branches, and how two of them that jump to the same place become one with `and` or `or`.

    a and b          a or b
    a: yes -> b      a: yes -> X
       no  -> Y         no  -> b
    b: yes -> X      b: yes -> X
       no  -> Y         no  -> Y

With `not` there are two more. With four ways to two places, it is `b if a else c` that is asked.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from keras_mp.compat.code_objects import conditions
from keras_mp.compat.code_objects.expressions import Expressions
from keras_mp.compat.code_objects.stack_items import Item, Variables


@dataclass(frozen=True, slots=True)
class State:
    """What a block finds: the stack, the top last, and the variables."""

    stack: tuple[Item, ...]
    variables: Variables


@dataclass(frozen=True, slots=True)
class Way:
    """One of the ways out of a branch.

    Attributes:
        number: The block that it leads to.
        origin: The same, where that is a copy of another.
        state: What that block finds. The test on top of the stack stands for its value.
        count: How many jumps were joined to it.
    """

    number: int
    origin: int
    state: State
    count: int = 1


@dataclass(frozen=True, slots=True)
class Fork:
    """A branch.

    Attributes:
        test: What it asks.
        yes: The way if it is true.
        no: The way if not.
        falls: Whether `yes` comes first in the code.
    """

    test: ast.expr
    yes: Way
    no: Way
    falls: bool

    @property
    def asks_nothing(self) -> bool:
        """Whether both ways are the same."""
        return self.leads_to_copies and self.yes.origin == self.no.origin

    @property
    def leads_to_copies(self) -> bool:
        """Whether both ways lead to the same, or to copies of it."""
        return _same(self.yes, self.no)


def joined_fork(make: Expressions, fork: Fork, side: bool, inner: Fork) -> Fork | None:
    """Returns two branches as one, or None if they are not.

    Args:
        make: Makes the nodes.
        fork: The first.
        side: Which of its ways leads to the second.
        inner: The second, which does nothing but ask.
    """
    other = fork.no if side else fork.yes
    for answer, shared in ((not side, _way(inner, not side)), (side, _way(inner, side))):
        plain = answer is not side
        marks = (fork.test, inner.test) if plain else (None, None)
        if _same(other, shared, *marks):
            test = fork.test if plain else conditions.negated(make, fork.test)
            whole = (conditions.either if answer else conditions.both)(make, test, inner.test)
            shared = replace(shared, count=shared.count + other.count)
            yes, no = (shared, inner.no) if answer else (inner.yes, shared)
            return Fork(
                whole,
                _renamed(yes, inner.test, whole),
                _renamed(no, inner.test, whole),
                inner.falls,
            )
    return None


def chosen(make: Expressions, fork: Fork, yes: Fork, no: Fork) -> Fork | None:
    """Returns a branch whose ways lead to two others as one, or None if these differ."""
    for one, other in ((yes, no), *_turned_towards_the_last(make, yes, no)):
        marks = (one.test, other.test)
        if _same(one.yes, other.yes, *marks) and _same(one.no, other.no, *marks):
            whole = conditions.conditional(make, fork.test, one.test, other.test, fork.falls)
            yes_count, no_count = one.yes.count + other.yes.count, one.no.count + other.no.count
            return Fork(
                whole,
                _renamed(replace(other.yes, count=yes_count), other.test, whole),
                _renamed(replace(other.no, count=no_count), other.test, whole),
                other.falls,
            )
    return None


def _turned_towards_the_last(make: Expressions, yes: Fork, no: Fork) -> Iterator[tuple[Fork, Fork]]:
    """Yields two branches with `not` before one of them."""
    if no.falls:
        yield _turned(make, yes), no
    else:
        yield yes, _turned(make, no)


def _turned(make: Expressions, fork: Fork) -> Fork:
    return Fork(conditions.negated(make, fork.test), fork.no, fork.yes, not fork.falls)


def _way(fork: Fork, answer: bool) -> Way:
    return fork.yes if answer else fork.no


def _same(
    one: Way, other: Way, test: ast.expr | None = None, inner: ast.expr | None = None
) -> bool:
    """Returns whether two ways are one; the tests may be on top, each for its own value."""
    first, second = one.state, other.state
    if one.number != other.number or first.variables is not second.variables:
        return False
    if len(first.stack) != len(second.stack):
        return False
    tops = [(first.stack[-1], second.stack[-1])] if first.stack else []
    return all(a is b for a, b in zip(first.stack[:-1], second.stack[:-1], strict=True)) and all(
        a is b or (test is not None and a is test and b is inner) for a, b in tops
    )


def _renamed(way: Way, test: ast.expr, whole: ast.expr) -> Way:
    """Returns a way with the whole test on top of the stack, where the last part of it was."""
    stack, variables = way.state.stack, way.state.variables
    if not stack or stack[-1] is not test:
        return way
    return replace(way, state=State((*stack[:-1], whole), variables))
