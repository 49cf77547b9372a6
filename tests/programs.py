"""Starts programs for tests: in the root of the repository; none outlives its scope.

Not `subprocess.run`: at a time-out, that ends the program, but not the workers it started.

Packages that Keras imports if installed, and that these programs do not need, are hidden:
scikit-learn, and TensorFlow unless it is the backend. This halves the time.
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
# Python runs this file at start if it is on the path.
WITHOUT = """
import os, sys
sys.modules["sklearn"] = None
if os.environ.get("KERAS_BACKEND", "jax") != "tensorflow":
    sys.modules["tensorflow"] = None
"""


def warning(action, category="Warning"):
    """Returns a program's first line: how to treat warnings, except those of a cache."""
    cache = "Error (reading|writing) persistent compilation cache"  # half written, see conftest.py
    return (
        f"import warnings; warnings.simplefilter({action!r}, {category}); "
        f"warnings.filterwarnings('ignore', {cache!r})\n"
    )


@contextlib.contextmanager
def started(
    *arguments, stdout, stderr=subprocess.STDOUT, with_all=False, imported=False, **environment
):
    """Starts a process of this Python; at the end of the scope, kills it and its children.

    Args:
        *arguments: Of the command line; numbers and paths become text.
        stdout: A file for its output. Not a pipe: its children would keep that open.
        stderr: Another one.
        with_all: Whether it can import all installed packages.
        imported: Whether it may start with Keras imported, see `tests.forked`. Not with options of
            Python, or with variables that are read on import.
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
        try:
            os.killpg(program.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has ended, or it is a fork that has no group of its own yet
            program.kill()
        program.wait()


def path():
    """Returns the PYTHONPATH of a program that hides unused packages."""
    return os.pathsep.join(filter(None, [_without().name, os.environ.get("PYTHONPATH")]))


def completed(*arguments, timeout=200, **environment):
    """Runs this Python with `arguments`, see `started`, until it ends in any way.

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
    """Returns the output of a program that must not fail, see `completed`.

    Raises:
        AssertionError: It failed; shows its exit status and the end of its output.
        subprocess.TimeoutExpired: It took longer than `timeout` seconds.
    """
    done = completed(*arguments, timeout=timeout, **environment)
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr[-3000:]}"
    return done.stdout


@functools.cache
def _without():
    folder = tempfile.TemporaryDirectory(prefix="keras_mp_without")
    Path(folder.name, "sitecustomize.py").write_text(WITHOUT, encoding="utf-8")
    return folder


def _text():
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
