"""`read_function`: what a function says of itself, its version, and that nothing runs."""

import ast
import inspect
import math
import pickle
import struct
import sys

import pytest

from keras_mp.compat.code_objects import CodeError, read_function
from tests.once.compat.code_objects.byte_code import Raw, assembled, function, table

ADD = ["LOAD_FAST 0", "LOAD_FAST 1", "BINARY_ADD", "RETURN_VALUE"]
RETURN = ["LOAD_FAST 0", "RETURN_VALUE"]


def read(code, python=(3, 8), **fields):
    arguments = {
        name: fields.pop(name) for name in ("defaults", "closure", "kwdefaults") if name in fields
    }
    return read_function(bytes(function(python, code, **fields)), **arguments)


def why(code, **fields):
    with pytest.raises(CodeError) as caught:
        read(code, **fields)
    return caught.value.why


def test_defaults_belong_to_the_last_parameters():
    fields = {"variables": ("a", "b", "c"), "parameters": 3}
    found = read(ADD, defaults=(1, [2]), **fields)
    assert found.parameters == ("a", "b", "c")
    assert found.defaults == {"b": 1, "c": [2]}
    assert read(ADD, **fields).defaults == {}
    assert why(ADD, defaults=(1, 2, 3, 4), **fields) == "has 4 defaults for 3 parameters"


def test_parameters_by_keyword_only():
    fields = {"variables": ("a", "b"), "parameters": 1, "keyword_only": 1}
    found = read(ADD, kwdefaults={"b": 2, "a": 3, "z": 4}, **fields)
    assert (found.parameters, found.defaults) == (("a", "b"), {"b": 2})
    assert why(ADD, defaults=(1, 2), **fields) == "has 2 defaults for 1 parameters"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        *((value, True) for value in (None, True, 1, 1.5, "x", [1, (2, None)], (), 1 << 2000)),
        *((value, False) for value in ({}, {"type": "ndarray"}, [1, {}], 1 << 3000, b"x", 1j)),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_only_plain_values_are_kept(value, plain):
    found = read(ADD, variables=("a", "b"), parameters=2, defaults=(value,))
    assert found.defaults == ({"b": value} if plain else {})
    found = read(["LOAD_DEREF 0", "RETURN_VALUE"], free=("n",), flags=0x13, closure=(value,))
    assert found.closure == ({"n": value} if plain else {})
    assert found.unknown == (() if plain else ("n",))
    assert found.source() == "n"


def test_variables_of_the_function_around_it():
    code = ["LOAD_DEREF 0", "LOAD_DEREF 1", "BINARY_ADD", "RETURN_VALUE"]
    fields = {"free": ("m", "n"), "flags": 0x13}
    assert read(code, closure=(1, 2), **fields).closure == {"m": 1, "n": 2}
    assert read(code, **fields).unknown == ("m", "n")
    assert read(RETURN, **fields).unknown == ()
    assert why(code, closure=(1,), **fields) == "has 1 values for 2 variables around it"


def test_names_are_not_given_twice():
    code = ["LOAD_FAST 0", "LOAD_GLOBAL 0", "BINARY_ADD", "STORE_FAST 0"] * 2
    found = read([*code, *RETURN], names=("x_2",))
    assert found.source() == "x_3 = x + x_2; x_4 = x_3 + x_2; x_4"
    code = ["LOAD_FAST 0", "STORE_FAST 1", "LOAD_FAST 1", "STORE_FAST 0"] * 2
    found = read([*code, *RETURN], variables=("x", "x_2"))
    assert found.source() == "x_2 = x; x_3 = x_2; x_2_2 = x_3; x_4 = x_2_2; x_4"


def test_what_a_loop_took_from_a_default_is_said():
    """`for _ in range(n): x = -x`, where n is 2 by default."""
    code = [
        *("LOAD_GLOBAL 0", "LOAD_FAST 1", "CALL_FUNCTION 1", "GET_ITER", "FOR_ITER 10"),
        *("STORE_FAST 2", "LOAD_FAST 0", "UNARY_NEGATIVE", "STORE_FAST 0", "JUMP_ABSOLUTE 8"),
    ]
    fields = {"variables": ("x", "n", "_"), "parameters": 2, "names": ("range",)}
    found = read([*code, *RETURN], defaults=(2,), **fields)
    assert found.source() == "x_2 = -x; x_3 = -x_2; x_3"
    assert found.assumed == {"n"}
    assert read(RETURN, defaults=(2,), **fields).assumed == set()
    assert "a loop over range(n), whose items are not known" in why([*code, *RETURN], **fields)


