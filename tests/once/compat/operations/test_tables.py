"""The lines of the tables: each parses, binds and is recorded; what does not fit is refused."""

import ast
import collections

import pytest

from keras_mp.compat.operations import expressions, functions, graph_ops, tables
from keras_mp.compat.operations.tables import Line, NotConverted, parsed_line, result_of_call
from keras_mp.compat.operations.vocabulary import REQUIRED, signatures
from tests.data.operations.reading import cases

LINES = {"functions": functions.lines(), "ops": graph_ops.lines()}
ALL = [(kind, text) for kind, texts in LINES.items() for text in texts]
SAME = ("minlength", "maxlength")  # of bincount: refused where they differ
HELPERS = {"first", "last", "all_but_last", "refuse"}


def is_refused(line: Line) -> bool:
    """Returns whether a line is there for the reason that it gives."""
    return isinstance(line.result, ast.Call) and ast.unparse(line.result.func) == "refuse"


def asked(line: Line) -> set[str]:
    """Returns the arguments without which a line refuses a call."""
    tests = [node.test for node in ast.walk(line.result) if isinstance(node, ast.IfExp)]
    return {ast.unparse(test).partition(" is ")[0] for test in tests}


@pytest.mark.parametrize(("kind", "text"), ALL, ids=[text.partition("(")[0] for _, text in ALL])
def test_each_line_binds(kind: str, text: str) -> None:
    names, line = parsed_line(text)
    assert all(name and name == name.strip() for name in names)
    calls = [node.func for node in ast.walk(line.result) if isinstance(node, ast.Call)]
    assert {ast.unparse(call) for call in calls} <= signatures().keys() | HELPERS
    values = {
        name: line.allowed[name][0]
        if name in line.allowed
        else 1
        if name in SAME
        else {"tensor": i}
        for i, (name, default) in enumerate(line.arguments.items())
        if default is REQUIRED or name in line.allowed or name in asked(line) | {*SAME}
    }
    rest = [] if line.rest is None else [{"tensor": 7}, {"tensor": 8}, 1]
    positional = [
        values.pop(name) for name in list(values) if line.rest and name not in line.attributes
    ]
    if is_refused(line):
        with pytest.raises(NotConverted, match=r"known only when it runs|in one version of"):
            result_of_call(line, positional, values)
    else:
        expressions.checked_expression(result_of_call(line, [*positional, *rest], values))


@pytest.mark.parametrize("kind", LINES)
def test_no_name_is_there_twice(kind: str) -> None:
    counts = collections.Counter(name for text in LINES[kind] for name in parsed_line(text)[0])
    assert [name for name, count in counts.items() if count > 1] == []


def test_each_name_is_recorded() -> None:
    recorded = {name for case in cases("functions") for name in case.names}
    wanted = {name for name, line in tables.of_functions().items() if not is_refused(line)}
    assert wanted - recorded == {"__operators__.eq", "__operators__.ne"}  # saved without an operand
    assert recorded - wanted == {
        name for name in recorded - wanted if name.startswith("compat.v1.")
    }


def test_each_op_is_recorded() -> None:
    recorded = {name for case in cases("ops") for name in case.names}
    assert recorded == tables.of_graph_ops().keys()


def test_names_that_follow_a_list() -> None:
    names, line = parsed_line(
        "a, b.c(x, *rest, axis=0) = concatenate(rest, axis) ; axis in (0, -1)"
    )
    assert names == ["a", "b.c"]
    assert (line.rest, line.allowed, line.attributes) == ("rest", {"axis": (0, -1)}, {"axis"})
    found = result_of_call(line, [1, 2, 3], {"axis": -1})
    assert found == expressions.operation("concatenate", [2, 3], -1)


@pytest.mark.parametrize(
    ("name", "positional", "named", "why"),
    [
        ("reshape", [{"tensor": 0}], {}, "has no 'shape'"),
        ("reshape", [{"tensor": 0}, [1]], {"tensor": 0}, "its argument 'tensor' twice"),
        ("reshape", [{"tensor": 0}, [1]], {"order": "C"}, "an argument 'order' that is not known"),
        ("math.abs", [{"tensor": 0}, None, 3], {}, "takes 1 arguments, and got 3"),
        ("image.resize", [{"tensor": 0}, [1, 1]], {"preserve_aspect_ratio": True}, "=True, which"),
        ("nn.max_pool", [{"tensor": 0}, 2, 2, [[0, 0]]], {}, "has padding="),
        ("einsum", ["ij->ji"], {}, "saved without its tensors"),
        ("__operators__.eq", [{"tensor": 0}], {}, "without its second operand"),
        ("where", [{"tensor": 0}], {}, "known only when it runs"),
        ("boolean_mask", [{"tensor": 0}, {"tensor": 1}], {}, "known only when it runs"),
    ],
)
def test_what_does_not_fit(
    name: str, positional: list[object], named: dict[str, object], why: str
) -> None:
    with pytest.raises(NotConverted, match=why):
        result_of_call(tables.of_functions()[name], positional, named)


def test_first_arguments_have_many_names() -> None:
    line = tables.of_functions()["nn.relu6"]
    assert result_of_call(line, [], {"features": {"tensor": 0}}) == result_of_call(
        line, [{"tensor": 0}], {}
    )


def test_a_name_is_no_argument() -> None:
    line = tables.of_functions()["math.abs"]
    assert result_of_call(line, [{"tensor": 0}, "abs"], {}) == result_of_call(
        line, [{"tensor": 0}], {"name": "abs"}
    )


def test_true_is_not_1() -> None:
    line = tables.of_functions()["keras.backend.in_train_phase"]
    found = [
        result_of_call(line, ["x", "alt"], {"training": value})
        for value in (True, 1, False, 0, None)
    ]
    assert found[:4] == ["x", "x", "alt", "alt"]
    assert expressions.is_operation(found[4])
