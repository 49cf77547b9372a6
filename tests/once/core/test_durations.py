"""What tests cost: shared costs, marks, recordings."""

import json
import subprocess
import sys
from unittest import mock

import pytest

from tests import durations
from tests.programs import ROOT


def test_what_is_shared_counts_for_everyone(monkeypatch):
    ledger, clock = durations.Ledger(), [0]
    monkeypatch.setattr(durations, "LEDGER", ledger)
    monkeypatch.setattr(durations, "now", lambda: clock[0])

    @durations.shared
    def part():
        clock[0] += 5
        return "part"

    @durations.shared
    def whole(name):
        clock[0] += 10
        return part() + name

    assert whole("a") == whole("a") == "parta"
    assert clock[0] == ledger.spent == 15  # nothing is left for the test itself
    assert ledger.of(ledger.asked) == 15
    ledger.asked = set()
    part()
    assert ledger.of(ledger.asked) == 5
    assert whole("a") == "parta"
    assert ledger.of(ledger.asked) == 15


TESTS = """
import sys, types
from tests import durations
clock = [0]
durations.now = lambda: clock[0]

def test_short():
    clock[0] += 4

def test_long():
    clock[0] += 6

def test_imports():
    clock[0] += 6
    sys.modules.update((f"imported_{n}", types.ModuleType("m")) for n in range(60))
"""


def test_a_long_test_without_a_mark_is_listed_and_passes(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    check = [sys.executable, "-m", "pytest", "-q", "-p", "tests.durations", "--check-durations"]
    done = subprocess.run(
        [*check, "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert "6.0 s test_some.py::test_long\nMake them shorter, or record" in done.stdout
    assert "test_imports" not in done.stdout
    assert "3 passed" in done.stdout


def test_what_is_essential_is_not_slow(monkeypatch):
    monkeypatch.setattr(
        durations, "recorded", lambda: {durations.ONCE: {"tests/once/a.py": {"b": 9}}}
    )
    marked = {}
    for essential in (None, pytest.mark.essential):
        item = mock.Mock(nodeid="tests/once/a.py::b")
        item.get_closest_marker.side_effect = {"essential": essential}.get
        durations.Durations(None).pytest_collection_modifyitems([item])
        marked[essential is not None] = [call.args[0] for call in item.add_marker.call_args_list]
    assert marked == {False: ["slow"], True: []}


def test_a_recording_is_short():
    tests = {"a[1]": 2.0, "a[2]": 3.0, "b[1]": 0.05, "b[2]": 2.0, "b[3]": 0.09, "c": 0.05}
    short = durations.shortened(tests)
    assert short == {"a": 3.0, "b[2]": 2.0}
    slow = [test for test in tests if durations.of_test(short, test) >= durations.SLOW]
    assert slow == ["a[1]", "a[2]", "b[2]"]


def test_a_case_that_is_too_long_makes_all_slow():
    assert durations.shortened({"a[1]": 6.0, "a[2]": 0.01, "b[1]": 0.01}) == {"a": 6.0}


def test_a_test_that_is_skipped_now_leaves_the_recording(tmp_path, monkeypatch):
    monkeypatch.setattr(durations, "RECORDING", tmp_path / "durations.json")
    durations.RECORDING.write_text(json.dumps({durations.ONCE: {"tests/once/a.py": {"b": 9.0}}}))
    recorder = durations.Durations(None)
    setup = recorder.pytest_runtest_setup(mock.Mock(nodeid="tests/once/a.py::b"))
    next(setup)
    with pytest.raises(pytest.skip.Exception):
        setup.throw(pytest.skip.Exception("why"))
    recorder.write()
    assert durations.recorded() == {durations.ONCE: {}}


def test_a_shared_thing_that_failed_is_tried_again():
    tries = []

    @durations.shared
    def made():
        tries.append(1)
        if len(tries) < 2:
            raise ValueError("not yet")
        return "made"

    with pytest.raises(ValueError, match="not yet"):
        made()
    assert made() == "made"
