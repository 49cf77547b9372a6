"""`keras-mp migrate FOLDER -o FOLDER`: what it shows meanwhile, and what it says at the end."""

import io
import json
import os
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from keras_mp.migration import dask_cluster, fleet, fleet_progress, ledger, run_lock, tasks
from keras_mp.migration.cli import main
from keras_mp.migration.walking import walk
from tests import fleet_tasks, programs
from tests.fleet_tasks import folder_of

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


class Here(ThreadPoolExecutor):
    """Instead of processes, a thread of this one."""

    def __init__(self, jobs: int, environment: dict[str, str]) -> None:
        super().__init__(1)

    def kill(self) -> None:
        self.shutdown(wait=True, cancel_futures=True)


@pytest.fixture(autouse=True)
def cheap(monkeypatch: Patch) -> None:
    monkeypatch.setattr(tasks, "migrate_task", fleet_tasks.cheap)
    monkeypatch.setattr(fleet, "Processes", Here)
    monkeypatch.setenv("KERAS_BACKEND", "jax")


def migrate(*arguments: object) -> int:
    return main(["migrate", *map(str, arguments)])


def mixed(path: Path) -> Path:
    folder_of(path, 3)
    folder_of(path, 1, "bad")
    return folder_of(path, 1, "odd")


def test_lines_where_there_is_no_terminal(tmp_path: Path, capsys: Capture) -> None:
    source, out = mixed(tmp_path / "in"), tmp_path / "out"
    assert migrate(source, "-o", out) == 2
    table, said = capsys.readouterr()
    lines = said.splitlines()
    assert lines[0] == "keras-mp: 1/5 00000.h5: done"
    assert "keras-mp: 5/5 odd00000.h5: failed: it is odd" in lines
    assert lines[-1] == "keras-mp: 3 converted, 1 failed, 1 refused"
    assert table.count("\n") == 6
    with (out / ledger.NAME).open("a") as file:
        file.write('{"name": "00000.h5", "res')
    assert migrate(source, "-o", out, "--retry", "refused") == 2
    said = capsys.readouterr().err
    assert f"keras-mp: {out}/{ledger.NAME}: skipped 1 invalid lines" in said
    assert "00000.h5: done" not in said, "what was done before is not told again"
    assert "bad00000.h5: refused: it is bad" in said


def test_json_is_one_report_and_json_lines_many(tmp_path: Path, capsys: Capture) -> None:
    source, out = mixed(tmp_path / "in"), tmp_path / "out"
    assert migrate(source, "-o", out, "--json-lines") == 2
    printed = capsys.readouterr().out
    assert printed == (out / ledger.NAME).read_text()
    assert migrate(source, "-o", out, "--json") == 2
    printed, said = capsys.readouterr()
    assert said == ""
    report = json.loads(printed)
    assert report["summary"] == {
        "schema": 1,
        "artefacts": {"failed": 1, "refused": 1, "skipped": 3},
    }
    rows = report["results"]
    assert Counter(row["status"] for row in rows) == {"skipped": 3, "refused": 1, "failed": 1}
    assert rows[0]["out"] == str(out / "00000.keras")
    assert [row["path"] for row in rows] == sorted(row["path"] for row in rows)


