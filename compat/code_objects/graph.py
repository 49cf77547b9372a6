"""Blocks of instructions that run from their first to their last, and which follow which.

Pure: lists of instructions in, numbers out. What a block does is `effects.py`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from keras_mp.compat.code_objects.blocks import BRANCHES, JUMPS, Block
from keras_mp.compat.code_objects.guards import without_raises
from keras_mp.compat.code_objects.instructions import Instruction

# The end of `a < b < c` where b is not needed any more, and what only jumps.
_PASSING = frozenset({(), ("POP_TOP",), ("ROT_TWO", "POP_TOP"), ("SWAP", "POP_TOP")})
_LOADS = frozenset({"LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE", "DELETE_FAST", "DELETE_DEREF"})
_STORES = frozenset({"STORE_FAST", "STORE_DEREF"})
_LONGEST_COPY = 4  # MAX_COPY_SIZE of Python/compile.c of 3.10


class Graph:
    """The blocks of one function.

    Args:
        instructions: All of them.
        supported: Whether an instruction can be read; one that cannot ends its block.
        spend: Called with the size of each piece of work; raises when there was too much.
    """

    def __init__(
        self,
        instructions: Sequence[Instruction],
        supported: Callable[[Instruction], bool],
        spend: Callable[[int], None],
    ) -> None:
        self._spend = spend
        spend(len(instructions))
        blocks = _blocks(instructions, supported)
        jumps = _ends_of_ways(blocks, lambda block: block.passing and not _moves(block))
        asking = [_with_question(block, blocks, jumps) for block in blocks]
        self.blocks = without_raises(asking, spend)
        self._origins = _ends_of_ways(self.blocks, lambda block: block.passing)
        self.end = len(self.blocks)  # the number that stands for "returned"
        self._same = _same_ends(self.blocks)
        after = self._reached()
        self.arrivals = Counter(other for others in after.values() for other in others)
        self._dominators = _dominators(self.first, after, spend)
        self._joins = _dominators(self.end, self._reversed(after), spend)

    @property
    def first(self) -> int:
        """The number of the block that runs first."""
        return self.entered(0)

    def passed(self, number: int) -> Iterator[Block]:
        """Yields the blocks that only move values about, from a block to the next real one."""
        while self.blocks[number].passing:
            self._spend(1)
            yield self.blocks[number]
            (number,) = self.blocks[number].after

    def entered(self, number: int) -> int:
        """Returns the number of the next block, from a block on, that does something."""
        number = self.origin(number)
        return self._same.get(number, number)

    def origin(self, number: int) -> int:
        """Returns the same, where it is a copy of another."""
        return self._origins[number]

    def join(self, one: int, other: int) -> int:
        """Returns the first block that all ways from two blocks lead to; `end` if they return."""
        seen = set(self._chain(self._joins, one))
        return next((n for n in self._chain(self._joins, other) if n in seen), self.end)

    def dominates(self, one: int, other: int) -> bool:
        """Returns whether all ways to a block lead through another."""
        return one in self._chain(self._dominators, other)

    def needs(self, variable: str, number: int) -> bool:
        """Returns whether a variable, as it is before a block, is looked at from there on."""
        waiting, seen = [number], {number}
        while waiting:
            block = self.blocks[waiting.pop()]
            self._spend(1 + len(block.instructions) // 8)
            for instruction in block.instructions:
                if instruction.text == variable:
                    if instruction.name in _LOADS:
                        return True
                    if instruction.name in _STORES:
                        break
            else:
                new = {self.entered(other) for other in block.after} - seen
                seen |= new
                waiting += new
        return False

    def _chain(self, over: dict[int, int], number: int) -> Iterator[int]:
        while True:
            self._spend(1)
            yield number
            above = over.get(number, number)
            if above == number:
                return
            number = above

    def _reached(self) -> dict[int, list[int]]:
        after: dict[int, list[int]] = {}
        waiting = [self.first]
        while waiting:
            number = waiting.pop()
            if number in after:
                continue
            others = [self.entered(other) for other in self.blocks[number].after]
            after[number] = others
            waiting += others
        return after

    def _reversed(self, after: dict[int, list[int]]) -> dict[int, list[int]]:
        before: dict[int, list[int]] = {self.end: []}
        for number, others in after.items():
            for other in others or [self.end]:
                before.setdefault(other, []).append(number)
        return before


def _blocks(
    instructions: Sequence[Instruction], supported: Callable[[Instruction], bool]
) -> tuple[Block, ...]:
    begins = {0}
    for place, instruction in enumerate(instructions):
        if instruction.target >= 0:
            begins.add(instruction.target)
        if instruction.target >= 0 or not supported(instruction) or _returns(instruction):
            begins.add(place + 1)
    begins.discard(len(instructions))
    starts = _with_tails(instructions, sorted(begins))
    numbers = {start: number for number, start in enumerate(starts)}
    blocks = []
    for start, end in zip(starts, [*starts[1:], len(instructions)], strict=True):
        content = tuple(instructions[start:end])
        last = content[-1]
        after: tuple[int, ...] = ()
        if supported(last) and last.name in JUMPS:
            after = (numbers[last.target],)
        elif supported(last) and not _returns(last) and end < len(instructions):
            after = (numbers[end], *([numbers[last.target]] if last.target >= 0 else []))
        block = Block(content, after, len(after) == 1)
        blocks.append(replace(block, passing=block.passing and _moves(block) in _PASSING))
    return tuple(blocks)


def _ends_of_ways(blocks: Sequence[Block], is_passed: Callable[[Block], bool]) -> dict[int, int]:
    """Maps each block to the next that is not passed."""
    ends: dict[int, int] = {}
    for number in reversed(range(len(blocks))):
        if is_passed(blocks[number]):
            # What jumps back leads to the beginning of a loop, which is not passed.
            (after,) = blocks[number].after
            ends[number] = ends.get(after, after)
        else:
            ends[number] = number
    return ends


def _with_question(block: Block, blocks: Sequence[Block], jumps: dict[int, int]) -> Block:
    """Returns a block with the branch that comes after it, if it leads to nothing else."""
    if len(block.after) != 1 or block.instructions[-1].name == "FOR_ITER":
        return block
    asking = blocks[jumps[block.after[0]]]
    if len(asking.instructions) > 1 or len(asking.after) != 2:
        return block
    if asking.instructions[0].name not in BRANCHES:
        return block
    last = block.instructions[-1].name in JUMPS
    before = block.instructions[: -1 if last else None]
    return Block((*before, *asking.instructions), asking.after, False)


def _with_tails(instructions: Sequence[Instruction], starts: list[int]) -> list[int]:
    """Cuts blocks that return where 3.10 may have put a copy of what comes after an `if`.

    It copies up to four instructions. They come after a variable that is set, after what a
    comparison leaves on the stack, or are a block of their own elsewhere.
    """
    cuts = set(starts)
    for start, end in _returning(instructions, starts):
        stored = [i + 1 for i in range(start, end) if instructions[i].name in _STORES]
        firsts = [(i, tuple(instructions[start:i])) for i in (start + 1, start + 2) if i < end]
        passed = [i for i, first in firsts if _names(first) in _PASSING]
        cuts |= {*stored[-1:], *passed[-1:]}
    ends = _returning(instructions, sorted(cuts))
    tails = {_key(instructions[start:end]) for start, end in ends if end - start > 1}
    for start, end in ends:
        for cut in range(max(start + 1, end - _LONGEST_COPY), end - 1):
            if _key(instructions[cut:end]) in tails:
                cuts.add(cut)
                break
    return sorted(cuts)


def _moves(block: Block) -> tuple[str, ...]:
    """Returns the instructions of a block without jumps."""
    return _names(block.instructions)


def _names(instructions: Sequence[Instruction]) -> tuple[str, ...]:
    return tuple(i.name for i in instructions if i.name not in JUMPS and i.name != "NOP")


def _returning(instructions: Sequence[Instruction], starts: Sequence[int]) -> list[tuple[int, int]]:
    """Returns where the blocks that return begin and end."""
    ends = [*starts[1:], len(instructions)]
    return [
        (start, end)
        for start, end in zip(starts, ends, strict=True)
        if _returns(instructions[end - 1])
    ]


def _key(instructions: Sequence[Instruction]) -> tuple[tuple[str, int], ...]:
    return tuple((one.name, one.argument) for one in instructions)


def _returns(instruction: Instruction) -> bool:
    return instruction.name == "RETURN_VALUE"


def _same_ends(blocks: Sequence[Block]) -> dict[int, int]:
    """Maps blocks to the first that does the same and returns: 3.10 and 3.11 copy short ones."""
    firsts: dict[tuple[tuple[str, int], ...], int] = {}
    same = {}
    runs: dict[int, tuple[tuple[str, int], ...]] = {}
    for number in reversed(range(len(blocks))):
        block = blocks[number]
        key = _key(block.instructions)
        if _returns(block.instructions[-1]):
            runs[number] = key
        elif block.after == (number + 1,) and number + 1 in runs:
            runs[number] = key + runs[number + 1]
        if len(runs.get(number, ())) > _LONGEST_COPY:
            del runs[number]
    for number in sorted(runs):
        same[number] = firsts.setdefault(runs[number], number)
    return same


def _dominators(
    root: int, after: dict[int, list[int]], spend: Callable[[int], None]
) -> dict[int, int]:
    """Returns the nearest number that all ways from the root to a number lead through.

    Source: Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", 2001.
    """
    order = _after_order(root, after)
    rank = {number: place for place, number in enumerate(order)}
    before: dict[int, list[int]] = {number: [] for number in order}
    for number in order:
        for other in after.get(number, ()):
            before[other].append(number)
    above = {root: root}
    changed = True
    while changed:
        changed = False
        spend(1 + len(order) // 8)
        for number in reversed(order[:-1]):
            known = [one for one in before[number] if one in above]
            best = known[0]
            for one in known[1:]:
                while one != best:
                    spend(1)
                    if rank[one] < rank[best]:
                        one = above[one]
                    else:
                        best = above[best]
            if above.get(number) != best:
                above[number] = best
                changed = True
    return above


def _after_order(root: int, after: dict[int, list[int]]) -> list[int]:
    """Returns the numbers that the root reaches, each after those that it leads to."""
    order, seen = [], {root}
    waiting = [(root, iter(after.get(root, ())))]
    while waiting:
        number, others = waiting[-1]
        for other in others:
            if other not in seen:
                seen.add(other)
                waiting.append((other, iter(after.get(other, ()))))
                break
        else:
            order.append(number)
            waiting.pop()
    return order
