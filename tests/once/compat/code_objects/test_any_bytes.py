"""Whatever the bytes are, there is a function or a CodeError, soon, and in little memory."""

import ast
import base64
import json
import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from keras_mp.compat.code_objects import CodeError, from_config, opcodes, read_function
from tests.fuzzing import damaged, examples
from tests.once.compat.code_objects.byte_code import Raw, assembled, function

RECORDED = json.loads(
    (Path(__file__).parents[3] / "data" / "lambdas" / "recorded.json").read_text(encoding="utf-8")
)
FIELDS = [
    field if isinstance(field, str) else field[0]
    for versions in RECORDED.values()
    for field in versions.values()
]
CODES = sorted({base64.b64decode(field) for field in FIELDS if len(field) < 2000})
WORDS = [
    *(b"c", b"\xe3", b"r\0\0\0\0", b"r\xff\xff\xff\xff", b")\xff", b"(\xff\xff\xff\x7f", b"N"),
    *(b"s\xff\xff\xff\x7f", b"\x90\xff", b"q\0", b"q\x02", b"r\x04", b"n\x00", b"]\x04", b"d\0"),
    *(b"S\0", b"S", b"\x01\0", b"\x04\0", b"\x02\0", b"\x83\xff", b"\x8e\0", b"\x5c\xff", b"/"),
]
SECONDS = 10  # for one; the tests are run on slow machines, beside others


def outcome(data, **arguments):
    """Returns a function, or None; whatever else happens fails the test."""
    began = time.process_time()
    found, error = attempt(read_function, data, **arguments)
    if found:
        check(found)
    else:
        assert error.why
        assert "\n" not in error.why
        assert len(str(error)) < 2000
    assert time.process_time() - began < SECONDS
    return found


def attempt(read, data, **arguments):
    """Returns (function, None) or (None, error)."""
    try:
        return read(data, **arguments), None
    except CodeError as error:
        return None, error


def check(found):
    """A function is what its source says, and names nothing twice."""
    *steps, result = ast.parse(found.source()).body
    assert ast.dump(result.value) == ast.dump(found.result)
    assert [ast.dump(step.value) for step in steps] == [ast.dump(v) for _, v in found.steps]
    names = [*found.parameters, *(name for name, _ in found.steps)]
    assert len(names) == len(set(names))
    nodes = [node for _, tree in found.steps for node in ast.walk(tree)]
    nodes += ast.walk(found.result)
    own = [node for node in nodes if isinstance(node, ast.expr)]
    assert len(own) == len(set(map(id, own))), "a node is there twice"


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged(CODES, WORDS))
def test_damaged_functions(data):
    outcome(data)


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=300), st.sampled_from([None, *opcodes.VERSIONS]))
def test_any_bytes(data, python):
    outcome(data, python=python)


@st.composite
def instructions(draw, python):
    """Instructions that are known, whatever they do together."""
    numbers = sorted(opcodes.OPCODES[python])
    likely = [n for n in numbers if opcodes.OPCODES[python][n].startswith(("LOAD", "POP", "JUMP"))]
    code = bytearray()
    for _ in range(draw(st.integers(1, 30))):
        number = draw(st.sampled_from(numbers) | st.sampled_from(likely))
        name = opcodes.OPCODES[python][number]
        argument = draw(st.integers(0, 3) | st.integers(0, 30))
        code += assembled(python, f"{name} {argument}")
    return bytes(code) + assembled(python, "RETURN_VALUE")


@settings(max_examples=examples(120), deadline=None)
@given(st.data())
def test_any_instructions(data):
    python = data.draw(st.sampled_from(opcodes.VERSIONS))
    code = data.draw(instructions(python))
    inner = function(python, code, variables=(".0", "i"), name="<listcomp>")
    outcome(
        bytes(
            function(
                python,
                code,
                constants=(None, 1, ("a", "b"), inner, "text"),
                names=("f", "g", "h", "k"),
                variables=("x", "y"),
                free=("n",),
                cells=("m",),
            )
        )
    )


def test_every_function_cut_off_anywhere():
    for data in CODES[::60]:
        for size in range(len(data)):
            assert outcome(data[:size]) is None
        assert outcome(data + b"N") is None