# 3.8 and 3.9 jump to byte 8 here, 3.10 to byte 16.
TWICE = assembled(
    (3, 8),
    *("LOAD_FAST 0", "POP_JUMP_IF_FALSE 8", "LOAD_CONST 0", "RETURN_VALUE"),
    *("LOAD_CONST 1", "RETURN_VALUE", "LOAD_CONST 2", "RETURN_VALUE"),
    *("LOAD_CONST 3", "RETURN_VALUE"),
)


def test_3_10_is_told_by_its_line_table():
    constants = ("a", "b", "c", "d")
    old = bytes(function((3, 8), TWICE, constants=constants))
    new = bytes(function((3, 10), TWICE, constants=constants))
    assert read_function(old).python == (3, 8)
    assert read_function(old).source() == "'a' if x else 'b'"
    assert read_function(old, python=(3, 10)).python == (3, 8)
    assert read_function(new).python == (3, 10)
    assert read_function(new).source() == "'a' if x else 'd'"
    # Only who says so gets what 3.9 would make of it.
    assert read_function(new, python=(3, 9)).source() == "'a' if x else 'b'"


def test_bytes_that_two_versions_read_differently():
    """LOAD_CONST 1 and RETURN_VALUE to 3.6, and LOAD_CONST 0x5301 to 3.5."""
    code, constants = b"d\x01SS", ("a", "b", *[None] * 0x52FF, "z")
    data = bytes(function((3, 6), code, constants=constants))
    with pytest.raises(CodeError, match="means different things to versions of Python") as caught:
        read_function(data)
    assert "(3.5: 'z', 3.6: 'b', 3.7: 'b')" in caught.value.why
    assert read_function(data, python=(3, 5)).source() == "'z'"
    assert read_function(data, python=(3, 7)).source() == "'b'"
    with pytest.raises(CodeError, match="means different things"):
        read_function(data, python=(3, 9))


@pytest.mark.parametrize("python", [(3, 4), (3, 12), (2, 7), ()])
def test_versions_that_are_not_read(python):
    with pytest.raises(CodeError, match=r"^is said to be of Python [0-9.]*, not 3\.5 to 3\.11$"):
        read_function(bytes(function((3, 8), RETURN)), python=python)


HOSTILE = "__import__('os').system('touch /tmp/owned')"


def test_a_text_is_only_text():
    found = read(["LOAD_CONST 0", "RETURN_VALUE"], constants=(HOSTILE,))
    assert ast.literal_eval(found.source()) == HOSTILE


