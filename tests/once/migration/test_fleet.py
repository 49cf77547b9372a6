"""Folders by many processes: none is lost, none done twice, and a second run goes on."""

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

import keras_mp
from keras_mp.compat.file_formats.file_kinds import kind_of
from keras_mp.migration import artefacts, fleet, ledger, requests, run_lock, tasks
from keras_mp.migration.fleet import ExecutorGone, Interrupted, migrate_folder
from keras_mp.migration.ledger_reading import read_ledger
from keras_mp.migration.publishing import Refused
from keras_mp.migration.tasks import Task
from tests import fleet_tasks, programs
from tests.fleet_tasks import folder_of, outputs

Patch = pytest.MonkeyPatch

if sys.platform == "win32":
    pytest.skip("signals and locks are of POSIX", allow_module_level=True)


@pytest.fixture(autouse=True)
def cheap(monkeypatch: Patch) -> None:
    monkeypatch.setattr(tasks, "migrate_task", fleet_tasks.cheap)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setenv("PYTHONPATH", str(programs.ROOT))


@pytest.fixture
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(3) as executor:
        yield executor


def rows_of(out: Path) -> dict[str, ledger.Row]:
    found = [row for _, row in ledger.rows(out / ledger.NAME)]
    assert None not in found
    return {row["name"]: row for row in found if row is not None}


def test_what_becomes_of_each_is_in_the_ledger(tmp_path: Path, threads: Executor) -> None:
    folder_of(tmp_path / "in", 5)
    folder_of(tmp_path / "in" / "deep", 1, "odd")
    folder_of(tmp_path / "in", 1, "bad")
    told: list[ledger.Row] = []
    out = tmp_path / "out"
    counts = migrate_folder(tmp_path / "in", out, executor=threads, on_row=told.append)
    assert counts == {"done": 5, "refused": 1, "failed": 1}
    rows = rows_of(out)
    assert {row["name"]: row for row in told} == rows
    assert rows["deep/odd00000.h5"]["why"] == "it is odd"
    assert rows["bad00000.h5"]["reason"] == "no counterpart"
    done = rows["00003.h5"]
    assert (done["out"], done["out_bytes"]) == ("00003.keras", (out / "00003.keras").stat().st_size)
    assert (done["bytes"], done["kind"], done["schema"]) == (9, "h5", ledger.SCHEMA)
    assert done["versions"]["keras_mp"] == keras_mp.__version__
    assert len({row["run"] for row in rows.values()}) == 1
    assert {row["reason"] for row in rows.values()} - {None} <= set(ledger.REASONS)
    assert not (out / "deep").exists(), "what failed leaves no folder"
    assert not (out / run_lock.NAME).exists()
    read = read_ledger(out / ledger.NAME)
    assert {row.name: (row.result, row.seconds, row.model) for row in read.rows} == {
        name: (row["result"], row["seconds"], row["model"]) for name, row in rows.items()
    }


def test_a_second_run_does_what_is_left(tmp_path: Path, threads: Executor) -> None:
    source, out = folder_of(tmp_path / "in", 3), tmp_path / "out"
    folder_of(source, 1, "bad")
    folder_of(source, 1, "odd")
    migrate_folder(source, out, executor=threads)
    before = (out / ledger.NAME).read_text()
    given: list[str] = []

    def again(**options: Any) -> Counter[str]:
        given.clear()

        class Noting(ThreadPoolExecutor):
            def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
                given.append(args[0].name)
                return super().submit(fn, *args)

        with Noting(2) as executor:
            return migrate_folder(source, out, executor=executor, **options)

    assert again() == {"done before": 3, "refused": 1, "failed": 1}
    assert given == ["odd00000.h5"]
    assert (out / ledger.NAME).read_text().count("\n") == before.count("\n") + 1, "a line each"
    again(retry=["refused"])
    assert given == ["bad00000.h5", "odd00000.h5"]
    (out / "00001.keras").unlink()
    (source / "00002.h5").write_bytes(b"\x89HDF\r\n\x1a\nother")
    assert again() == {"done": 1, "done before": 1, "refused": 2, "failed": 1}
    assert given == ["00001.h5", "00002.h5", "odd00000.h5"]
    assert rows_of(out)["00002.h5"]["reason"] == "output exists"
    (out / "00002.keras").unlink()
    assert again()["done"] == 1, "it may be refused no more"
    assert again(model_only=True) == {"done before": 3, "refused": 1, "failed": 1}
    assert given == ["bad00000.h5", "odd00000.h5"], "what is done stays done"
    lines = (
        (out / ledger.NAME)
        .read_text()
        .replace(f'"keras_mp": "{keras_mp.__version__}"', '"keras_mp": "0"')
    )
    (out / ledger.NAME).write_text(lines)
    again(model_only=True)
    assert "bad00000.h5" in given, "another version may know more"


