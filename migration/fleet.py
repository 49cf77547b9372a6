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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, runtime_checkable

import keras_mp
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.files.stores.errors import NotThere
from keras_mp.files.stores.listing import listed
from keras_mp.files.stores.scratch import Scratch
from keras_mp.files.stores.urls import (
    MEMORY,
    OF_ONE_PROCESS,
    TAKEN,
    is_url,
    join,
    local_of,
    plain,
    redacted,
    scheme,
)
from keras_mp.migration import (
    backends,
    ledger,
    limited,
    model_choice,
    publishing,
    run_lock,
    tasks,
)
from keras_mp.migration.console import say
from keras_mp.migration.ledger import Known, Place, Row
from keras_mp.migration.limited import Limits
from keras_mp.migration.processes import Died, Processes
from keras_mp.migration.publishing import Refused
from keras_mp.migration.requests import Request
from keras_mp.migration.tasks import Task
from keras_mp.migration.walking import Found, Walk, walk

__all__ = ["ExecutorGone", "Interrupted", "migrate_folder"]

# How many tasks an executor of somebody else's has at a time; ours has no need of more than two.
WINDOW = 4096
GONE = "{} done, {} left: the executor is gone. Restart it and rerun the command to resume"
_PATIENCE = 0.2  # seconds
_WITHOUT_MODEL = ("checkpoint", "h5")  # some of the latter
# Reasons that may be gone with the same version and the same options.
_OF_THE_PLACE = ("output exists", "too large", "too long", "not installed")


class Interrupted(KeyboardInterrupt):
    """A run was interrupted; the ledger has what is done.

    Args:
        done: How many artefacts are done with.
        left: How many are not.
    """

    def __init__(self, done: int, left: int) -> None:
        super().__init__(done, left)
        self.done = done
        self.left = left

    def __str__(self) -> str:
        return f"{self.done} done, {self.left} left: rerun the command to resume"


class ExecutorGone(Exception):
    """The executor is unusable: its cluster is gone."""


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
        otherwise: Names of artefacts whose outputs are there, and were made with other options.
    """

    counts: Counter[str]
    walked: Walk
    torn: int
    note: str | None
    otherwise: tuple[str, ...] = ()


@dataclass(slots=True)
class _Run:
    """A run: what it writes to, and what it did.

    Attributes:
        name: Of the run.
        place: Of the ledger.
        writer: To it.
        told: Is called with each row.
        waits: Is called now and then while none comes.
        made: Of each artefact whose output is there: what the ledger says of it.
        counts: How many rows there are of each result.
        otherwise: Names of artefacts whose outputs were made with other options.
    """

    name: str
    place: Place
    writer: ledger.Writer
    told: Callable[[Row], object]
    waits: Callable[[], object]
    made: dict[str, Known] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    otherwise: list[str] = field(default_factory=list)

    def tell(self, row: Row, options: Mapping[str, object]) -> None:
        """Counts a row, and hands it on.

        Args:
            row: The row.
            options: That this run was asked for, of the artefact.
        """
        self.counts[row["result"]] += 1
        if row["result"] == "done before" and row["out"] and row["options"] != options:
            self.otherwise.append(row["name"])
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
                    self.waits()
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
        if not ledger.says_less(row, self.made.get(task.name)):
            self.writer.append(row)
            self.place.saved()
        self.tell(row if report is None else row | {"report": report}, task.options)


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
            say("finishing the artefacts in progress; press Ctrl-C again to stop now")


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
    if task.size is None:
        return ", possibly out of memory"
    return f", possibly out of memory: the artefact has {task.size / 1e9:.3g} GB"


def migrate_folder(
    source: str | Path,
    out: str | Path,
    *,
    model: str | Sequence[str] | None = None,
    optimizer: str | None = None,
    tf_version: str | None = None,
    model_only: bool = False,
    exact_training: bool = False,
    from_graph: bool | str = False,
    compare: bool = True,
    accept_differences: bool = False,
    scratch: Scratch | None = None,
    executor: Executor | None = None,
    jobs: int = 1,
    retry: Collection[str] = (),
    on_row: Callable[[dict[str, Any]], object] | None = None,
    limit_memory: int | None = None,
    limit_seconds: float | None = None,
) -> Counter[str]:
    """Migrates every artefact in a folder, and records each result in a ledger.

    The ledger is `migration.jsonl` in the folder of the outputs, see `keras_mp.migration.ledger`.
    What an earlier run did is not done again, with whatever options; what failed is, and what was
    refused where the version of keras_mp or the options are others, or where `retry` says so.

    Args:
        source: The folder of the artefacts, or its address.
        out: The folder of the outputs, or its address; it is made.
        model: As `--model`: a file, "script.py:function", or "PATTERN=FILE" for artefacts whose
            path in the folder matches; or several of them.
        optimizer: As `--optimizer`.
        tf_version: As `--from`: the TensorFlow that wrote them.
        model_only: Whether to leave optimizers out.
        exact_training: As of `keras_mp.compat.configs.convert`.
        from_graph: As of `keras_mp.compat.load_model`, for the SavedModels among them.
        compare: Whether to compare what the model of a SavedModel predicts with the graphs in the
            file; where not, the ledger has it among the options.
        accept_differences: Whether to write models that predict otherwise, too.
        scratch: Where files of stores are kept meanwhile, on whoever does the work.
        executor: Who does the work, such as `distributed.Client(...).get_executor()`; it is
            given `keras_mp.migration.tasks.migrate_task` and a task each, and must see both
            folders under the same names. None: processes here.
        jobs: How many, where they are here.
        retry: {"refused"} to try again, too, what was refused. "failed" is tried again anyway.
        on_row: Is called with each row of the ledger, in this thread; also of what was done
            before.
        limit_memory: The most bytes that an artefact may take, besides Python with Keras; one that
            takes more is refused. On Linux.
        limit_seconds: The most seconds, without the import of Keras.

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
        plain(os.fspath(source)),
        plain(os.fspath(out)),
        given=() if model is None else (model,) if isinstance(model, str) else tuple(model),
        optimizer=optimizer,
        tf_version=tf_version,
        model_only=model_only,
        exact_training=exact_training,
        from_graph=from_graph,
        compare=compare,
        accept_differences=accept_differences,
        scratch=Scratch() if scratch is None else scratch,
        limits=Limits(limit_memory, limit_seconds),
    )
    told = (lambda _: None) if on_row is None else on_row
    return run(request, executor=executor, jobs=jobs, retry=retry, on_row=told).counts


