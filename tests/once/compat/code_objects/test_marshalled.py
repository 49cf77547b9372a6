"""The reader of marshalled values, against Python's own, and against bytes that lie."""

import marshal
import math
import struct

import pytest
from hypothesis import given, settings, strategies as st

from keras_mp.compat.code_objects import marshalled
from keras_mp.compat.code_objects.errors import Malformed
from keras_mp.compat.code_objects.marshalled import Code, Constants
from tests.fuzzing import examples
from tests.once.compat.code_objects.byte_code import Raw, function

SCALARS = (
    st.none()
    | st.booleans()
    | st.just(...)
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters())
    | st.binary()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.frozensets(SCALARS, max_size=4),
    max_leaves=20,
)


def constants(*values, python=(3, 8)):
    """Returns the constants of a function, read."""
    data = function(python, ["LOAD_CONST 0", "RETURN_VALUE"], constants=values)
    return marshalled.read_code(data, marshalled.layout_of(python)).constants


def plain(value):
    """Returns a value so that it can be compared: nan is like nan, and a set has an order."""
    match value:
        case float() | complex():
            return type(value).__name__, repr(value)
        case tuple():
            return tuple(map(plain, value))
        case Constants():
            return "set", sorted(map(repr, map(plain, value.members)))
        case frozenset():
            return "set", sorted(map(repr, map(plain, value)))
    return type(value).__name__, value


@settings(max_examples=examples(150), deadline=None)
@given(VALUES, st.sampled_from([2, 3, 4]))
def test_values_are_as_python_reads_them(value, version):
    data = marshal.dumps(value, version)
    assert plain(marshal.loads(data)) == plain(value)
    assert plain(constants(Raw(data))[0]) == plain(value)


@pytest.mark.parametrize("version", [0, 1])
def test_older_forms_of_numbers(version):
    """Before version 2 a float is text."""
    values = (1.5, -0.0, 1e300, math.inf, 2j, 12, 1 << 40)
    assert constants(Raw(marshal.dumps(values, version)))[0] == values


def test_references_are_one_value():
    one = (1, "a")
    (value,) = constants(Raw(marshal.dumps((one, one, "a", one))))
    assert value == (one, one, "a", one)
    assert value[0] is value[1] is value[3]


@pytest.mark.parametrize(
    "text", [b"tab", b"Aab", b"aab", b"uab"], ids=["interned", "ASCII interned", "ASCII", "text"]
)
def test_forms_of_text(text):
    data = text[:1] + struct.pack("<i", 2) + text[1:]
    assert constants(Raw(data), Raw(b"z\x02ab"), Raw(b"Z\x02ab")) == ("ab", "ab", "ab")


def test_code_within_code():
    inner = function((3, 8), ["LOAD_FAST 0", "RETURN_VALUE"], name="<listcomp>")
    (code,) = constants(inner)
    assert isinstance(code, Code)
    assert (code.name, code.parameters, code.code) == ("<listcomp>", ("x",), b"|\0S\0")


def number(value):
    return struct.pack("<i", value)


