"""What each instruction does with the values on the stack, where a value is an expression.

Knows one instruction at a time; `walking.py` knows which comes next.
"""

import ast
import bisect
from collections.abc import Callable, Container, Sequence
from typing import Protocol

from keras_mp.compat.code_objects import (
    inner_functions,
    lists,
    modules,
    operators,
    scopes,
    unpacking,
)
from keras_mp.compat.code_objects.containers import ADDING, Containers
from keras_mp.compat.code_objects.errors import Malformed, Refused, Underflow
from keras_mp.compat.code_objects.expressions import Expressions, identifier
from keras_mp.compat.code_objects.guards import GUARD
from keras_mp.compat.code_objects.instructions import Instruction, lines
from keras_mp.compat.code_objects.known import Known
from keras_mp.compat.code_objects.marshalled import Code
from keras_mp.compat.code_objects.opcodes import Version, named
from keras_mp.compat.code_objects.operands import Operands
from keras_mp.compat.code_objects.stack_items import (
    LEFT,
    NULL,
    Cell,
    Frame,
    Going,
    Item,
    Made,
    Module,
    Variables,
)
from keras_mp.compat.code_objects.steps import Names
from keras_mp.compat.code_objects.supported import COMPREHENSIONS, reason

_TAKE_A_GENERATOR = frozenset({"sum", "tuple", "list", "max", "min", "any", "all", "sorted"})


class Calls(Protocol):
    """What becomes of functions that are made within this one."""

    def unrolled(self, made: Made, going: Going) -> ast.expr:
        """Returns what a comprehension gives, from its function and what it goes over."""

    def inlined(
        self,
        made: Made,
        values: Sequence[Item],
        keywords: Sequence[tuple[str, Item]],
        *,
        steps: bool,
    ) -> ast.expr:
        """Returns what another function gives."""


