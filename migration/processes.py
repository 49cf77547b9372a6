"""Worker processes as an `Executor`: one that is killed loses only its own task.

Unlike `concurrent.futures.ProcessPoolExecutor`, where one death fails all that is waiting, each
process here has one task at a time, and whoever dies with it is known.
"""

import contextlib
import os
import pickle
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from keras_mp.migration import giving_back

# -P: the folder that it runs in may have modules by the names of Python's.
COMMAND = (sys.executable, "-P", "-m", "keras_mp.migration.processes")
_TAIL = 4096


class Died(Exception):
    """A process died with a task.

    Args:
        code: Its exit status; negative is the signal that killed it.
        said: The last line that it wrote on stderr.
    """

    def __init__(self, code: int, said: str = "") -> None:
        super().__init__(code, said)
        self.code = code
        self.said = said

    def __str__(self) -> str:
        if self.code < 0:
            return f"its process was killed by signal {-self.code}"
        return f"its process ended with {self.code}: {self.said or 'it said nothing'}"


class TookTooLong(Exception):
    """A process was killed, as its time was over."""


class Worker:
    """A process that does one task after another. It ends when whoever started it is gone.

    Args:
        environment: Variables, besides those of this process.
    """

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        # Away from the terminal: Ctrl-C is for whoever started it.
        self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def call(self, function: Callable[..., Any], *args: Any, seconds: float | None = None) -> Any:
        """Returns what a function, which is sent there, returns for arguments.

        Args:
            function: To be called there.
            *args: Its arguments; all must pickle.
            seconds: After which the process is killed; None for never.

        Raises:
            TookTooLong: It was killed for that.
            Died: The process died.
            Exception: Whatever the function raised.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        sent = pickle.dumps((function, args))
        is_over = threading.Event()

        def end() -> None:
            is_over.set()
            self._process.kill()

        timer = None if seconds is None else threading.Timer(seconds, end)
        try:
            if timer is not None:
                timer.start()
            self._process.stdin.write(sent)
            self._process.stdin.flush()
            returned, value = pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            if is_over.is_set():
                raise TookTooLong from None
            self._process.kill()  # it answers no more
            raise Died(self._process.wait(), self._last_line()) from None
        finally:
            if timer is not None:
                timer.cancel()
        if not returned:
            raise value
        return value

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()

    def close(self) -> None:
        """Ends it, at once if it has a task in hand."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _last_line(self) -> str:
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _TAIL))
        lines = self._errors.read().decode("utf-8", "replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")


class Processes(Executor):
    """Does tasks in processes, each as long-lived as this.

    A task whose process dies is tried once more, in a new process, and of such tasks one at a
    time: it may have been another's memory that was missing.

    Args:
        jobs: How many processes.
        environment: Variables of theirs, besides those of this process.
    """

    def __init__(self, jobs: int, environment: dict[str, str] | None = None) -> None:
        self._environment = environment
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="keras-mp")
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._all: set[Worker] = set()
        self._lock = threading.Lock()
        self._again = threading.Lock()
        self._killed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Returns the future of a function of arguments; both must pickle."""
        assert not kwargs
        return self._threads.submit(self._run, fn, *args)

    def pids(self) -> list[int]:
        """Returns the numbers of the processes."""
        with self._lock:
            return [worker.pid for worker in self._all]

    def kill(self) -> None:
        """Ends all processes at once; their tasks, and those that wait, are not done."""
        with self._lock:
            self._killed = True
            for worker in self._all:
                worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the processes when their tasks are done."""
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        with self._lock:
            self._killed = True
            for worker in self._all:
                worker.close()
            self._all.clear()

    def _run(self, fn: Callable[..., Any], *args: Any) -> Any:
        try:
            return self._in_one(fn, *args)
        except Died:
            if self._killed:
                raise
        with self._again:
            return self._in_one(fn, *args)

    def _in_one(self, fn: Callable[..., Any], *args: Any) -> Any:
        worker = self._worker()
        try:
            value = worker.call(fn, *args)
        except Died:
            with self._lock:
                self._all.discard(worker)
            worker.close()
            raise
        except BaseException:
            self._idle.put(worker)
            raise
        self._idle.put(worker)
        return value

    def _worker(self) -> Worker:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            pass
        with self._lock:
            if self._killed:
                raise Died(-signal.SIGTERM)
            worker = Worker(self._environment)
            self._all.add(worker)
            return worker


def _end_with_starter() -> None:
    """Ends this process, whatever it is at, when nobody is left who could write to its stdin."""
    if hasattr(select, "poll"):  # not on Windows, where it ends after its task
        poll = select.poll()
        poll.register(0, 0)  # nothing but the end of the pipe
        poll.poll()
        os._exit(1)


def _serve() -> None:
    """Does what is sent on stdin, and answers on stdout, until there is no more."""
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what others print is no answer
    giving_back.at_once()  # one model after another
    threading.Thread(target=_end_with_starter, daemon=True).start()
    while True:
        try:
            function, args = pickle.load(requests)
        except EOFError:
            return
        try:
            answer = True, function(*args)
        except BaseException as error:  # noqa: BLE001 - it is raised where it was sent from
            answer = False, error
        try:
            data = pickle.dumps(answer)
        except Exception as error:  # noqa: BLE001 - of whatever cannot be pickled
            data = pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
        try:
            answers.write(data)
            answers.flush()
        except BrokenPipeError:
            return


if __name__ == "__main__":
    _serve()