BAD = {
    "nothing": (b"", "says that 1 come where 0 can"),
    "an unknown kind": (b"q", "a value of the kind 'q'"),
    "a list": (b"[" + number(0), r"a value of the kind '\['"),
    "a dictionary": (b"{0", "a value of the kind '{'"),
    "NULL": (b"0", "a value of the kind '0'"),
    "StopIteration": (b"S", "a value of the kind 'S'"),
    "a size below 0": (b"s" + number(-1), "says that -1 come"),
    "a size that lies": (b"s" + number(2**31 - 1), "says that 2147483647 come"),
    "a tuple that lies": (b"(" + number(2**31 - 1), "says that 2147483647 come"),
    "a short tuple that lies": (b")\xff", "says that 255 values come in 0 bytes"),
    "a frozenset that lies": (b">" + number(99), "says that 99 come where 0 can"),
    "a short text that lies": (b"z\x10", "ends within a value of 16 bytes"),
    "a number that is cut": (b"i\0\0", "ends within a value of 4 bytes"),
    "a float that is cut": (b"g\0\0", "ends within a value of 8 bytes"),
    "a long of no digits": (b"l" + number(0), "a number of 0 digits"),
    "a long that lies": (b"l" + number(-(2**31)), "a number of 2147483648 digits"),
    "a long that is huge": (b"l" + number(137) + b"\1\0" * 137, "a number of 137 digits"),
    "a digit of 16 bits": (b"l" + number(1) + b"\xff\xff", "not written as Python does"),
    "a digit too many": (b"l" + number(2) + b"\1\0\0\0", "not written as Python does"),
    "a float in words": (b"f\x03one", "a number that is not one"),
    "a float with _": (b"f\x031_0", "a number that is not one"),
    "text that is not UTF-8": (b"u" + number(1) + b"\xff", "not UTF-8"),
    "ASCII that is not": (b"z\x01\xff", "not ASCII"),
    "a reference to nothing": (b"r" + number(0), "refers to its value 0, of 0"),
    "a reference below 0": (b"r" + number(-1), "refers to its value -1, of 0"),
    "itself": (b"\xa9\x01r" + number(0), "refers to its value 0 within that value"),
    "depth": (b")\x01" * 50 + b"N", "nested more than 40 deep"),
}


@pytest.mark.parametrize("what", BAD)
def test_bytes_that_lie(what):
    data, message = BAD[what]
    head = function((3, 8), ["RETURN_VALUE"], constants=(Raw(b"\xff\xff"),))
    start = head.index(b"\xff\xff")
    with pytest.raises(Malformed, match=message):
        marshalled.read_code(bytes(head[:start] + data), (3, 8))


def test_references_are_counted_as_python_does():
    """None, True, False and Ellipsis have no number, whatever they say."""
    (value,) = constants(Raw(b")\x04\xce\xd4\xfa\x01ar" + number(0)))
    assert value == (None, True, "a", "a")


def test_what_is_no_function():
    for data in (b"N", marshal.dumps((1, 2)), marshal.dumps("x")):
        for layout in marshalled.LAYOUTS:
            with pytest.raises(Malformed, match="not a code object"):
                marshalled.read_code(data, layout)


@pytest.mark.parametrize("python", [(3, 5), (3, 8), (3, 11)])
def test_fields_that_do_not_fit(python):
    body = ["LOAD_FAST 0", "RETURN_VALUE"]
    for changes, message in [
        ({"parameters": 2}, "more parameters than its 1 variables"),
        ({"parameters": 1, "keyword_only": 1}, "more parameters than its 1 variables"),
        ({"flags": 0x47}, "more parameters than its 1 variables"),
        ({"parameters": -1}, "counts -1"),
        ({"names": (1,)}, "something else where a name belongs"),
        ({"names": Raw(b"i\0\0\0\0")}, "something else where a tuple belongs"),
        ({"name": 3}, "something else where a name belongs"),
        ({"lines": "text"}, "something else where bytes belong"),
    ]:
        data = function(python, body, **changes)
        with pytest.raises(Malformed, match=message):
            marshalled.read_code(bytes(data), marshalled.layout_of(python))
    data = bytes(function(python, body))
    with pytest.raises(Malformed, match="goes on for 1 bytes after its end"):
        marshalled.read_code(data + b"N", marshalled.layout_of(python))
    with pytest.raises(Malformed, match="more than the 262144 that are read"):
        marshalled.read_code(bytes(2**18 + 1), marshalled.layout_of(python))


def test_one_layout_is_not_read_as_another():
    for python in marshalled.LAYOUTS:
        data = bytes(function(python, ["LOAD_FAST 0", "RETURN_VALUE"]))
        for layout in marshalled.LAYOUTS:
            if layout == python:
                assert marshalled.read_code(data, layout).variables == ("x",)
            else:
                with pytest.raises(Malformed):
                    marshalled.read_code(data, layout)
