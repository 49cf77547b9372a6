"""The lock of a folder of outputs: of two runs one does it, and a dead one is in nobody's way."""

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from keras_mp.files.stores import objects, owners
from keras_mp.migration import run_lock
from keras_mp.migration.publishing import Refused
from tests import programs

HOLDS = """
import sys, time
from keras_mp.migration import run_lock
with run_lock.hold_lock(sys.argv[1], "run"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_of_two_runs_one_has_it(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    with run_lock.hold_lock(str(out), "one"):
        said = re.escape(f"{out}: locked by another run, process {os.getpid()} on ")
        with pytest.raises(Refused, match=said), run_lock.hold_lock(str(out), "two"):
            pytest.fail("both have it")
        assert json.loads((out / run_lock.NAME).read_text())["run"] == "one"
    assert list(out.iterdir()) == []
    with run_lock.hold_lock(str(out), "three"):
        pass


def test_one_that_was_killed_blocks_nobody(tmp_path: Path) -> None:
    said = tmp_path / "said"
    out = tmp_path / "out"
    with said.open("w") as stdout, programs.started("-c", HOLDS, out, stdout=stdout) as program:
        while "held" not in said.read_text():
            assert program.poll() is None
        with (
            pytest.raises(Refused, match=f"process {program.pid} on"),
            run_lock.hold_lock(str(out), ""),
        ):
            pytest.fail("both have it")
        os.kill(program.pid, signal.SIGKILL)
        program.wait()
    assert (out / run_lock.NAME).exists()
    with run_lock.hold_lock(str(out), "next"):
        pass


def test_what_is_no_lock_is_taken(tmp_path: Path) -> None:
    (tmp_path / run_lock.NAME).write_text("what?")
    with run_lock.hold_lock(str(tmp_path), "one"):
        (tmp_path / run_lock.NAME).write_text("what?")
        with pytest.raises(Refused, match="wait for it"), run_lock.hold_lock(str(tmp_path), "two"):
            pytest.fail("both have it")


def test_in_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setattr(run_lock, "_SETTLED", 0.0)
    monkeypatch.setattr(owners, "BEAT", 0.01)
    url = "memory://locked/out"
    with run_lock.hold_lock(url, "one"):
        said = f"{url}: locked by another run, process"
        with pytest.raises(Refused, match=said), run_lock.hold_lock(url, "two"):
            pytest.fail("both have it")
    assert objects.read_text(f"{url}/{run_lock.NAME}") is None
    dead = json.loads(owners.me()) | {"pid": 2**22 + 1}
    objects.write_text(f"{url}/{run_lock.NAME}", json.dumps(dead))
    with run_lock.hold_lock(url, "three"):
        pass


if sys.platform == "win32":
    pytest.skip("Windows has no such locks", allow_module_level=True)
