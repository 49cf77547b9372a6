"""The instructions of a code object, with their arguments looked up and checked.

Two bytes each from 3.6 on, one or three before; EXTENDED_ARG is added to what follows it, and the
CACHE entries of 3.11 are left out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from keras_mp.compat.code_objects import opcodes
from keras_mp.compat.code_objects.errors import Malformed
from keras_mp.compat.code_objects.marshalled import Code, Constants
from keras_mp.compat.code_objects.opcodes import Version

MOST = 5_000  # a layer's function has a few dozen
_MOST_LOOPS = 20  # within each other, to Python
_MOST_PREFIXES = 3  # an argument has 32 bits at most
_BRANCH = re.compile(
    r"(?:POP_)?JUMP(?:_FORWARD|_BACKWARD)?_IF_(?P<if>TRUE|FALSE)(?P<kept>_OR_POP)?"
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        offset: Where it begins, in bytes, with its prefixes.
        name: Such as "LOAD_FAST", as its version calls it.
        argument: The number after it; 0 if it has none.
        text: The variable, global or attribute that the argument counts; empty if it counts none.
        target: The place in the list of the instruction that it jumps to; -1 if it does not jump.
    """

    offset: int
    name: str
    argument: int
    text: str = ""
    target: int = -1


def instructions_of(code: Code, python: Version) -> tuple[Instruction, ...]:
    """Returns the instructions of a function.

    Raises:
        Malformed: That version of Python has no such instructions.
    """
    raw = list(_with_prefixes(code.code, python))
    if not raw:
        raise Malformed("has no instructions")
    places = {start: place for place, (start, _, _, _) in enumerate(raw)}
    return tuple(
        Instruction(
            start,
            name,
            argument,
            _text(code, python, name, argument),
            _target(places, python, name, argument, after),
        )
        for start, after, name, argument in raw
    )


def has_lines_of_3_10(code: Code) -> bool:
    """Returns whether a function can be of 3.10 and not of 3.8 or 3.9: its line table is complete.

    These differ in what a jump counts.
    """
    return not len(code.lines) % 2 and sum(code.lines[::2]) == len(code.code)


def simplified(instructions: Sequence[Instruction], code: Code) -> tuple[Instruction, ...]:
    """Returns instructions that do the same, in one form for what versions write in several.

    - What asks for a constant jumps, or not.
    - What jumps to a return returns.
    - What jumps with a value to what asks for that value jumps on at once.
    - What begins a block of the interpreter does not jump; `break` takes the iterator away.
    """
    instructions = _without_breaks(instructions)
    result = list(instructions)
    targets = {instruction.target for instruction in instructions}
    for place, one in enumerate(instructions):
        if place and place not in targets:
            _decide(result, place, code)
        if one.name in ("JUMP_FORWARD", "JUMP_ABSOLUTE"):
            to = result[one.target]
            if to.name == "RETURN_VALUE":
                result[place] = replace(one, name=to.name, argument=to.argument, target=-1)
    for place in reversed(range(len(result))):
        result[place] = _threaded(result[place], result)
    return tuple(result)