@pytest.mark.parametrize("quiet", [True, False])
def test_a_line_now_and_then(
    quiet: bool, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    """However long an artefact takes, and where a cluster has no workers."""
    clock = [0.0]
    monkeypatch.setattr(fleet_progress.time, "monotonic", lambda: clock[0])
    walked = walk(mixed(tmp_path / "in"))
    with fleet_progress.show_rows(lines=False, quiet=quiet) as shown:
        shown.start(walked, 10)

        def after(seconds: float) -> list[str]:
            clock[0] += seconds
            shown.tick()
            return capsys.readouterr().err.splitlines()

        assert after(fleet_progress.EVERY - 1) == []
        assert after(1) == ["keras-mp: 0/5"]
        assert after(1) == []
        for result in ("failed", "refused", "done before"):
            shown.row({"result": result, "name": "x", "why": "no", "bytes": 1})
        named = ["keras-mp: 1/5 x: failed: no", "keras-mp: 2/5 x: refused: no"]
        assert after(0) == ([] if quiet else named)
        assert after(fleet_progress.EVERY) == ["keras-mp: 3/5, 1 failed, 1 refused"]


def test_a_run_that_waits_says_so(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr(fleet_progress, "EVERY", 0.0)
    monkeypatch.setattr(fleet, "_PATIENCE", 0.01)
    monkeypatch.setenv(fleet_tasks.SECONDS, "0.1")
    assert migrate(folder_of(tmp_path / "in", 1), "-o", tmp_path / "out", "--json") == 0
    printed, said = capsys.readouterr()
    assert "keras-mp: 0/1" in said.splitlines()
    assert said.splitlines()[-1] == "keras-mp: 1/1"
    assert json.loads(printed)["summary"]["artefacts"] == {"converted": 1}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    walked = walk(mixed(tmp_path / "in"))
    row = {"bytes": 2_000_000, "why": None, "name": "x"}
    with fleet_progress.show_rows(lines=False, quiet=False) as shown:
        shown.start(walked, 10_000_000)
        for result in ("done", "failed", "refused", "done before"):
            shown.row({**row, "result": result})
        bar: Any = shown
        fields = bar._progress.tasks[0].fields
    assert (fields["done"], fields["all"]) == (4, 5)
    assert (fields["bad"], fields["size"]) == ("1 failed, 1 refused, ", "8 MB")
    assert "4/5" in terminal.getvalue()


@pytest.mark.parametrize("address", ["file://{}", "local://{}", "simplecache::file://{}"])
def test_folders_by_addresses_of_the_disk(address: str, tmp_path: Path, capsys: Capture) -> None:
    source, out = mixed(tmp_path / "in"), tmp_path / "out"
    folders = [address.format(source), "-o", address.format(out)]
    assert migrate(*folders) == 2
    first = (out / ledger.NAME).read_text()
    assert first.count("\n") == 5
    assert json.loads(first.split("\n")[0])["source"] == str(source / "00000.h5")
    assert migrate(source, "-o", out, "--retry", "failed") == 2
    assert (out / ledger.NAME).read_text().count("\n") == 6, "it is the same folder"
    capsys.readouterr()
    pytest.importorskip("distributed")
    assert migrate(*folders, "--dask", "nowhere") == 2
    assert "--dask nowhere: cannot connect" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--dask", "x"], "are for a folder, with -o OUT"),
        (["--retry", "refused"], "are for a folder, with -o OUT"),
        (["-o", "out", "--json", "--json-lines"], "use only one"),
        (["-o", "out", "--retry", "done"], "invalid choice"),
    ],
)
def test_options_that_do_not_go_together(
    options: list[str], why: str, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert migrate(folder_of(tmp_path / "in", 1), *options) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_two_at_once_and_a_cluster_that_is_not_there(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.setattr(dask_cluster, "_SECONDS", 0.2)
    source, out = folder_of(tmp_path / "in", 1), tmp_path / "out"
    with run_lock.hold_lock(str(out), "other"):
        assert migrate(source, "-o", out) == 2
    assert f"locked by another run, process {os.getpid()}" in capsys.readouterr().err
    pytest.importorskip("distributed")
    assert migrate(source, "-o", out, "--dask", "tcp://127.0.0.1:9") == 2
    said = capsys.readouterr().err
    assert "error: --dask tcp://127.0.0.1:9: cannot connect" in said
    assert "Traceback" not in said


INTERRUPTED = """
import sys
from keras_mp.migration import tasks
from keras_mp.migration.cli import main
from tests import fleet_tasks
tasks.migrate_task = fleet_tasks.cheap
sys.exit(main(["migrate", *sys.argv[1:], "--jobs", "2"]))
"""


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    source, out, said = folder_of(tmp_path / "in", 200), tmp_path / "out", tmp_path / "said"
    environment = {
        "PYTHONPATH": f"{programs.ROOT}{os.pathsep}{programs.path()}",
        fleet_tasks.SECONDS: "0.05",
    }
    command = ("-c", INTERRUPTED, source, "-o", out)
    with said.open("w") as file, programs.started(*command, stdout=file, **environment) as program:
        while "3/200" not in said.read_text():
            assert program.poll() is None, said.read_text()
            time.sleep(0.01)
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 130
    lines = said.read_text().splitlines()
    done = len(list(out.glob("*.keras")))
    assert lines[-1] == f"keras-mp: {done} done, {200 - done} left: rerun the command to resume"
    assert 3 <= done < 100
    assert not [path for path in out.iterdir() if path.name.startswith(".keras-mp")]
