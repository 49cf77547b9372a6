"""What a call of Keras' function must do otherwise, by the row of the table."""

import pytest

from keras_mp.migration.to_backend.backend_operations import BACKEND_OPERATIONS
from keras_mp.migration.to_backend.operations import EXPRESSIONS, HINTS, OPERATIONS, Operation


def test_differences():
    row = Operation("f", "keras.ops.g", "x a=b -c d*", defaults="a=0", instead="do so")
    assert row.differences(1, []) == ["give a=0"]
    assert row.differences(2, ["name"]) == ["it has no name="]
    assert row.differences(2, ["c", "d"]) == ["it has no c=", "do so"]
    assert row.differences(4, []) == ["it has no c=", "give d= by its name", "do so"]
    assert row.differences(1, ["a"]) == ["a= is b= there"]


def test_what_is_always_said():
    row = Operation("f", "keras.ops.g", "x", also="e=1 axis=2", note="mind")
    assert row.differences(1, []) == ["give e=1", "give axis=2", "mind"]


def test_what_is_said_of_a_parameter():
    row = Operation("f", "keras.ops.g", "x mode", mind=("mode", "in lower case"))
    assert row.differences(1, []) == []
    assert row.differences(2, []) == row.differences(1, ["mode"]) == ["in lower case"]


def test_what_is_needed():
    row = Operation("f", "keras.ops.g", "condition x y", needs="x y")
    assert row.differences(1, []) is None
    assert row.differences(2, ["y"]) == row.differences(3, []) == []


@pytest.mark.parametrize("rows", [OPERATIONS, BACKEND_OPERATIONS])
def test_each_name_has_one_row(rows):
    names = [name for row in rows for name in row.names.split()]
    assert len(names) == len(set(names))
    assert {*names}.isdisjoint(EXPRESSIONS)
    assert {*names}.isdisjoint({*HINTS} - {"where"})