def otherwise(source: Path, out: Path, threads: Executor, **options: Any) -> fleet.Result:
    request = requests.Request(str(source), str(out), **options)
    return fleet.run(request, executor=threads)


def test_other_options_touch_nothing_that_is_done(tmp_path: Path, threads: Executor) -> None:
    source, out = folder_of(tmp_path / "in", 3), tmp_path / "out"
    migrate_folder(source, out, executor=threads)
    made, lines = outputs(out), (out / ledger.NAME).read_text()
    done = otherwise(source, out, threads, model_only=True)
    assert done.counts == {"done before": 3}
    assert done.otherwise == ("00000.h5", "00001.h5", "00002.h5")
    assert (outputs(out), (out / ledger.NAME).read_text()) == (made, lines)
    assert otherwise(source, out, threads).otherwise == ()
    (out / "00001.keras").unlink()
    done = otherwise(source, out, threads, model_only=True)
    assert done.counts == {"done": 1, "done before": 2}, "an output that was removed is made anew"
    assert done.otherwise == ("00000.h5", "00002.h5")


def test_without_its_ledger_an_output_says_what_it_was_made_with(
    tmp_path: Path, threads: Executor
) -> None:
    """As after a run that was killed between an output and its line."""
    source, out = folder_of(tmp_path / "in", 2), tmp_path / "out"
    migrate_folder(source, out, executor=threads)
    (out / ledger.NAME).unlink()
    done = otherwise(source, out, threads, model_only=True)
    assert (done.counts, len(done.otherwise)) == ({"done before": 2}, 2)
    assert {row["options"]["model_only"] for row in rows_of(out).values()} == {False}
    lines = (out / ledger.NAME).read_text()
    for path in source.iterdir():
        os.utime(path, (1, 1))  # the artefact may be another: its checksum says that it is not
    done = otherwise(source, out, threads, model_only=True)
    assert (done.counts, len(done.otherwise)) == ({"done before": 2}, 2)
    assert (out / ledger.NAME).read_text().startswith(lines)
    assert {row["result"] for row in rows_of(out).values()} == {"done before"}


@pytest.mark.parametrize("result", ["refused", "failed"])
def test_what_cannot_be_looked_at_stays_done(
    result: str, tmp_path: Path, threads: Executor, monkeypatch: Patch
) -> None:
    source, out = folder_of(tmp_path / "in", 2), tmp_path / "out"
    migrate_folder(source, out, executor=threads)
    lines = (out / ledger.NAME).read_text()
    os.utime(source / "00000.h5", (1, 1))
    monkeypatch.setattr(
        tasks, "migrate_task", lambda task: tasks.not_done(task, result, "storage", "away")
    )
    told: list[ledger.Row] = []
    counts = migrate_folder(source, out, executor=threads, on_row=told.append)
    assert counts == {result: 1, "done before": 1}, "this run did not see it"
    assert (out / ledger.NAME).read_text() == lines, "and the ledger still says that it is there"
    (out / "00000.keras").unlink()
    migrate_folder(source, out, executor=threads)
    assert rows_of(out)["00000.h5"]["result"] == result


def test_what_failed_may_be_named_for_a_retry(tmp_path: Path, threads: Executor) -> None:
    source, out = folder_of(tmp_path / "in", 1), tmp_path / "out"
    folder_of(source, 1, "bad")
    folder_of(source, 1, "odd")
    migrate_folder(source, out, executor=threads)
    lines = (out / ledger.NAME).read_text().count("\n")
    counts = migrate_folder(source, out, executor=threads, retry=["failed"])
    assert counts == {"done before": 1, "refused": 1, "failed": 1}
    assert (out / ledger.NAME).read_text().count("\n") == lines + 1


