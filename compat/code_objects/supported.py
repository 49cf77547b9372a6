"""Which instructions are read, and what the others stand for, in words."""

from keras_mp.compat.code_objects import scopes
from keras_mp.compat.code_objects.blocks import BRANCHES, JUMPS
from keras_mp.compat.code_objects.guards import GUARD
from keras_mp.compat.code_objects.marshalled import Code
from keras_mp.compat.code_objects.opcodes import Version, named

COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
# BINARY_ADD, and INPLACE_ADD, and so on, before 3.11.
OPERATORS = {
    "ADD": "+",
    "AND": "&",
    "FLOOR_DIVIDE": "//",
    "LSHIFT": "<<",
    "MATRIX_MULTIPLY": "@",
    "MULTIPLY": "*",
    "MODULO": "%",
    "OR": "|",
    "POWER": "**",
    "RSHIFT": ">>",
    "SUBTRACT": "-",
    "TRUE_DIVIDE": "/",
    "XOR": "^",
}

# What cannot be read, in words, by the instruction that shows it.
_WORDS = {
    "a loop": "BREAK_LOOP CONTINUE_LOOP",
    "try or with": "SETUP_EXCEPT SETUP_FINALLY POP_EXCEPT PUSH_EXC_INFO",
    "an import": "IMPORT_STAR",
    "a change of a global variable": "STORE_GLOBAL DELETE_GLOBAL",
    "a change of a variable of the function around it": "STORE_DEREF DELETE_DEREF",
    "a change of an object": "STORE_ATTR DELETE_ATTR STORE_SUBSCR DELETE_SUBSCR",
    "the end of a variable": "DELETE_FAST",
    "a class of its own": "LOAD_BUILD_CLASS",
    "a generator": "YIELD_VALUE YIELD_FROM GET_YIELD_FROM_ITER RETURN_GENERATOR GEN_START",
    "async": "GET_AITER GET_ANEXT GET_AWAITABLE BEFORE_ASYNC_WITH SETUP_ASYNC_WITH SEND",
    "an exception that it raises": "RAISE_VARARGS RERAISE LOAD_ASSERTION_ERROR",
    "a formatted string": "FORMAT_VALUE BUILD_STRING",
    "something spread with * or **": "CALL_FUNCTION_VAR CALL_FUNCTION_VAR_KW CALL_FUNCTION_KW",
    "code of a module or class": "LOAD_NAME STORE_NAME DELETE_NAME LOAD_CLASSDEREF",
    "a match statement": "MATCH_MAPPING MATCH_SEQUENCE MATCH_KEYS MATCH_CLASS GET_LEN",
}
REASONS = {name: words for words, names in _WORDS.items() for name in names.split()}

SUPPORTED = (
    named(
        "RETURN_VALUE NOP RESUME PRECALL MAKE_CELL COPY_FREE_VARS POP_TOP ROT_TWO ROT_THREE"
        " ROT_FOUR ROT_N DUP_TOP DUP_TOP_TWO SWAP COPY PUSH_NULL BINARY_OP BINARY_SUBSCR"
        " COMPARE_OP IS_OP CONTAINS_OP LOAD_CONST LOAD_FAST LOAD_DEREF LOAD_CLOSURE LOAD_GLOBAL"
        " LOAD_ATTR LOAD_METHOD STORE_FAST STORE_DEREF BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_MAP"
        " BUILD_CONST_KEY_MAP BUILD_SLICE LIST_EXTEND LIST_APPEND LIST_TO_TUPLE SET_UPDATE SET_ADD"
        " DICT_UPDATE DICT_MERGE MAP_ADD BUILD_LIST_UNPACK BUILD_TUPLE_UNPACK"
        " BUILD_TUPLE_UNPACK_WITH_CALL BUILD_SET_UNPACK BUILD_MAP_UNPACK"
        " BUILD_MAP_UNPACK_WITH_CALL UNPACK_SEQUENCE CALL_FUNCTION CALL_FUNCTION_KW"
        " CALL_FUNCTION_EX CALL_METHOD CALL KW_NAMES MAKE_FUNCTION MAKE_CLOSURE GET_ITER"
        " FOR_ITER SETUP_LOOP IMPORT_NAME IMPORT_FROM UNPACK_EX"
    )
    | {GUARD}
    | scopes.ENTERING
    | scopes.PASSED
    | scopes.LEAVING
    | named("UNARY_POSITIVE UNARY_NEGATIVE UNARY_NOT UNARY_INVERT")
    | frozenset(f"{kind}_{name}" for kind in ("BINARY", "INPLACE") for name in OPERATORS)
    | BRANCHES
    | JUMPS
)
_IN_COMPREHENSIONS = frozenset({"YIELD_VALUE", "RETURN_GENERATOR", "GEN_START"})


def is_supported(name: str, code: Code, python: Version) -> bool:
    """Returns whether an instruction of a function is read."""
    if name == "CALL_FUNCTION_KW" and python < (3, 6):
        return False
    return name in SUPPORTED or (name in _IN_COMPREHENSIONS and code.name in COMPREHENSIONS)


def reason(name: str) -> str:
    """Returns what an instruction that is not read stands for."""
    return REASONS.get(name, "an instruction that is not read")