def test_every_bit_of_some_functions():
    for data in CODES[7::600]:
        for place in range(0, len(data), 2):
            for bit in (0, 7):
                changed = bytearray(data)
                changed[place] ^= 1 << bit
                outcome(bytes(changed))


@settings(max_examples=examples(40), deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=20) | st.sampled_from(FIELDS[:20]),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["class_name", "config", "value", "code", "items"]), inner
            )
        ),
        max_leaves=10,
    )
)
def test_any_config(field):
    found, error = attempt(from_config, field)
    if found:
        check(found)
    else:
        assert error.why


# Attacks. Each is bytes, and what it comes to: a source, or a part of the error.

W = (3, 8)


def words(*pairs):
    numbers = {name: number for number, name in opcodes.OPCODES[W].items()}
    return bytes(value for name, argument in pairs for value in (numbers[name], argument))


def jump(name, target):
    return [("EXTENDED_ARG", target >> 8), (name, target & 255)]


def branches(count, name, body, step=None):
    """So many branches; each jumps over `step` of them, or to the end."""
    pairs, size = [], 2 * (len(body) + 3)
    for place in range(count):
        to = count if step is None else min(place + step, count)
        pairs += [("LOAD_GLOBAL", 0), *jump(name, to * size), *body]
    return words(*pairs, ("LOAD_FAST", 0), ("RETURN_VALUE", 0))


def bomb(depth, width):
    """Tuples, each of which has the one before it many times, by reference."""
    values = [Raw(b"\xa9\x01N")]
    for place in range(depth):
        members = (b"r" + struct.pack("<i", place)) * width
        values.append(Raw(b"\xa9" + bytes([width]) + members))
    return tuple(values)


def comprehension(constants=(), *, body=(("LOAD_FAST", 1),)):
    code = words(
        *(("BUILD_LIST", 0), ("LOAD_FAST", 0), ("FOR_ITER", 2 * len(body) + 6), ("STORE_FAST", 1)),
        *body,
        *(("LIST_APPEND", 2), ("JUMP_ABSOLUTE", 4), ("RETURN_VALUE", 0)),
    )
    return function(W, code, constants, variables=(".0", "i"), name="<listcomp>")


GO_OVER = [
    *(("LOAD_CONST", 0), ("LOAD_CONST", 1), ("MAKE_FUNCTION", 0), ("LOAD_CONST", 2)),
    *(("GET_ITER", 0), ("CALL_FUNCTION", 1)),
]


def nested(depth):
    numbers = tuple(range(64))
    inner = comprehension()
    for _ in range(depth):
        inner = comprehension((inner, "name", numbers), body=GO_OVER)
    code = words(*GO_OVER, ("RETURN_VALUE", 0))
    return function(W, code, (inner, "name", numbers))


def loops(depth):
    """`for i in (0, ..., 63):` so many times, around nothing, and then `x`."""
    body = []
    for level in reversed(range(depth)):
        # Each has three instructions before what it repeats, and a jump after it.
        head = ["LOAD_CONST 0", "GET_ITER", f"FOR_ITER {2 * len(body) + 4}", "STORE_FAST 1"]
        body = [*head, *body, f"JUMP_ABSOLUTE {2 * (4 * level + 2)}"]
    return [*body, X]


def helpers(depth):
    """A function that calls one within it twice, and so on."""
    inner = function(W, [X, R], name="g")
    for _ in range(depth):
        call = ["LOAD_CONST 0", "LOAD_CONST 1", "MAKE_FUNCTION 0", X, "CALL_FUNCTION 1"]
        code = [*call * 2, "BUILD_TUPLE 2", R]
        inner = function(W, code, (inner, "name"), name="g")
    return inner


def lines(*text, **fields):
    return function(W, list(text), **fields)


