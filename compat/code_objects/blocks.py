"""A block: instructions that run from the first to the last, and what can follow."""

from dataclasses import dataclass

from keras_mp.compat.code_objects.instructions import Instruction
from keras_mp.compat.code_objects.opcodes import named

BRANCHES = named(
    "POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP"
    " POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_NOT_NONE"
    " POP_JUMP_FORWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_NONE"
    " POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE"
)
JUMPS = frozenset({"JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD"})


@dataclass(frozen=True, slots=True)
class Block:
    """Some instructions in a row.

    Attributes:
        instructions: At least one; only the last may jump.
        after: Numbers of the blocks that can follow: where it falls through first, then where
            it jumps. None if it returns, or ends in what is not read, or runs off the end.
        passing: Whether it only moves values about, and has one block that follows.
    """

    instructions: tuple[Instruction, ...]
    after: tuple[int, ...]
    passing: bool
