"""Branches of which one way leads to nothing but an exception: `assert`, and `if a: raise`.

What raised in the old program never gave a model, so the other way is the one that was taken.
Pure: blocks in, blocks out.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from keras_mp.compat.code_objects.blocks import BRANCHES, Block
from keras_mp.compat.code_objects.opcodes import named

GUARD = "GUARD"  # no instruction of Python: takes what was asked off the stack

_RAISES = "RAISE_VARARGS"
# What is not read, and does nothing but to make the exception.
_PASSED = named("LOAD_ASSERTION_ERROR FORMAT_VALUE BUILD_STRING")


def without_raises(blocks: Sequence[Block], spend: Callable[[int], None]) -> tuple[Block, ...]:
    """Returns blocks in which no branch leads to an exception, where it has another way."""
    if not any(block.instructions[-1].name == _RAISES for block in blocks):
        return tuple(blocks)
    doomed: set[int] = set()
    before = -1
    while before != len(doomed):
        before = len(doomed)
        spend(1 + len(blocks) // 8)
        for number in reversed(range(len(blocks))):
            if _is_doomed(number, blocks[number], doomed):
                doomed.add(number)
    return tuple(
        block if number in doomed else _guarded(block, doomed)
        for number, block in enumerate(blocks)
    )


def _is_doomed(number: int, block: Block, doomed: set[int]) -> bool:
    last = block.instructions[-1].name
    if last == _RAISES:
        return True
    after = (number + 1,) if last in _PASSED and not block.after else block.after
    return bool(after) and all(other in doomed for other in after)


def _guarded(block: Block, doomed: set[int]) -> Block:
    last = block.instructions[-1]
    if last.name not in BRANCHES or not doomed.intersection(block.after):
        return block
    falls, jumps = block.after
    kept = jumps not in doomed and last.name.endswith("_OR_POP")
    new = replace(last, name="NOP" if kept else GUARD, target=-1)
    after = falls if jumps in doomed else jumps
    return replace(block, instructions=(*block.instructions[:-1], new), after=(after,))
