"""Which backend runs a case (tests/turns.py)."""

from types import SimpleNamespace

import pytest

from tests import turns


def backends_of(nodeid, mode, monkeypatch):
    item = SimpleNamespace(nodeid=nodeid, get_closest_marker=lambda name: None)
    found = []
    for backend in turns.BACKENDS:
        monkeypatch.setenv("KERAS_BACKEND", backend)
        if turns.is_mine(item, mode, is_first=False):
            found.append(backend)
    return found


@pytest.mark.parametrize("file", sorted(turns.TURNS))
def test_in_ci_each_backend_runs_what_it_computes(file, monkeypatch):
    """Only JAX traces a long loop in `find_overflow`, and its case had a turn on PyTorch."""
    case = f"tests/each/{file}::test_a[case]"
    graphs = ("compat/test_from_graph.py", "compat/test_saved_graphs.py")
    computes = file.startswith(("diagnosis/", "optimizer/", *graphs))
    in_ci = backends_of(case, "slices", monkeypatch)
    assert in_ci == list(turns.BACKENDS) if computes else len(in_ci) == 1
    assert len(backends_of(case, "turns", monkeypatch)) == 1


@pytest.mark.parametrize("file", sorted(turns.READERS))
def test_one_backend_reads_all_in_ci(file, monkeypatch):
    case = f"tests/each/{file}::test_a[case]"
    assert backends_of(case, "slices", monkeypatch) == [turns.READERS[file][0]]


def test_a_case_without_a_lasting_name_is_refused(monkeypatch):
    """Each backend could leave it to another one."""
    case = f"tests/each/compat/test_policies.py::test_a[{object()}]"
    with pytest.raises(pytest.UsageError, match="give it an id"):
        backends_of(case, "turns", monkeypatch)
