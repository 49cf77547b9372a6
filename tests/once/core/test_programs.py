"""What tests start is gone when they end."""

import subprocess
import time
from pathlib import Path

import pytest

from tests import programs

STARTS_ANOTHER = """
import subprocess, sys, time
from pathlib import Path
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
Path(sys.argv[1]).write_text(str(other.pid))
time.sleep(float(sys.argv[2]))
"""


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc what runs")
@pytest.mark.parametrize("seconds", [0, 60], ids=["ends", "hangs"])
def test_nothing_outlives_a_program(tmp_path, seconds):
    pid = tmp_path / "pid"
    if seconds:
        with pytest.raises(subprocess.TimeoutExpired):
            programs.run("-c", STARTS_ANOTHER, pid, seconds, timeout=3)
    else:
        programs.run("-c", STARTS_ANOTHER, pid, seconds, timeout=30)
    until = time.monotonic() + 5
    while is_running(int(pid.read_text())) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(int(pid.read_text()))


def test_a_failure_says_why():
    with pytest.raises(AssertionError, match="because of this"):
        programs.run("-c", "raise SystemExit('because of this')")


def test_what_is_printed_and_handed_over():
    found = programs.run(
        "-c", "import os, sys; print(sys.argv[1], os.environ['WHAT'])", 3, WHAT="x"
    )
    assert found == "3 x\n"


def test_any_end_of_a_program_can_be_looked_at():
    program = "import sys; print('one'); sys.exit('two')"
    done = programs.completed("-c", program)
    assert (done.returncode, done.stdout, done.stderr) == (1, "one\n", "two\n")
    killed = "import os; os.kill(os.getpid(), 9)"
    assert programs.completed("-c", killed).returncode == -9
