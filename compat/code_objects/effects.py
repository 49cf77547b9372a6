"""What each instruction does with the values on the stack, where a value is an expression.

Knows one instruction at a time; `walking.py` knows which comes next.
"""

import ast
import bisect
from collections.abc import Callable, Container, Sequence
from typing import Protocol

from keras_mp.compat.code_objects import lists, modules, opcodes, scopes
from keras_mp.compat.code_objects.errors import Malformed, Refused, Underflow
from keras_mp.compat.code_objects.expressions import Expressions, identifier
from keras_mp.compat.code_objects.guards import GUARD
from keras_mp.compat.code_objects.instructions import Instruction, lines
from keras_mp.compat.code_objects.known import Known
from keras_mp.compat.code_objects.marshalled import Code
from keras_mp.compat.code_objects.opcodes import Version, named
from keras_mp.compat.code_objects.stack_items import (
    LEFT,
    NULL,
    Cell,
    Cells,
    Frame,
    Going,
    Item,
    Made,
    Module,
    Variables,
)
from keras_mp.compat.code_objects.steps import Names
from keras_mp.compat.code_objects.supported import COMPREHENSIONS, OPERATORS, reason

_TAKE_A_GENERATOR = frozenset({"sum", "tuple", "list", "max", "min", "any", "all", "sorted"})

