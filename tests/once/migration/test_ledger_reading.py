"""The ledger is read line by line: the last of a name counts, and what is broken is named."""

import contextlib
import json
import math
import tracemalloc
from dataclasses import fields

import pytest
from hypothesis import given, settings, strategies as st

from keras_mp.migration.ledger_reading import Change, Ledger, Row, find_ledger, read_ledger
from tests.fuzzing import examples
from tests.ledgers import HOSTILE, RENAMED, lines, many, row, write


def of(*rows: dict) -> Ledger:
    return Ledger.of(lines(list(rows)))


def test_a_row_is_as_it_was_written():
    written = row(HOSTILE, policies={"infer": 2}, seconds=0.5)
    (found,) = of(written).rows
    for each in fields(Row):
        value = getattr(found, each.name)
        if each.name == "changes":
            value = [change._asdict() for change in value]
        elif each.name == "notes":
            value = list(value)
        assert value == written[each.name], each.name
    left_out = written.keys() - {each.name for each in fields(Row)}
    assert left_out == {"schema", "out_sha256"}


def test_a_loss_scale_that_json_has_no_number_for():
    (found,) = of(row("a", loss_scale="inf")).rows
    assert found.loss_scale == math.inf
    with pytest.raises(ValueError, match=r'loss_scale is "much": expected a number, "inf"'):
        of(row("a", loss_scale="much"))


def test_what_is_not_written_is_not_known():
    (found,) = Ledger.of([b'{"schema": 1, "name": "a", "result": "failed", "more": {}}\n']).rows
    assert found == Row("a", "failed")


def test_the_last_row_of_a_name_counts():
    found = of(row("a", "failed"), row("b"), row("a", "done", bytes=7), row("b", "refused"))
    assert [(each.name, each.result, each.bytes) for each in found.rows] == [
        ("a", "done", 7),
        ("b", "refused", 1000),
    ]
    assert found.lines == 4


def test_what_was_done_before_keeps_what_was_said_then():
    empty = {
        "seconds": 0,
        "changes": [],
        "peak_memory": None,
        "model": None,
        "policies": {},
        "written_by": "unknown",
        "verified": {},
        "out_bytes": None,
    }
    later = row("a", "done before", run="run-2", when="2030-02-01T00:00:00Z", **empty)
    (found,) = of(row("a", seconds=3.5), later, later).rows
    assert (found.result, found.run, found.seconds) == ("done before", "run-2", 3.5)
    assert found.changes == (Change(**RENAMED),)
    assert (found.peak_memory, found.written_by) == (5000, "TensorFlow 2.3")
    assert found.policies == {"mixed_float16": 3, "float32": 1}
    (own,) = of(row("a", seconds=3.5), row("a", "done before", seconds=0.25)).rows
    assert own.seconds == 0.25, "what it says itself is not replaced"


def test_what_failed_says_nothing_of_what_is_done_before():
    (found,) = of(row("a", "failed"), row("a", "done before", written_by=None)).rows
    assert (found.written_by, found.reason, found.why) == (None, None, None)


def test_runs_have_all_lines():
    at = "2030-01-31T12:0{}:00+00:00".format
    found = of(
        row("a", when=at(2)),
        row("b", "failed", when=at(1), host="node-2"),
        row("a", "done before", run="run-2", when=at(5), source="s3://bucket/old/a"),
    )
    first, second = found.runs
    assert (first.name, first.rows) == ("run-1", {"done": 1, "failed": 1})
    assert (first.first, first.last) == (at(1), at(2))
    assert (first.hosts, first.roots) == (["node-1", "node-2"], ["/models"])
    assert (second.rows, second.roots) == ({"done before": 1}, ["s3://bucket/old"])


@settings(deadline=None, max_examples=examples(200))
@given(st.data())
def test_half_a_last_line_is_said_and_not_counted(data):
    whole = lines([row("a"), row(HOSTILE), row("é" * 9)])
    last = json.dumps(row("é\U0001f600"), ensure_ascii=False).encode()
    cut = data.draw(st.integers(0, len(last)))
    found = Ledger.of([*whole, *([last[:cut]] if cut else [])])
    names = ["a", HOSTILE, "é" * 9]
    if cut == len(last):
        names.append("é\U0001f600")
    assert [each.name for each in found.rows] == names
    assert found.torn == int(0 < cut < len(last))
    assert found.lines == len(names)


def test_a_run_that_goes_on_leaves_half_a_line_alone():
    """Wherever the run before was killed."""
    written = row("a", bytes=12, notes=["}", "\\é"], options={"a": {"b": [-1.5, True]}})
    (line,) = lines([written])
    for cut in range(1, len(line) - 1):
        found = Ledger.of([line[:cut] + b"\n", line])
        assert (len(found.rows), found.lines, found.torn) == (1, 1, 1), line[:cut]