NAMES = [HOSTILE, "a b", "", "a.b", "x\n", "1", "class", "None", "\ufb01", "x)#", ".0"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_python_cannot_write(name):
    """Such a name would make the source say something else."""
    message = "which Python cannot write"
    for line in ("LOAD_GLOBAL 0", "LOAD_ATTR 0", "LOAD_METHOD 0"):
        code = ["LOAD_FAST 0", line] if line != "LOAD_GLOBAL 0" else [line]
        assert message in why([*code, "RETURN_VALUE"], names=(name,))
    assert message in why(RETURN, variables=(name,))
    assert message in why(["LOAD_DEREF 0", "RETURN_VALUE"], free=(name,), flags=0x13)
    call = ["LOAD_FAST 0", "LOAD_FAST 0", "LOAD_CONST 0", "CALL_FUNCTION_KW 1", "RETURN_VALUE"]
    assert message in why(call, constants=((name,),))
    store = ["LOAD_FAST 0", "STORE_FAST 1", "LOAD_FAST 1", "RETURN_VALUE"]
    assert message in why(store, variables=("x", name))


def test_names_that_would_be_mistaken():
    assert "a global 'x' beside a variable" in why(["LOAD_GLOBAL 0", "RETURN_VALUE"], names=("x",))
    twice = {"variables": ("x", "x"), "parameters": 2}
    assert "two variables of one name" in why(ADD, **twice)
    assert "two variables of one name" in why(RETURN, free=("x",), flags=0x13)
    call = ["LOAD_FAST 0", "LOAD_FAST 0", "LOAD_FAST 0", "LOAD_CONST 0", "CALL_FUNCTION_KW 2"]
    assert "gives a keyword twice" in why([*call, "RETURN_VALUE"], constants=(("a", "a"),))


# What Python never writes, and what would not be what it looks like.
WRONG = {
    "runs off its end": ["LOAD_FAST 0"],
    "an empty stack": ["RETURN_VALUE"],
    "a stack of 1": ["LOAD_FAST 0", "ROT_TWO", "RETURN_VALUE"],
    "returns with 1 values on the stack": ["LOAD_FAST 0", "DUP_TOP", "RETURN_VALUE"],
    "before it is set": ["LOAD_FAST 1", "RETURN_VALUE"],
    "a slice that is not in []": ["LOAD_FAST 0", "DUP_TOP", "BUILD_SLICE 2", "RETURN_VALUE"],
    "makes a slice of 4": [*["LOAD_FAST 0"] * 4, "BUILD_SLICE 4", "RETURN_VALUE"],
    "no value for one": ["LOAD_CLOSURE 0", "RETURN_VALUE"],
    "has COMPARE_OP 10": ["LOAD_FAST 0", "DUP_TOP", "COMPARE_OP 10", "RETURN_VALUE"],
    "a function without a name": ["LOAD_FAST 0", "DUP_TOP", "MAKE_FUNCTION 0", "RETURN_VALUE"],
    "a function of no code": ["LOAD_FAST 0", "LOAD_CONST 1", "MAKE_FUNCTION 0", "RETURN_VALUE"],
    "a method that it did not load": [*["LOAD_FAST 0"] * 2, "CALL_METHOD 0", "RETURN_VALUE"],
    "something else where keywords": [*["LOAD_FAST 0"] * 3, "CALL_FUNCTION_KW 1", "RETURN_VALUE"],
    "other keys than values": [*["LOAD_FAST 0"] * 2, "BUILD_CONST_KEY_MAP 1", "RETURN_VALUE"],
    "meets with different values": [
        *("LOAD_FAST 0", "POP_JUMP_IF_FALSE 6", "LOAD_FAST 0", "LOAD_FAST 0", "LOAD_ATTR 0"),
        "RETURN_VALUE",
    ],
}


# The same of 3.11, where a call has a NULL below it.
WRONG_3_11 = {
    "has LOAD_FAST where a call belongs": ["KW_NAMES 2", "LOAD_FAST 0", "RETURN_VALUE"],
    "something else where keywords belong": ["LOAD_FAST 0", "KW_NAMES 1", "RETURN_VALUE"],
    "names 2 of 1 arguments": ["LOAD_FAST 0", "KW_NAMES 2", "PRECALL 1", "CALL 1", "RETURN_VALUE"],
    "calls without a NULL": [*["LOAD_FAST 0"] * 2, "BUILD_LIST 0", "CALL_FUNCTION_EX 0"],
    "makes a tuple of no list": ["LOAD_FAST 0", "LIST_TO_TUPLE", "RETURN_VALUE"],
    "has the operator 26": [*["LOAD_FAST 0"] * 2, "BINARY_OP 26", "RETURN_VALUE"],
    "copies value 2 of 1": ["LOAD_FAST 0", "COPY 2", "RETURN_VALUE"],
    "copies value 0 of 1": ["LOAD_FAST 0", "COPY 0", "RETURN_VALUE"],
    "takes 3 values from a stack of 1": ["LOAD_FAST 0", "SWAP 3", "RETURN_VALUE"],
    "has IS_OP 2": [*["LOAD_FAST 0"] * 2, "IS_OP 2", "RETURN_VALUE"],
    "has CONTAINS_OP 2": [*["LOAD_FAST 0"] * 2, "CONTAINS_OP 2", "RETURN_VALUE"],
    "has COMPARE_OP 6": [*["LOAD_FAST 0"] * 2, "COMPARE_OP 6", "RETURN_VALUE"],
}


@pytest.mark.parametrize("what", WRONG_3_11)
def test_what_3_11_does_not_write(what):
    constants = (None, "g", ("a", "b"))
    assert what in why(WRONG_3_11[what], python=(3, 11), constants=constants)


def test_closures_that_do_not_fit():
    inner = function((3, 8), ["LOAD_DEREF 0", "RETURN_VALUE"], free=("n",), flags=0x13)
    head, tail = ["LOAD_CONST 0", "LOAD_CONST 1"], ["RETURN_VALUE"]
    fields = {"constants": (inner, "name"), "cells": ("m",)}
    assert "a closure of no cells" in why(
        ["LOAD_FAST 0", *head, "MAKE_FUNCTION 8", *tail], **fields
    )
    cells = ["LOAD_CLOSURE 0", "BUILD_TUPLE 1"]
    assert "other variables" in why([*cells, *head, "MAKE_FUNCTION 8", *tail], **fields)
    assert "other variables" in why([*head, "MAKE_FUNCTION 0", *tail], **fields)


@pytest.mark.parametrize("value", [math.nan, 1 + 2j, complex(0, math.nan), complex(-0.0, 1)])
def test_numbers_that_cannot_be_written(value):
    data = Raw(b"g" + struct.pack("<d", value) if isinstance(value, float) else pair(value))
    found = why(["LOAD_CONST 0", "RETURN_VALUE"], constants=(data,))
    assert found in ("holds a number that is nan", "holds a complex number with a real part")


def pair(value):
    return b"y" + struct.pack("<dd", value.real, value.imag)


@pytest.mark.parametrize("what", WRONG)
def test_what_python_does_not_write(what):
    found = why(
        WRONG[what], variables=("x", "y"), cells=("x",), constants=(None, "g"), names=("a",)
    )
    assert found.startswith("is no function of Python 3.5 to 3.11: it ")
    assert what in found


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (0x40, "code of a module or class"),
        (0x63, "a generator"),
        (0xC3, "async"),
        (0x243, "async"),
    ],
)
def test_functions_of_another_kind(flags, what):
    assert why(RETURN, flags=flags, variables=("x", "y")) == f"holds {what}"


