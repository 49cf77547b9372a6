"""The tables of instructions against those that the versions themselves have."""

import json
import opcode
import sys
from pathlib import Path

import pytest

from keras_mp.compat.code_objects import blocks, guards, opcodes, supported

OPMAPS = json.loads(
    (Path(__file__).parents[3] / "data" / "lambdas" / "opcodes.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("version", OPMAPS)
def test_numbers(version):
    table = opcodes.OPCODES[3, int(version[2:])]
    assert {name: number for number, name in table.items()} == OPMAPS[version]


def test_3_5_differs_from_3_6_where_it_should():
    """From its Lib/opcode.py: 3.6 dropped two, renamed one, and brought seven."""
    old, new = opcodes.OPCODES[3, 5], opcodes.OPCODES[3, 6]
    assert {number: name for number, name in old.items() if new.get(number) != name} == {
        134: "MAKE_CLOSURE",
        140: "CALL_FUNCTION_VAR",
        142: "CALL_FUNCTION_VAR_KW",
    }
    assert set(new) - set(old) == {85, 127, 155, 156, 157, 158}


def test_every_name_is_one():
    names = {name for table in opcodes.OPCODES.values() for name in table.values()}
    for few in (
        *(opcodes.OF_NAMES, opcodes.OF_VARIABLES, opcodes.OF_CELLS, opcodes.OF_CONSTANTS),
        *(opcodes.RELATIVE, opcodes.ABSOLUTE, opcodes.FORWARD, opcodes.BACKWARD, opcodes.CACHES),
        *(blocks.BRANCHES, blocks.JUMPS, supported.REASONS),
    ):
        assert set(few) <= names
    made_up = {"INPLACE_" + name for name in supported.OPERATORS}
    made_up |= {"BINARY_" + name for name in supported.OPERATORS}
    assert names | made_up | {guards.GUARD} >= supported.SUPPORTED
    assert not supported.SUPPORTED & set(supported.REASONS) - {"CALL_FUNCTION_KW", "STORE_DEREF"}


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the tables of 3.11 are compared")
def test_what_3_11_says_of_itself():
    def named(numbers):
        return {opcode.opname[number] for number in numbers}

    caches = opcode._inline_cache_entries
    assert dict(opcodes.CACHES) == {opcode.opname[i]: n for i, n in enumerate(caches) if n}
    assert [sign for _, sign in opcode._nb_ops[:13]] == list(opcodes.OPERATORS)
    assert [sign for _, sign in opcode._nb_ops[13:]] == [f"{sign}=" for sign in opcodes.OPERATORS]
    assert named(opcode.hasjrel) == opcodes.FORWARD | opcodes.BACKWARD
    assert named(opcode.hasname) == opcodes.OF_NAMES - {"STORE_ANNOTATION"}
    assert named(opcode.hasfree) == opcodes.OF_CELLS
    assert named(opcode.haslocal) == opcodes.OF_VARIABLES
    assert named(opcode.hasconst) == opcodes.OF_CONSTANTS
    assert opcodes.COMPARISONS[:6] == opcode.cmp_op