X, R = "LOAD_FAST 0", "RETURN_VALUE"
ONE = ["LOAD_CONST 0", R]
LOADS = ("LOAD_FAST", 0), ("POP_TOP", 0)
TOO_MUCH = "more than 20000 instructions to walk"
TOO_LARGE = "more than 10000 parts, or nested more than 80 deep"
ATTACKS = {
    "constants that are not used": (lines(X, R, constants=(None,) * 50_000), "x"),
    "many small constants": (lines(X, R, constants=(Raw(b")\x01N"),) * 20_000), "x"),
    "many sets": (lines(X, R, constants=(Raw(b">\1\0\0\0N"),) * 10_000), "x"),
    "a bomb that is not used": (lines(X, R, constants=bomb(30, 100)), "x"),
    "a bomb": (lines("LOAD_CONST 30", R, constants=bomb(30, 100)), TOO_LARGE),
    "a bomb in a set": (
        lines("LOAD_CONST 31", R, constants=(*bomb(30, 100), Raw(b">\1\0\0\0r\x1e\0\0\0"))),
        TOO_LARGE,
    ),
    "a long constant": (lines(*ONE, constants=("a" * 250_000,)), TOO_LARGE),
    "a long constant, often": (
        lines(*["LOAD_CONST 0"] * 90, "BUILD_LIST 90", R, constants=("a" * 9000,)),
        TOO_LARGE,
    ),
    "a long name": (lines("LOAD_GLOBAL 0", R, names=("a" * 250_000,)), TOO_LARGE),
    "a sum of itself": (lines(X, *["DUP_TOP", "BINARY_ADD"] * 2400, R), TOO_LARGE),
    "a call of itself": (lines(X, "CALL_FUNCTION 0", "DUP_TOP", "BINARY_ADD", R), "used twice"),
    "depth": (lines(X, *["UNARY_INVERT"] * 4900, R), TOO_LARGE),
    "many steps": (lines(*[X, "STORE_FAST 0"] * 1200, X, R), "x_1201"),
    "names that are taken": (
        lines(*[X, "STORE_FAST 0"] * 2, X, R, names=tuple(f"x_{i}" for i in range(5_000))),
        "x_5001",
    ),
    "a stack without end": (lines(*[X] * 4900, R), "keeps more values than the 100 it says"),
    "a stack of a lie": (lines(*[X] * 2400, R, stack=2**31 - 1), "returns with 2399 values"),
    "a list of a lie": (lines(X, "BUILD_LIST 2000000000", R), "takes 2000000000 values"),
    "an unpacking of a lie": (lines(X, "UNPACK_SEQUENCE 2000000000", R), TOO_MUCH),
    "a chain of prefixes": (
        lines(*["EXTENDED_ARG 255"] * 4900, X, R),
        "has 4 EXTENDED_ARG in a row",
    ),
    "a jump to itself": (lines("JUMP_ABSOLUTE 0", X, R), "a loop (JUMP_ABSOLUTE in line 1)"),
    "a loop": (lines(X, "POP_JUMP_IF_FALSE 0", X, R), "a loop (POP_JUMP_IF_FALSE in line 1)"),
    "a loop of jumps": (lines("JUMP_FORWARD 0", "JUMP_ABSOLUTE 0", X, R), "a loop"),
    "jumps only": (lines(*["JUMP_FORWARD 0"] * 4900, X, R), "x"),
    "conditions to one place": (
        function(W, branches(1600, "POP_JUMP_IF_FALSE", ()), names=("g",)),
        "branches within each other",
    ),
    "values to one place": (
        function(W, branches(1600, "JUMP_IF_FALSE_OR_POP", ()), names=("g",)),
        "branches within each other",
    ),
    "branches over one another": (
        function(W, branches(1200, "POP_JUMP_IF_FALSE", LOADS, 2), names=("g",)),
        TOO_MUCH,
    ),
    "branches over the next": (
        function(W, branches(1600, "POP_JUMP_IF_FALSE", (), 2), names=("g",)),
        TOO_MUCH,
    ),
    "branches that meet": (
        function(
            W,
            branches(
                700,
                "POP_JUMP_IF_FALSE",
                (LOADS[0], LOADS[0], ("BINARY_ADD", 0), ("STORE_FAST", 0)),
                1,
            ),
            names=("g",),
        ),
        TOO_MUCH,
    ),
    "comprehensions in a row": (
        function(
            W,
            words(*GO_OVER, *[("POP_TOP", 0), *GO_OVER] * 600, ("RETURN_VALUE", 0)),
            (comprehension(), "name", tuple(range(64))),
        ),
        TOO_MUCH,
    ),
    "comprehensions within each other": (nested(6), TOO_MUCH),
    "functions and a long line table": (
        lines(
            *["LOAD_CONST 0", "LOAD_CONST 1", "MAKE_FUNCTION 0", "POP_TOP"] * 600,
            X,
            R,
            constants=(lines(X, R), "name"),
            lines=b"\1\1" * 90_000,
        ),
        "x",
    ),
    "loops within each other": (
        lines(*loops(6), R, constants=(tuple(range(64)),), variables=("x", "i")),
        TOO_MUCH,
    ),
    "many loops that break": (
        function((3, 7), [*["SETUP_LOOP 250", "BREAK_LOOP"] * 2000, *["NOP"] * 140, X, R]),
        "a loop (BREAK_LOOP in line 1)",
    ),
    "helpers that call two": (helpers(17), TOO_MUCH),
    "a module with a long path": (
        lines(
            *("LOAD_CONST 0", "LOAD_CONST 1", "IMPORT_NAME 0", *["LOAD_ATTR 1"] * 4000, R),
            constants=(0, None),
            names=("a", "b" * 1000),
        ),
        TOO_MUCH,
    ),
    "a long table of handlers": (
        function((3, 11), ["RESUME 0", X, R], handlers=b"\x81\1\3\0" * 40_000),
        "try or with",
    ),
    "exceptions only": (lines(*[X, "RAISE_VARARGS 1"] * 2400), "an exception that it raises"),
    "guards over guards": (
        function(
            W,
            branches(700, "POP_JUMP_IF_FALSE", (LOADS[0], ("RAISE_VARARGS", 1))),
            names=("g",),
        ),
        "x",
    ),
    "a list that grows by itself": (
        function(
            (3, 9),
            [
                *("BUILD_LIST 0", "STORE_FAST 1"),
                *["LOAD_FAST 1", "LOAD_FAST 1", "INPLACE_ADD", "STORE_FAST 1"] * 3,
                *["LOAD_FAST 1", "LOAD_ATTR 0", X, "CALL_FUNCTION 1", "POP_TOP"] * 5,
                *["LOAD_FAST 1", "LOAD_FAST 1", "INPLACE_ADD", "STORE_FAST 1"] * 900,
                *("LOAD_FAST 1", R),
            ],
            names=("append",),
            variables=("x", "y"),
        ),
        TOO_LARGE,
    ),
    "lists that grow": (
        function((3, 9), ["BUILD_LIST 0", *[X, "LIST_APPEND 1"] * 2400, R]),
        TOO_MUCH,
    ),
    "sets that grow": (
        function(
            (3, 9),
            ["BUILD_SET 0", *["LOAD_CONST 0", "SET_ADD 1"] * 2400, R],
            constants=(("a", "b") * 20,),
        ),
        TOO_MUCH,
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks(attack):
    data, expected = ATTACKS[attack]
    began = time.process_time()
    found, error = attempt(read_function, bytes(data))
    assert time.process_time() - began < SECONDS
    if found:
        assert found.source().split("; ")[-1] == expected
    else:
        assert expected in error.why


# Counting the memory makes these slow. The others keep less, for as much work.
HEAVY = [
    *("constants that are not used", "many small constants", "many sets", "a bomb", "many steps"),
    *("a long constant, often", "a sum of itself", "a stack of a lie", "a list of a lie"),
    *("branches over the next", "lists that grow"),
]


@pytest.mark.parametrize("attack", HEAVY)
def test_attacks_take_little_memory(attack):
    data = bytes(ATTACKS[attack][0])
    assert peak_of(data) < 64 * len(data) + 16 * MEGABYTE


MEGABYTE = 1 << 20


def peak_of(data):
    """Returns the most bytes that were in use while some data was read."""
    tracemalloc.start()
    try:
        attempt(read_function, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@settings(max_examples=examples(40), deadline=None)
@given(damaged(CODES, [b"(\xff\xff\xff\x7f", b"s\xff\xff\xff\x7f", b"l\xff\xff\xff\x7f"]))
def test_damage_takes_little_memory(data):
    assert peak_of(data) < 64 * len(data) + 16 * MEGABYTE
