"""The walk over a function: which block comes next, and what a branch makes of its two ways.

Where ways part, both are walked to the block that all ways lead to, and what differs there becomes
`a if test else b`. Branches that only ask more are joined before that, so that no block is walked
for each of them.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from keras_mp.compat.code_objects import conditions, scopes
from keras_mp.compat.code_objects.arguments import Argument, variables_of_call
from keras_mp.compat.code_objects.blocks import BRANCHES, JUMPS, Block
from keras_mp.compat.code_objects.effects import Effects
from keras_mp.compat.code_objects.errors import Malformed, Refused, Underflow
from keras_mp.compat.code_objects.expressions import Expressions, truth
from keras_mp.compat.code_objects.forks import Fork, State, Way, chosen, joined_fork
from keras_mp.compat.code_objects.graph import Graph
from keras_mp.compat.code_objects.instructions import Instruction, instructions_of, simplified
from keras_mp.compat.code_objects.known import Known
from keras_mp.compat.code_objects.lists import CHANGES
from keras_mp.compat.code_objects.marshalled import Code
from keras_mp.compat.code_objects.opcodes import Version
from keras_mp.compat.code_objects.operators import is_sum_in_place
from keras_mp.compat.code_objects.stack_items import LEFT, Going, Item, Made, Variables
from keras_mp.compat.code_objects.steps import Names
from keras_mp.compat.code_objects.supported import COMPREHENSIONS, is_supported, reason

MOST_NESTED = 30  # branches, and comprehensions, within each other

_ASYNC = 0x80 | 0x100 | 0x200  # CO_COROUTINE, CO_ITERABLE_COROUTINE, CO_ASYNC_GENERATOR
_STORES = frozenset({"STORE_FAST", "STORE_DEREF"})


@dataclass(frozen=True, slots=True)
class Setting:
    """What the walks over a function and the comprehensions in it share.

    Attributes:
        python: The version that wrote it.
        make: Makes the nodes.
        names: Names of the result.
        known: What is known of values.
        spend: Called with the size of each piece of work; raises when there was too much.
    """

    python: Version
    make: Expressions
    names: Names
    known: Known
    spend: Callable[[int], None]


class _NotACondition(Exception):
    """A block does more than to ask."""


class _Paused(Exception):
    """The next instruction takes what was on the stack before this walk began.

    Args:
        number: The block.
        place: The instruction in it.
        stacks: What that instruction, and each before it in the block, found, without what was
            there before.
        variables: What it finds.
    """

    def __init__(
        self, number: int, place: int, stacks: Sequence[tuple[Item, ...]], variables: Variables
    ) -> None:
        super().__init__(number, place, stacks, variables)
        self.number = number
        self.place = place
        self.stacks = stacks
        self.variables = variables


class Walk:
    """A walk over one code object.

    Args:
        setting: What is shared.
        code: The code object.
        nested: How many walks this one is in.

    Attributes:
        stack: The values in the block that was walked last.
    """

    def __init__(self, setting: Setting, code: Code, nested: int = 0) -> None:
        if nested > MOST_NESTED:
            raise Refused(f"more than {MOST_NESTED} functions within each other")
        self.stack: list[Item] = []
        self._setting = setting
        self._make = setting.make
        self._code = code
        self._nested = nested
        self._asking = 0
        self._pausing = 0
        self._passed: set[ast.expr] = set()  # conditions before another whose way is an exception
        instructions = instructions_of(code, setting.python)
        if code.handlers and not scopes.are_of_scopes(code.handlers, instructions):
            raise Refused("try or with")
        self._instructions = simplified(instructions, code)
        names = {instruction.name for instruction in self._instructions}
        self._decides = "FOR_ITER" in names or nested > 0
        self._effects = Effects(
            code,
            setting.python,
            setting.make,
            setting.names,
            setting.known,
            self,
            not CHANGES.isdisjoint(code.names) or _adds_in_place(self._instructions),
            setting.spend,
        )
        self._graph = Graph(self._instructions, self._is_read, setting.spend)

    def value(self, state: State, steps: bool) -> ast.expr:
        """Returns what the function returns.

        Args:
            state: What it begins with.
            steps: Whether a variable that is set becomes a step; if not, it is its value wherever
                it is used.
        """
        self._effects.frame.variables = state.variables
        number, state = self._entered(0, list(state.stack), state.variables)
        value = self._walked(number, state, self._graph.end, steps)
        if isinstance(value, State):
            raise Malformed("does not return")
        self._effects.frame.is_open = False
        self._effects.lists.given_away(value)
        return value

    def _is_read(self, instruction: Instruction) -> bool:
        if not is_supported(instruction.name, self._code, self._setting.python):
            return False
        if instruction.target < 0:
            return True
        to = self._instructions[instruction.target]
        return to.offset > instruction.offset or to.name == "FOR_ITER"

    def _walked(
        self, number: int, state: State, until: int, steps: bool, place: int = 0
    ) -> State | ast.expr:
        """Walks from a block to another, or returns what is returned before that."""
        while number != until:
            block = self._graph.blocks[number]
            if self._asking and not _only_asks(block):
                raise _NotACondition
            stack, variables = self._through(number, state, steps, place)
            place, last = 0, block.instructions[-1]
            if last.name == "RETURN_VALUE":
                return self._returned(stack)
            if not block.after:
                raise Refused(self._why(last))
            if last.name == "FOR_ITER":
                number, state = self._gone_on(block, stack, variables)
            elif last.name not in BRANCHES:
                number, state = self._entered(block.after[0], stack, variables)
            else:
                fork = self._fork(block, stack, variables)
                way = self._only_way(fork) or self._only_way(fork := self._reduced(fork))
                if way:
                    number, state = way.number, way.state
                    continue
                met = self._met(fork, self._join(fork, until), steps)
                if isinstance(met, ast.expr):
                    return met
                number, place, state = met
        return state

    def _join(self, fork: Fork, until: int) -> int:
        if fork.leads_to_copies and until == self._graph.end:
            return until
        return self._graph.join(fork.yes.number, fork.no.number)

    def _only_way(self, fork: Fork) -> Way | None:
        """Returns the way that is always taken, if there is one."""
        if fork.asks_nothing:
            self._check_used(fork.test)
            return fork.yes
        known = truth(fork.test)
        if known is None and self._decides:
            known = self._setting.known.truth(fork.test)
        return None if known is None else fork.yes if known else fork.no

    def _why(self, last: Instruction) -> str:
        if self._is_read(last):
            raise Malformed("runs off its end")
        known = is_supported(last.name, self._code, self._setting.python)
        # What is known jumps back.
        return f"{'a loop' if known else reason(last.name)} ({self._effects.where(last)})"

    def _through(
        self, number: int, state: State, steps: bool, place: int = 0
    ) -> tuple[list[Item], Variables]:
        """Returns the stack and the variables before the jump, or the return, that ends a block."""
        stack, variables = list(state.stack), state.variables
        self.stack = stack
        instructions = self._graph.blocks[number].instructions
        last = instructions[-1]
        ends = last.name in _ENDS or not self._is_read(last)
        stacks: list[tuple[Item, ...]] = []
        for at in range(place, len(instructions) - ends):
            if self._pausing:
                stacks.append(tuple(stack))
                self._setting.spend(len(stack) // 8)
            try:
                variables = self._effects.apply(instructions[at], stack, variables, steps)
            except Underflow:
                if self._pausing:
                    raise _Paused(number, at, stacks, variables) from None
                raise
            # What a generator gave is one more.
            if len(stack) > self._code.stack + 1:
                raise Malformed(f"keeps more values than the {self._code.stack} it says")
        return stack, variables

    def _entered(self, number: int, stack: list[Item], variables: Variables) -> tuple[int, State]:
        """Returns the next block that does something, and what it finds."""
        self.stack = stack
        for block in self._graph.passed(number):
            for instruction in block.instructions:
                if instruction.name not in JUMPS:
                    self._effects.apply(instruction, stack, variables, False)
        self._setting.spend(1 + len(stack) // 8)
        return self._graph.entered(number), State(tuple(stack), variables)

    def _returned(self, stack: list[Item]) -> ast.expr:
        value = self._effects.operands.popped(stack)
        if self._code.name == "<genexpr>" and len(stack) == 1:
            given = stack.pop()
            if not isinstance(given, ast.List):
                raise Refused("a comprehension with a condition")
            value = self._make.generator(given.elts)
        stack = self._left(stack)
        if stack:
            raise Malformed(f"returns with {len(stack)} values on the stack")
        return value

    def _left(self, stack: Sequence[Item]) -> list[Item]:
        """Returns what must not be on the stack where a function returns.

        Before 3.8, nothing takes away what loops and `with` put there.
        """
        if self._setting.python >= (3, 8):
            return list(stack)
        return [item for item in stack if item is not LEFT and not isinstance(item, Going)]

    # Loops, comprehensions, and other functions within this one.

    def _gone_on(self, block: Block, stack: list[Item], variables: Variables) -> tuple[int, State]:
        going = stack.pop() if stack else None
        if not isinstance(going, Going):
            raise Malformed("goes over what is no iterator")
        if going.items is None:
            text = self._make.text(going.over, 60)
            what = "a comprehension" if self._code.name in COMPREHENSIONS else "a loop"
            raise Refused(f"{what} over {text}, whose items are not known here")
        if going.at == len(going.items):
            return self._entered(block.after[1], stack, variables)
        item = self._effects.mark_given(going.items[going.at])
        stack += [replace(going, at=going.at + 1), item]
        return self._entered(block.after[0], stack, variables)

    def unrolled(self, made: Made, going: Going) -> ast.expr:
        """Returns what a comprehension gives."""
        code = made.code
        if code.flags & _ASYNC:
            raise Refused(f"async ({made.where})")
        if len(code.parameters) != 1:
            raise Malformed("has a comprehension of several parameters")
        inner = Walk(self._setting, code, self._nested + 1)
        variables: Variables = {**_shared(made), code.parameters[0]: going}
        given = [self._make.sequence(ast.List, [])] if code.name == "<genexpr>" else []
        return inner.value(State(tuple(given), variables), steps=False)

    def inlined(
        self,
        made: Made,
        values: Sequence[Item],
        keywords: Sequence[tuple[str, Item]],
        *,
        steps: bool,
    ) -> ast.expr:
        """Returns what another function gives, which is called here."""
        if made.code.name in COMPREHENSIONS:
            raise Malformed("calls a comprehension without an iterator")
        if not made.frame.is_open:
            raise Refused(f"a function of a function that has ended ({made.where})")
        given = variables_of_call(self._make, made, values, keywords)
        if steps:
            given = {name: self._named(name, item) for name, item in given.items()}
        inner = Walk(self._setting, made.code, self._nested + 1)
        return inner.value(State((), {**_shared(made), **given}), steps)

    def _named(self, name: str, item: Argument) -> Argument:
        """Returns an argument, which is a step of its own if it is called."""
        if not isinstance(item, ast.expr) or not self._make.facts(item).calls:
            return item
        if isinstance(item, ast.List) and self._effects.lists.has(item):
            return item
        return self._make.name(self._setting.names.step(name, item))

    # Branches.

    def _fork(self, block: Block, stack: list[Item], variables: Variables) -> Fork:
        last = block.instructions[-1]
        test = self._effects.operands.popped(stack)
        jumps_if = not last.name.endswith(("_IF_FALSE", "_IF_FALSE_OR_POP", "_IF_NOT_NONE"))
        if last.name.endswith("_NONE"):
            test = self._make.comparison(test, ast.Is(), self._make.constant(None))
        kept = [test] if last.name.endswith("_OR_POP") else []
        falls = self._way(block.after[0], list(stack), variables)
        jumps = self._way(block.after[1], [*stack, *kept], variables)
        yes, no = (jumps, falls) if jumps_if else (falls, jumps)
        return Fork(test, yes, no, not jumps_if)

    def _way(self, number: int, stack: list[Item], variables: Variables) -> Way:
        entered, state = self._entered(number, stack, variables)
        return Way(entered, self._graph.origin(number), state)

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._nested += 1
        if self._nested > MOST_NESTED:
            raise Refused(f"more than {MOST_NESTED} branches within each other")
        try:
            yield
        finally:
            self._nested -= 1

    def _met(self, fork: Fork, until: int, steps: bool) -> tuple[int, int, State] | ast.expr:
        """Returns where both ways of a branch lead (block, place in it) and what is found there.

        If both return, it is what they return.

        3.10 copies what follows `a if b else c` in a larger expression, if that is short. The
        copies begin where an instruction takes what was on the stack before. So both ways are
        walked without that; if both come to such an instruction, that is where they meet.
        """
        depth, guards, owed = _depth_before(fork), self._effects.guards, len(self._make.owed)
        one, other = self._both(fork, until, depth) if depth or self._pausing else (None, None)
        if type(one) is not type(other) or one is None or not self._can_meet(one, other):
            depth = 0
            del self._make.owed[owed:]
            one, other = self._both(fork, until, None)
        if self._effects.guards > guards:
            self._passed.add(fork.test)
        yes, no = (one, other) if fork.falls else (other, one)
        before = fork.yes.state.stack[:depth]
        if isinstance(yes, State) and isinstance(no, State):
            state = self._merged(fork, yes, no, until, steps)
            return until, 0, State((*before, *state.stack), state.variables)
        if isinstance(yes, _Paused) and isinstance(no, _Paused):
            return self._merged_in_copies(fork, yes, no, before)
        if isinstance(yes, ast.expr) and isinstance(no, ast.expr) and not self._left(before):
            return conditions.conditional(self._make, fork.test, yes, no, fork.falls)
        raise Malformed("goes different ways with the same values")

    def _both(
        self, fork: Fork, until: int, depth: int | None
    ) -> tuple["State | ast.expr | _Paused", "State | ast.expr | _Paused"]:
        """Walks both ways in the order of the code, without so many values of the stack.

        With a number, an instruction that takes more makes a pause.
        """
        first, second = (fork.yes, fork.no) if fork.falls else (fork.no, fork.yes)
        with self._deeper():
            return self._one(first, until, depth), self._one(second, until, depth)

    def _one(self, way: Way, until: int, depth: int | None) -> "State | ast.expr | _Paused":
        if depth is None:
            return self._walked(way.number, way.state, until, False)
        state = State(way.state.stack[depth:], way.state.variables)
        self._pausing += 1
        try:
            return self._walked(way.number, state, until, False)
        except _Paused as paused:
            return paused
        finally:
            self._pausing -= 1

    def _can_meet(self, one: object, other: object) -> bool:
        if not isinstance(one, _Paused) or not isinstance(other, _Paused) or self._pausing:
            return True
        return one.variables is other.variables and self._back_to_one(one, other) is not None

    def _merged_in_copies(
        self, fork: Fork, yes: _Paused, no: _Paused, before: tuple[Item, ...]
    ) -> tuple[int, int, State]:
        back = self._back_to_one(yes, no)
        if back is None or yes.variables is not no.variables:
            raise Malformed("goes on in two ways with the same values")
        one, other = (State(paused.stacks[-1 - back], paused.variables) for paused in (yes, no))
        state = self._merged(fork, one, other, yes.number, False)
        return yes.number, yes.place - back, State((*before, *state.stack), state.variables)

    def _back_to_one(self, one: _Paused, other: _Paused) -> int | None:
        """Returns how many instructions before a pause two ways differ in one value only."""
        first, second = (
            [(i.name, i.argument) for i in self._graph.blocks[paused.number].instructions]
            for paused in (one, other)
        )
        ends = [
            [self._graph.entered(number) for number in self._graph.blocks[paused.number].after]
            for paused in (one, other)
        ]
        if first[one.place :] != second[other.place :] or ends[0] != ends[1]:
            return None
        for back, (found, others) in enumerate(
            zip(reversed(one.stacks), reversed(other.stacks), strict=False)
        ):
            if back and first[one.place - back] != second[other.place - back]:
                return None
            if len(found) == len(others):
                pairs = zip(found, others, strict=True)
                if sum(1 for a, b in pairs if a is not b) <= 1:
                    return back
        return None

    def _reduced(self, fork: Fork) -> Fork:
        """Returns a branch with those that only ask more joined to it."""
        with self._deeper():
            while not fork.asks_nothing:
                further = self._joined(fork)
                if further is None:
                    break
                fork = further
        return fork

    def _joined(self, fork: Fork) -> Fork | None:
        def of_three(yes: Fork) -> Fork | None:
            return self._condition(fork.no, lambda no: chosen(self._make, fork, yes, no))

        return (
            self._condition(fork.yes, lambda inner: joined_fork(self._make, fork, True, inner))
            or self._condition(fork.no, lambda inner: joined_fork(self._make, fork, False, inner))
            or self._condition(fork.yes, of_three)
        )

    def _condition(self, way: Way, joining: Callable[[Fork], Fork | None]) -> Fork | None:
        """Returns what a way can be joined to, if it leads to nothing but another question."""
        number, place, state = way.number, 0, way.state
        if way.count != self._graph.arrivals[number]:
            return None
        self._asking += 1
        try:
            while self._graph.dominates(way.number, number):
                block = self._graph.blocks[number]
                if not _only_asks(block):
                    return None
                stack, variables = self._through(number, state, False, place)
                place = 0
                if block.instructions[-1].name not in BRANCHES:
                    number, state = self._entered(block.after[0], stack, variables)
                    continue
                fork = self._reduced(self._fork(block, stack, variables))
                found = joining(fork)
                if found or fork.asks_nothing or truth(fork.test) is not None:
                    return found
                number = self._graph.join(fork.yes.number, fork.no.number)
                if number == self._graph.end:
                    return None
                met = self._met(fork, number, False)
                if isinstance(met, ast.expr):
                    return None
                number, place, state = met
        except _NotACondition:
            return None
        finally:
            self._asking -= 1
        return None

    def _merged(self, fork: Fork, yes: State, no: State, number: int, steps: bool) -> State:
        """Returns what is found where two ways meet."""
        if len(yes.stack) != len(no.stack):
            raise Malformed("meets with different values on the stack")
        self._setting.spend(1 + len(yes.stack) // 8)
        places = [i for i, item in enumerate(yes.stack) if item is not no.stack[i]]
        variables, names = self._different(yes.variables, no.variables, number)
        if not places and not names:
            self._check_used(fork.test)
        test, value = fork.test, fork.test
        if len(places) + len(names) > 1 and steps and self._make.facts(test).calls:
            value = self._make.name(self._setting.names.add_invented("condition", test))

        def choice(one: Item, other: Item) -> ast.expr:
            first, second = (
                value if item is test else self._effects.operands.expression(item)
                for item in (one, other)
            )
            return conditions.conditional(self._make, value, first, second, fork.falls)

        stack = list(yes.stack)
        for place in places:
            stack[place] = choice(yes.stack[place], no.stack[place])
        for name in names:
            node = choice(*(self._effects.variable(name, v.variables) for v in (yes, no)))
            variables[name] = self._setting.names.step(name, node) if steps else node
        return State(tuple(stack), variables)

    def _different(self, yes: Variables, no: Variables, number: int) -> tuple[Variables, list[str]]:
        """Returns the variables of two ways, and the names of those that differ and are needed."""
        if yes is no:
            return yes, []
        self._setting.spend(1 + (len(yes) + len(no)) // 8)
        variables: Variables = {}
        names = []
        for name in (*yes, *(name for name in no if name not in yes)):
            one, other = yes.get(name), no.get(name)
            if one is other or (isinstance(one, str) and one == other):
                variables[name] = one
            elif one is None or other is None or not self._graph.needs(name, number):
                variables[name] = None
            else:
                names.append(name)
        return variables, names

    def _check_used(self, test: ast.expr) -> None:
        if self._make.facts(test).calls and test not in self._passed:
            if self._asking:
                raise _NotACondition
            raise Refused(f"a condition that changes nothing, {self._make.text(test, 60)}")


_ENDS = BRANCHES | JUMPS | {"RETURN_VALUE", "FOR_ITER"}


def _depth_before(fork: Fork) -> int:
    """Returns how many values were on the stack before a test, and are on both ways."""
    one, other = (
        stack[:-1] if stack and stack[-1] is fork.test else stack
        for stack in (fork.yes.state.stack, fork.no.state.stack)
    )
    pairs = enumerate(zip(one, other, strict=False))
    # A loop goes on with what is on the stack.
    ends = (place for place, (a, b) in pairs if a is not b or isinstance(a, Going))
    return next(ends, min(len(one), len(other)))


def _shared(made: Made) -> Variables:
    """Returns the variables that a function shares with the one that made it."""
    variables = made.frame.variables
    return {name: variables[name] for name in made.code.free if name in variables}


def _adds_in_place(instructions: Sequence[Instruction]) -> bool:
    return any(map(is_sum_in_place, instructions))


def _only_asks(block: Block) -> bool:
    names = {instruction.name for instruction in block.instructions}
    return bool(block.after) and "FOR_ITER" not in names and not names & _STORES
