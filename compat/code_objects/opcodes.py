"""The instructions of CPython 3.5 to 3.11 by number, and what their arguments count.

Source: Lib/opcode.py of each version. The tables are compared with what the versions themselves
say in tests/once/code_objects/test_opcodes.py.
"""

from collections.abc import Mapping
from types import MappingProxyType

Version = tuple[int, int]

VERSIONS: tuple[Version, ...] = tuple((3, minor) for minor in range(5, 12))


def _numbered(text: str) -> dict[int, str]:
    """Returns a table from lines such as "19 BINARY_POWER BINARY_MULTIPLY - BINARY_MODULO"."""
    table = {}
    for line in text.split("\n"):
        first, *names = line.split() or ["0"]
        table.update({int(first) + i: name for i, name in enumerate(names) if name != "-"})
    return table


_SINCE_3_5 = _numbered(
    """
    1 POP_TOP ROT_TWO ROT_THREE DUP_TOP DUP_TOP_TWO
    9 NOP UNARY_POSITIVE UNARY_NEGATIVE UNARY_NOT - - UNARY_INVERT
    16 BINARY_MATRIX_MULTIPLY INPLACE_MATRIX_MULTIPLY
    19 BINARY_POWER BINARY_MULTIPLY - BINARY_MODULO BINARY_ADD BINARY_SUBTRACT BINARY_SUBSCR
    26 BINARY_FLOOR_DIVIDE BINARY_TRUE_DIVIDE INPLACE_FLOOR_DIVIDE INPLACE_TRUE_DIVIDE
    50 GET_AITER GET_ANEXT BEFORE_ASYNC_WITH
    55 INPLACE_ADD INPLACE_SUBTRACT INPLACE_MULTIPLY - INPLACE_MODULO STORE_SUBSCR DELETE_SUBSCR
    62 BINARY_LSHIFT BINARY_RSHIFT BINARY_AND BINARY_XOR BINARY_OR INPLACE_POWER
    68 GET_ITER GET_YIELD_FROM_ITER PRINT_EXPR LOAD_BUILD_CLASS YIELD_FROM GET_AWAITABLE
    75 INPLACE_LSHIFT INPLACE_RSHIFT INPLACE_AND INPLACE_XOR INPLACE_OR
    80 BREAK_LOOP WITH_CLEANUP_START WITH_CLEANUP_FINISH RETURN_VALUE IMPORT_STAR
    86 YIELD_VALUE POP_BLOCK END_FINALLY POP_EXCEPT
    90 STORE_NAME DELETE_NAME UNPACK_SEQUENCE FOR_ITER UNPACK_EX
    95 STORE_ATTR DELETE_ATTR STORE_GLOBAL DELETE_GLOBAL
    100 LOAD_CONST LOAD_NAME BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_MAP LOAD_ATTR COMPARE_OP
    108 IMPORT_NAME IMPORT_FROM JUMP_FORWARD JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP
    113 JUMP_ABSOLUTE POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE LOAD_GLOBAL
    119 CONTINUE_LOOP SETUP_LOOP SETUP_EXCEPT SETUP_FINALLY
    124 LOAD_FAST STORE_FAST DELETE_FAST
    130 RAISE_VARARGS CALL_FUNCTION MAKE_FUNCTION BUILD_SLICE MAKE_CLOSURE
    135 LOAD_CLOSURE LOAD_DEREF STORE_DEREF DELETE_DEREF
    140 CALL_FUNCTION_VAR CALL_FUNCTION_KW CALL_FUNCTION_VAR_KW SETUP_WITH EXTENDED_ARG
    145 LIST_APPEND SET_ADD MAP_ADD LOAD_CLASSDEREF
    149 BUILD_LIST_UNPACK BUILD_MAP_UNPACK BUILD_MAP_UNPACK_WITH_CALL BUILD_TUPLE_UNPACK
    153 BUILD_SET_UNPACK SETUP_ASYNC_WITH
    """
)

