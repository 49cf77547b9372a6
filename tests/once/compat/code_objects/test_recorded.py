"""Functions that CPython 3.6 to 3.11 compiled, and that TensorFlow wrote into models, read back.

tests/data/lambdas/sources.txt has them as text, and record.py compiles them with each version.
"""

import ast
import functools
import importlib.util
import json

import pytest

from keras_mp.compat.code_objects import CodeError, from_config
from tests.data.lambdas.reading import LAMBDAS, RECORDED, VERSIONS, fields

MODELS = json.loads((LAMBDAS / "from_models.json").read_text(encoding="utf-8"))


def recording():
    spec = importlib.util.spec_from_file_location("record", LAMBDAS / "record.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


READ, REFUSED = recording().paragraphs()


@functools.cache
def functions(source):
    """Returns (version, what is read) of each version."""
    return [(version, from_config(field)) for version, field in fields(source)]


def one_line(source):
    return " ".join(source.split())[:80]


def test_all_are_recorded():
    assert set(RECORDED) == {source for source, _ in READ + REFUSED}
    assert (len(READ), len(REFUSED)) == (426, 69)
    late = [source for source, _ in READ if {v for v, _ in fields(source)} != set(VERSIONS)]
    assert late == ["lambda x: (y := x * 2) + y", "lambda x, /, y: x + y"]
    for version in VERSIONS:
        read = sum(version in dict(fields(source)) for source, _ in READ)
        assert read == (424 if version in ("3.6", "3.7") else 426)


@pytest.mark.parametrize(("source", "expected"), READ, ids=[one_line(source) for source, _ in READ])
def test_reads(source, expected):
    for version, function in functions(source):
        text = expected.get(version, expected.get(""))
        if text is None:
            written = ast.parse(source).body[-1].value.body
            assert function.steps == ()
            assert ast.dump(function.result) == ast.dump(written), version
        else:
            assert function.source() == text, version
            # What is said is Python, and says the same when it is parsed.
            *steps, result = ast.parse(text).body
            assert ast.dump(function.result) == ast.dump(result.value)
            found = [(name, ast.dump(value)) for name, value in function.steps]
            assert found == [(step.targets[0].id, ast.dump(step.value)) for step in steps]


def test_most_are_as_they_were_written():
    """The rest has several statements, or was changed by the compiler: folded, or `not` moved."""
    assert sum(not expected for _, expected in READ) == 270


@pytest.mark.parametrize(("source", "expected"), READ, ids=[one_line(source) for source, _ in READ])
def test_each_version_is_found_or_one_that_writes_the_same(source, expected):
    """3.6 and 3.7 differ where a method is called, 3.8 and 3.9 where something is compared."""
    same = {"3.7": (3, 6), "3.9": (3, 8)}
    for version, function in functions(source):
        assert function.python in ((3, int(version[2:])), same.get(version))


def test_the_version_can_be_named():
    for source, _ in READ[::10]:
        for (version, field), (_, found) in zip(fields(source), functions(source), strict=True):
            python = (3, int(version[2:]))
            function = from_config(field, python=python)
            assert (function.python, function.source()) == (python, found.source())


@pytest.mark.parametrize(
    ("source", "expected"), REFUSED, ids=[one_line(source) for source, _ in REFUSED]
)
def test_refuses(source, expected):
    for version, field in fields(source):
        with pytest.raises(CodeError) as caught:
            from_config(field)
        assert expected[""] in caught.value.why, version
        assert "no function of" not in caught.value.why, version
        assert str(caught.value).startswith(caught.value.why)
        assert len(str(caught.value)) < 600


SO_FAR = {
    "lambda x: tf.map_fn(lambda y: y * 2, x)": "tf.map_fn(<function>, x)",
    "def f(x):\n    raise ValueError(x)": "ValueError(x)",
    "lambda x: [K.sum(y) for y in x]": "<comprehension>",
    "def f(x):\n    y = x\n    del y\n    return x": "y = x",
}


@pytest.mark.parametrize("source", SO_FAR, ids=one_line)
def test_shows_what_was_read_before(source):
    for _, field in fields(source):
        with pytest.raises(CodeError) as caught:
            from_config(field)
        assert caught.value.so_far == SO_FAR[source]


def test_names_the_line():
    source = "def f(x):\n    x.name = 'y'\n    return x"
    for _, field in fields(source):
        with pytest.raises(CodeError, match=r"^holds a change .* \(STORE_ATTR in line 2\)"):
            from_config(field)


# As generate.py of the models has them.
WRITTEN = {
    "divide": "x / 255",
    "expand": "tf.expand_dims(x, -1)",
    "sum_axis": "K.sum(x, axis=1)",
    "square_root": "K.sqrt(K.square(z) + 1e-06)",
    "every_other": "x[:, ::2, :]",
    "default": "x * by",
    "two_names": "tf.math.tanh(x) + tf.nn.relu(x)",
}


@pytest.mark.parametrize("file", MODELS)
def test_models(file):
    folder, _, name = file.replace(".", "/").split("/")[0], "", file.split("/")[1].split(".")[0]
    function = from_config(MODELS[file])
    assert function.source() == WRITTEN[name]
    assert function.name == "<lambda>"
    assert function.defaults == ({"by": 2.0} if name == "default" else {})
    assert (function.python == (3, 11)) == (folder == "tf215")


def test_the_models_are_all_there():
    assert len(MODELS) == 49
    assert {file.split("/")[1].split(".")[0] for file in MODELS} == set(WRITTEN)
