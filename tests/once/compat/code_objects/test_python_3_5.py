"""Functions of CPython 3.5, which is not here: their byte code written by hand."""

import struct

import pytest

from keras_mp.compat.code_objects import CodeError, read_function
from tests.once.compat.code_objects.byte_code import function

PYTHON = (3, 5)
INNER = ["LOAD_FAST 0", "RETURN_VALUE"]
# What `lambda x: ...` becomes there: source -> instructions, constants, names.
FUNCTIONS = {
    "x / 255": (["LOAD_FAST 0", "LOAD_CONST 1", "BINARY_TRUE_DIVIDE"], (None, 255), ()),
    "x[:, ::2]": (
        [
            *("LOAD_FAST 0", "LOAD_CONST 0", "LOAD_CONST 0", "BUILD_SLICE 2", "LOAD_CONST 0"),
            *("LOAD_CONST 0", "LOAD_CONST 1", "BUILD_SLICE 3", "BUILD_TUPLE 2", "BINARY_SUBSCR"),
        ],
        (None, 2),
        (),
    ),
    "K.sum(x, axis=1)": (
        # One positional argument, one by keyword.
        [
            *("LOAD_GLOBAL 0", "LOAD_ATTR 1", "LOAD_FAST 0", "LOAD_CONST 1", "LOAD_CONST 2"),
            "CALL_FUNCTION 257",
        ],
        (None, "axis", 1),
        ("K", "sum"),
    ),
    "f(a=x, b=1)": (
        [
            *("LOAD_GLOBAL 0", "LOAD_CONST 1", "LOAD_FAST 0", "LOAD_CONST 2", "LOAD_CONST 3"),
            "CALL_FUNCTION 512",
        ],
        (None, "a", "b", 1),
        ("f",),
    ),
    "{'a': x, 'b': 1}": (
        ["LOAD_CONST 1", "LOAD_FAST 0", "LOAD_CONST 2", "LOAD_CONST 3", "BUILD_MAP 2"],
        (None, "a", "b", 1),
        (),
    ),
    "x if x is not None else -x": (
        [
            *("LOAD_FAST 0", "LOAD_CONST 0", "COMPARE_OP 9", "POP_JUMP_IF_FALSE 16"),
            *("LOAD_FAST 0", "RETURN_VALUE", "LOAD_FAST 0", "UNARY_NEGATIVE"),
        ],
        (None,),
        (),
    ),
    "0 < x < 1": (
        [
            *("LOAD_CONST 1", "LOAD_FAST 0", "DUP_TOP", "ROT_THREE", "COMPARE_OP 0"),
            *("JUMP_IF_FALSE_OR_POP 21", "LOAD_CONST 2", "COMPARE_OP 0", "RETURN_VALUE"),
            *("ROT_TWO", "POP_TOP"),
        ],
        (None, 0, 1),
        (),
    ),
    "x not in (1, 2)": (
        ["LOAD_FAST 0", "LOAD_CONST 1", "COMPARE_OP 7"],
        (None, (1, 2)),
        (),
    ),
    "f(1, x)": (
        ["LOAD_GLOBAL 0", "LOAD_CONST 1", "LOAD_FAST 0", "CALL_FUNCTION 2"],
        (None, 1),
        ("f",),
    ),
}


def read(code, **fields):
    return read_function(bytes(function(PYTHON, code, **fields)))


@pytest.mark.parametrize("source", FUNCTIONS)
def test_reads(source):
    code, constants, names = FUNCTIONS[source]
    found = read([*code, "RETURN_VALUE"], constants=constants, names=names)
    assert (found.source(), found.python) == (source, PYTHON)


def test_more_constants_than_two_bytes_count():
    """EXTENDED_ARG, with the upper 16 bits."""
    code = ["LOAD_FAST 0", "LOAD_CONST 65537", "BINARY_ADD", "RETURN_VALUE"]
    found = read(code, constants=(*[None] * 65537, "last"))
    assert found.source() == "x + 'last'"


def test_an_assignment_and_lines():
    code = ["LOAD_FAST 0", "LOAD_FAST 0", "BINARY_MULTIPLY", "STORE_FAST 1", "LOAD_FAST 1"]
    found = read([*code, "RETURN_VALUE"], variables=("x", "y"), name="f")
    assert (found.name, found.source()) == ("f", "y = x * x; y")
    with pytest.raises(
        CodeError, match=r"try or with \(SETUP_FINALLY in line 4\); read so far: y = x \* x$"
    ):
        read(
            [*code[:-1], "SETUP_FINALLY 3", "LOAD_FAST 0", "RETURN_VALUE"],
            variables=("x", "y"),
            lines=b"\x0a\x03",
            line=1,
        )


def test_a_comprehension():
    """`[x * i for i in (1, 2)]`: MAKE_CLOSURE has a name, the code and the cells."""
    inner = function(
        PYTHON,
        [
            *("BUILD_LIST 0", "LOAD_FAST 0", "FOR_ITER 16", "STORE_FAST 1", "LOAD_DEREF 0"),
            *("LOAD_FAST 1", "BINARY_MULTIPLY", "LIST_APPEND 2", "JUMP_ABSOLUTE 6"),
            "RETURN_VALUE",
        ],
        variables=(".0", "i"),
        free=("x",),
        name="<listcomp>",
        flags=0x13,
    )
    outer = [
        *("LOAD_CLOSURE 0", "BUILD_TUPLE 1", "LOAD_CONST 0", "LOAD_CONST 1", "MAKE_CLOSURE 0"),
        *("LOAD_CONST 2", "GET_ITER", "CALL_FUNCTION 1", "RETURN_VALUE"),
    ]
    constants = (inner, "<lambda>.<locals>.<listcomp>", (1, 2))
    assert read(outer, constants=constants, cells=("x",), flags=0x03).source() == "[x * 1, x * 2]"


@pytest.mark.parametrize(
    ("code", "constants", "why"),
    [
        (["LOAD_GLOBAL 0", "LOAD_FAST 0", "CALL_FUNCTION_VAR 0"], (), "with * or **"),
        (["LOAD_GLOBAL 0", "LOAD_FAST 0", "CALL_FUNCTION_KW 0"], (), "with * or **"),
        (
            ["LOAD_GLOBAL 0", "LOAD_FAST 0", "LOAD_FAST 0", "CALL_FUNCTION_VAR_KW 0"],
            (),
            "with * or **",
        ),
        # A default, a default of a keyword with its name, and an annotation with its names.
        (
            [
                *("LOAD_CONST 2", "LOAD_CONST 3", "LOAD_CONST 2", "LOAD_CONST 2", "LOAD_CONST 3"),
                *("LOAD_CONST 0", "LOAD_CONST 1", "MAKE_FUNCTION 131329"),
            ],
            (function(PYTHON, INNER), "g", 1, "k"),
            "a function of its own (MAKE_FUNCTION in line 1)",
        ),
    ],
)
def test_refuses(code, constants, why):
    with pytest.raises(CodeError) as caught:
        read([*code, "RETURN_VALUE"], constants=constants, names=("f",))
    assert why in caught.value.why


def test_is_not_read_as_3_6():
    data = bytes(function(PYTHON, FUNCTIONS["x / 255"][0] + ["RETURN_VALUE"], constants=(0, 255)))
    assert data.count(struct.pack("<BH", 100, 1)) == 1
    assert read_function(data, python=(3, 6)).python == PYTHON