# version -> (numbers that it dropped, those that it brought or gave to others)
_CHANGES: dict[Version, tuple[set[int], str]] = {
    (3, 6): (
        {134, 140},
        """
        85 SETUP_ANNOTATIONS
        127 STORE_ANNOTATION
        142 CALL_FUNCTION_EX
        155 FORMAT_VALUE BUILD_CONST_KEY_MAP BUILD_STRING BUILD_TUPLE_UNPACK_WITH_CALL
        """,
    ),
    (3, 7): ({127}, "160 LOAD_METHOD CALL_METHOD"),
    (3, 8): (
        {80, 119, 120, 121},
        """
        6 ROT_FOUR
        53 BEGIN_FINALLY END_ASYNC_FOR
        162 CALL_FINALLY POP_FINALLY
        """,
    ),
    (3, 9): (
        {53, 81, 88, *range(149, 154), 158},
        """
        48 RERAISE WITH_EXCEPT_START
        74 LOAD_ASSERTION_ERROR
        82 LIST_TO_TUPLE
        117 IS_OP CONTAINS_OP
        121 JUMP_IF_NOT_EXC_MATCH
        162 LIST_EXTEND SET_UPDATE DICT_MERGE DICT_UPDATE
        """,
    ),
    (3, 10): (
        {48},
        """
        30 GET_LEN MATCH_MAPPING MATCH_SEQUENCE MATCH_KEYS COPY_DICT_WITHOUT_KEYS
        99 ROT_N
        119 RERAISE
        129 GEN_START
        152 MATCH_CLASS
        """,
    ),
    (3, 11): (
        {
            *(2, 3, 4, 5, 6, 16, 17, 19, 20, 22, 23, 24, 26, 27, 28, 29, 34, 55, 56, 57, 59),
            *(62, 63, 64, 65, 66, 67, 72, 73, 75, 76, 77, 78, 79, 87, 113, 121, 122, 129, 131),
            *(141, 143, 154, 161),
        },
        """
        0 CACHE - PUSH_NULL
        35 PUSH_EXC_INFO CHECK_EXC_MATCH CHECK_EG_MATCH
        53 BEFORE_WITH
        75 RETURN_GENERATOR
        87 ASYNC_GEN_WRAP PREP_RERAISE_STAR
        99 SWAP
        114 POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_TRUE
        120 COPY - BINARY_OP SEND
        128 POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_NONE
        131 GET_AWAITABLE
        134 JUMP_BACKWARD_NO_INTERRUPT MAKE_CELL LOAD_CLOSURE LOAD_DEREF STORE_DEREF DELETE_DEREF
        140 JUMP_BACKWARD
        149 COPY_FREE_VARS - RESUME
        166 PRECALL
        171 CALL KW_NAMES POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_NONE
        175 POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE
        """,
    ),
}


def _tables() -> Mapping[Version, Mapping[int, str]]:
    tables, table = {}, _SINCE_3_5
    for version in VERSIONS:
        dropped, brought = _CHANGES.get(version, (set(), ""))
        kept = {number: name for number, name in table.items() if number not in dropped}
        table = kept | _numbered(brought)
        tables[version] = MappingProxyType(table)
    return MappingProxyType(tables)


OPCODES = _tables()


def named(text: str) -> frozenset[str]:
    """Returns the words of a text.

    >>> sorted(named("LOAD_CONST KW_NAMES"))
    ['KW_NAMES', 'LOAD_CONST']
    """
    return frozenset(text.split())


HAVE_ARGUMENT = 90  # from here on, in 3.5, where the others take one byte

# How many entries for the interpreter's own use follow an instruction of 3.11.
CACHES = MappingProxyType(
    {
        "BINARY_SUBSCR": 4,
        "STORE_SUBSCR": 1,
        "UNPACK_SEQUENCE": 1,
        "STORE_ATTR": 4,
        "LOAD_ATTR": 4,
        "COMPARE_OP": 2,
        "LOAD_GLOBAL": 5,
        "BINARY_OP": 1,
        "LOAD_METHOD": 10,
        "PRECALL": 1,
        "CALL": 4,
    }
)

OF_NAMES = named(
    "STORE_NAME DELETE_NAME STORE_ATTR DELETE_ATTR STORE_GLOBAL DELETE_GLOBAL LOAD_NAME LOAD_ATTR"
    " IMPORT_NAME IMPORT_FROM LOAD_GLOBAL LOAD_METHOD STORE_ANNOTATION"
)
OF_VARIABLES = frozenset({"LOAD_FAST", "STORE_FAST", "DELETE_FAST"})
OF_CELLS = named("LOAD_CLOSURE LOAD_DEREF STORE_DEREF DELETE_DEREF LOAD_CLASSDEREF MAKE_CELL")
OF_CONSTANTS = frozenset({"LOAD_CONST", "KW_NAMES"})

# Before 3.11: jumps that count from the next instruction, and those that count from the first.
RELATIVE = named(
    "FOR_ITER JUMP_FORWARD SETUP_LOOP SETUP_EXCEPT SETUP_FINALLY SETUP_WITH SETUP_ASYNC_WITH"
    " CALL_FINALLY"
)
ABSOLUTE = named(
    "JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP JUMP_ABSOLUTE POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE"
    " CONTINUE_LOOP JUMP_IF_NOT_EXC_MATCH"
)
# In 3.11 all count from the next instruction.
FORWARD = named(
    "FOR_ITER JUMP_FORWARD JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP SEND"
    " POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_NOT_NONE"
    " POP_JUMP_FORWARD_IF_NONE"
)
BACKWARD = named(
    "JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT POP_JUMP_BACKWARD_IF_NOT_NONE"
    " POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE"
)

# What the argument of COMPARE_OP means; from 3.9 on, only the first six are used.
COMPARISONS = ("<", "<=", "==", "!=", ">", ">=", "in", "not in", "is", "is not")
# What the argument of BINARY_OP means, in 3.11; 13 to 25 are the same with "=".
OPERATORS = ("+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^")
