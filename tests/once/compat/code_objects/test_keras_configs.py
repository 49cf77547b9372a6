"""What Keras wrote into the config of a Lambda layer, in each of its forms."""

import base64

import pytest

from keras_mp.compat.code_objects import Array, CodeError, from_config, keras_configs
from tests.once.compat.code_objects.byte_code import function

SUM = bytes(
    function(
        (3, 6),
        ["LOAD_FAST 0", "LOAD_FAST 1", "BINARY_MULTIPLY", "RETURN_VALUE"],
        variables=("x", "by"),
        parameters=2,
    )
)
AROUND = bytes(
    function(
        (3, 6),
        ["LOAD_FAST 0", "LOAD_DEREF 0", "BINARY_ADD", "RETURN_VALUE"],
        free=("n",),
        flags=0x13,
    )
)


def text(data):
    """As `codecs.encode(data, "base64")`: a newline after each 76 characters."""
    return base64.encodebytes(data).decode()


FORMS = {
    "a list": [text(SUM), [2.0], None],
    "a tuple": (text(SUM), (2.0,), None),
    "without newlines": [base64.b64encode(SUM).decode(), [2.0], None],
    "with others": [text(SUM).replace("\n", "\r\n  "), [2.0], None],
    "before base64": [SUM.decode("raw_unicode_escape"), [2.0], None],
    "Keras 3": {
        "class_name": "__lambda__",
        "config": {"code": text(SUM), "defaults": [2.0], "closure": None},
    },
    "Keras 3, without closure": {
        "class_name": "__lambda__",
        "config": {"code": text(SUM), "defaults": [2.0]},
    },
    "an argument of another layer": {
        "class_name": "__lambda__",
        "config": {"value": [text(SUM), [2.0], None]},
    },
    "marked tuples": {
        "class_name": "__lambda__",
        "config": {
            "value": {
                "class_name": "__tuple__",
                "items": [text(SUM), {"class_name": "__tuple__", "items": [2.0]}, None],
            }
        },
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form):
    found = from_config(FORMS[form])
    assert (found.source(), found.defaults) == ("x * by", {"by": 2.0})


def test_bytes_before_base64_are_the_same():
    """Those of Keras 2.0 were text with escapes: each byte, and \\u where five bytes looked so."""
    for data in (SUM, b"c" + bytes(range(256)), rb"c\u20ac \U0001f600", b"\xe3\0\0"):
        if data[:1] > b"\x7f" or not data.isascii():
            assert keras_configs.code_bytes(data.decode("raw_unicode_escape")) == data


def test_tuples_in_values():
    marked = {"class_name": "__tuple__", "items": [1, {"class_name": "__tuple__", "items": []}]}
    found = from_config([text(SUM), [[1, marked]], None])
    assert found.defaults == {"by": [1, (1, ())]}


def test_a_default_that_is_not_plain_is_left_out():
    """Whoever builds the layer may have a value for it, in `arguments`."""
    found = from_config([text(SUM), [{"type": "ndarray", "value": [1]}], None])
    assert (found.defaults, found.parameters) == ({}, ("x", "by"))


def of_class(name, **config):
    return {"class_name": name, "config": config}


def test_arrays_in_values():
    """As TF 2.13 to 2.15 wrote NumPy arrays and tensors; before, they were lists."""
    array = of_class("__numpy__", value=[[1.5], [2]], dtype="float32")
    assert from_config([text(SUM), [array], None]).defaults == {
        "by": Array([[1.5], [2]], "float32")
    }
    tensor = of_class("__tensor__", value=[3], dtype="int32")
    assert from_config([text(AROUND), None, [tensor]]).closure == {"n": Array([3], "int32")}
    for bad in (
        of_class("__numpy__", value=[["a"]], dtype="object"),
        of_class("__numpy__", value=[1]),
        of_class("__tensor__", value=1, dtype="int32"),
        {"class_name": "__numpy__", "config": 1},
        {"class_name": "__tuple__", "config": 1},
    ):
        assert from_config([text(SUM), [bad], None]).defaults == {}


def test_a_variable_around_it_is_needed():
    assert from_config([text(AROUND), None, [3]]).closure == {"n": 3}
    for closure in (None, [{"type": "function"}]):
        with pytest.raises(CodeError, match=r"^uses n, of the function around it") as caught:
            from_config([text(AROUND), None, closure])
        assert caught.value.so_far == "x + n"
    with pytest.raises(CodeError, match="has 2 values for 1 variables around it"):
        from_config([text(AROUND), None, [1, 2]])


def test_the_version_may_be_named():
    assert from_config([text(SUM), None, None], python=(3, 7)).python == (3, 7)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("relu", "is not a list of code, defaults and closure"),
        (None, "is not a list of code, defaults and closure"),
        ([], "is not a list of code, defaults and closure"),
        ([text(SUM)], "is not a list of code, defaults and closure"),
        ([1, None, None], "is not a list of code, defaults and closure"),
        ([text(SUM), 2.0, None], "has defaults that are no list"),
        ([text(SUM), None, {"n": 1}], "has a closure that is no list"),
        ({"class_name": "function", "config": "relu"}, "is an object that is no function"),
        ({"class_name": "__lambda__"}, "is an object that is no function"),
        ({"class_name": "__lambda__", "config": {}}, "is not a list of code"),
        ({"class_name": "__lambda__", "config": {"value": "x"}}, "is not a list of code"),
        (["", None, None], "is no function of Python 3.5 to 3.11"),
        (["!!!!", None, None], "is no base64, in which Keras wrote byte code"),
        (["\u20ac" * 10, None, None], "is no base64, in which Keras wrote byte code"),
        ([text(SUM)[:60], None, None], "is no function of Python 3.5 to 3.11: it is cut off: it "),
        (["A" * 2_000_000, None, None], "has 2000000 characters of code, more than are read"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_other_forms(field, message):
    with pytest.raises(CodeError) as caught:
        from_config(field)
    assert message in caught.value.why


def test_values_within_each_other():
    value = 1
    for _ in range(10_000):
        value = [value]
    assert from_config([text(SUM), [value], None]).defaults == {}
