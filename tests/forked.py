"""Runs programs in forks of a process that has imported Keras: an import takes 5 to 10 s.

A program starts as with `python`, except that modules are imported already: environment variables
that Keras, JAX, TensorFlow or PyTorch read on import have no effect. None of them has run anything
by then, so devices can still be chosen. Uses standard multiprocessing.
"""

import functools
import multiprocessing
import os
import runpy
import subprocess
import sys
import types
from multiprocessing import forkserver
from multiprocessing.reduction import DupFd
from pathlib import Path
from unittest import mock

import psutil

from tests import programs

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["keras"])


@functools.cache
def _server():
    """Returns the process that is forked."""
    with mock.patch.dict(os.environ, PYTHONPATH=f"{programs.ROOT}{os.pathsep}{programs.path()}"):
        forkserver.ensure_running()
    with _CONTEXT.Pool(1) as pool:
        return psutil.Process(pool.apply(os.getppid))


def seconds():
    """Returns the processor's seconds of all programs that have ended."""
    return sum(_server().cpu_times()[:4]) if _server.cache_info().currsize else 0.0


class Forked:
    """The part of `subprocess.Popen` that the tests use."""

    def __init__(self, arguments, stdout, stderr, environment):
        assert arguments[0] in ("-c", "-m") or Path(arguments[0]).exists(), "takes no other options"
        assert environment["KERAS_BACKEND"] == os.environ["KERAS_BACKEND"]
        _server()
        self.args = arguments
        stderr = stdout if stderr is subprocess.STDOUT else stderr
        self._process = _CONTEXT.Process(
            target=_Program(arguments, environment, stdout.fileno(), stderr.fileno())
        )
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self._process.exitcode

    def kill(self):
        self._process.kill()

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self._process.exitcode


class _Program:
    """A Python command line, sent to the fork that runs it."""

    def __init__(self, arguments, environment, *outputs):
        self.arguments, self.environment, self.outputs = arguments, environment, outputs

    def __getstate__(self):
        return {**vars(self), "outputs": [DupFd(fd) for fd in self.outputs]}

    def __call__(self):
        os.setsid()
        for fd, output in enumerate(self.outputs, 1):
            os.dup2(output.detach(), fd)
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(programs.ROOT)
        how, *rest = self.arguments
        match how:
            case "-c":
                sys.argv = ["-c", *rest[1:]]
                main = sys.modules["__main__"] = types.ModuleType("__main__")
                exec(compile(rest[0], "<string>", "exec"), vars(main))
            case "-m":
                sys.argv = rest
                runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
            case _:
                sys.argv = list(self.arguments)
                sys.path.insert(0, str(Path(how).parent))
                runpy.run_path(how, run_name="__main__")