_BINARY: dict[str, type[ast.operator]] = {
    "+": ast.Add,
    "&": ast.BitAnd,
    "//": ast.FloorDiv,
    "<<": ast.LShift,
    "@": ast.MatMult,
    "*": ast.Mult,
    "%": ast.Mod,
    "|": ast.BitOr,
    "**": ast.Pow,
    ">>": ast.RShift,
    "-": ast.Sub,
    "/": ast.Div,
    "^": ast.BitXor,
}
_UNARY: dict[str, type[ast.unaryop]] = {
    "UNARY_POSITIVE": ast.UAdd,
    "UNARY_NEGATIVE": ast.USub,
    "UNARY_NOT": ast.Not,
    "UNARY_INVERT": ast.Invert,
}
_COMPARISONS: dict[str, type[ast.cmpop]] = {
    "<": ast.Lt,
    "<=": ast.LtE,
    "==": ast.Eq,
    "!=": ast.NotEq,
    ">": ast.Gt,
    ">=": ast.GtE,
    "in": ast.In,
    "not in": ast.NotIn,
    "is": ast.Is,
    "is not": ast.IsNot,
}


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
            self._function(instruction, stack)
        elif name in ("CALL", "CALL_FUNCTION", "CALL_METHOD", "CALL_FUNCTION_KW"):
            return self._call(instruction, stack, variables, steps)
        elif name == "CALL_FUNCTION_EX":
            self._call_of_sequences(instruction, stack, steps)
        elif name in scopes.ENTERING:
            of = self.popped(stack)
            stack += scopes.entered(self._make, of, self.where(instruction))
        elif name in scopes.LEAVING:
            scopes.leave(name, stack)
        elif name in _INPLACE and self.lists.are_grown:
            return self._operate_in_place(instruction, stack, variables, steps)
        elif name.startswith("BUILD_"):
            self._build(instruction, stack)
        elif name in _ADDING:
            self._add(instruction, stack)
        elif name in _MOVING:
            self._move(instruction, stack)
        elif not self._load(instruction, stack):
            self._operate(instruction, stack)
        return variables

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
        return self.expression(self._pop(stack))

    def _pop(self, stack: list[Item]) -> Item:
        if not stack:
            raise Underflow("takes a value from an empty stack")
        return stack.pop()

    def _several(self, stack: list[Item], count: int) -> list[Item]:
        if count > len(stack):
            raise Underflow(f"takes {count} values from a stack of {len(stack)}")
        self._spend(count // 8)
        taken = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        return taken

    def _values(self, stack: list[Item], count: int) -> list[ast.expr]:
        return [self.expression(item) for item in self._several(stack, count)]

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
        name, item = instruction.text, self._pop(stack)
        if instruction.name == "STORE_DEREF" and name in self._code.free:
            raise Refused(f"{reason(instruction.name)} ({self.where(instruction)})")
        self._spend(1 + (len(variables) + len(stack)) // 8)
        if isinstance(item, Module):
            modules.reserve(self._names, item)
        if isinstance(item, Made | Module):
            return {**variables, identifier(name): item}
        value = self.expression(item)
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

    def given(self, item: ast.expr) -> ast.expr:
        """Takes note that a loop gives a value, so that it needs no name of its own."""
        self._given.add(item)
        self._stored = 0
        return item

    def _unpack(self, instruction: Instruction, stack: list[Item], steps: bool) -> None:
        value = self.popped(stack)
        starred = instruction.name == "UNPACK_EX"
        before, after = instruction.argument & 255, instruction.argument >> 8
        if not starred:
            before, after = instruction.argument, 0
        self._spend(before + after)
        parts = self._parts(value)
        if parts is not None:
            self._spend(len(parts) // 8)
            items = self._shared_out(parts, before, after, starred)
            if value in self._given:
                self._given.update(items)
        else:
            if steps and not isinstance(value, ast.Name):
                value = self._make.name(self._names.invented("parts", value))
            items = [self._place(value, place) for place in range(before)]
            if starred:
                items.append(self._rest(value, before, after))
            items += [self._place(value, place) for place in range(-after, 0)]
        stack += reversed(items)

    def _parts(self, value: ast.expr) -> list[ast.expr] | None:
        if not isinstance(value, ast.Tuple | ast.List):
            return None
        return None if any(isinstance(one, ast.Starred) for one in value.elts) else value.elts

    def _shared_out(
        self, parts: list[ast.expr], before: int, after: int, starred: bool
    ) -> list[ast.expr]:
        least = before + after
        if len(parts) < least or (len(parts) > least and not starred):
            raise Refused(f"an unpacking of {len(parts)} values to {least} names")
        if not starred:
            return parts
        end = len(parts) - after
        rest = self._make.sequence(ast.List, parts[before:end])
        return [*parts[:before], rest, *parts[end:]]

    def _place(self, of: ast.expr, place: int) -> ast.expr:
        return self._make.item(of, self._make.constant(place))

    def _rest(self, of: ast.expr, before: int, after: int) -> ast.expr:
        lower = self._make.constant(before) if before else None
        upper = self._make.constant(-after) if after else None
        parts = [one for one in (lower, upper) if one is not None]
        key = self._make.made(ast.Slice(lower=lower, upper=upper, step=None), parts)
        whole = self._make.starred(self._make.item(of, key))
        return self._make.sequence(ast.List, [whole])

    # Functions within this one.

    def _function(self, instruction: Instruction, stack: list[Item]) -> None:
        if self._python < (3, 11) and not _is_text(self._pop(stack)):
            raise Malformed("makes a function without a name")
        code = self._pop(stack)
        if not isinstance(code, Code):
            raise Malformed("makes a function of no code")
        flags, cells = instruction.argument, Cells(())
        if self._python < (3, 6):
            # Defaults, defaults of keywords with their names, annotations.
            closed = instruction.name == "MAKE_CLOSURE"
            others = (flags & 255) + 2 * (flags >> 8 & 255) + (flags >> 16)
        else:
            closed, others = bool(flags & 8), (flags & 7).bit_count()
        if closed:
            top = self._pop(stack)
            if not isinstance(top, Cells):
                raise Malformed("makes a closure of no cells")
            cells = top
        values = self._several(stack, others)
        if cells.names != code.free:
            raise Malformed("makes a closure of other variables than it has")
        defaults, kwdefaults = self._defaults(flags, values)
        where = self.where(instruction)
        stack.append(Made(code, self.frame, where, defaults, kwdefaults))

    def _defaults(
        self, flags: int, values: list[Item]
    ) -> tuple[tuple[ast.expr, ...], tuple[tuple[str, ast.expr], ...]]:
        if self._python < (3, 6):
            # Those of keywords come after their names.
            end = (flags & 255) + 2 * (flags >> 8 & 255)
            positional = values[: flags & 255]
            named = [self.expression(item) for item in values[flags & 255 : end]]
            pairs = zip(_texts(named[::2]), named[1::2], strict=True)
            return tuple(self.expression(item) for item in positional), tuple(pairs)
        whole = self.expression(values[0]) if flags & 1 else None
        by_name = self.expression(values[flags & 1]) if flags & 2 else None
        if not isinstance(whole, ast.Tuple | None) or not isinstance(by_name, ast.Dict | None):
            raise Malformed("makes a function with other defaults than values")
        keys = by_name.keys if by_name else []
        names = _texts([key for key in keys if key is not None])
        pairs = zip(names, by_name.values if by_name else [], strict=True)
        return tuple(whole.elts if whole else ()), tuple(pairs)

    def _iterator(self, stack: list[Item]) -> None:
        over = self.popped(stack)
        stack.append(Going(self._known.items(over), 0, over))

    def _is_global(self, node: ast.expr, names: Container[str]) -> bool:
        return isinstance(node, ast.Name) and node.id in names and self._names.is_global(node.id)

    # Calls.

    def _call(
        self, instruction: Instruction, stack: list[Item], variables: Variables, steps: bool
    ) -> Variables:
        name, count, keywords = instruction.name, instruction.argument, self._keywords or ()
        self._keywords = None
        given: list[tuple[str, Item]] = []
        if self._python < (3, 6):
            flat, count = self._several(stack, 2 * (count >> 8)), count & 255
            given = list(zip(_texts(flat[::2]), flat[1::2], strict=True))
        elif name == "CALL_FUNCTION_KW":
            names = self._pop(stack)
            keywords = _texts(names.elts if isinstance(names, ast.Tuple) else [names])
        if len(keywords) > count:
            raise Malformed(f"names {len(keywords)} of {count} arguments")
        arguments = self._several(stack, count)
        of = self._pop(stack)
        if name == "CALL_METHOD":
            if of is not NULL:
                raise Malformed("calls a method that it did not load")
            of = self._pop(stack)
        elif name == "CALL":
            below = self._pop(stack)
            if below is not NULL:
                of, arguments = below, [of, *arguments]
        split = len(arguments) - len(keywords)
        given += zip(keywords, arguments[split:], strict=True)
        return self._value_of_call(of, arguments[:split], given, stack, variables, steps)

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
        called = self.expression(of)
        values = [self.expression(item) for item in arguments]
        keywords = [(name, self.expression(item)) for name, item in given]
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
        spread = self.popped(stack) if instruction.argument & 1 else None
        values = self._elements(self.popped(stack), instruction)
        of = self._pop(stack)
        if self._python >= (3, 11) and self._pop(stack) is not NULL:
            raise Malformed("calls without a NULL")
        if not isinstance(spread, ast.Dict | None):
            raise Refused(f"something spread with * or ** ({self.where(instruction)})")
        keywords: list[tuple[str, ast.expr]] = []
        if spread is not None:
            keys = _texts([key for key in spread.keys if key is not None])
            keywords = list(zip(keys, spread.values, strict=True))
        if isinstance(of, Made):
            stack.append(self._calls.inlined(of, values, keywords, steps=steps))
        else:
            stack.append(self._called(self.expression(of), list(values), keywords))

    # Tuples, lists, sets, dictionaries and slices.

    def _build(self, instruction: Instruction, stack: list[Item]) -> None:
        name, count = instruction.name, instruction.argument
        if name.endswith(("_UNPACK", "_UNPACK_WITH_CALL")):
            self._build_of_several(instruction, stack)
        elif name == "BUILD_SLICE":
            if count not in (2, 3):
                raise Malformed(f"makes a slice of {count}")
            parts = [None if _is_none(one) else one for one in self._values(stack, count)]
            lower, upper, step = (*parts, None)[:3]
            node = ast.Slice(lower=lower, upper=upper, step=step)
            stack.append(self._make.made(node, [one for one in parts if one is not None]))
        elif name == "BUILD_MAP":
            flat = self._values(stack, 2 * count)
            stack.append(self._make.dictionary(flat[::2], flat[1::2]))
        elif name == "BUILD_CONST_KEY_MAP":
            keys = self.popped(stack)
            if not isinstance(keys, ast.Tuple) or len(keys.elts) != count:
                raise Malformed("makes a dictionary of other keys than values")
            stack.append(self._make.dictionary(keys.elts, self._values(stack, count)))
        elif name == "BUILD_TUPLE":
            stack.append(self._tuple(self._several(stack, count)))
        elif name == "BUILD_LIST":
            stack.append(self._make.sequence(ast.List, self._values(stack, count)))
        else:
            stack.append(self._make.set_of(self._values(stack, count)))

    def _tuple(self, items: list[Item]) -> Item:
        cells = tuple(item.name for item in items if isinstance(item, Cell))
        if cells and len(cells) == len(items):
            return Cells(cells)
        # One that goes into [] may have slices, which `expression` does not let by.
        members = [i if isinstance(i, ast.Slice) else self.expression(i) for i in items]
        return self._make.sequence(ast.Tuple, members)

    def _build_of_several(self, instruction: Instruction, stack: list[Item]) -> None:
        name, count = instruction.name, instruction.argument
        if name == "BUILD_MAP_UNPACK_WITH_CALL" and self._python < (3, 6):
            count &= 255
        parts = self._values(stack, count)
        if name.startswith("BUILD_MAP"):
            whole = self._make.dictionary([], [])
            for part in parts:
                whole = self._merged(whole, part, instruction)
            stack.append(whole)
            return
        members = [one for part in parts for one in self._elements(part, instruction)]
        if name == "BUILD_SET_UNPACK":
            stack.append(self._make.set_of(members))
        else:
            kind = ast.List if name == "BUILD_LIST_UNPACK" else ast.Tuple
            stack.append(self._make.sequence(kind, members))

    def _elements(self, of: ast.expr, instruction: Instruction) -> list[ast.expr]:
        into_set = instruction.name in ("SET_UPDATE", "BUILD_SET_UNPACK")
        if isinstance(of, ast.Tuple | ast.List) or (into_set and isinstance(of, ast.Set)):
            self._spend(len(of.elts) // 8)
            return of.elts
        if not into_set and not isinstance(of, ast.Set | ast.Dict):
            return [self._make.starred(of)]
        raise Refused(f"something spread with * or ** ({self.where(instruction)})")

    def _merged(self, into: ast.expr, of: ast.expr, instruction: Instruction) -> ast.Dict:
        if isinstance(into, ast.Dict) and isinstance(of, ast.Dict):
            keys = [key for key in (*into.keys, *of.keys) if key is not None]
            self._spend(len(keys) // 8)
            return self._make.dictionary(keys, [*into.values, *of.values])
        raise Refused(f"something spread with * or ** ({self.where(instruction)})")

    def _add(self, instruction: Instruction, stack: list[Item]) -> None:
        name, depth = instruction.name, instruction.argument
        value = self.popped(stack)
        if name == "YIELD_VALUE":
            # What it gave is at the bottom of the stack of a generator; None is what it is sent.
            stack.append(self._make.constant(None))
            depth = len(stack)
        second = self.popped(stack) if name == "MAP_ADD" else value
        if not 1 <= depth <= len(stack):
            raise Underflow(f"adds to value {depth} of {len(stack)}")
        if name == "YIELD_VALUE" and isinstance(stack[-depth], Going):
            raise Underflow("adds to what was there before")
        into = self.expression(stack[-depth])
        self._spend(1 + self._make.facts(into).size // 32)
        if name == "MAP_ADD":
            key, value = (value, second) if self._python < (3, 8) else (second, value)
            new: ast.expr = self._merged(into, self._make.dictionary([key], [value]), instruction)
        elif name in ("DICT_UPDATE", "DICT_MERGE"):
            new = self._merged(into, value, instruction)
        elif not isinstance(into, ast.Set if name.startswith("SET") else ast.List):
            # Only a way that was not taken each time makes it something else.
            raise Refused(f"a comprehension with a condition ({self.where(instruction)})")
        else:
            whole = name in ("LIST_EXTEND", "SET_UPDATE")
            more = self._elements(value, instruction) if whole else [value]
            new = self._grown(into, more)
        stack[-depth] = new

    def _grown(self, into: ast.List | ast.Set, more: list[ast.expr]) -> ast.expr:
        if isinstance(into, ast.Set):
            return self._make.set_of([*into.elts, *more])
        return self._make.sequence(ast.List, [*into.elts, *more])

    # What moves, loads and computes.

    def _move(self, instruction: Instruction, stack: list[Item]) -> None:
        name, count = instruction.name, instruction.argument
        if name == GUARD:
            self.popped(stack)
            self.guards += 1
        elif name == "POP_TOP":
            top = self._pop(stack)
            if isinstance(top, ast.expr) and self._make.is_lost(top):
                raise Refused(f"a call whose value is not used ({self.where(instruction)})")
        elif name.startswith("ROT_"):
            count = {"TWO": 2, "THREE": 3, "FOUR": 4}.get(name[4:], count)
            moved = self._several(stack, max(count, 1))
            stack += [moved[-1], *moved[:-1]]
        elif name == "SWAP":
            moved = self._several(stack, max(count, 1))
            stack += [moved[-1], *moved[1:-1], moved[0]] if count > 1 else moved
        elif name == "COPY":
            if not 1 <= count <= len(stack):
                raise Underflow(f"copies value {count} of {len(stack)}")
            stack.append(stack[-count])
        elif name in ("DUP_TOP", "DUP_TOP_TWO"):
            tops = self._several(stack, 1 if name == "DUP_TOP" else 2)
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
                level, wanted = self._several(stack, 2)
                stack.append(modules.imported(text, *map(_written, (level, wanted))))
            case "IMPORT_FROM":
                of = stack[-1] if stack else None
                if not isinstance(of, Module):
                    raise Malformed("imports from what is no module")
                self._spend(1 + len(of.name) // 16)
                stack.append(modules.within(of, text))
            case "LOAD_ATTR":
                stack.append(self._attribute(self._pop(stack), text))
            case "LOAD_METHOD":
                method = self._attribute(self._pop(stack), text)
                stack += [NULL, method] if self._python >= (3, 11) else [method, NULL]
            case "PUSH_NULL" | "RETURN_GENERATOR":
                stack.append(NULL)
            case "KW_NAMES":
                names = self._code.constants[instruction.argument]
                if not isinstance(names, tuple):
                    raise Malformed("has something else where keywords belong")
                self._keywords = _all_texts(names)
            case "GET_ITER":
                self._iterator(stack)
            case "LIST_TO_TUPLE":
                given = self.popped(stack)
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
        return self._make.attribute(self.expression(of), name)

    def _operate_in_place(
        self, instruction: Instruction, stack: list[Item], variables: Variables, steps: bool
    ) -> Variables:
        """Computes `left += right`, where a list is changed for all that have it."""
        left, right = stack[-2:] if len(stack) > 1 else (NULL, NULL)
        is_sum = instruction.name == "INPLACE_ADD" or instruction.argument == ADD_IN_PLACE
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
        name, argument = instruction.name, instruction.argument
        if name in _UNARY:
            stack.append(self._make.unary(_UNARY[name](), self.popped(stack)))
            return
        right = self._pop(stack)
        left = self.popped(stack)
        if name == "BINARY_SUBSCR":
            if not isinstance(right, ast.expr):
                right = self.expression(right)
            stack.append(self._member(left, right) or self._make.item(left, right))
            return
        right = self.expression(right)
        whole = self._joined(instruction, left, right)
        if whole is not None:
            stack.append(whole)
            return
        if name == "BINARY_OP":
            if argument >= 2 * len(opcodes.OPERATORS):
                raise Malformed(f"has the operator {argument}")
            operator = opcodes.OPERATORS[argument % len(opcodes.OPERATORS)]
            stack.append(self._make.binary(left, _BINARY[operator](), right))
        elif name in ("COMPARE_OP", "IS_OP", "CONTAINS_OP"):
            compared = _COMPARISONS[self._comparison(name, argument)]
            stack.append(self._make.comparison(left, compared(), right))
        else:
            operator = OPERATORS[name.partition("_")[2]]
            stack.append(self._make.binary(left, _BINARY[operator](), right))

    def _joined(self, instruction: Instruction, left: ast.expr, right: ast.expr) -> ast.expr | None:
        """Returns `left + right` of lists, where the first is one that this function makes."""
        is_sum = instruction.name == "BINARY_ADD" or (
            instruction.name == "BINARY_OP" and instruction.argument == 0
        )
        if not is_sum or not isinstance(left, ast.List) or not isinstance(right, ast.List):
            return None
        if not self.lists.has(left):
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

    def _comparison(self, name: str, argument: int) -> str:
        if name == "IS_OP" and argument < 2:
            return ("is", "is not")[argument]
        if name == "CONTAINS_OP" and argument < 2:
            return ("in", "not in")[argument]
        most = 6 if self._python >= (3, 9) else len(opcodes.COMPARISONS)
        if name != "COMPARE_OP" or argument >= most:
            raise Malformed(f"has {name} {argument}")
        return opcodes.COMPARISONS[argument]


_NOTHING = scopes.PASSED | frozenset(
    {"NOP", "SETUP_LOOP", "RESUME", "PRECALL", "MAKE_CELL", "COPY_FREE_VARS", "GEN_START"}
)
_MOVING = (
    _NOTHING
    | {GUARD}
    | named("POP_TOP ROT_TWO ROT_THREE ROT_FOUR ROT_N SWAP COPY DUP_TOP DUP_TOP_TWO")
)
_INPLACE = frozenset({"BINARY_OP", "INPLACE_ADD"})
ADD_IN_PLACE = 13  # of BINARY_OP
_ADDING = named(
    "LIST_APPEND LIST_EXTEND SET_ADD SET_UPDATE MAP_ADD DICT_UPDATE DICT_MERGE YIELD_VALUE"
)


def _texts(nodes: Sequence[Item]) -> tuple[str, ...]:
    return _all_texts([n.value if isinstance(n, ast.Constant) else None for n in nodes])


def _all_texts(values: Sequence[object]) -> tuple[str, ...]:
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) != len(values):
        raise Malformed("has something else where keywords belong")
    return tuple(texts)


def _written(item: Item) -> object:
    """Returns a constant, or a tuple of them; () for None, so that it is not taken for one."""
    if isinstance(item, ast.Tuple):
        return tuple(one.value for one in item.elts if isinstance(one, ast.Constant))
    return item.value if isinstance(item, ast.Constant) else ()


def _is_text(item: Item) -> bool:
    return isinstance(item, ast.Constant) and isinstance(item.value, str)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