def test_room_that_was_never_written_to_is_torn():
    line = lines([row("a")])[0]
    for torn in (b"\0" * 9 + b"\n", b"\n"):
        found = Ledger.of([line, torn, line])
        assert (found.lines, found.torn) == (2, 1)


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(lambda line: line.replace(b'"files": 1', b'"files": ]'), id="changed"),
        pytest.param(lambda line: line.replace(b'"name": "a"', b'"name": "a', 1), id="gone"),
        pytest.param(lambda line: line[:-1] + line, id="two rows in one"),
        pytest.param(lambda line: line[9:], id="the beginning is gone"),
    ],
)
def test_a_damaged_line_is_an_error(of):
    line = lines([row("a")])[0]
    assert of(line) != line
    with pytest.raises(ValueError, match=r"^there, line 2 is not valid JSON .*Remove the line"):
        Ledger.of([line, of(line), line], "there")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"\x89HDF\r\n", "line 1 is not valid JSON"),
        (b"\x89HDF", "line 1 is not valid JSON"),
        (b"[" * 100_000 + b"\n", "line 1 is not valid JSON"),
        (b'{"schema": 1, "bytes": NaN}\n', "NaN is not a number of JSON"),
        (b"[1]\n", r"line 1: it is \[1\]: expected an object, as `keras-mp migrate` writes it"),
        (b"{}\n", "line 1: schema is null: expected 1; the only one"),
        (b'{"schema": true}\n', "line 1: schema is true: expected 1"),
        (b'{"schema": 0}\n', "line 1: schema is 0: expected 1; the only one"),
        (b'{"schema": 2}\n', "schema is 2: expected 1; a later keras_mp wrote it: read it with"),
        (b'{"schema": 1, "result": "done"}\n', "line 1: name is null: expected a string"),
        (b'{"schema": 1, "name": "a", "result": "lost"}\n', 'result is "lost": expected one of'),
    ],
)
def test_what_is_no_ledger(line, told):
    with pytest.raises(ValueError, match=told):
        Ledger.of([line])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bytes", -1),
        ("bytes", 1.5),
        ("bytes", True),
        ("bytes", 1 << 63),
        ("seconds", -0.5),
        ("seconds", "2"),
        ("seconds", 10**400),
        ("when", "yesterday"),
        ("when", 5),
        ("policies", ["infer"]),
        ("policies", {"infer": "2"}),
        ("changes", [{"path": "$", "kind": "renamed", "what": "x"}]),
        ("changes", [{**RENAMED, "matters": 1}]),
        ("notes", [1]),
        ("notes", "note"),
        ("versions", "3"),
        ("why", ["x"]),
    ],
)
def test_a_value_of_another_type_is_named(key, value):
    with pytest.raises(ValueError, match=rf"^migration\.jsonl, line 2: {key} is .*: expected a"):
        of(row("a"), row("b", **{key: value}))


@settings(deadline=None, max_examples=examples(200))
@given(
    st.dictionaries(
        st.sampled_from(sorted(row("a"))),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=4,
        ),
    )
)
def test_any_values_are_read_or_refused(values):
    line = json.dumps({**row("a"), **values}).encode() + b"\n"
    with contextlib.suppress(ValueError):  # and no other error
        assert len(Ledger.of([line]).rows) == 1


def test_equal_things_of_rows_are_one_object():
    """A ledger of 100,000 rows is read in the memory of their names, and not of their changes."""
    written = lines([row(f"a{i}", changes=[RENAMED] * 60) for i in range(100)])
    tracemalloc.start()
    try:
        found = Ledger.of(written)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len({id(each.changes) for each in found.rows}) == 1
    assert held < 100 * 4000


def test_files(tmp_path):
    folder = write(tmp_path / "out", many(30), torn=b'{"schema"')
    file = folder / "migration.jsonl"
    assert find_ledger(str(folder)) == find_ledger(str(file)) == file
    assert find_ledger(str(tmp_path)) is None
    assert find_ledger(str(tmp_path / "run.json")) is None
    found = read_ledger(file)
    assert (len(found.rows), found.torn) == (30, 1)
    file.write_bytes(b"")
    assert read_ledger(file) == Ledger((), (), 0)


def test_a_file_without_lines_is_not_read_whole(tmp_path):
    file = tmp_path / "migration.jsonl"
    with file.open("wb") as opened:
        opened.truncate((64 << 20) + 1)
    with pytest.raises(ValueError, match=r"line 1 is larger than 64 MiB, so this is not a ledger"):
        read_ledger(file)
