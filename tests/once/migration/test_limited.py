"""`--limit-memory` and `--limit-seconds`: who takes more is refused, and the others go on."""

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from keras_mp.migration import fleet, ledger, limited, running, tasks
from keras_mp.migration.cli import main
from keras_mp.migration.limited import Exceeded, Limits, Process, Unlimited
from keras_mp.migration.processes import Died, Worker
from keras_mp.migration.publishing import Refused
from keras_mp.migration.requests import Outcome, Request
from keras_mp.migration.tasks import Task
from tests import fleet_tasks, programs

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
MEGABYTE = 10**6
needs_limit = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux limits the memory of a process so"
)


@pytest.fixture(autouse=True)
def here(monkeypatch: Patch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(programs.ROOT))


@pytest.fixture
def process() -> Iterator[Process]:
    with closing(Process(Limits(200 * MEGABYTE, 60.0), ready=fleet_tasks.nothing)) as one:
        yield one


@needs_limit
def test_who_takes_more_memory_is_refused_and_the_next_is_done(process: Process) -> None:
    assert process.run(fleet_tasks.takes, 50 * MEGABYTE).ok
    with pytest.raises(Exceeded, match=r"it exceeds --limit-memory \(0\.2 GB\)") as caught:
        process.run(fleet_tasks.takes, 500 * MEGABYTE)
    assert caught.value.reason == "too large"
    assert caught.value.reason in ledger.REASONS
    assert process.run(fleet_tasks.takes, 50 * MEGABYTE).ok


@needs_limit
def test_a_process_that_ends_for_lack_of_memory(process: Process) -> None:
    with pytest.raises(Exceeded, match="--limit-memory"):
        process.run(fleet_tasks.aborts)
    assert process.run(fleet_tasks.takes, 1).ok


def test_who_takes_more_time_is_refused_and_the_next_is_done() -> None:
    with closing(Process(Limits(seconds=0.2), ready=fleet_tasks.nothing)) as process:
        with pytest.raises(Exceeded, match=r"it exceeds --limit-seconds \(0\.2 s\)") as caught:
            process.run(fleet_tasks.sleeps, 600)
        assert caught.value.reason in ledger.REASONS
        process.limits = Limits(seconds=60.0)
        assert process.run(fleet_tasks.takes, 500 * MEGABYTE).ok


def test_who_ends_of_something_else_is_no_matter_of_limits() -> None:
    with (
        closing(Process(Limits(seconds=60.0), ready=fleet_tasks.nothing)) as process,
        pytest.raises(Died, match="signal 6"),
    ):
        process.run(fleet_tasks.aborts)


def test_time_that_is_enough_costs_nothing() -> None:
    with closing(Worker()) as worker:
        assert worker.call(fleet_tasks.value, 1, seconds=60.0) == 1


def test_other_systems_keep_no_limit_of_memory(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setattr(limited.sys, "platform", "darwin")  # type: ignore[attr-defined]
    with pytest.raises(Unlimited, match="--limit-memory needs Linux"):
        limited.check(Limits(memory=1))
    limited.check(Limits(seconds=1.0))
    (tmp_path / "in").mkdir()
    with pytest.raises(Refused, match="--limit-memory needs Linux"):
        fleet.migrate_folder(tmp_path / "in", tmp_path / "out", limit_memory=1)


class Full:
    """Instead of a process: has no room for what is called large."""

    limits = Limits(memory=1)

    def __init__(self, limits: Limits) -> None:
        assert limits == self.limits

    def __enter__(self) -> "Full":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, _function: object, what: Task | Request) -> Any:
        request = what.request if isinstance(what, Task) else what
        name = Path(request.path).stem
        if name == "large":
            raise Exceeded("it takes more", "too large")
        if name == "killed":
            raise Died(-9)
        outcome = Outcome(request.path, "converted", "h5", verified={"weights": 1, "optimizer": 0})
        return (outcome, 7) if isinstance(what, Task) else outcome

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("name", "result", "reason"),
    [("large", "refused", "too large"), ("killed", "failed", "killed"), ("small", "done", None)],
)
def test_what_the_ledger_and_the_command_say(
    name: str, result: str, reason: str | None, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.setattr(limited, "Process", Full)
    monkeypatch.setattr(tasks, "_limited", None)
    path, out = fleet_tasks.folder_of(tmp_path / "in", 1) / "00000.h5", tmp_path / "out.keras"
    path = path.rename(path.with_stem(name))
    request = Request(str(path), str(out), limits=Full.limits)
    row = tasks.migrate_task(Task(path.name, "h5", request, "out.keras", "jax"))
    assert (row["result"], row["reason"]) == (result, reason)
    assert main(["migrate", str(path), "-o", str(out), "--limit-memory", "1"]) == (
        0 if result == "done" else 2
    )
    assert ("error: " in capsys.readouterr().err) == (result != "done")
    assert running.limited is limited


@pytest.mark.parametrize("option", ["--limit-memory=1GB", "--limit-seconds=1"])
def test_where_they_do_not_belong(option: str, tmp_path: Path, capsys: Capture) -> None:
    program = tmp_path / "a.py"
    program.write_text("")
    assert main(["migrate", str(program), option]) == 2
    assert f"{option.partition('=')[0]} is for artefacts" in capsys.readouterr().err
    options = ["-o", str(tmp_path / "out"), "--dask", "tcp://here:1", option]
    (tmp_path / "in").mkdir()
    assert main(["migrate", str(tmp_path / "in"), *options]) == 2
    assert "the workers have their own limits" in capsys.readouterr().err