class Effects:
    """The instructions of one code object.

    Args:
        code: It.
        python: The version of its instructions.
        expressions: Makes the nodes.
        names: Of the function that is read, which this one is or is in.
        known: What is known of values.
        calls: Walks the functions within this one.
        grows: Whether it may change lists.
        spend: Called with the size of each piece of work; raises when there was too much.

    Attributes:
        lists: Those that the function makes.
        operands: Takes values off the stack.
        frame: The variables as the last instruction found them.
        guards: How many conditions were passed whose other way is an exception.
    """

    def __init__(
        self,
        code: Code,
        python: Version,
        expressions: Expressions,
        names: Names,
        known: Known,
        calls: Calls,
        grows: bool,
        spend: Callable[[int], None],
    ) -> None:
        self._code = code
        self._python = python
        self._make = expressions
        self._names = names
        self._known = known
        self._calls = calls
        self._spend = spend
        self.lists = lists.Lists(expressions, names, grows)
        self.operands = Operands(expressions, names, spend)
        self._containers = Containers(self.operands, expressions, python, spend, self.where)
        self._given: set[ast.expr] = set()  # by loops
        self.frame = Frame({})
        self.guards = 0
        self._keywords: tuple[str, ...] | None = None
        self._lines: list[tuple[int, int | None]] | None = None
        self._stored = 0  # names, by the instructions just before this one

    def where(self, instruction: Instruction) -> str:
        """Returns an instruction with its line."""
        if self._lines is None:
            self._spend(len(self._code.lines) // 32)
            self._lines = list(lines(self._code, self._python))
        place = bisect.bisect_right(self._lines, instruction.offset, key=lambda one: one[0])
        line = self._lines[place][1] if place < len(self._lines) else None
        text = f"at byte {instruction.offset}" if line is None else f"in line {line}"
        return f"{instruction.name} {text}"

    def apply(
        self, instruction: Instruction, stack: list[Item], variables: Variables, steps: bool
    ) -> Variables:
        """Changes the stack as an instruction does, and returns the variables after it.

        Args:
            instruction: One that is supported, and does not jump.
            stack: The values; the last is on top.
            variables: Not changed.
            steps: Whether to make a step of what is stored in a variable.
        """
        self._spend(1)
        self.frame.variables = variables
        name = instruction.name
        if self._keywords is not None and name not in ("PRECALL", "CALL"):
            raise Malformed(f"has {name} where a call belongs")
        if name in ("STORE_FAST", "STORE_DEREF"):
            return self._store(instruction, stack, variables, steps)
        self._stored = 0
        if name in ("LOAD_FAST", "LOAD_DEREF"):
            stack.append(self.variable(instruction.text, variables))
        elif name in ("UNPACK_SEQUENCE", "UNPACK_EX"):
            self._unpack(instruction, stack, steps)
        elif name in ("MAKE_FUNCTION", "MAKE_CLOSURE"):
            where = self.where(instruction)
            stack.append(
                inner_functions.made_function(
                    self.operands, self._python, instruction, stack, self.frame, where
                )
            )
        elif name in ("CALL", "CALL_FUNCTION", "CALL_METHOD", "CALL_FUNCTION_KW"):
            return self._call(instruction, stack, variables, steps)
        elif name == "CALL_FUNCTION_EX":
            self._call_of_sequences(instruction, stack, steps)
        elif name in scopes.ENTERING:
            of = self.operands.popped(stack)
            stack += scopes.items_of_scope(self._make, of, self.where(instruction))
        elif name in scopes.LEAVING:
            scopes.leave(name, stack)
        elif name in _INPLACE and self.lists.are_grown:
            return self._operate_in_place(instruction, stack, variables, steps)
        elif name.startswith("BUILD_"):
            self._containers.build(instruction, stack)
        elif name in ADDING:
            self._containers.add(instruction, stack)
        elif name in _MOVING:
            self._move(instruction, stack)
        elif not self._load(instruction, stack):
            self._operate(instruction, stack)
        return variables

    # Variables.

    def variable(self, name: str, variables: Variables) -> Item:
        """Returns what a variable is, read anew."""
        if name not in variables:
            raise Malformed(f"looks at {name[:40]!r} before it is set")
        value = variables[name]
        if value is None:
            raise Refused(f"a variable that is not set on all ways, {name[:40]}")
        return self._make.name(value) if isinstance(value, str) else value

    def _store(
        self, instruction: Instruction, stack: list[Item], variables: Variables, steps: bool
    ) -> Variables:
        name, item = instruction.text, self.operands.pop(stack)
        if instruction.name == "STORE_DEREF" and name in self._code.free:
            raise Refused(f"{reason(instruction.name)} ({self.where(instruction)})")
        self._spend(1 + (len(variables) + len(stack)) // 8)
        if isinstance(item, Module):
            modules.reserve(self._names, item)
        if isinstance(item, Made | Module):
            return {**variables, identifier(name): item}
        value = self.operands.expression(item)
        if value in self._given and not self._make.facts(value).calls:
            return {**variables, identifier(name): value}
        if isinstance(value, ast.List) and self.lists.are_grown:
            kept = self.lists.kept(value, steps)
            stack[:] = [kept if one is value else one for one in stack]
            return {**variables, identifier(name): kept}
        if not steps:
            self._make.owe(value)
            return {**variables, name: value}
        again = [place for place, item in enumerate(stack) if item is value]
        for item in stack[: again[0]] if again else ():
            if isinstance(item, ast.expr) and self._make.facts(item).calls:
                raise Refused(f"a name given within an expression ({self.where(instruction)})")
        new = self._names.step(name, value, self._stored_too_soon(value))
        self._stored += 1
        for place in again:
            stack[place] = self._make.name(new)
        return {**variables, name: new}

    def _stored_too_soon(self, value: ast.expr) -> int:
        """Returns how many names set just before have values that were made after this one.

        3.11 sets the names of `a, b = f(x), g(x)` from right to left, the others do not.
        """
        steps = self._names.steps[len(self._names.steps) - self._stored :]
        self._spend(len(steps) // 4)
        age = self._make.facts(value).age
        return sum(1 for _, other in steps if self._make.facts(other).age > age)

    def mark_given(self, item: ast.expr) -> ast.expr:
        """Takes note that a loop gives a value, so that it needs no name of its own."""
        self._given.add(item)
        self._stored = 0
        return item

    def _unpack(self, instruction: Instruction, stack: list[Item], steps: bool) -> None:
        value = self.operands.popped(stack)
        starred = instruction.name == "UNPACK_EX"
        before, after = instruction.argument & 255, instruction.argument >> 8
        if not starred:
            before, after = instruction.argument, 0
        self._spend(before + after)
        parts = unpacking.parts_of(value)
        if parts is not None:
            self._spend(len(parts) // 8)
            items = unpacking.shared_out(self._make, parts, before, after, starred)
            if value in self._given:
                self._given.update(items)
        else:
            if steps and not isinstance(value, ast.Name):
                value = self._make.name(self._names.add_invented("parts", value))
            items = unpacking.places_of(self._make, value, before, after, starred)
        stack += reversed(items)

    def _iterator(self, stack: list[Item]) -> None:
        over = self.operands.popped(stack)
        stack.append(Going(self._known.items(over), 0, over))

    def _is_global(self, node: ast.expr, names: Container[str]) -> bool:
        return isinstance(node, ast.Name) and node.id in names and self._names.is_global(node.id)

    # Calls.

    def _call(
        self, instruction: Instruction, stack: list[Item], variables: Variables, steps: bool
    ) -> Variables:
        keywords, self._keywords = self._keywords or (), None
        call = inner_functions.call_of(self.operands, self._python, instruction, keywords, stack)
        return self._value_of_call(*call, stack, variables, steps)

    def _value_of_call(
        self,
        of: Item,
        arguments: list[Item],
        given: list[tuple[str, Item]],
        stack: list[Item],
        variables: Variables,
        steps: bool,
    ) -> Variables:
        """Puts what a call gives on the stack, and returns the variables after it."""
        if of is LEFT:
            stack.append(self._make.constant(None))
            return variables
        if isinstance(of, Made):
            if len(arguments) == 1 and isinstance(arguments[0], Going):
                stack.append(self._comprehension(of, arguments[0]))
            else:
                stack.append(self._calls.inlined(of, arguments, given, steps=steps))
            return variables
        called = self.operands.expression(of)
        values = [self.operands.expression(item) for item in arguments]
        keywords = [(name, self.operands.expression(item)) for name, item in given]
        if self.lists.is_change(called):
            changed = self.lists.changed(called, values, keywords, steps)
            stack.append(self._make.constant(None))
            return self.lists.replaced(*changed, stack, variables)
        stack.append(self._called(called, values, keywords))
        return variables

    def _called(
        self, of: ast.expr, values: list[ast.expr], given: Sequence[tuple[str, ast.expr]]
    ) -> ast.expr:
        if self._is_global(of, _TAKE_A_GENERATOR) and len(values) == 1:
            values = [self._make.listed(values[0])]
        return self._make.call(of, values, given)

    def _comprehension(self, of: Made, over: Going) -> ast.expr:
        if of.code.name not in COMPREHENSIONS:
            raise Malformed("calls a function with an iterator")
        if over.items is None:
            text = self._make.text(over.over, 60)
            what = f"a comprehension over {text}, whose items are not known here ({of.where})"
            return self._make.missing("comprehension", what)
        return self._calls.unrolled(of, over)

    def _call_of_sequences(self, instruction: Instruction, stack: list[Item], steps: bool) -> None:
        spread = self.operands.popped(stack) if instruction.argument & 1 else None
        values = self._containers.elements(self.operands.popped(stack), instruction)
        of = self.operands.pop(stack)
        if self._python >= (3, 11) and self.operands.pop(stack) is not NULL:
            raise Malformed("calls without a NULL")
        if not isinstance(spread, ast.Dict | None):
            raise Refused(f"something spread with * or ** ({self.where(instruction)})")
        keywords: list[tuple[str, ast.expr]] = []
        if spread is not None:
            keys = inner_functions.texts([key for key in spread.keys if key is not None])
            keywords = list(zip(keys, spread.values, strict=True))
        if isinstance(of, Made):
            stack.append(self._calls.inlined(of, values, keywords, steps=steps))
        else:
            stack.append(self._called(self.operands.expression(of), list(values), keywords))

    # What moves, loads and computes.

    def _move(self, instruction: Instruction, stack: list[Item]) -> None:
        name, count = instruction.name, instruction.argument
        if name == GUARD:
            self.operands.popped(stack)
            self.guards += 1
        elif name == "POP_TOP":
            top = self.operands.pop(stack)
            if isinstance(top, ast.expr) and self._make.is_lost(top):
                raise Refused(f"a call whose value is not used ({self.where(instruction)})")
        elif name.startswith("ROT_"):
            count = {"TWO": 2, "THREE": 3, "FOUR": 4}.get(name[4:], count)
            moved = self.operands.several(stack, max(count, 1))
            stack += [moved[-1], *moved[:-1]]
        elif name == "SWAP":
            moved = self.operands.several(stack, max(count, 1))
            stack += [moved[-1], *moved[1:-1], moved[0]] if count > 1 else moved
        elif name == "COPY":
            if not 1 <= count <= len(stack):
                raise Underflow(f"copies value {count} of {len(stack)}")
            stack.append(stack[-count])
        elif name in ("DUP_TOP", "DUP_TOP_TWO"):
            tops = self.operands.several(stack, 1 if name == "DUP_TOP" else 2)
            stack += [*tops, *tops]

    def _load(self, instruction: Instruction, stack: list[Item]) -> bool:
        name, text = instruction.name, instruction.text
        match name:
            case "LOAD_CONST":
                value = self._code.constants[instruction.argument]
                self._spend(len(value) // 32 if isinstance(value, tuple) else 0)
                stack.append(value if isinstance(value, Code) else self._make.constant(value))
            case "LOAD_CLOSURE":
                stack.append(Cell(text))
            case "LOAD_GLOBAL":
                if text in self._names.own or text in self._code.variables:
                    raise Malformed(f"has a global {text[:40]!r} beside a variable of that name")
                if self._python >= (3, 11) and instruction.argument & 1:
                    stack.append(NULL)
                stack.append(self._make.name(text))
            case "IMPORT_NAME":
                level, wanted = self.operands.several(stack, 2)
                stack.append(modules.module_of_import(text, *map(_written, (level, wanted))))
            case "IMPORT_FROM":
                of = stack[-1] if stack else None
                if not isinstance(of, Module):
                    raise Malformed("imports from what is no module")
                self._spend(1 + len(of.name) // 16)
                stack.append(modules.within(of, text))
            case "LOAD_ATTR":
                stack.append(self._attribute(self.operands.pop(stack), text))
            case "LOAD_METHOD":
                method = self._attribute(self.operands.pop(stack), text)
                stack += [NULL, method] if self._python >= (3, 11) else [method, NULL]
            case "PUSH_NULL" | "RETURN_GENERATOR":
                stack.append(NULL)
            case "KW_NAMES":
                names = self._code.constants[instruction.argument]
                if not isinstance(names, tuple):
                    raise Malformed("has something else where keywords belong")
                self._keywords = inner_functions.all_texts(names)
            case "GET_ITER":
                self._iterator(stack)
            case "LIST_TO_TUPLE":
                given = self.operands.popped(stack)
                if not isinstance(given, ast.List):
                    raise Malformed("makes a tuple of no list")
                stack.append(self._make.sequence(ast.Tuple, given.elts))
            case _:
                return False
        return True

    def _attribute(self, of: Item, name: str) -> Item:
        if isinstance(of, Module):
            self._spend(1 + len(of.name) // 16)
            return modules.within(of, name)
        return self._make.attribute(self.operands.expression(of), name)

    def _operate_in_place(
        self, instruction: Instruction, stack: list[Item], variables: Variables, steps: bool
    ) -> Variables:
        """Computes `left += right`, where a list is changed for all that have it."""
        left, right = stack[-2:] if len(stack) > 1 else (NULL, NULL)
        is_sum = operators.is_sum_in_place(instruction)
        if is_sum and isinstance(left, ast.Name):
            self.lists.check_not_one(left)
        match left, right:
            case ast.List(), ast.List(more) | ast.Tuple(more) if is_sum and self.lists.has(left):
                del stack[-2:]
                new = self.lists.extended(left, more, steps)
                stack.append(new)
                return self.lists.replaced(left, new, stack, variables)
        self._operate(instruction, stack)
        return variables

    def _operate(self, instruction: Instruction, stack: list[Item]) -> None:
        name = instruction.name
        if name in operators.UNARY:
            stack.append(operators.unary(self._make, name, self.operands.popped(stack)))
            return
        right = self.operands.pop(stack)
        left = self.operands.popped(stack)
        if name == "BINARY_SUBSCR":
            if not isinstance(right, ast.expr):
                right = self.operands.expression(right)
            stack.append(self._member(left, right) or self._make.item(left, right))
            return
        right = self.operands.expression(right)
        whole = self._joined(instruction, left, right)
        if whole is not None:
            stack.append(whole)
            return
        stack.append(operators.binary(self._make, self._python, instruction, left, right))

    def _joined(self, instruction: Instruction, left: ast.expr, right: ast.expr) -> ast.expr | None:
        """Returns `left + right` of lists, where the first is one that this function makes."""
        if not isinstance(left, ast.List) or not isinstance(right, ast.List):
            return None
        if not operators.is_sum(instruction) or not self.lists.has(left):
            return None
        return self._make.sequence(ast.List, [*left.elts, *right.elts])

    def _member(self, of: ast.expr, key: ast.expr) -> ast.expr | None:
        """Returns what is at a place that is known, in a list that this function makes."""
        if not isinstance(of, ast.List) or not self.lists.has(of):
            return None
        place = self._known.integer(key)
        if place is None or not -len(of.elts) <= place < len(of.elts):
            return None
        return of.elts[place]


_NOTHING = scopes.PASSED | frozenset(
    {"NOP", "SETUP_LOOP", "RESUME", "PRECALL", "MAKE_CELL", "COPY_FREE_VARS", "GEN_START"}
)
_MOVING = (
    _NOTHING
    | {GUARD}
    | named("POP_TOP ROT_TWO ROT_THREE ROT_FOUR ROT_N SWAP COPY DUP_TOP DUP_TOP_TWO")
)
_INPLACE = frozenset({"BINARY_OP", "INPLACE_ADD"})


def _written(item: Item) -> object:
    """Returns a constant, or a tuple of them; () for None, so that it is not taken for one."""
    if isinstance(item, ast.Tuple):
        return tuple(one.value for one in item.elts if isinstance(one, ast.Constant))
    return item.value if isinstance(item, ast.Constant) else ()
