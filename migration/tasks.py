"""One artefact of many as a task, which can be sent to another process, and repeated.

`migrate_task` runs wherever there is a Python with keras_mp: in a process of ours, on a worker of a
cluster. It imports keras once for each process, and leaves nothing of one model to the next.
"""

import contextlib
import functools
import gc
import importlib.metadata
import os
import platform
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import keras_mp
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.checkpoints.staging import local_artefact
from keras_mp.compat.file_formats.file_kinds import Kind
from keras_mp.files.stores import listing
from keras_mp.files.stores.errors import NotThere
from keras_mp.files.stores.urls import is_url, parent, redacted
from keras_mp.migration import (
    archives,
    artefacts,
    ledger,
    limited,
    model_choice,
    processes,
    sources,
)
from keras_mp.migration.ledger import Row
from keras_mp.migration.requests import Outcome, Request
from keras_mp.migration.wording import in_command_words

_RESULTS = {"converted": "done", "unchanged": "done", "skipped": "done before"}
# Keras, and what it draws its names and seeds from, are of the process: tasks that share one wait.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, slots=True)
class Task:
    """An artefact, and all that is to be known to migrate it.

    Attributes:
        name: Its path in the folder.
        kind: What it is.
        request: What to do. Its model and optimizer are for artefacts that hold none.
        out: The output, relative to the folder of the outputs.
        backend: The one that Keras runs on.
        size: Its bytes, where they are known.
        state: A text that is another where it was changed, as far as one can tell.
        options: `Request.options` of what was asked for.
        with_report: Whether the row has the outcome, too, as `--json` prints it.
    """

    name: str
    kind: Kind
    request: Request
    out: str
    backend: str
    size: int | None = None
    state: str | None = None
    options: dict[str, object] = field(default_factory=dict)
    with_report: bool = False


def migrate_task(task: Task) -> Row:
    """Migrates one artefact: all of it, or nothing is written.

    What was made before of the same artefact is left as it is, whatever the options were.

    Returns:
        Its row for the ledger, without the run. It raises nothing that the artefact may cause.
    """
    with _ONE_AT_A_TIME, _what_is_there_apart():
        began, memory = time.perf_counter(), _Peak()
        request = task.request
        copies = 3 if is_url(request.out) else 1
        try:
            with local_artefact(request.path, request.scratch, copies=copies) as path:
                if is_url(request.path):
                    request = replace(request, path=str(path), source=request.path)
                row = _do(replace(task, request=request), memory)
                if request.source is not None:
                    folder = redacted(parent(request.source)).rstrip("/")
                    row = _with_address(row, str(path.parent), folder)
        except Unreadable as error:
            row = not_done(task, "failed", "no artefact", str(error))
        except OSError as error:
            row = not_done(task, "failed", "storage", f"{error.filename}: {error.strerror}")
    return row | {"seconds": round(time.perf_counter() - began, 3), "when": ledger.now()}


def _do(task: Task, memory: "_Peak") -> Row:
    request = artefacts.without_unneeded_options(task.request, task.kind)
    facts = _what_it_was(request.path)
    with contextlib.suppress(Unreadable, OSError):  # migrating it says why
        facts["files"] = len(sources.files_of(Path(request.path), task.kind))
    before = _before(request, task.kind)
    if before is not None:
        return _row(task, facts, before, memory.read())
    peak = None
    of_script = request.model is not None and model_choice.split(request.model)[1] is not None
    is_script = of_script or bool(request.scripts)
    if request.limits or is_script:
        outcome, peak = _in_a_process(replace(task, request=request), alone=is_script)
    else:
        outcome = _migrate(request, task)
    return _row(task, facts, outcome, peak or memory.read())


def _row(task: Task, facts: Row, outcome: Outcome, peak: int | None) -> Row:
    row = new_row(task) | facts | _became(outcome) | {"peak_memory": peak}
    if outcome.options is not None:
        row["options"] = outcome.options
    return row | {"report": outcome.to_dict()} if task.with_report else row


