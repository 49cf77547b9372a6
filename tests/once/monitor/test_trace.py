"""Traces and the folder of a run: what is written is read, and damage is named."""

import csv
import itertools
import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from keras_mp.diagnosis.ranges.file import read_ranges, write_ranges
from keras_mp.monitor.drawing import chart, headline
from keras_mp.monitor.run_folder import RunFolder, read_run, write_run
from keras_mp.monitor.trace import Trace, append_jsonl, open_jsonl
from keras_mp.rendering.terminal import to_text
from tests import runs

NAMES = st.one_of(
    st.sampled_from(["dense/kernel", "a,b", 'say "x"', "two\nlines", "ß/é", "=1+1", " blank "]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
)
SCALES = st.one_of(
    st.integers(-20, 127).map(lambda e: 2.0**e),
    st.floats(0, allow_infinity=True),
    st.just(math.nan),
)


@st.composite
def rows(draw):
    steps = sorted(draw(st.sets(st.integers(0, 10**6), max_size=30)))
    result = []
    for step in steps:
        kind = draw(st.sampled_from([0, 0, 0, 1, 2]))
        variable = draw(st.none() | NAMES) if kind else None
        result.append((step, step // 100, draw(SCALES), kind, variable))
    return result


def same(a, b):
    return [str(each) for each in a.rows()] == [str(each) for each in b]


@settings(deadline=None)
@given(rows())
def test_json_lines_come_back(tmp_path_factory, given_rows):
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    Trace.from_rows(given_rows).save(path)
    assert same(Trace.load(path), given_rows)
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line, parse_constant=pytest.fail)
        assert list(row) == ["step", "epoch", "loss_scale", "kind", "variable"]


@pytest.mark.parametrize(
    ("how", "names"),
    [
        ({"unit": "epoch", "has_kinds": False, "skips": [3, 4]}, "epoch,loss_scale,skipped_steps"),
        ({"unit": "epoch", "has_kinds": False}, "epoch,loss_scale"),
        ({"has_kinds": False}, "step,epoch,loss_scale,variable"),
    ],
    ids=["epochs", "epochs without skips", "steps without kinds"],
)
def test_what_was_not_recorded_is_not_written(tmp_path, how, names):
    trace = Trace([1, 2], [0, 1], [4.0, 2.0], [0, 0], [None, None], **how)
    trace.save(tmp_path / "trace.csv")
    assert (tmp_path / "trace.csv").read_text().splitlines()[0] == names
    found = Trace.load(tmp_path / "trace.csv")
    assert list(found.rows()) == list(trace.rows())
    assert found.summary() == trace.summary()
    with pytest.raises(ValueError, match=r"\.csv"):
        trace.save(tmp_path / "trace.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["trace.csv"]


@settings(deadline=None)
@given(rows())
@example([(1, 0, 1.0, 1, "a\rb"), (2, 0, 1.0, 0, None)])
def test_csv_comes_back(tmp_path_factory, given_rows):
    path = tmp_path_factory.mktemp("trace") / "trace.csv"
    Trace.from_rows(given_rows).save(path)
    found = Trace.load(path)
    assert same(found, given_rows)
    with path.open(encoding="utf-8", newline="") as file:
        assert next(csv.reader(file)) == ["step", "epoch", "loss_scale", "kind", "variable"]


def by_hand(given_rows):
    finite = [scale for _, _, scale, _, _ in given_rows if math.isfinite(scale)]
    groups = itertools.groupby(given_rows, key=lambda row: row[3] > 0)
    return {
        "unit": "step",
        "steps": len(given_rows),
        "epochs": len(list(itertools.groupby(given_rows, key=lambda row: row[1]))),
        "skipped": sum(row[3] > 0 for row in given_rows),
        "overflows": sum(row[3] == 1 for row in given_rows),
        "nans": sum(row[3] == 2 for row in given_rows),
        "longest_skips": max((len(list(g)) for bad, g in groups if bad), default=0),
        "first_scale": given_rows[0][2] if given_rows else None,
        "lowest_scale": min(finite, default=None),
        "highest_scale": max(finite, default=None),
        "last_scale": given_rows[-1][2] if given_rows else None,
        "end_scale": None,
    }


@settings(deadline=None)
@given(rows())
def test_summary_agrees_with_the_rule_by_hand(given_rows):
    trace = Trace.from_rows(given_rows)
    assert str(trace.summary()) == str(by_hand(given_rows))
    assert trace.skipped == trace.summary()["skipped"]
    for each in trace.overflows():
        of = [row for row in given_rows if row[3] and row[4] == each["variable"]]
        assert (each["count"], each["first_step"], each["kind"]) == (len(of), of[0][0], of[0][3])
    assert sum(each["count"] for each in trace.overflows()) == trace.skipped


@settings(deadline=None)
@given(st.lists(st.integers(1, 12), max_size=25))
def test_steps_that_were_taken_back_are_those_a_later_row_replaces(steps):
    kept = []
    for at, step in enumerate(steps):
        kept = [(s, i) for s, i in kept if s < step] + [(step, at)]
    trace = Trace.from_rows((step, 0, float(i + 1), 0, None) for i, step in enumerate(steps))
    assert list(zip(trace.steps.tolist(), trace.scales.tolist(), strict=True)) == [
        (step, at + 1.0) for step, at in kept
    ]


GOOD = '{"step": 1, "epoch": 0, "loss_scale": 4.0, "kind": 1, "variable": "a/b"}\n'


def test_half_a_last_line_is_dropped_wherever_it_ends(tmp_path):
    path = tmp_path / "trace.jsonl"
    second = GOOD.replace("1,", "2,", 1).replace("a/b", "a/ß").encode()
    for end in range(len(second) - 1):
        path.write_bytes(GOOD.encode() + second[:end])
        assert len(Trace.load(path)) == 1, second[:end]
    path.write_bytes(GOOD.encode() + second[:-1])
    assert Trace.load(path).variables.tolist() == ["a/b", "a/ß"], "whole, but for its newline"


def test_half_a_last_row_of_csv_is_dropped(tmp_path):
    path = tmp_path / "trace.csv"
    head = "step,epoch,loss_scale,kind,variable\n1,0,4.0,1,a/b\n"
    for half in ("2", "2,", "2,0,4", "2,0,4.0,"):
        path.write_text(head + half)
        assert len(Trace.load(path)) == 1, half
    path.write_text(head + "2,0,4.0\n3,0,4.0,0,\n")
    with pytest.raises(ValueError, match=r"trace\.csv, line 3: 3 fields in .*: expected 5"):
        Trace.load(path)


def test_a_resumed_run_goes_on_after_half_a_line(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(GOOD + '{"step": 2, "epo')
    with open_jsonl(path) as file:
        append_jsonl(file, [(2, 0, np.float32(2.0), np.int32(2), None), (3, 1, math.inf, 0, None)])
    assert list(Trace.load(path).rows()) == [
        (1, 0, 4.0, 1, "a/b"),
        (2, 0, 2.0, 2, None),
        (3, 1, math.inf, 0, None),
    ]
    path.write_text("half of the only line" * 9999)
    with open_jsonl(path) as file:
        append_jsonl(file, [(1, 0, 1.0, 0, None)])
    assert len(Trace.load(path)) == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("nonsense\n", "'nonsense': expected a JSON object"),
        ("[1, 2]\n", r"no object in '\[1, 2\]': a step has step, epoch, loss_scale"),
        (GOOD.replace('"kind": 1, ', ""), "no 'kind' in "),
        (GOOD.replace("1,", '"1",', 1), '"step" is "1": expected a whole number'),
        (GOOD.replace("1,", "1.5,", 1), '"step" is 1.5: expected a whole number'),
        (GOOD.replace("1,", "true,", 1), '"step" is true: expected a whole number'),
        (GOOD.replace("1,", f"{2**70},", 1), f'"step" is {2**70}: expected a whole number'),
        (GOOD.replace("4.0", "-4.0"), '"loss_scale" is -4.0: expected a number of 0 or more'),
        (GOOD.replace("4.0", "1" + "0" * 400), '"loss_scale" is 10+.*: expected a number of 0'),
        (GOOD.replace("4.0", '"many"'), '"loss_scale" is "many": expected a number'),
        (GOOD.replace('"kind": 1', '"kind": 3'), '"kind" is 3: expected 0, 1 or 2'),
        (GOOD.replace('"a/b"', "7"), '"variable" is 7: expected a path, or null'),
        (GOOD.replace("a/b", "a" * 99)[:-2] + "\n", r"'.{60}\.\.\.': expected a JSON object"),
        ("[" * 10**6 + "\n", r"expected a JSON object"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, told):
    path = tmp_path / "trace.jsonl"
    path.write_text(GOOD.replace("1,", "0,", 1) + "\n" + line + GOOD.replace("1,", "9,", 1))
    with pytest.raises(ValueError, match=rf"trace\.jsonl, line 3: .*{told}") as found:
        Trace.load(path)
    assert len(str(found.value)) < 300 + len(str(path))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("step,epoch\n1,0\n", r'line 1: the columns are \["step", "epoch"\]: .* column loss_scale'),
        ("loss_scale,kind\n4,0\n4,x\n", 'line 3: "kind" is "x": expected 0, 1 or 2'),
        ("step,loss_scale\n1,\n", 'line 2: "loss_scale" is "": expected a number'),
        ('step,loss_scale\n1,"4"x"\n"', 'line [23]: "loss_scale" is'),
        ("epoch,loss_scale,skipped_steps\n0,4,1.5\n", 'line 2: "skipped_steps" is "1.5"'),
    ],
)
def test_a_bad_table_is_named(tmp_path, text, told):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"log\.csv, {told}"):
        Trace.load(path)


def test_bytes_that_are_no_text_are_an_error_of_the_file(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(b"epoch,loss_scale\n0,\xff\n")
    with pytest.raises(ValueError, match=r"log\.csv: .*expected CSV or JSON lines in UTF-8"):
        Trace.load(path)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_table_of_csv_logger(tmp_path, separator):
    path = tmp_path / "log.csv"
    lines = [
        "epoch,accuracy,loss,loss_scale",
        "0,0.5,1.2,32768.0",
        "1,0.6,1.0,16384.0",
        "2,NA,NA,NA",
    ]
    path.write_text("\n".join(lines).replace(",", separator) + "\n")
    trace = Trace.load(path)
    assert (trace.unit, trace.epochs.tolist()) == ("epoch", [0, 1])
    assert trace.scales.tolist() == [32768.0, 16384.0]
    assert trace.summary()["skipped"] is None, "it was not recorded"


def test_empty_lines_of_a_table_are_passed_over(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("epoch,loss_scale\n\n0,4.0\n\n\n1,2.0\n")
    assert Trace.load(path).scales.tolist() == [4.0, 2.0]


def test_a_field_beyond_the_limit_of_csv_is_named(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(f"epoch,loss_scale\n0,4.0\n1,{'4' * 200_000}\n")
    with pytest.raises(ValueError, match=r"log\.csv, line 3: not CSV: field larger .* a row"):
        Trace.load(path)


def test_skips_by_epoch_are_summed_up(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("epoch,loss_scale,skipped_steps\n0,4.0,3\n1,2.0,1\n0,8.0,2\n1,8.0,0.0\n")
    trace = Trace.load(path)
    assert trace.scales.tolist() == [4.0, 2.0, 8.0, 8.0], (
        "rows are numbered, epochs may start again"
    )
    assert trace.summary()["skipped"] == 6
    assert trace.summary()["overflows"] is None


def test_unknown_keys_and_columns_are_passed_over(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text("\ufeff" + GOOD.replace("{", '{"new": [1], '), encoding="utf-8")
    assert list(Trace.load(path).rows()) == [(1, 0, 4.0, 1, "a/b")]
    path.write_text("new,loss_scale,step,kind,epoch,variable\n[],4,1,1,0,a/b\n")
    assert list(Trace.load(path).rows()) == [(1, 0, 4.0, 1, "a/b")]


def test_an_empty_file_is_a_run_that_just_began(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text("")
    assert Trace.load(path).summary() == by_hand([])


def test_columns_of_other_lengths_are_refused():
    with pytest.raises(ValueError, match="of one length"):
        Trace([1, 2], [0], [1.0], [0], [None])


@pytest.mark.parametrize("name", ["trace.csv", "trace.jsonl"])
def test_a_disk_that_fills_leaves_the_old_file(tmp_path, monkeypatch, name):
    def full(_):
        raise OSError(28, "No space left on device")

    path = tmp_path / name
    path.write_text("old")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        runs.trace().save(path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["trace.csv", "trace.jsonl"])
def test_who_reads_meanwhile_reads_the_old_file(tmp_path, name):
    path = tmp_path / name
    path.write_text("old")
    path.chmod(0o640)
    with path.open() as reader:
        runs.trace().save(path)
        assert reader.read() == "old"
    assert len(Trace.load(path)) == 400
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_run_comes_back(tmp_path):
    trace = runs.write(tmp_path / "a" / "run")
    run = RunFolder.read(tmp_path / "a" / "run")
    assert list(run.trace.rows()) == list(trace.rows())
    assert run.ranges == runs.ranges()
    assert (run.run["format"], run.run["version"]) == ("keras_mp.run", 1)
    assert run.run["skipped"] == trace.skipped


def test_ranges_and_the_trace_may_be_missing(tmp_path):
    write_run(tmp_path, {"steps": 0})
    run = RunFolder.read(tmp_path)
    assert (len(run.trace), run.ranges) == (0, None)
    with pytest.raises(OSError, match=r"run\.json"):
        RunFolder.read(tmp_path / "elsewhere")


def test_what_json_lacks_is_written_as_text(tmp_path):
    value = {
        "loss_scale": np.float32(np.inf),
        "of": [math.nan, -math.inf, np.arange(2)],
        "n": np.int64(3),
    }
    write_run(tmp_path, value)
    text = (tmp_path / "run.json").read_text()
    found = json.loads(text, parse_constant=pytest.fail)
    assert found["loss_scale"] == "inf"
    assert (found["of"], found["n"]) == (["nan", "-inf", [0, 1]], 3)
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        write_run(tmp_path, {"model": object()})
    assert (tmp_path / "run.json").read_text() == text
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "other"}, 'format is "other": expected "keras_mp.run"'),
        ({"version": 2}, "version is 2: expected at most 1; a later keras_mp wrote this file"),
        ({"version": "1"}, 'version is "1": expected at most 1'),
        ({"layers": {}}, "layers is {}: expected a list of objects"),
        ({"layers": [{"path": 3}]}, r"layers\[0\].path is 3: expected a string"),
        ({"overflows": [{"count": "x"}]}, r'overflows\[0\].count is "x": expected a whole number'),
        (
            {"overflows": [{"count": 1, "first_step": "9"}]},
            r'overflows\[0\].first_step is "9": expected a whole number, or null',
        ),
        ({"optimizer": "Adam"}, 'optimizer is "Adam": expected an object'),
    ],
)
def test_a_run_that_is_otherwise_is_named(tmp_path, change, told):
    (tmp_path / "run.json").write_text(
        json.dumps({"format": "keras_mp.run", "version": 1, "unknown": 1, **change})
    )
    with pytest.raises(ValueError, match=rf"run\.json: {told}"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"exponents": [1]}, r"exponents is \[1\]: expected two whole numbers"),
        ({"rows": None}, "rows is null: expected a list"),
        (
            {"rows": [{"path": "a", "kind": "weight", "nans": []}]},
            r"rows\[0\].nans is \[\]: expected a whole number, or null",
        ),
        ({"rows": [{"path": "a"}]}, r"rows\[0\].kind is null: expected a string"),
        (
            {"rows": [{"path": "a", "kind": "weight", "histogram": [1, 2]}]},
            r"rows\[0\].histogram is \[1, 2\]: expected a list of 101 counts",
        ),
    ],
)
def test_ranges_that_are_otherwise_are_named(tmp_path, change, told):
    write_ranges(tmp_path, {**runs.ranges(), **change})
    with pytest.raises(ValueError, match=rf"ranges\.json: {told}"):
        read_ranges(tmp_path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"format": ', r"run\.json is not valid JSON"),
        ("[]", r"run\.json: the file is \[\]: expected an object"),
    ],
)
def test_a_file_that_holds_no_object_is_named(tmp_path, text, told):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match=told):
        RunFolder.read(tmp_path)


