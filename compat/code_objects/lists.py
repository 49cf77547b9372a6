"""Lists that a function makes and changes: `parts = []`, `parts.append(x)`, `parts += [x]`.

A list that grows is no step: a variable stands for what is in it so far, and a change gives all
variables that have the list another. What is called to make a member is a step of its own.
"""

import ast
from collections.abc import Sequence

from keras_mp.compat.code_objects.errors import Malformed, Refused
from keras_mp.compat.code_objects.expressions import Expressions
from keras_mp.compat.code_objects.stack_items import Going, Item, Variables
from keras_mp.compat.code_objects.steps import Names

CHANGES = frozenset({"append", "extend", "insert"})
_LARGEST_TWICE = 12  # parts of a member that may be written more than once


class Lists:
    """The lists of one code object.

    Args:
        make: Makes the nodes, and knows which list belongs to which code object.
        names: Of the result.
        are_grown: Whether there may be one that is changed.
    """

    def __init__(self, make: Expressions, names: Names, are_grown: bool) -> None:
        self.are_grown = are_grown
        self._make = make
        self._names = names

    def has(self, node: ast.expr) -> bool:
        """Returns whether a node is a list that this function may change."""
        return self._make.owners.get(node) is self

    def given_away(self, node: ast.expr) -> None:
        """Takes note that a list is returned, so that the caller may change it."""
        if self.has(node):
            del self._make.owners[node]

    def kept(self, of: ast.List, steps: bool) -> ast.List:
        """Returns a list as a variable has it."""
        if of in self._make.owners:
            return of
        members = [self._member(one, steps) for one in of.elts]
        return self._made(of if members == of.elts else None, members)

    def is_change(self, called: ast.expr) -> bool:
        """Returns whether a call of this changes a list."""
        if not isinstance(called, ast.Attribute) or called.attr not in CHANGES:
            return False
        return isinstance(called.value, ast.List)

    def changed(
        self,
        called: ast.expr,
        values: Sequence[ast.expr],
        keywords: Sequence[tuple[str, ast.expr]],
        steps: bool,
    ) -> tuple[ast.List, ast.List]:
        """Returns a list, and the same after a call that changes it.

        Raises:
            Refused: It cannot be followed.
        """
        assert isinstance(called, ast.Attribute)
        of = called.value
        assert isinstance(of, ast.List)
        if not self.has(of):
            raise Refused(f"a change of a list that has no name here, .{called.attr}()")
        match called.attr, values:
            case "append", [value] if not keywords:
                return of, self._made(None, [*of.elts, self._member(value, steps)])
            case "extend", [ast.List(more) | ast.Tuple(more)] if not keywords:
                members = [self._member(one, steps) for one in more]
                return of, self._made(None, [*of.elts, *members])
            case "insert", [ast.Constant(0), value] if not keywords:
                return of, self._made(None, [self._member(value, steps), *of.elts])
        raise Refused(f"a change of a list by what is not known here, .{called.attr}()")

    def check_not_one(self, name: ast.Name) -> None:
        """Raises where `+=` would change a list of a function around this one."""
        if isinstance(self._names.values.get(name.id), ast.List):
            raise Refused("a change of a list that has no name here, +=")

    def extended(self, of: ast.List, more: Sequence[ast.expr], steps: bool) -> ast.List:
        """Returns a list after `+=`."""
        return self._made(None, [*of.elts, *(self._member(one, steps) for one in more)])

    def replaced(
        self, old: ast.List, new: ast.List, stack: list[Item], variables: Variables
    ) -> Variables:
        """Changes a list wherever it is on the stack, and returns the variables with the new one.

        Raises:
            Refused: Something else has it, too.
        """
        self._make.spend(1 + (len(new.elts) + len(stack) + len(variables)) // 8)
        if self._make.is_held(old):
            raise Refused("a change of a list that is in another value")
        for place, item in enumerate(stack):
            if isinstance(item, Going) and item.over is old:
                raise Refused("a change of a list by a loop over it")
            if item is old:
                stack[place] = new
        return {name: new if value is old else value for name, value in variables.items()}

    def _member(self, value: ast.expr, steps: bool) -> ast.expr:
        facts = self._make.facts(value)
        if not steps:
            self._make.owe(value)
        if not steps or not (facts.calls or facts.size > _LARGEST_TWICE):
            return value
        return self._make.name(self._names.add_invented("part", value))

    def _made(self, same: ast.List | None, members: Sequence[ast.expr]) -> ast.List:
        node = same or self._make.sequence(ast.List, members)
        if not isinstance(node, ast.List):
            raise Malformed("makes a list of something else")
        self._make.owners[node] = self
        return node
