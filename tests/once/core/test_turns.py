"""Which backend runs a case (tests/turns.py)."""

from types import SimpleNamespace

import pytest

from tests import programs, turns


@pytest.mark.parametrize("file", [*turns.READERS, *turns.TURNS])
def test_turns_are_of_files_that_are_there(file):
    assert (programs.ROOT / "tests" / "each" / file).is_file()


MODES = ("turns", "slices")


def plain():
    assert turns.BACKENDS


def skips_itself():
    pytest.skip("about another backend")


def item(nodeid, *marks, function=plain):
    return SimpleNamespace(
        nodeid=nodeid,
        get_closest_marker=lambda name: name in marks or None,
        function=function,
        module=programs,
    )


def takers(monkeypatch, mode, nodeid, *marks, is_first=False, function=plain):
    found = []
    for backend in turns.BACKENDS:
        monkeypatch.setenv("KERAS_BACKEND", backend)
        if turns.is_mine(item(nodeid, *marks, function=function), mode, is_first):
            found.append(backend)
    return found


@pytest.mark.parametrize(
    ("mode", "file"),
    [("turns", "compat/test_restore.py"), *((m, "policies/test_policy.py") for m in MODES)],
)
def test_one_backend_takes_a_case_whose_turn_it_is(monkeypatch, mode, file):
    taken = set()
    for number in range(30):
        (one,) = takers(monkeypatch, mode, f"tests/each/{file}::test_a[{number}]")
        taken.add(one)
    assert taken == set(turns.BACKENDS)


@pytest.mark.parametrize("mode", MODES)
def test_what_has_no_turn_runs_on_all(monkeypatch, mode):
    for nodeid in (
        "tests/each/optimizer/test_apply.py::test_a",
        "tests/once/test_policy.py::test_a",
    ):
        assert takers(monkeypatch, mode, nodeid) == list(turns.BACKENDS)
    skipped = "tests/each/compat/test_restore.py::test_a", "skipif"
    assert takers(monkeypatch, mode, *skipped) == list(turns.BACKENDS)


def test_one_backend_has_all_and_the_others_the_first_of_a_third_of_the_tests(monkeypatch):
    for file, (owner, _) in turns.READERS.items():
        firsts = set()
        for number in range(30):
            nodeid = f"tests/each/{file}::test_{number}[b]"
            assert takers(monkeypatch, "slices", nodeid) == [owner]
            first = takers(monkeypatch, "slices", nodeid, is_first=True)
            assert owner in first
            assert len(first) <= 2
            firsts |= {*first}
        assert firsts == set(turns.BACKENDS)


def test_slow_cases_of_no_table_have_turns_where_keras_computes(monkeypatch):
    taken = set()
    for number in range(30):
        nodeid = f"tests/each/monitor/test_callback.py::test_a[{number}]"
        (one,) = takers(monkeypatch, "slices", nodeid, "slow")
        taken.add(one)
        assert takers(monkeypatch, "slices", nodeid) == list(turns.BACKENDS)
        for place in turns.COMPUTING:
            file = place if place.endswith(".py") else f"{place}/test_one.py"
            computing = f"tests/each/{file}::test_a[{number}]"
            assert takers(monkeypatch, "slices", computing, "slow") == list(turns.BACKENDS)
    assert taken == set(turns.BACKENDS)


def test_slow_tests_that_some_backend_may_skip_stay_on_all(monkeypatch):
    nodeid = "tests/each/monitor/test_callback.py::test_a"
    taken = takers(monkeypatch, "slices", nodeid, "slow", function=skips_itself)
    assert taken == list(turns.BACKENDS)
    monkeypatch.setattr(turns.inspect, "getsource", lambda part: "allow_module_level=True")
    assert takers(monkeypatch, "slices", nodeid, "slow") == list(turns.BACKENDS)


def test_what_backends_compute_is_there():
    for place in turns.COMPUTING:
        assert (programs.ROOT / "tests" / "each" / place).exists()


@pytest.mark.parametrize("file", sorted(turns.TURNS))
def test_in_ci_each_backend_runs_what_it_computes(file, monkeypatch):
    """Only JAX traces a long loop in `find_overflow`, and its case had a turn on PyTorch."""
    case = f"tests/each/{file}::test_a[case]"
    graphs = ("compat/test_from_graph.py", "compat/test_saved_graphs.py")
    computes = file.startswith(("diagnosis/", "optimizer/", *graphs))
    in_ci = takers(monkeypatch, "slices", case)
    assert in_ci == list(turns.BACKENDS) if computes else len(in_ci) == 1
    assert len(takers(monkeypatch, "turns", case)) == 1


def test_a_case_without_a_lasting_name_is_refused(monkeypatch):
    """Each backend could leave it to another one."""
    case = f"tests/each/compat/test_policies.py::test_a[{object()}]"
    with pytest.raises(pytest.UsageError, match="give it an id"):
        takers(monkeypatch, "turns", case)
