"""A Dask cluster as executor: what is killed goes on elsewhere, what fits nowhere is refused."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from keras_mp.migration import dask_cluster, ledger, tasks
from keras_mp.migration.fleet import ExecutorGone, TooLarge, migrate_folder
from keras_mp.migration.publishing import Refused
from keras_mp.migration.requests import Request
from keras_mp.migration.tasks import Task
from tests import fleet_tasks, programs
from tests.fleet_tasks import folder_of, outputs

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.processes

CLIENT = """
import sys
from keras_mp.migration import dask_cluster, fleet, tasks
from tests import fleet_tasks
tasks.migrate_task = fleet_tasks.cheap
with dask_cluster.connected(sys.argv[1]) as executor:
    print("connected", flush=True)
    fleet.migrate_folder(sys.argv[2], sys.argv[3], executor=executor)
"""
KILLS = int(os.environ.get("KERAS_MP_TESTS_KILLS", "4"))


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "migrate_task", fleet_tasks.cheap)
    monkeypatch.setenv("KERAS_BACKEND", "jax")


@contextlib.contextmanager
def cluster_of(count: int, threads: int = 1, **options: Any) -> Iterator[Any]:
    settings = {"distributed.scheduler.worker-ttl": None, "distributed.admin.tick.limit": "1h"}
    import dask

    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=threads,
            dashboard_address="127.0.0.1:0",
            host="127.0.0.1",
            protocol="tcp://",
            silence_logs=50,
            **options,
        ) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with cluster_of(2, processes=False, memory_limit="2GB") as made:
        yield made


def task_of(size: int | None) -> Task:
    return Task("m.h5", "h5", Request("m.h5", "m.keras"), "m.keras", "jax", size=size)


def test_an_address_where_nobody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "_SECONDS", 0.2)
    nobody = "tcp://127.0.0.1:9"
    with (
        pytest.raises(Refused, match=f"--dask {nobody}: cannot connect"),
        dask_cluster.connected(nobody),
    ):
        pytest.fail("who is there?")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(Refused, match="pip install 'keras-mp"), dask_cluster.connected(nobody):
        pytest.fail("with what?")


def test_it_does_tasks(cluster: Any, tmp_path: Path) -> None:
    source = folder_of(tmp_path / "in", 30)
    folder_of(source, 1, "bad")
    with dask_cluster.connected(cluster.scheduler_address) as executor:
        counts = migrate_folder(source, tmp_path / "out", executor=executor)
    assert counts == {"done": 30, "refused": 1}
    with ThreadPoolExecutor(1) as threads:
        migrate_folder(source, tmp_path / "two", executor=threads)
    assert outputs(tmp_path / "out") == outputs(tmp_path / "two")


def test_what_fits_on_no_worker_is_refused_with_numbers(cluster: Any) -> None:
    with dask_cluster.connected(cluster.scheduler_address) as executor:
        with pytest.raises(TooLarge) as error:
            executor.submit(fleet_tasks.value, task_of(10**9))
        assert executor.submit(fleet_tasks.value, task_of(10**8)).result(60).size == 10**8
        assert executor.submit(fleet_tasks.value, task_of(None)).result(60).size is None
        assert executor.submit(fleet_tasks.value, 3).result(60) == 3
    assert str(error.value) == (
        "it needs about 5 GB, and the largest of 2 workers has 2 GB: start one with "
        "--memory-limit 5GB"
    )


def test_too_large_is_a_row(cluster: Any, tmp_path: Path) -> None:
    source = folder_of(tmp_path / "in", 2)
    with (source / "00001.h5").open("r+b") as file:
        file.truncate(2 * 10**9)
    with dask_cluster.connected(cluster.scheduler_address) as executor:
        counts = migrate_folder(source, tmp_path / "out", executor=executor)
    assert counts == {"done": 1, "refused": 1}
    (row,) = [
        row
        for _, row in ledger.rows(tmp_path / "out" / ledger.NAME)
        if row is not None and row["result"] == "refused"
    ]
    assert (row["name"], row["reason"]) == ("00001.h5", "too large")


def test_memory_is_asked_for_where_workers_declare_it() -> None:
    with (
        cluster_of(1, 4, processes=False, resources={"MEMORY": 3e9}, memory_limit=0) as cluster,
        dask_cluster.connected(cluster.scheduler_address) as executor,
    ):
        futures = [executor.submit(in_hand, task_of(10**8)) for _ in range(4)]
        assert max(future.result(60) for future in futures) == 2, "of four threads"


def in_hand(task: Task) -> int:
    time.sleep(0.2)
    worker = distributed.get_worker()
    return int(worker.state.executing_count)


def test_waiting_is_what_no_worker_has(cluster: Any) -> None:
    with dask_cluster.connected(cluster.scheduler_address) as executor:
        futures = [executor.submit(fleet_tasks.sleeps, 1.0) for _ in range(30)]
        time.sleep(0.3)
        waiting = executor.waiting(futures)
        assert 0 < len(waiting) < 30
        for future in waiting:
            future.cancel()
        rest = [future for future in futures if future not in waiting]
        assert {future.result(60) for future in rest} == {os.getpid()}
        assert executor.waiting(rest) == []


def test_an_error_of_a_task_is_the_task_s(cluster: Any) -> None:
    with dask_cluster.connected(cluster.scheduler_address) as executor:
        future: Future[Any] = executor.submit(fleet_tasks.fails, None)
        assert isinstance(future.exception(60), ZeroDivisionError)


def test_a_cluster_that_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = folder_of(tmp_path / "in", 20), tmp_path / "out"
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(cluster_of(1, processes=False))
        executor = stack.enter_context(dask_cluster.connected(cluster.scheduler_address))
        monkeypatch.setenv(fleet_tasks.SECONDS, "0.05")

        def close(_: object) -> None:
            cluster.close()

        with pytest.raises(ExecutorGone, match="left: the executor is gone"):
            migrate_folder(source, out, executor=executor, on_row=close)
    assert 1 <= len(ledger.read_contents(out / ledger.NAME).known) < 20


def test_killed_at_any_moment_none_is_lost_and_none_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(7)
    monkeypatch.setenv(fleet_tasks.LOG, str(tmp_path / "log"))
    monkeypatch.setenv(fleet_tasks.SECONDS, "0.05")
    source, out = folder_of(tmp_path / "in", 120 * KILLS), tmp_path / "out"
    killed: Counter[str] = Counter()
    end = time.monotonic() + 30 * KILLS
    with cluster_of(3, processes=True) as cluster, contextlib.ExitStack() as stack:
        client: subprocess.Popen[bytes] | None = None
        while killed.total() < KILLS:
            assert time.monotonic() < end
            if client is None or client.poll() is not None:
                said = (tmp_path / "said").open("w")
                stack.callback(said.close)
                client = stack.enter_context(
                    programs.started(
                        *("-c", CLIENT, cluster.scheduler_address, source, out), stdout=said
                    )
                )
                while "connected" not in (tmp_path / "said").read_text():
                    assert client.poll() is None, (tmp_path / "said").read_text()
                    time.sleep(0.05)
            time.sleep(chance.random() * 1.5)
            alive = [w.process.pid for w in cluster.workers.values() if w.process is not None]
            if chance.random() < 0.7 and alive:
                with contextlib.suppress(ProcessLookupError, TypeError):
                    os.kill(chance.choice(alive), signal.SIGKILL)
                    killed["worker"] += 1
            else:
                client.kill()
                client.wait()
                killed["client"] += 1
        if client is not None:
            client.kill()
            client.wait()
        monkeypatch.setenv(fleet_tasks.SECONDS, "0")
        fleet_tasks.all_are_dead(monkeypatch)
        for _ in range(3):
            with dask_cluster.connected(cluster.scheduler_address) as executor:
                counts = migrate_folder(source, out, executor=executor)
            if set(counts) == {"done before"}:
                break
    assert min(killed.values()) >= 1, killed
    assert counts == {"done before": 120 * KILLS}
    made = outputs(out)
    assert set(made) == {f"{path.stem}.keras" for path in source.iterdir()}
    published = Counter((tmp_path / "log").read_text().split())
    assert max(published.values()) == 1
    assert ledger.read_contents(out / ledger.NAME).torn <= killed["client"]
