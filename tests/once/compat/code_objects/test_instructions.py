"""Instructions of hand-made byte code: their prefixes, jumps and lines."""

import dis
import sys

import pytest

from keras_mp.compat.code_objects import instructions, marshalled, opcodes
from keras_mp.compat.code_objects.errors import Malformed
from tests.once.compat.code_objects.byte_code import assembled, function, table

WORDS = [version for version in opcodes.VERSIONS if version >= (3, 6)]


def decoded(python, code, **fields):
    data = bytes(function(python, code, **fields))
    return instructions.instructions_of(
        marshalled.read_code(data, marshalled.layout_of(python)), python
    )


def named(version):
    return f"{version[0]}.{version[1]}"


@pytest.mark.parametrize("python", opcodes.VERSIONS, ids=named)
def test_a_simple_function(python):
    first, second = decoded(python, ["LOAD_FAST 0", "RETURN_VALUE"])
    assert (first.name, first.text, first.offset, first.target) == ("LOAD_FAST", "x", 0, -1)
    assert (second.name, second.offset) == ("RETURN_VALUE", 2 if python > (3, 5) else 3)


@pytest.mark.parametrize("python", opcodes.VERSIONS, ids=named)
def test_prefixes(python):
    """An argument of up to 32 bits; a jump to a prefix is a jump to what it belongs to."""
    first, _, last = decoded(python, ["BUILD_LIST 16909060", "LOAD_FAST 0", "RETURN_VALUE"])
    assert (first.name, first.argument, first.offset) == ("BUILD_LIST", 0x01020304, 0)
    assert last.offset == (10 if python > (3, 5) else 9)


@pytest.mark.parametrize("python", WORDS, ids=named)
def test_too_many_prefixes(python):
    with pytest.raises(Malformed, match="has 4 EXTENDED_ARG in a row"):
        decoded(python, ["EXTENDED_ARG 1"] * 4 + ["LOAD_FAST 0", "RETURN_VALUE"])
    with pytest.raises(Malformed, match="ends within an instruction"):
        decoded(python, ["LOAD_FAST 0", "EXTENDED_ARG 1"])


def test_two_prefixes_of_3_5():
    with pytest.raises(Malformed, match="has 2 EXTENDED_ARG in a row"):
        decoded((3, 5), ["EXTENDED_ARG 1", "EXTENDED_ARG 1", "LOAD_FAST 0", "RETURN_VALUE"])


# A function whose second instruction jumps to its fourth.
JUMPS = {
    (3, 5): ["LOAD_FAST 0", "POP_JUMP_IF_FALSE 9", "LOAD_FAST 0", "LOAD_FAST 0", "RETURN_VALUE"],
    (3, 6): ["LOAD_FAST 0", "POP_JUMP_IF_FALSE 6", "LOAD_FAST 0", "LOAD_FAST 0", "RETURN_VALUE"],
    (3, 9): ["LOAD_FAST 0", "POP_JUMP_IF_FALSE 6", "LOAD_FAST 0", "LOAD_FAST 0", "RETURN_VALUE"],
    (3, 10): ["LOAD_FAST 0", "POP_JUMP_IF_FALSE 3", "LOAD_FAST 0", "LOAD_FAST 0", "RETURN_VALUE"],
    (3, 11): [
        *("LOAD_FAST 0", "POP_JUMP_FORWARD_IF_FALSE 1", "LOAD_FAST 0", "LOAD_FAST 0"),
        "RETURN_VALUE",
    ],
}


@pytest.mark.parametrize("python", JUMPS, ids=named)
def test_jumps(python):
    assert [one.target for one in decoded(python, JUMPS[python])] == [-1, 3, -1, -1, -1]


@pytest.mark.parametrize("python", JUMPS, ids=named)
def test_jumps_to_nowhere(python):
    for place in ("1", "200"):
        name = JUMPS[python][1].split()[0]
        code = [JUMPS[python][0], f"{name} {place}", *JUMPS[python][2:]]
        if (python, place) in (((3, 10), "1"), ((3, 11), "1")):
            continue
        with pytest.raises(Malformed, match="where no instruction begins"):
            decoded(python, code)


