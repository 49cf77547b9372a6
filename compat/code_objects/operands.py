"""What an instruction takes off the stack, checked: items, and items as values."""

import ast
from collections.abc import Callable

from keras_mp.compat.code_objects import modules
from keras_mp.compat.code_objects.errors import Malformed, Underflow
from keras_mp.compat.code_objects.expressions import Expressions
from keras_mp.compat.code_objects.stack_items import Item, Made, Module
from keras_mp.compat.code_objects.steps import Names


class Operands:
    """Takes items off the stack of one function.

    Args:
        make: Makes the nodes.
        names: Of the result.
        spend: Called with the size of each piece of work; raises when there was too much.
    """

    def __init__(self, make: Expressions, names: Names, spend: Callable[[int], None]) -> None:
        self._make = make
        self._names = names
        self._spend = spend

    def expression(self, item: Item) -> ast.expr:
        """Returns what is on the stack as a value."""
        if isinstance(item, ast.expr):
            if self._make.facts(item).slices:
                raise Malformed("has a slice that is not in []")
            return item
        if isinstance(item, Made):
            return self._make.missing("function", f"a function of its own ({item.where})")
        if isinstance(item, Module):
            return modules.expression(self._make, self._names, item)
        raise Malformed("takes what is no value for one")

    def popped(self, stack: list[Item]) -> ast.expr:
        """Takes the value on top off the stack."""
        return self.expression(self.pop(stack))

    def pop(self, stack: list[Item]) -> Item:
        """Takes the item on top off the stack."""
        if not stack:
            raise Underflow("takes a value from an empty stack")
        return stack.pop()

    def several(self, stack: list[Item], count: int) -> list[Item]:
        """Takes items off the stack; the last was on top."""
        if count > len(stack):
            raise Underflow(f"takes {count} values from a stack of {len(stack)}")
        self._spend(count // 8)
        taken = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        return taken

    def values(self, stack: list[Item], count: int) -> list[ast.expr]:
        """Takes values off the stack; the last was on top."""
        return [self.expression(item) for item in self.several(stack, count)]