def test_an_output_of_somebody_else_stays(tmp_path: Path, threads: Executor) -> None:
    source, out = folder_of(tmp_path / "in", 2), tmp_path / "out"
    out.mkdir()
    (out / "00001.keras").write_bytes(b"of somebody else")
    for options in ({}, {"retry": ["refused"]}, {"model_only": True}):
        counts = migrate_folder(source, out, executor=threads, **options)
        assert counts["refused"] == 1
        assert rows_of(out)["00001.h5"]["reason"] == "output exists"
        assert rows_of(out)["00000.h5"]["result"] == "done"
    assert (out / "00001.keras").read_bytes() == b"of somebody else"


def test_what_was_made_and_not_written_down_is_found(tmp_path: Path, threads: Executor) -> None:
    source, out = folder_of(tmp_path / "in", 3), tmp_path / "out"
    migrate_folder(source, out, executor=threads)
    made = outputs(out)
    (out / ledger.NAME).write_bytes((out / ledger.NAME).read_bytes()[:-20])
    assert migrate_folder(source, out, executor=threads) == {"done before": 3}
    (out / ledger.NAME).unlink()
    assert migrate_folder(source, out, executor=threads) == {"done before": 3}
    assert outputs(out) == made
    assert {row["result"] for row in rows_of(out).values()} == {"done before"}
    assert migrate_folder(source, out, executor=threads) == {"done before": 3}
    assert len(rows_of(out)) == (out / ledger.NAME).read_text().count("\n")


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor, None])
def test_whoever_does_it_the_bytes_are_the_same(
    kind: Any, tmp_path: Path, threads: Executor
) -> None:
    source = folder_of(tmp_path / "in", 12)
    migrate_folder(source, tmp_path / "one", executor=threads)
    with contextlib.nullcontext() if kind is None else kind(2) as executor:
        migrate_folder(source, tmp_path / "two", executor=executor, jobs=3)
    assert len(outputs(tmp_path / "one")) == 12
    assert outputs(tmp_path / "one") == outputs(tmp_path / "two")


def test_what_an_executor_raises_is_the_failure_of_one(
    tmp_path: Path, threads: Executor, monkeypatch: Patch
) -> None:
    def odd(task: Task) -> ledger.Row:
        return fleet_tasks.fails(task) if task.name == "00001.h5" else fleet_tasks.cheap(task)

    monkeypatch.setattr(tasks, "migrate_task", odd)
    out = tmp_path / "out"
    assert migrate_folder(folder_of(tmp_path / "in", 4), out, executor=threads) == {
        "done": 3,
        "failed": 1,
    }
    row = rows_of(out)["00001.h5"]
    assert (row["reason"], row["bytes"]) == ("worker", 9)
    assert row["why"] == "it was not done: ZeroDivisionError: of the executor's own"


