"""Programs that tests start: in the root of the repository, and none outlives its scope.

Not `subprocess.run`: where time is up, that ends the program, but not the workers it started.

What Keras imports where it is installed, and these programs have no use for, is not there for them:
scikit-learn, and TensorFlow but for its own backend. It takes them half of their time.
"""

import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Python runs it at its start, where it lies on the path.
WITHOUT = """
import os, sys
sys.modules["sklearn"] = None
if os.environ.get("KERAS_BACKEND", "jax") != "tensorflow":
    sys.modules["tensorflow"] = None
"""


def warning(action, category="Warning"):
    """Returns a line that begins a program: what becomes of warnings, but for those of a cache."""
    cache = "Error (reading|writing) persistent compilation cache"  # half written, see conftest.py
    return (
        f"import warnings; warnings.simplefilter({action!r}, {category}); "
        f"warnings.filterwarnings('ignore', {cache!r})\n"
    )


@contextlib.contextmanager
def started(
    *arguments, stdout, stderr=subprocess.STDOUT, with_all=False, imported=False, **environment
):
    """A process of this Python; at the end of the scope, it and what it started are killed.

    Args:
        *arguments: As of a command line; numbers and paths become text.
        stdout: A file that it writes to. No pipe: what it started would keep that open.
        stderr: Another one.
        with_all: Whether it finds all that is installed.
        imported: Whether Keras may be imported already as it begins, see `tests.forked`. Not where
            options of Python, or variables that are read with an import, are needed.
        **environment: Variables, besides those of this process.
    """
    if not with_all:
        environment = {"PYTHONPATH": path(), **environment}
    arguments, environment = [*map(str, arguments)], {**os.environ, **environment}
    if imported:
        from tests.forked import Forked

        program = Forked(arguments, stdout, stderr, environment)
    else:
        program = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    try:
        yield program
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def path():
    """Returns the PYTHONPATH of a program that finds only what it has a use for."""
    return os.pathsep.join(filter(None, [_without().name, os.environ.get("PYTHONPATH")]))


def completed(*arguments, timeout=200, **environment):
    """Runs this Python with `arguments`, see `started`, to the end, whatever that is.

    Returns:
        A `subprocess.CompletedProcess`, its output as text.

    Raises:
        subprocess.TimeoutExpired: It took longer than `timeout` seconds.
    """
    with _text() as stdout, _text() as stderr:
        with started(*arguments, stdout=stdout, stderr=stderr, **environment) as program:
            program.wait(timeout)
        stdout.seek(0)
        stderr.seek(0)
        said = stdout.read(), stderr.read()
    return subprocess.CompletedProcess(program.args, program.returncode, *said)


def run(*arguments, timeout=200, **environment):
    """Returns what a program printed that must not fail, see `completed`.

    Raises:
        AssertionError: It failed, with the end of what it said.
        subprocess.TimeoutExpired: It took longer than `timeout` seconds.
    """
    done = completed(*arguments, timeout=timeout, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@functools.cache
def _without():
    folder = tempfile.TemporaryDirectory(prefix="keras_mp_without")
    Path(folder.name, "sitecustomize.py").write_text(WITHOUT, encoding="utf-8")
    return folder


def _text():
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