def run(
    request: Request,
    *,
    executor: Executor | None = None,
    jobs: int = 1,
    retry: Collection[str] = (),
    on_row: Callable[[Row], object] = lambda _: None,
    on_start: Callable[[Walk, int], object] = lambda _walk, _bytes: None,
    on_wait: Callable[[], object] = lambda: None,
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
        on_wait: Is called now and then while no row comes.
        with_reports: Whether a row for `on_row` has a "report", too, as `--json` prints it.
    """
    assert request.out is not None
    source, out = request.path, request.out
    publishing.check_folder(source, out)
    if executor is None or isinstance(executor, Cluster):
        for path in (source, out):
            if is_url(path) and scheme(path) == MEMORY:
                raise Refused(f"{redacted(path)}: {OF_ONE_PROCESS}: {TAKEN}")
    try:
        limited.check(request.limits)
        model_choice.choice_for(request.given, "")
        model_choice.check(request.given)
        request.options()  # what else it names is there
        backend, note = backends.backend_and_note(is_here=executor is None)
    except limited.Unlimited as error:
        raise Refused(str(error)) from None
    except backends.NoBackend as error:
        raise Refused(str(error), "not installed") from None
    walked = walk(source)
    if not walked.found:
        return Result(Counter(), walked, 0, note)
    name = os.urandom(6).hex()
    with run_lock.hold_lock(out, name), ledger.open_ledger(out) as place:
        contents = ledger.read_contents(place.path)
        writer = ledger.Writer(place.path)
        this = _Run(name, place, writer, on_row, on_wait)
        try:
            sizes = _Sizes(out)
            options: dict[tuple[object, ...], dict[str, object]] = {}
            before: list[tuple[Known, Task]] = []
            work: list[Task] = []
            for one in walked.found:
                task = _task(request, one, backend, with_reports, options)
                known = contents.known.get(task.name)
                if known is not None and _is_made(known, sizes):
                    this.made[task.name] = known
                if known is None or not _holds(task, known, task.name in this.made, retry):
                    work.append(task)
                else:
                    before.append((known, task))
            kept = sum(known.kept["bytes"] or 0 for known, _ in before)
            on_start(walked, kept + sum(task.size or 0 for task in work))
            for known, task in before:
                row = ledger.row_at(place.path, known.start)
                if row["result"] == "done":
                    row["result"] = "done before"
                this.tell(row, task.options)
            if work:
                _sweep(out, walked.found)
                this.do(work, executor, jobs)
        finally:
            writer.close()
            if not is_url(out):
                _sweep(out, walked.found)
                _remove_empty(local_of(out), walked.found)
    return Result(this.counts, walked, contents.torn, note, tuple(this.otherwise))


def _task(
    request: Request,
    one: Found,
    backend: str,
    with_report: bool,
    options: dict[tuple[object, ...], dict[str, object]],
) -> Task:
    assert request.out is not None
    size, state = one.size, one.version
    if not is_url(one.path):
        with contextlib.suppress(OSError, Unreadable):  # migrating it says why
            size, state = tasks.size_of(Path(one.path), one.kind)
    name = name_of(request.path, one.path)
    is_beside = one.kind in _WITHOUT_MODEL and not is_url(one.path)
    top = local_of(request.path) if is_beside else None
    out = below(request.out, one.out)
    request = replace(request, path=one.path, out=out, tidy=False).for_artefact(name, top)
    files = request.model, request.scripts, request.beside
    if files not in options:  # thousands have the same, and each is read for its checksum
        options[files] = request.options()
    return Task(
        name=name,
        kind=one.kind,
        request=request,
        out=one.out.as_posix(),
        backend=backend,
        size=size,
        state=state,
        options=options[files],
        with_report=with_report,
    )


def name_of(folder: str, path: str) -> str:
    """Returns the path of an artefact in its folder."""
    if is_url(path):
        return path.removeprefix(folder.rstrip("/")).lstrip("/")
    return Path(path).relative_to(local_of(folder)).as_posix()


def below(folder: str, path: Path) -> str:
    """Returns where in a folder a path is."""
    if is_url(folder):
        return join(folder, *path.parts)
    return str(local_of(folder) / path)


class _Sizes:
    """The sizes of outputs that are there. A store is asked once, for all."""

    def __init__(self, out: str) -> None:
        self._out = out
        self._listed: dict[str, int | None] | None = None

    def of(self, name: str) -> int | None:
        """Returns the size of an output; None where there is none, or nobody knows."""
        if not is_url(self._out):
            try:
                return (local_of(self._out) / name).stat().st_size
            except OSError:
                return None
        if self._listed is None:
            try:
                self._listed = {one.name: one.size for one in listed(self._out, deep=True)}
            except NotThere:
                self._listed = {}
        return self._listed.get(name)


def _is_made(known: Known, sizes: _Sizes) -> bool:
    """Returns whether the ledger says that an artefact is done, and its output is still there."""
    kept = known.kept
    if kept["result"] not in ledger.MADE:
        return False
    # Of Keras 3 it had nothing to do, and no output.
    return kept["out"] is None or sizes.of(kept["out"]) == kept["out_bytes"]


def _holds(task: Task, known: Known, is_made: bool, retry: Collection[str]) -> bool:
    """Returns whether what the ledger has of an artefact is so still, and not to be done again.

    What is done stays done, with whatever options it is asked for again: an output is never
    written over.
    """
    kept = known.kept
    if task.state is None or (kept["bytes"], kept["state"]) != (task.size, task.state):
        return False
    if kept["result"] in ledger.MADE:
        return is_made
    if kept["result"] != "refused" or "refused" in retry or kept["options"] != task.options:
        return False
    return kept["reason"] not in _OF_THE_PLACE and known.keras_mp == keras_mp.__version__


def _sweep(out: str, found: Iterable[Found]) -> None:
    for folder in {publishing.out_folder(below(out, one.out)) for one in found}:
        publishing.remove_stale(folder)


def _remove_empty(out: Path, found: Iterable[Found]) -> None:
    made = {parent for one in found for parent in (out / one.out).parents if out in parent.parents}
    for folder in sorted(made, reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()