def _without_breaks(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Returns instructions in which BREAK_LOOP, before 3.8, is what 3.8 writes."""
    result: list[Instruction] = []
    places = []
    loops: list[tuple[int, int]] = []  # where each ends, and where what is repeated ends
    for place, one in enumerate(instructions):
        places.append(len(result))
        while loops and loops[-1][0] <= place:
            loops.pop()
        if one.name == "SETUP_LOOP":
            loops.append((one.target, -1))
        elif one.name == "FOR_ITER" and loops:
            loops[-1] = (loops[-1][0], one.target)
        end = _end_of_loop(loops, place) if one.name == "BREAK_LOOP" else -1
        if end >= 0:
            result += [replace(one, name="POP_TOP"), replace(one, name="JUMP_FORWARD", target=end)]
        else:
            begins = one.name in ("SETUP_LOOP", "SETUP_WITH")
            result.append(replace(one, target=-1) if begins else one)
    return [one if one.target < 0 else replace(one, target=places[one.target]) for one in result]


def _end_of_loop(loops: Sequence[tuple[int, int]], place: int) -> int:
    """Returns where `break` leads to, or -1 if that is not out of a `for`."""
    for end, repeated in reversed(loops[-_MOST_LOOPS:]):
        if repeated > place:
            return end
        if repeated < 0:  # `while`
            break
    return -1


def _decide(result: list[Instruction], place: int, code: Code) -> None:
    before, branch = result[place - 1], result[place]
    kind = _BRANCH.fullmatch(branch.name)
    if before.name != "LOAD_CONST" or not kind:
        return
    value = code.constants[before.argument]
    if isinstance(value, Code | Constants):
        return
    jumps = bool(value) == (kind["if"] == "TRUE")
    if not (jumps and kind["kept"]):
        result[place - 1] = replace(before, name="NOP")
    if jumps:
        result[place] = replace(branch, name="JUMP_FORWARD")
    else:
        result[place] = replace(branch, name="NOP", target=-1)


def _threaded(one: Instruction, instructions: list[Instruction]) -> Instruction:
    kind = _BRANCH.fullmatch(one.name)
    if not kind or not kind["kept"]:
        return one
    to = instructions[one.target]
    next_kind = _BRANCH.fullmatch(to.name)
    if not next_kind or to.target <= one.target:
        return one
    if next_kind["if"] != kind["if"]:
        return replace(one, name=f"POP_JUMP_IF_{kind['if']}", target=one.target + 1)
    return replace(one, name=to.name, target=to.target)


def lines(code: Code, python: Version) -> Iterator[tuple[int, int | None]]:
    """Yields (end, line): the line of the source that the bytes up to an end come from."""
    if python >= (3, 11):
        yield from _lines_of_3_11(code)
        return
    line, at = code.line, 0
    for count, further in zip(code.lines[::2], code.lines[1::2], strict=False):
        signed = further - 256 if further > 127 and python >= (3, 6) else further
        at += count
        if python >= (3, 10):
            line += signed if signed != -128 else 0
            yield at, line if signed != -128 else None
        else:
            yield at, line
            line += signed
    if python < (3, 10):
        yield len(code.code), line


def _with_prefixes(data: bytes, python: Version) -> Iterator[tuple[int, int, str, int]]:
    """Yields (start with prefixes, end with caches, name, argument)."""
    start, prefix, prefixes, count = 0, 0, 0, 0
    caches = 0
    for at, after, number, argument in _pieces(data, python):
        name = opcodes.OPCODES[python].get(number)
        if name is None:
            raise Malformed(_unknown(number, python))
        if name == "EXTENDED_ARG":
            start = start if prefixes else at
            prefix, prefixes = (prefix | argument) << (16 if python < (3, 6) else 8), prefixes + 1
            if prefixes > (1 if python < (3, 6) else _MOST_PREFIXES):
                raise Malformed(f"has {prefixes} EXTENDED_ARG in a row")
            continue
        if name == "CACHE":
            raise Malformed(f"has a CACHE at {at}, where none belongs")
        caches = 2 * opcodes.CACHES.get(name, 0) if python >= (3, 11) else 0
        if any(data[after : after + caches : 2]) or after + caches > len(data):
            raise Malformed(f"has no CACHE after its {name} at {at}")
        yield start if prefixes else at, after + caches, name, prefix | argument
        prefix = prefixes = 0
        count += 1
        if count > MOST:
            raise Malformed(f"has more than {MOST} instructions")
    if prefixes:
        raise Malformed("ends within an instruction")


def _pieces(data: bytes, python: Version) -> Iterator[tuple[int, int, int, int]]:
    """Yields (start, end, number, argument) of what the bytes hold, without caches."""
    at = 0
    while at < len(data):
        number = data[at]
        size = 2 if python >= (3, 6) else 3 if number >= opcodes.HAVE_ARGUMENT else 1
        if at + size > len(data):
            raise Malformed("ends within an instruction")
        yield at, at + size, number, int.from_bytes(data[at + 1 : at + size], "little")
        at += size
        if python >= (3, 11):
            at += 2 * opcodes.CACHES.get(opcodes.OPCODES[python].get(number, ""), 0)


def _unknown(number: int, python: Version) -> str:
    text = f"has the instruction {number}, which Python {python[0]}.{python[1]} does not have"
    if number == ord("/"):
        text += " (Keras on Windows wrote it for 92, UNPACK_SEQUENCE, which cannot be undone)"
    return text


def _text(code: Code, python: Version, name: str, argument: int) -> str:
    if name in opcodes.OF_NAMES:
        place = argument >> 1 if name == "LOAD_GLOBAL" and python >= (3, 11) else argument
        return _counted(code.names, place, name)
    if name in opcodes.OF_VARIABLES:
        return _counted(code.variables, argument, name)
    if name in opcodes.OF_CELLS:
        return _counted(code.cells, argument, name)
    if name in opcodes.OF_CONSTANTS and argument >= len(code.constants):
        raise Malformed(f"takes constant {argument}, of {len(code.constants)}")
    return ""


def _counted(names: tuple[str, ...], place: int, name: str) -> str:
    if place >= len(names):
        raise Malformed(f"takes name {place}, of {len(names)}, in {name}")
    return names[place]


def _target(places: dict[int, int], python: Version, name: str, argument: int, after: int) -> int:
    unit = 2 if python >= (3, 10) else 1
    if python >= (3, 11):
        if name in opcodes.FORWARD:
            offset = after + unit * argument
        elif name in opcodes.BACKWARD:
            offset = after - unit * argument
        else:
            return -1
    elif name in opcodes.RELATIVE:
        offset = after + unit * argument
    elif name in opcodes.ABSOLUTE:
        offset = unit * argument
    else:
        return -1
    if offset not in places:
        raise Malformed(f"jumps to {offset}, where no instruction begins")
    return places[offset]


def _lines_of_3_11(code: Code) -> Iterator[tuple[int, int | None]]:
    """Source: Objects/locations.md of 3.11. Each entry begins with a byte of 128 or above."""
    table, line, covered, at = code.lines, code.line, 0, 0
    while at < len(table):
        kind, length = table[at] >> 3 & 15, (table[at] & 7) + 1
        end = at + 1
        while end < len(table) and table[end] < 128:
            end += 1
        if kind in (13, 14):
            line += _signed(table[at + 1 : end])
        elif kind in (10, 11, 12):
            line += kind - 10
        covered += 2 * length
        yield covered, line if kind != 15 else None
        at = end


def _signed(data: bytes) -> int:
    value = shift = 0
    for byte in data[:6]:
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            break
    return -(value >> 1) if value & 1 else value >> 1
