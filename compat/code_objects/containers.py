"""Tuples, lists, sets, dictionaries and slices: made of what is on the stack, and added to."""

import ast
from collections.abc import Callable

from keras_mp.compat.code_objects.errors import Malformed, Refused, Underflow
from keras_mp.compat.code_objects.expressions import Expressions
from keras_mp.compat.code_objects.instructions import Instruction
from keras_mp.compat.code_objects.opcodes import Version, named
from keras_mp.compat.code_objects.operands import Operands
from keras_mp.compat.code_objects.stack_items import Cell, Cells, Going, Item

ADDING = named(
    "LIST_APPEND LIST_EXTEND SET_ADD SET_UPDATE MAP_ADD DICT_UPDATE DICT_MERGE YIELD_VALUE"
)


class Containers:
    """The instructions of one code object that make containers.

    Args:
        operands: Takes values off the stack.
        make: Makes the nodes.
        python: The version of the instructions.
        spend: Called with the size of each piece of work; raises when there was too much.
        where: Returns an instruction with its line.
    """

    def __init__(
        self,
        operands: Operands,
        make: Expressions,
        python: Version,
        spend: Callable[[int], None],
        where: Callable[[Instruction], str],
    ) -> None:
        self._operands = operands
        self._make = make
        self._python = python
        self._spend = spend
        self._where = where

    def build(self, instruction: Instruction, stack: list[Item]) -> None:
        """Does what a BUILD_ instruction does."""
        name, count = instruction.name, instruction.argument
        if name.endswith(("_UNPACK", "_UNPACK_WITH_CALL")):
            self._build_of_several(instruction, stack)
        elif name == "BUILD_SLICE":
            if count not in (2, 3):
                raise Malformed(f"makes a slice of {count}")
            parts = [None if _is_none(one) else one for one in self._operands.values(stack, count)]
            lower, upper, step = (*parts, None)[:3]
            node = ast.Slice(lower=lower, upper=upper, step=step)
            stack.append(self._make.register(node, [one for one in parts if one is not None]))
        elif name == "BUILD_MAP":
            flat = self._operands.values(stack, 2 * count)
            stack.append(self._make.dictionary(flat[::2], flat[1::2]))
        elif name == "BUILD_CONST_KEY_MAP":
            keys = self._operands.popped(stack)
            if not isinstance(keys, ast.Tuple) or len(keys.elts) != count:
                raise Malformed("makes a dictionary of other keys than values")
            stack.append(self._make.dictionary(keys.elts, self._operands.values(stack, count)))
        elif name == "BUILD_TUPLE":
            stack.append(self._tuple(self._operands.several(stack, count)))
        elif name == "BUILD_LIST":
            stack.append(self._make.sequence(ast.List, self._operands.values(stack, count)))
        else:
            stack.append(self._make.set_of(self._operands.values(stack, count)))

    def _tuple(self, items: list[Item]) -> Item:
        cells = tuple(item.name for item in items if isinstance(item, Cell))
        if cells and len(cells) == len(items):
            return Cells(cells)
        # One that goes into [] may have slices, which `expression` does not let by.
        members = [i if isinstance(i, ast.Slice) else self._operands.expression(i) for i in items]
        return self._make.sequence(ast.Tuple, members)

    def _build_of_several(self, instruction: Instruction, stack: list[Item]) -> None:
        name, count = instruction.name, instruction.argument
        if name == "BUILD_MAP_UNPACK_WITH_CALL" and self._python < (3, 6):
            count &= 255
        parts = self._operands.values(stack, count)
        if name.startswith("BUILD_MAP"):
            whole = self._make.dictionary([], [])
            for part in parts:
                whole = self._merged(whole, part, instruction)
            stack.append(whole)
            return
        members = [one for part in parts for one in self.elements(part, instruction)]
        if name == "BUILD_SET_UNPACK":
            stack.append(self._make.set_of(members))
        else:
            kind = ast.List if name == "BUILD_LIST_UNPACK" else ast.Tuple
            stack.append(self._make.sequence(kind, members))

    def elements(self, of: ast.expr, instruction: Instruction) -> list[ast.expr]:
        """Returns what `*of` gives."""
        into_set = instruction.name in ("SET_UPDATE", "BUILD_SET_UNPACK")
        if isinstance(of, ast.Tuple | ast.List) or (into_set and isinstance(of, ast.Set)):
            self._spend(len(of.elts) // 8)
            return of.elts
        if not into_set and not isinstance(of, ast.Set | ast.Dict):
            return [self._make.starred(of)]
        raise Refused(f"something spread with * or ** ({self._where(instruction)})")

    def _merged(self, into: ast.expr, of: ast.expr, instruction: Instruction) -> ast.Dict:
        if isinstance(into, ast.Dict) and isinstance(of, ast.Dict):
            keys = [key for key in (*into.keys, *of.keys) if key is not None]
            self._spend(len(keys) // 8)
            return self._make.dictionary(keys, [*into.values, *of.values])
        raise Refused(f"something spread with * or ** ({self._where(instruction)})")

    def add(self, instruction: Instruction, stack: list[Item]) -> None:
        """Does what one of `ADDING` does."""
        name, depth = instruction.name, instruction.argument
        value = self._operands.popped(stack)
        if name == "YIELD_VALUE":
            # What it gave is at the bottom of the stack of a generator; None is what it is sent.
            stack.append(self._make.constant(None))
            depth = len(stack)
        second = self._operands.popped(stack) if name == "MAP_ADD" else value
        if not 1 <= depth <= len(stack):
            raise Underflow(f"adds to value {depth} of {len(stack)}")
        if name == "YIELD_VALUE" and isinstance(stack[-depth], Going):
            raise Underflow("adds to what was there before")
        into = self._operands.expression(stack[-depth])
        self._spend(1 + self._make.facts(into).size // 32)
        if name == "MAP_ADD":
            key, value = (value, second) if self._python < (3, 8) else (second, value)
            new: ast.expr = self._merged(into, self._make.dictionary([key], [value]), instruction)
        elif name in ("DICT_UPDATE", "DICT_MERGE"):
            new = self._merged(into, value, instruction)
        elif not isinstance(into, ast.Set if name.startswith("SET") else ast.List):
            # Only a way that was not taken each time makes it something else.
            raise Refused(f"a comprehension with a condition ({self._where(instruction)})")
        else:
            whole = name in ("LIST_EXTEND", "SET_UPDATE")
            more = self.elements(value, instruction) if whole else [value]
            new = self._grown(into, more)
        stack[-depth] = new

    def _grown(self, into: ast.List | ast.Set, more: list[ast.expr]) -> ast.expr:
        if isinstance(into, ast.Set):
            return self._make.set_of([*into.elts, *more])
        return self._make.sequence(ast.List, [*into.elts, *more])


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