def test_caches_of_3_11():
    code = ["RESUME 0", "LOAD_GLOBAL 1", "LOAD_FAST 0", "PRECALL 1", "CALL 1", "RETURN_VALUE"]
    found = decoded((3, 11), code, names=("f",))
    assert [one.name for one in found] == [line.split()[0] for line in code]
    assert found[1].text == "f"
    data = bytearray(assembled((3, 11), *code))
    data[4] = 1  # where a cache is
    with pytest.raises(Malformed, match="has no CACHE after its LOAD_GLOBAL at 2"):
        decoded((3, 11), bytes(data), names=("f",))
    with pytest.raises(Malformed, match="has a CACHE at 0, where none belongs"):
        decoded((3, 11), ["CACHE 0", "RETURN_VALUE"])


@pytest.mark.parametrize("python", opcodes.VERSIONS, ids=named)
def test_what_is_not_there(python):
    for line, message in [
        ("LOAD_FAST 1", "takes name 1, of 1, in LOAD_FAST"),
        ("LOAD_CONST 1", "takes constant 1, of 1"),
        ("LOAD_ATTR 0", "takes name 0, of 0, in LOAD_ATTR"),
        (f"LOAD_DEREF {len('x') if python > (3, 10) else 0}", "in LOAD_DEREF"),
    ]:
        with pytest.raises(Malformed, match=message):
            decoded(python, [line, "RETURN_VALUE"])
    with pytest.raises(Malformed, match="has no instructions"):
        decoded(python, b"")
    with pytest.raises(Malformed, match="has the instruction 255, which Python"):
        decoded(python, b"\xff\0\0")
    with pytest.raises(Malformed, match="has more than 5000 instructions"):
        decoded(python, ["NOP"] * 5001)


def test_what_keras_on_windows_wrote():
    """It wrote / for each \\ in the byte code, so 47 for 92, which is UNPACK_SEQUENCE."""
    code = assembled((3, 7), "LOAD_FAST 0", "UNPACK_SEQUENCE 2", "BINARY_ADD", "RETURN_VALUE")
    with pytest.raises(Malformed, match="Keras on Windows wrote it for 92, UNPACK_SEQUENCE"):
        decoded((3, 7), code.replace(b"\\", b"/"))


def test_lines_before_3_10():
    code = marshalled.read_code(
        bytes(
            function(
                (3, 7), ["LOAD_FAST 0"] * 8 + ["RETURN_VALUE"], lines=b"\4\2\6\xff\2\5", line=7
            )
        ),
        (3, 5),
    )
    assert list(instructions.lines(code, (3, 7))) == [(4, 7), (10, 9), (12, 8), (18, 13)]
    assert list(instructions.lines(code, (3, 5)))[2] == (12, 264)


def test_lines_of_3_10():
    body = assembled((3, 10), *["LOAD_FAST 0"] * 8, "RETURN_VALUE")
    lines = b"\4\2\6\xff\2\x80\6\5"
    code = marshalled.read_code(bytes(function((3, 10), body, lines=lines, line=7)), (3, 8))
    assert list(instructions.lines(code, (3, 10))) == [(4, 9), (10, 8), (12, None), (18, 13)]
    assert instructions.has_lines_of_3_10(code)
    for other in (lines[:-2], lines + b"\2\1", lines[:-1], b""):
        code = marshalled.read_code(bytes(function((3, 10), body, lines=other)), (3, 8))
        assert not instructions.has_lines_of_3_10(code)
    assert sum(table(body)[::2]) == len(body)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="what dis says of 3.11 is compared")
def test_lines_of_3_11():
    import marshal

    source = (
        "def f(x):\n    y = g(x,\n      1)\n\n\n    if y:\n        return [\n   x]\n" + "\n" * 300
    )
    source += "    return (x +\n" + "\n" * 70 + "    y)\n"
    python = compile(source, "f.py", "exec").co_consts[0]
    code = marshalled.read_code(marshal.dumps(python), (3, 11))
    ends = list(instructions.lines(code, (3, 11)))
    for one in dis.get_instructions(python):
        expected = one.positions.lineno
        assert next(line for end, line in ends if one.offset < end) == expected