def new_row(task: Task) -> Row:
    """Returns the row of a task of which nothing is known yet."""
    request = task.request
    return {
        "schema": ledger.SCHEMA,
        "run": None,
        "when": ledger.now(),
        "host": platform.node(),
        "source": redacted(request.source or request.path),
        "name": task.name,
        "kind": task.kind,
        "files": None,
        "bytes": task.size,
        "state": task.state,
        "sha256": None,
        "written_by": "unknown",
        "model": None,
        "policies": {},
        "optimizer": None,
        "loss_scale": None,
        "result": "failed",
        "reason": "unexpected",
        "why": None,
        "where": None,
        "changes": [],
        "notes": [],
        "out": None,
        "out_bytes": None,
        "out_sha256": None,
        "verified": {},
        "seconds": 0.0,
        "peak_memory": None,
        "versions": {
            "keras_mp": keras_mp.__version__,
            "keras": _version("keras"),
            "backend": task.backend,
            "python": platform.python_version(),
        },
        "options": task.options,
    }


def not_done(task: Task, result: str, reason: str, why: str) -> Row:
    """Returns the row of a task that could not be done where it was sent."""
    why = in_command_words(why)
    row = new_row(task) | {"result": result, "reason": reason, "why": why}
    if task.with_report:
        shown = redacted(task.request.path)
        outcome = Outcome(shown, result, task.kind, why=why, reason=reason)
        row["report"] = outcome.to_dict()
    return row


def size_of(path: Path, kind: Kind) -> tuple[int, str]:
    """Returns the bytes of a local artefact, and a text that is another when it was changed.

    Raises:
        OSError: It does not exist.
        Unreadable: There is no checkpoint.
    """
    found = [file.stat() for file in sources.files_of(path, kind)]
    latest = max((one.st_mtime_ns for one in found), default=0)
    return sum(one.st_size for one in found), f"{len(found)} files of {latest}"


def _with_address(value: Any, old: str, new: str) -> Any:
    """Returns a row with the address of its artefact in place of the copy that was read."""
    if isinstance(value, dict):
        return {key: _with_address(one, old, new) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_address(one, old, new) for one in value]
    return value.replace(old, new) if isinstance(value, str) else value


def _what_it_was(path: str) -> Row:
    from keras_mp.compat.inspecting import inspect

    try:
        found = inspect(path, check=False)
    except Exception:  # noqa: BLE001 - damaged in whatever way; migrating it says how
        return {}
    row: Row = {"written_by": found.written_by, "policies": found.policies}
    if found.model is not None:
        model = found.model
        row["model"] = {"class": model.class_name, "name": model.name, "layers": model.layers}
    for one in found.optimizers[:1]:
        name = one.class_name or one.name
        row["optimizer"] = f"{name} in a {one.loss_scaler}" if one.loss_scaler else name
        row["loss_scale"] = one.loss_scale
    return row


def _migrate(request: Request, task: Task) -> Outcome:
    assert request.out is not None
    try:
        _prepare(task.backend)
        if not is_url(request.out):
            Path(request.out).parent.mkdir(parents=True, exist_ok=True)
    except _OtherBackend as error:
        return Outcome(request.path, "failed", task.kind, why=str(error), reason="worker")
    except OSError as error:
        return Outcome.of_storage(request.path, task.kind, error)
    outcome = artefacts.migrate(request)
    if outcome.reason == "output exists":
        # Whoever did the same meanwhile did it for us.
        return _before(request, task.kind) or outcome
    return outcome


