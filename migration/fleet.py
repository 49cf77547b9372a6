"""Folders of old artefacts, by any number of processes: `migrate_folder`.

Who does the tasks is an `Executor` of anybody's. Here is what they are, and that none is lost: what
becomes of each is in the ledger as soon as it is known, and a second run goes on from there.
"""

import contextlib
import os
import queue
import signal
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, runtime_checkable

import keras_mp
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.migration import backends, ledger, publishing, run_lock, tasks
from keras_mp.migration.artefacts import Request
from keras_mp.migration.console import say
from keras_mp.migration.ledger import Known, Row
from keras_mp.migration.processes import Died, Processes
from keras_mp.migration.publishing import Refused
from keras_mp.migration.tasks import Task
from keras_mp.migration.walking import Found, Walk, walk

# How many tasks an executor of somebody else's has at a time; ours has no need of more than two.
WINDOW = 4096
GONE = "{} done, {} left: who did the work is gone; start it again, and run the same command"
_PATIENCE = 0.2  # seconds
# Reasons that may be gone with the same version and the same options.
_OF_THE_PLACE = ("output exists", "too large", "not installed")


class Interrupted(KeyboardInterrupt):
    """A run was ended before its end; what it did is in the ledger.

    Args:
        done: How many artefacts are done with.
        left: How many are not.
    """

    def __init__(self, done: int, left: int) -> None:
        super().__init__(done, left)
        self.done = done
        self.left = left

    def __str__(self) -> str:
        return f"{self.done} done, {self.left} left: run the same command again to go on"


class ExecutorGone(Exception):
    """An executor can do nothing more, whatever it is given: a cluster that is gone."""


class TooLarge(Exception):
    """An artefact is too large for the memory of whoever would do it."""