@pytest.mark.parametrize("flags", [0x47, 0x4B], ids=["*", "**"])
def test_parameters_with_stars(flags):
    """Keras gave inputs by position, and arguments by name."""
    fields = {"flags": flags, "variables": ("x", "rest")}
    found = read(RETURN, **fields)
    assert (found.parameters, found.source()) == (("x",), "x")
    used = ["LOAD_FAST 1", "RETURN_VALUE"]
    if flags == 0x47:
        assert read(used, **fields).source() == "()"
    else:
        assert why(used, **fields) == "holds a parameter with * or **"
    fields["variables"] = ("rest",)
    assert why(RETURN, parameters=0, **fields) == "holds a parameter with * or **"


def test_the_handlers_of_3_11_are_refused():
    code = ["RESUME 0", *RETURN]
    assert read(code, python=(3, 11)).source() == "x"
    assert why(code, python=(3, 11), handlers=b"\x82\1\3\0") == "holds try or with"


EVENTS = []
WATCHING = []
BAD_EVENTS = ("exec", "compile", "import", "marshal.", "code.", "open", "os.", "subprocess.")


def _watch(event, arguments):
    if WATCHING and event.startswith(BAD_EVENTS):
        EVENTS.append((event, arguments))


sys.addaudithook(_watch)


def test_nothing_is_run_or_compiled():
    data = bytes(function((3, 8), ["LOAD_CONST 0", "RETURN_VALUE"], constants=(HOSTILE, Raw(b"F"))))
    read_function(data)
    WATCHING.append(True)
    try:
        read_function(data).source()
        with pytest.raises(CodeError):
            read_function(data[:-1])
        assert EVENTS == []
        compile("1", "f.py", "eval")  # the watch can see it
        assert [event for event, _ in EVENTS] == ["compile"]
    finally:
        WATCHING.clear()


def test_where_the_stack_is_nearly_used_up():
    data = bytes(function((3, 8), ["LOAD_FAST 0", *["UNARY_INVERT"] * 70, "RETURN_VALUE"]))
    assert read_function(data).source() == "~" * 70 + "x"

    def deeper(left):
        return deeper(left - 1) if left else read_function(data)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400 + len(inspect.stack()))
    try:
        with pytest.raises(CodeError, match=r"^is nested too deeply to be read here$"):
            deeper(300)
    finally:
        sys.setrecursionlimit(limit)


def test_the_error_survives_pickling():
    error = CodeError("holds a loop", "y = x")
    again = pickle.loads(pickle.dumps(error))
    assert (again.why, again.so_far, str(again)) == ("holds a loop", "y = x", str(error))
    assert str(error) == "holds a loop; read so far: y = x"
    assert str(CodeError("holds a loop")) == "holds a loop"


def test_a_table_of_3_10_is_complete():
    assert sum(table(TWICE)[::2]) == len(TWICE)