def _before(request: Request, kind: Kind) -> Outcome | None:
    """Returns what is to be said where there is an output already, or None.

    An output of the same artefact is done, whatever the options: it says with which it was made.
    """
    target = request.out or ""
    shown = redacted(target)
    try:
        size = _size_of_output(target)
        if size is None:
            return None
        sha256 = sources.checksum(sources.files_of(Path(request.path), kind))
        marked = sources.read_mark(target)
        if marked.get("sha256") != sha256:
            why = f"{shown} exists already and was not made from this artefact: remove or rename it"
            return Outcome(
                request.path, "refused", kind, sha256=sha256, why=why, reason="output exists"
            )
        made = archives.made_of(target)
    except Unreadable as error:
        return Outcome(request.path, "failed", kind, why=str(error), reason="damaged")
    except OSError as error:
        return Outcome.of_storage(request.path, kind, error)
    # One in a store would have to be had first: it is marked, and was compared when it was put.
    digest = None if is_url(target) else sources.checksum([Path(target)])
    return Outcome(
        request.path,
        "skipped",
        kind,
        out=shown,
        written=(size, digest),
        sha256=sha256,
        report={"changes": made.get("changes", [])},
        notes=tuple(made.get("notes", ())),
        verified=made.get("verified", {}),
        options=options if isinstance(options := marked.get("options"), dict) else None,
    )


def _size_of_output(target: str) -> int | None:
    """Returns the size of an output; None where there is none.

    Raises:
        OSError: It cannot be told.
    """
    if is_url(target):
        try:
            return listing.entry(target).size or 0
        except NotThere:
            return None
    return os.lstat(target).st_size if os.path.lexists(target) else None


def _became(outcome: Outcome) -> Row:
    size, digest = outcome.written or (None, None)
    return {
        "result": _RESULTS.get(outcome.status, outcome.status),
        "reason": outcome.reason,
        "why": outcome.why,
        "where": outcome.where,
        "changes": [] if outcome.report is None else outcome.report.get("changes", []),
        "notes": list(outcome.notes),
        "verified": outcome.verified,
        "sha256": outcome.sha256,
        "out_bytes": size,
        "out_sha256": digest,
    }


# -- the process ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _what_is_there_apart() -> Iterator[None]:
    """Keeps what is there already out of the search for garbage.

    That is Keras and its framework, and what whoever runs the tasks has. To look through it each
    time is most of the work for small artefacts.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()


class _OtherBackend(Exception):
    """Keras is loaded in this process already, on another backend."""


def _prepare(backend: str) -> None:
    """Makes this process as new for a model, whatever it had in hand before."""
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = backend
    import keras

    if keras.backend.backend() != backend:
        raise _OtherBackend(
            f"this worker has Keras on {keras.backend.backend()} already, and not on {backend}: "
            f"start it with KERAS_BACKEND={backend}"
        )
    keras.utils.clear_session()  # names count from the beginning


def _in_a_process(task: Task, *, alone: bool) -> tuple[Outcome, int | None]:
    """Runs a task in a process that ends where it takes more than it may.

    Args:
        task: The task.
        alone: Whether the next one is to have another process: whatever a script of the user's
            does in this one, the next artefact knows nothing of it.
    """
    global _limited
    if _limited is not None and _limited.limits != task.request.limits:
        _limited.close()
        _limited = None
    if _limited is None:
        _limited = limited.Process(task.request.limits)
    path, kind = task.request.path, task.kind
    try:
        outcome, peak = _limited.run(_migrate_here, task)
        return outcome, peak
    except limited.Exceeded as error:
        return Outcome(path, "refused", kind, why=error.why, reason=error.reason), None
    except processes.Died as error:
        return Outcome(path, "failed", kind, why=str(error), reason="killed"), None
    finally:
        if alone:
            _limited.close()


_limited: limited.Process | None = None  # of this process, for one task after another


def _migrate_here(task: Task) -> tuple[Outcome, int | None]:
    memory = _Peak()
    outcome = _migrate(task.request, task)
    return replace(outcome, rows=(), trace=""), memory.read()


class _Peak:
    """The most memory that this process has had since this was made, in bytes."""

    def __init__(self) -> None:
        self._is_reset = False
        with contextlib.suppress(OSError):
            # 5: the peak is from now on, see proc(5).
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            self._is_reset = True

    def read(self) -> int | None:
        """Returns it; of the whole life of the process where it cannot be told; else None."""
        if self._is_reset:
            with contextlib.suppress(OSError, ValueError, IndexError):
                lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
                return int(lines.partition("VmHWM:")[2].split()[0]) * 1024
        try:
            import resource
        except ModuleNotFoundError:
            return None
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


@functools.cache
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