@runtime_checkable
class Cluster(Protocol):
    """An executor that knows more than `concurrent.futures` asks of it."""

    def waiting(self, futures: Collection[Future[Any]]) -> list[Future[Any]]:
        """Returns those that nobody has begun."""
        ...

    def is_gone(self) -> bool:
        """Returns whether nothing will come of what it has in hand."""
        ...


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a folder.

    Attributes:
        counts: How many artefacts for each result, as the ledger calls them, and this run's.
        walked: What was in the folder.
        torn: How many lines of the ledger were none.
        note: Which backend was chosen, where it had to be.
    """

    counts: Counter[str]
    walked: Walk
    torn: int
    note: str | None


class _Run:
    """A run: what it writes to, and what it did."""

    def __init__(
        self, name: str, out: Path, writer: ledger.Writer, told: Callable[[Row], object]
    ) -> None:
        self.name = name
        self.out = out
        self.writer = writer
        self.told = told
        self.counts: Counter[str] = Counter()
        self._interrupts = 0

    def tell(self, row: Row) -> None:
        """Counts a row, and hands it on."""
        self.counts[row["result"]] += 1
        self.told(row)

    def do(self, work: list[Task], executor: Executor | None, jobs: int) -> None:
        """Does tasks.

        Raises:
            Interrupted: Some are left.
            ExecutorGone: As well.
        """
        with _Interrupts() as interrupts:
            if executor is not None:
                left = self._do(work, executor, WINDOW, interrupts)
            else:
                environment = {"KERAS_BACKEND": work[0].backend}
                with _closing(Processes(min(jobs, len(work)), environment)) as ours:
                    left = self._do(work, ours, 2 * jobs, interrupts)
        done = self.counts.total()
        if left and interrupts.count:
            raise Interrupted(done, left)
        if left:
            raise ExecutorGone(GONE.format(done, left))

    def _do(
        self, work: list[Task], executor: Executor, window: int, interrupts: "_Interrupts"
    ) -> int:
        """Returns how many were not done."""
        answers: queue.SimpleQueue[Future[Row]] = queue.SimpleQueue()
        in_hand: dict[Future[Row], Task] = {}
        waiting = iter(work)
        left = len(work)
        more, is_cancelled = True, False
        try:
            while True:
                while more and not interrupts.count and len(in_hand) < window:
                    task = next(waiting, None)
                    more = task is not None
                    if task is None:
                        break
                    try:
                        future = executor.submit(tasks.migrate_task, task)
                    except TooLarge as error:
                        self._write(task, tasks.not_done(task, "refused", "too large", str(error)))
                        left -= 1
                    except RuntimeError:  # it takes no more: broken, or shut down
                        more = False
                    else:
                        in_hand[future] = task
                        future.add_done_callback(answers.put)
                if not in_hand:
                    return left
                if interrupts.count > 1:
                    return left
                if interrupts.count and not is_cancelled:
                    is_cancelled = True
                    _cancel(executor, in_hand)
                try:
                    future = answers.get(timeout=_PATIENCE)
                except queue.Empty:
                    if isinstance(executor, Cluster) and executor.is_gone():
                        return left
                    continue
                task = in_hand.pop(future)
                row = _answer(future, task)
                if row is not None:
                    self._write(task, row)
                    left -= 1
        finally:
            for future in in_hand:
                future.cancel()

    def _write(self, task: Task, row: Row) -> None:
        report = row.pop("report", None)
        row |= {"run": self.name, "out": task.out if row["out_bytes"] is not None else None}
        self.writer.append(row)
        self.tell(row if report is None else row | {"report": report})


class _Interrupts:
    """Counts what Ctrl-C sends, so that it comes between two rows and not into one.

    In another thread than the main one there is none.
    """

    def __init__(self) -> None:
        self.count = 0
        self._is_main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> "_Interrupts":
        if self._is_main:
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_main:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1:
            say("what is in hand is finished first; Ctrl-C again to leave it")


@contextlib.contextmanager
def _closing(ours: Processes) -> Iterator[Processes]:
    try:
        yield ours
    finally:
        ours.kill()
        ours.shutdown()


def _cancel(executor: Executor, in_hand: Collection[Future[Row]]) -> None:
    """Cancels what nobody has begun."""
    waiting = executor.waiting(in_hand) if isinstance(executor, Cluster) else list(in_hand)
    for future in waiting:
        future.cancel()


def _answer(future: Future[Row], task: Task) -> Row | None:
    """Returns the row of a task that is over; None for one that was cancelled."""
    try:
        return future.result()
    except CancelledError:
        return None
    except Died as error:
        return tasks.not_done(task, "failed", "killed", f"{error}{_perhaps(error, task)}")
    except Exception as error:  # noqa: BLE001 - of an executor that is not ours
        why = f"it was not done: {type(error).__name__}: {error}"
        return tasks.not_done(task, "failed", "worker", why)


def _perhaps(error: Died, task: Task) -> str:
    if error.code != -9:
        return ""
    try:
        size = int(str(tasks.state_of(Path(task.request.path), task.kind)["bytes"]))
    except (OSError, Unreadable):
        return ""
    return f", perhaps for lack of memory: the artefact has {size / 1e9:.3g} GB"


def migrate_folder(
    source: str | Path,
    out: str | Path,
    *,
    model: str | None = None,
    optimizer: str | None = None,
    tf_version: str | None = None,
    model_only: bool = False,
    exact_training: bool = False,
    executor: Executor | None = None,
    jobs: int = 1,
    retry: Collection[str] = (),
    on_row: Callable[[dict[str, Any]], object] = lambda _: None,
) -> Counter[str]:
    """Migrates every artefact in a folder, and writes what became of each into a ledger.

    The ledger is `migration.jsonl` in the folder of the outputs, see `keras_mp.migration.ledger`.
    What an earlier run did is not done again; what failed is, and what was refused where the
    version of keras_mp or the options are others, or where `retry` says so.

    Args:
        source: The folder of the artefacts.
        out: The folder of the outputs, which is made.
        model: As `--model`: a file, or "script.py:function".
        optimizer: As `--optimizer`.
        tf_version: As `--from`: the TensorFlow that wrote them.
        model_only: Whether to leave optimizers out.
        exact_training: As of `keras_mp.compat.configs.convert_model`.
        executor: Who does the work, such as `distributed.Client(...).get_executor()`; it is
            given `keras_mp.migration.tasks.migrate_task` and a task each, and must see both
            folders under the same names. None: processes here.
        jobs: How many, where they are here.
        retry: {"refused"} to try again, too, what was refused.
        on_row: Is called with each row of the ledger, in this thread; also of what was done
            before.

    Returns:
        How many artefacts for each result: "done", "done before", "refused", "failed".

    Raises:
        Refused: The output is inside the input, or another run is at work there.
        OSError: A folder cannot be read or written to.
        Interrupted: After Ctrl-C. The first lets what is in hand be finished, the second does not.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / "old").mkdir()
    ...     migrate_folder(f"{folder}/old", f"{folder}/new")
    Counter()
    """
    request = Request(
        os.fspath(source),
        os.fspath(out),
        model=model,
        optimizer=optimizer,
        tf_version=tf_version,
        model_only=model_only,
        exact_training=exact_training,
    )
    return run(request, executor=executor, jobs=jobs, retry=retry, on_row=on_row).counts


def run(
    request: Request,
    *,
    executor: Executor | None = None,
    jobs: int = 1,
    retry: Collection[str] = (),
    on_row: Callable[[Row], object] = lambda _: None,
    on_start: Callable[[Walk, int], object] = lambda _walk, _bytes: None,
    with_reports: bool = False,
) -> Result:
    """Does what `migrate_folder` does.

    Args:
        request: What to do; `path` and `out` are folders.
        executor: As there.
        jobs: As there.
        retry: As there.
        on_row: As there.
        on_start: Is told what was found, and its bytes.
        with_reports: Whether a row for `on_row` has a "report", too, as `--json` prints it.
    """
    assert request.out is not None
    folder, out = Path(request.path), Path(request.out)
    check(folder, out)
    try:
        options = request.options()
        backend, note = backends.named(is_here=executor is None)
    except Unreadable as error:
        raise Refused(str(error)) from None
    except backends.NoBackend as error:
        raise Refused(str(error), "not installed") from None
    walked = walk(folder)
    if not walked.found:
        return Result(Counter(), walked, 0, note)
    out.mkdir(parents=True, exist_ok=True)
    with run_lock.held(out, name := os.urandom(6).hex()):
        path = out / ledger.NAME
        contents = ledger.read(path)
        this = _Run(name, out, ledger.Writer(path), on_row)
        try:
            before: list[Known] = []
            work: list[Task] = []
            total = 0
            for one in walked.found:
                task = _task(request, one, options, backend, with_reports)
                size, known = _before(task, contents.known.get(task.name), out, retry)
                if known is None:
                    work.append(task)
                else:
                    before.append(known)
                total += size
            on_start(walked, total)
            for known in before:
                this.tell(_as_before(ledger.row_at(path, known.start)))
            _sweep(out, walked.found)
            if work:
                this.do(work, executor, jobs)
        finally:
            this.writer.close()
            _sweep(out, walked.found)
            _remove_empty(out, walked.found)
    return Result(this.counts, walked, contents.torn, note)


def check(folder: Path, out: Path) -> None:
    """Refuses an output that is not a folder, or is inside the folder of the inputs.

    Raises:
        Refused: It is so.
    """
    if out.exists() and not out.is_dir():
        raise Refused(f"{out} is there, and is not a folder")
    inside, outside = out.resolve(), folder.resolve()
    if inside == outside or outside in inside.parents:
        raise Refused(f"{out} is inside {folder}: write elsewhere")


def _task(
    request: Request, one: Found, options: dict[str, object], backend: str, with_report: bool
) -> Task:
    assert request.out is not None
    out = Path(request.out, one.out)
    return Task(
        name=one.path.relative_to(request.path).as_posix(),
        kind=one.kind,
        request=replace(request, path=str(one.path), out=str(out), sweep=False),
        out=one.out.as_posix(),
        backend=backend,
        options=options,
        with_report=with_report,
    )


def _before(
    task: Task, known: Known | None, out: Path, retry: Collection[str]
) -> tuple[int, Known | None]:
    """Returns the bytes of an artefact, and what the ledger has of it where that still holds."""
    try:
        state = tasks.state_of(Path(task.request.path), task.kind)
    except (OSError, Unreadable):
        return 0, None  # migrating it says why
    size = int(str(state["bytes"]))
    if known is None:
        return size, None
    kept = known.kept
    if any(kept[key] != value for key, value in state.items()) or kept["options"] != task.options:
        return size, None
    if kept["result"] in ("done", "done before"):
        return size, known if _is_there(out, kept) else None
    holds = kept["reason"] not in _OF_THE_PLACE and known.keras_mp == keras_mp.__version__
    is_refused = kept["result"] == "refused" and "refused" not in retry
    return size, known if is_refused and holds else None


def _is_there(out: Path, kept: Row) -> bool:
    if kept["out"] is None:
        return True  # it is of Keras 3: there was nothing to do
    try:
        return (out / kept["out"]).stat().st_size == kept["out_bytes"]
    except OSError:
        return False


def _as_before(row: Row) -> Row:
    return row | {"result": "done before"} if row["result"] == "done" else row


def _sweep(out: Path, found: Iterable[Found]) -> None:
    for folder in {(out / one.out).parent for one in found}:
        publishing.remove_stale(folder)


def _remove_empty(out: Path, found: Iterable[Found]) -> None:
    made = {parent for one in found for parent in (out / one.out).parents if out in parent.parents}
    for folder in sorted(made, reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()