def test_only_what_kills_its_process_fails(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(tasks, "migrate_task", fleet_tasks.dies)
    source, out = folder_of(tmp_path / "in", 6), tmp_path / "out"
    folder_of(source, 1, "killer")
    folder_of(source, 1, "unlucky")
    assert migrate_folder(source, out, jobs=2) == {"done": 7, "failed": 1}
    row = rows_of(out)["killer00000.h5"]
    assert (row["result"], row["reason"]) == ("failed", "killed")
    assert "killed by signal 9, possibly out of memory: the artefact has 9e-09 GB" in row["why"]


def test_an_executor_that_takes_no_more(tmp_path: Path) -> None:
    class Ending(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
            if args[0].name == "00002.h5":
                raise RuntimeError("cannot schedule new futures after shutdown")
            return super().submit(fn, *args)

    source, out = folder_of(tmp_path / "in", 6), tmp_path / "out"
    with Ending(1) as executor, pytest.raises(ExecutorGone, match="2 done, 4 left: the executor"):
        migrate_folder(source, out, executor=executor)
    assert set(rows_of(out)) == {"00000.h5", "00001.h5"}
    with ThreadPoolExecutor(1) as executor:
        assert migrate_folder(source, out, executor=executor) == {"done": 4, "done before": 2}


def test_futures_that_are_cancelled_are_left(tmp_path: Path, threads: Executor) -> None:
    class Gone(Executor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
            future: Future[Any] = Future()
            if args[0].name != "00000.h5":
                future.cancel()
                future.set_running_or_notify_cancel()
                return future
            return threads.submit(fn, *args)

    out = tmp_path / "out"
    with pytest.raises(ExecutorGone, match="1 done, 2 left"):
        migrate_folder(folder_of(tmp_path / "in", 3), out, executor=Gone())
    assert set(rows_of(out)) == {"00000.h5"}


def test_two_runs_at_once(tmp_path: Path, threads: Executor) -> None:
    source, out = folder_of(tmp_path / "in", 2), tmp_path / "out"
    with (
        run_lock.hold_lock(str(out), "other"),
        pytest.raises(Refused, match="locked by another run"),
    ):
        migrate_folder(source, out, executor=threads)
    assert not (out / ledger.NAME).exists()


def test_a_listing_that_changes_meanwhile(
    tmp_path: Path, threads: Executor, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(tasks, "migrate_task", REAL)
    source, out = folder_of(tmp_path / "in", 3), tmp_path / "out"

    def remove(*_: object) -> None:
        (source / "00001.h5").unlink(missing_ok=True)
        (source / "new.h5").write_bytes(b"\x89HDF\r\n\x1a\n")

    monkeypatch.setattr(fleet, "_sweep", remove)
    monkeypatch.setattr(tasks, "_prepare", lambda _: None)
    counts = migrate_folder(source, out, executor=threads)
    assert counts == {"failed": 3}
    rows = rows_of(out)
    assert rows["00001.h5"]["reason"] == "no artefact"
    assert rows["00000.h5"]["reason"] == "damaged"
    assert "new.h5" not in rows


REAL = tasks.migrate_task


def test_ten_thousand_in_one_folder(tmp_path: Path, threads: Executor, monkeypatch: Patch) -> None:
    # Publishing takes the time: here only what the run itself does is of interest.
    monkeypatch.setattr(
        tasks, "migrate_task", lambda task: tasks.not_done(task, "refused", "no counterpart", "x")
    )
    monkeypatch.setattr(fleet, "walk", walk_once(fleet.walk))
    source, out = folder_of(tmp_path / "in", 10_000), tmp_path / "out"
    assert migrate_folder(source, out, executor=threads) == {"refused": 10_000}
    assert len(rows_of(out)) == 10_000
    assert migrate_folder(source, out, executor=threads) == {"refused": 10_000}
    assert (out / ledger.NAME).read_text().count("\n") == 10_000


def walk_once(walk: Any) -> Any:
    found: list[Any] = []

    def once(folder: str) -> Any:
        if not found:
            found.append(walk(folder))
        return found[0]

    return once


# -- Ctrl-C ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c(times: int, tmp_path: Path, monkeypatch: Patch, capsys: Any) -> None:
    monkeypatch.setenv(fleet_tasks.SECONDS, "0.3")
    source, out = folder_of(tmp_path / "in", 30), tmp_path / "out"
    done: list[str] = []

    def interrupt(row: ledger.Row) -> None:
        done.append(row["name"])
        if len(done) == 2:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.01)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted) as error:
        migrate_folder(source, out, jobs=2, on_row=interrupt)
    assert signal.getsignal(signal.SIGINT) is before
    assert (error.value.done, error.value.left) == (len(done), 30 - len(done))
    assert (
        str(error.value) == f"{len(done)} done, {30 - len(done)} left: rerun the command to resume"
    )
    assert 2 <= len(done) < 10
    made, written_down = set(outputs(out)), {f"{Path(name).stem}.keras" for name in rows_of(out)}
    # Of what is left in hand one may just have been published.
    assert made == written_down if times == 1 else 0 <= len(made) - len(made & written_down) <= 2
    assert "finishing the artefacts in progress" in capsys.readouterr().err
    monkeypatch.setenv(fleet_tasks.SECONDS, "0")
    counts = migrate_folder(source, out, jobs=2)
    assert counts == {"done": 30 - len(made), "done before": len(made)}


# -- killed ---------------------------------------------------------------------------------------

KILLS = int(os.environ.get("KERAS_MP_TESTS_KILLS", "50"))


def run_in_a_child(source: Path, out: Path) -> int:
    """Returns the process that runs a fleet, as it would be alone."""
    pid = os.fork()
    if pid:
        return pid
    try:
        migrate_folder(source, out, jobs=2)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - it must not go on as a second run of these tests
        os._exit(1)


def test_killed_at_any_moment_none_is_lost_and_none_done_twice(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    chance = random.Random(5)
    monkeypatch.setenv(fleet_tasks.LOG, str(tmp_path / "log"))
    monkeypatch.setenv(fleet_tasks.SECONDS, "0.02")
    source, out = folder_of(tmp_path / "in", 600), tmp_path / "out"
    killed: Counter[str] = Counter()
    end = time.monotonic() + 240
    client = 0
    while killed.total() < KILLS:
        assert time.monotonic() < end
        if not client:
            client = run_in_a_child(source, out)
            time.sleep(0.5)
        time.sleep(chance.random() * 0.25)
        pid, _ = os.waitpid(client, os.WNOHANG)
        if pid:
            client = 0
            (tmp_path / "in" / f"more{killed.total()}.h5").write_bytes(b"\x89HDF\r\n\x1a\nmore")
            continue
        workers = psutil.Process(client).children()
        if workers and chance.random() < 0.8:
            with contextlib.suppress(psutil.NoSuchProcess):
                chance.choice(workers).kill()
            killed["worker"] += 1
        else:
            os.kill(client, signal.SIGKILL)
            os.waitpid(client, 0)
            client = 0
            killed["client"] += 1
    if client:
        os.waitpid(client, 0)
    assert min(killed.values()) > KILLS // 10, killed
    fleet_tasks.all_are_dead(monkeypatch)
    for _ in range(2):
        monkeypatch.setenv(fleet_tasks.SECONDS, "0")
        counts = migrate_folder(source, out, jobs=2)
    names = {path.stem for path in source.iterdir()}
    assert counts == {"done before": len(names)}
    made = outputs(out)
    assert set(made) == {f"{name}.keras" for name in names}, "and nothing half-written beside"
    for name in names:
        assert (source / f"{name}.h5").read_bytes() in made[f"{name}.keras"]
    published = Counter((tmp_path / "log").read_text().split())
    assert max(published.values()) == 1
    assert ledger.read_contents(out / ledger.NAME).torn <= killed["client"]
    assert len(set(rows_in(out))) == len(names)


def rows_in(out: Path) -> Iterator[str]:
    for _, row in ledger.rows(out / ledger.NAME):
        if row is not None:
            yield row["name"]


# -- the row of a real task, up to where keras is needed ------------------------------------------


def test_rows_of_what_needs_no_keras(tmp_path: Path, threads: Executor, monkeypatch: Patch) -> None:
    monkeypatch.setattr(tasks, "migrate_task", REAL)
    monkeypatch.setattr(tasks, "_prepare", lambda _: None)
    h5py = pytest.importorskip("h5py")
    (tmp_path / "in").mkdir()
    with h5py.File(tmp_path / "in" / "m.h5", "w") as file:
        file.attrs["keras_version"] = "2.4.0"
        file.attrs["layer_names"] = ["a"]
    assert kind_of(tmp_path / "in" / "m.h5") == "h5"
    out = tmp_path / "out"
    assert migrate_folder(tmp_path / "in", out, executor=threads) == {"refused": 1}
    row = rows_of(out)["m.h5"]
    assert (row["reason"], row["why"]) == ("needs --model", artefacts.WEIGHTS_ONLY)
    assert (row["files"], row["written_by"]) == (1, "TensorFlow 2.3 or 2.4")
    assert row["peak_memory"] > 1e6
    assert json.loads((out / ledger.NAME).read_text()) == row
