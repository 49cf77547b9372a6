"""Processes that do tasks: what dies with one, and what does not."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from keras_mp.migration.processes import COMMAND, Died, Processes, Worker
from tests import fleet_tasks, programs

HERE = {"PYTHONPATH": str(programs.ROOT)}
DYING = """
import os, sys
from keras_mp.migration.processes import Processes
from tests import fleet_tasks
pool = Processes(2)
futures = [pool.submit(fleet_tasks.pid) for _ in range(4)]
pool.submit(fleet_tasks.sleeps, 0.5)
print(*{future.result() for future in futures}, flush=True)
os.kill(os.getpid(), 9)
"""

# At work for ten minutes: the first with a task, the second with what it is sent.
WORK = """
import pathlib, sys, time
work = f"import pathlib, time; pathlib.Path({sys.argv[2]!r}).touch(); time.sleep(600)"
"""
BUSY = {
    "of artefacts": """
from keras_mp.migration.processes import Processes
Processes(2).submit(exec, work).result()
""",
    "of sources": """
from keras_mp.migration.code.planning import plans
from keras_mp.migration.code.rewriting import Options
class Working(Options):
    def __reduce__(self):
        return exec, (work,)
plans([pathlib.Path(sys.argv[1])] * 8, Working(), 2)
""",
}


@pytest.fixture
def pool() -> Iterator[Processes]:
    with Processes(2, HERE) as processes:
        yield processes


def test_what_a_function_returns_or_raises(pool: Processes) -> None:
    assert pool.submit(fleet_tasks.value, {"a": [1, "ö"]}).result() == {"a": [1, "ö"]}
    with pytest.raises(ZeroDivisionError, match="of the executor's own"):
        pool.submit(fleet_tasks.fails, None).result()
    with pytest.raises(RuntimeError, match=r"Can't pickle|Can't get local"):
        pool.submit(fleet_tasks.unpicklable).result()
    error = pool.submit(fleet_tasks.exits, 3).exception()
    assert isinstance(error, SystemExit)
    pids = {pool.submit(fleet_tasks.pid).result() for _ in range(8)}
    assert pids <= set(pool.pids())
    assert len(pids) == 1, "a process stays, and no more are started than are needed"


def test_a_process_that_dies_is_tried_once_more_and_named(pool: Processes) -> None:
    began = time.monotonic()
    with pytest.raises(Died, match="ended with 7: no memory"):
        pool.submit(fleet_tasks.ends, 7).result()
    assert pool.submit(fleet_tasks.value, 1).result() == 1
    assert time.monotonic() - began < 60


def test_one_that_is_killed_by_hand_costs_nothing(pool: Processes) -> None:
    futures = [pool.submit(fleet_tasks.sleeps, 0.3) for _ in range(4)]
    while not pool.pids():
        time.sleep(0.01)
    killed = pool.pids()[0]
    os.kill(killed, signal.SIGKILL)
    pids = {future.result(timeout=60) for future in futures}
    assert killed not in pids
    assert len(pids) in (1, 2, 3)


def test_kill_waits_for_nothing() -> None:
    pool = Processes(1, HERE)
    futures = [pool.submit(fleet_tasks.sleeps, 60) for _ in range(3)]
    while not pool.pids():
        time.sleep(0.01)
    began = time.monotonic()
    pool.kill()
    assert time.monotonic() - began < 30
    assert isinstance(futures[0].exception(), Died)
    assert [future.cancelled() for future in futures[1:]] == [True, True]
    pool.shutdown()


def test_they_end_with_whoever_started_them() -> None:
    done = programs.completed("-c", DYING, **HERE)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert pids
    end = time.monotonic() + 30
    while any(psutil.pid_exists(pid) for pid in pids):
        assert time.monotonic() < end, "they are there still"
        time.sleep(0.05)


def test_they_take_no_module_of_the_folder_they_run_in(tmp_path: object) -> None:
    (tmp_path / "pickle.py").write_text("raise SystemExit(7)")  # type: ignore[operator]
    done = subprocess.run(COMMAND, cwd=tmp_path, stdin=subprocess.DEVNULL, check=False)  # type: ignore[call-overload]
    assert done.returncode == 0


def test_ctrl_c_is_not_for_them() -> None:
    with contextlib.closing(Worker(HERE)) as worker:
        assert worker.call(fleet_tasks.value, 1) == 1
        assert os.getpgid(worker.pid) != os.getpgid(0)
        timer = threading.Timer(0.1, worker.kill)
        timer.start()
        with pytest.raises(Died, match="killed by signal 9"):
            worker.call(fleet_tasks.sleeps, 60)
        timer.join()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("program", BUSY.values(), ids=BUSY)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_none_outlives_who_started_it(number: signal.Signals, program: str, tmp_path: Path) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"{number.name} is ignored here, as nohup has it")
    path, is_at_work = tmp_path / "a.py", tmp_path / "at work"
    path.write_text("import tensorflow.keras.mixed_precision\n")
    with (
        (tmp_path / "said").open("w") as said,
        programs.started("-c", WORK + program, path, is_at_work, stdout=said) as first,
    ):
        while not is_at_work.exists():
            assert first.poll() is None
            time.sleep(0.05)
        workers = psutil.Process(first.pid).children(recursive=True)
        first.send_signal(number)
        first.wait(60)
        _, left = psutil.wait_procs(workers, timeout=60)
        for one in left:
            one.kill()
    assert not left