def test_ranges_without_rows_are_named(tmp_path):
    ranges = runs.ranges()
    del ranges["rows"]
    write_ranges(tmp_path, ranges)
    with pytest.raises(ValueError, match=r"ranges\.json: rows is null: expected a list"):
        read_ranges(tmp_path)


@settings(deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=300), st.integers(1, 80))
def test_the_bars_of_a_terminal_show_the_highest_in_each_part(exponents, width):
    trace = Trace.from_rows((i, 0, 2.0**each, 0, None) for i, each in enumerate(exponents))
    bars = to_text([chart(trace)], bars=width)
    count = min(width, len(exponents))
    assert len(bars) == count
    tops = [
        max(exponents[i * len(exponents) // count : -(-(i + 1) * len(exponents) // count)])
        for i in range(count)
    ]
    if len(set(tops)) > 1:
        assert {bars[i] for i, top in enumerate(tops) if top == max(tops)} == {"█"}
        assert {bars[i] for i, top in enumerate(tops) if top == min(tops)} == {"▁"}


def test_a_trace_is_text_and_plain_json():
    trace = replace(Trace([1, 2], [0, 0], [4.0, math.inf], [1, 0], ["a/b", None]), end=2.0)
    assert repr(trace) == str(trace)
    assert str(trace).splitlines() == [
        "▁",
        "steps                 2",
        "skipped steps         1 (50 %): 1 inf, 0 nan",
        "longest run of skips  1",
        "lowest loss scale     2",
        "highest loss scale    4",
        "last loss scale       2",
        "",
        "variable  skipped  first step  kind",
        "a/b             1           1  inf",
    ]
    assert json.loads(json.dumps(trace.to_dict(), allow_nan=False)) == {
        "unit": "step",
        "step": [1, 2],
        "epoch": [0, 0],
        "loss_scale": [4.0, "inf"],
        "kind": [1, 0],
        "variable": ["a/b", None],
        "end": 2.0,
    }


MODULES = (
    "monitor.trace monitor.run_folder monitor.drawing monitor.html_report monitor.tensorboard "
    "diagnosis.ranges.file diagnosis.ranges.drawing rendering.pictures rendering.html"
)


@pytest.mark.parametrize("module", MODULES.split())
def test_keras_is_not_imported(module):
    program = (
        f"import sys, keras_mp.{module}; "
        "sys.exit(any(name in sys.modules for name in ('keras', 'matplotlib', 'tensorboardX')))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


REPAIRED = "step 2: `large` now computes in float32: matmul reached 1.3e+05 (limit 65504)."


def repaired_rows():
    rows = [(1, 0, 4.0, 1, "a/b"), (2, 0, 2.0, 1, None), (3, 1, 4.0, 0, None)]
    return [(*row, REPAIRED if row[0] == 3 else None) for row in rows]


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.csv"])
def test_what_was_repaired_is_kept(tmp_path, name):
    Trace.from_rows(repaired_rows()).save(tmp_path / name)
    again = Trace.load(tmp_path / name)
    assert again.told_repairs() == [(3, REPAIRED)]
    assert again.to_dict()["repair"] == [None, None, REPAIRED]
    assert list(again.rows()) == [row[:5] for row in repaired_rows()]


def test_a_repair_that_is_no_text_is_refused(tmp_path):
    line = '{"step": 1, "epoch": 0, "loss_scale": 1.0, "kind": 0, "variable": null, "repair": 3}\n'
    (tmp_path / "trace.jsonl").write_text(line)
    with pytest.raises(ValueError, match=r'line 1: "repair" is 3: expected a sentence, or null'):
        Trace.load(tmp_path)


def test_a_repair_that_was_taken_back_is_dropped():
    rows = [*repaired_rows(), (2, 0, 2.0, 0, None, None)]
    assert Trace.from_rows(rows).told_repairs() == []


def test_a_repair_is_shown():
    trace = Trace.from_rows(repaired_rows())
    (repair,) = (each for each in chart(trace).events if each.name == "repair")
    assert (repair.x, repair.y) == ([2.5], [2.0])
    assert "3 steps, 2 skipped (2 inf), 1 repair; loss scale" in headline(trace)
    assert f"Repair at {REPAIRED}" in " ".join(str(trace).split())
    trace.plot()
    assert not [e for e in chart(Trace.from_rows([])).events if e.name == "repair"]
