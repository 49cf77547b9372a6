"""`keras-mp migrate` for a folder: each artefact in a process of its own, and again where it ended.

A process each, since Keras is chosen per process, and what one artefact costs the next is nothing.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.file_formats.file_kinds import kind_of
from keras_mp.migration import building, sources
from keras_mp.migration.artefacts import NEEDS_MODEL, WEIGHTS_ONLY, Outcome, Request, Step
from keras_mp.migration.publishing import Refused
from keras_mp.migration.walking import Found, walk

CLOSED = "this folder cannot be read: change its permissions, or name the other folders"
# -P: the folder that it runs in may have modules by the names of Python's.
COMMAND = (sys.executable, "-P", "-m", "keras_mp.migration", "migrate", "--json")


def migrate(request: Request, jobs: int, step: Step = lambda _what, _more: None) -> list[Outcome]:
    """Migrates every artefact in a folder.

    Args:
        request: What to do; `path` and `out` are folders.
        jobs: How many at a time.
        step: Is told what was done, and 1, after each.

    Returns:
        An outcome each, in the order of their paths, then those of folders that may not be read.
        "skipped" is what was made before.

    Raises:
        Refused: The output is inside the input, or no folder.
        OSError: The folder cannot be read.
    """
    folder = Path(request.path)
    out = None if request.out is None else Path(request.out)
    if out is not None:
        check(folder, out)
    walked = walk(folder)
    found = walked.found
    outcomes: dict[int, Outcome] = {}
    work: list[tuple[int, Request]] = []
    for i, one in enumerate(found):
        of_one = _request(request, one, out)
        outcome = _before(of_one, one)
        if outcome is None:
            work.append((i, of_one))
        else:
            outcomes[i] = outcome
            step(one.path, 1)
    for _, of_one in work:
        Path(of_one.out or "").parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        running = {pool.submit(_in_a_process, of_one): i for i, of_one in work}
        try:
            for done in as_completed(running):
                outcomes[running[done]] = done.result()
                step(outcomes[running[done]].path, 1)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            made = (parent for _, of_one in work for parent in Path(of_one.out or "").parents)
            _remove_empty({parent for parent in made if out is not None and out in parent.parents})
    closed = [Outcome(str(path), "failed", why=CLOSED) for path in walked.closed]
    return [*(outcomes[i] for i in sorted(outcomes)), *closed]


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


def _request(request: Request, one: Found, out: Path | None) -> Request:
    target = None if out is None else str(out / one.out)
    model, optimizer = request.model, request.optimizer
    try:
        holds_model = sources.holds_model(Path(one.path), one.kind)
    except Unreadable:
        holds_model = False  # migrating it says why
    if holds_model:
        # It has a config of its own; of a script, it may need the classes.
        optimizer = None
        file = None if model is None else building.split(model)[0]
        model = file if file is not None and file.endswith(".py") else None
    return replace(request, path=one.path, out=target, model=model, optimizer=optimizer)


def _before(request: Request, one: Found) -> Outcome | None:
    """Returns what is known without loading it, or None where it is to be migrated."""
    path, kind = request.path, one.kind
    try:
        kind_of(path)
        if request.model is None and not sources.holds_model(Path(one.path), kind):
            why = NEEDS_MODEL if kind == "checkpoint" else WEIGHTS_ONLY
            return Outcome(path, "refused", kind, why=why)
        if request.out is None:
            return Outcome(path, "would convert", kind, out=str(one.out))
        target = Path(request.out)
        if os.path.lexists(target):
            return _existing(request, target, one)
    except Unreadable as error:
        return Outcome(path, "failed", kind, why=str(error))
    except OSError as error:
        return Outcome(path, "failed", kind, why=f"{error.filename}: {error.strerror}")
    return None


def _existing(request: Request, target: Path, one: Found) -> Outcome:
    sha256 = sources.checksum(sources.files_of(Path(one.path), one.kind))
    if sources.is_made_of(target, sha256, request.options()):
        return Outcome(request.path, "skipped", one.kind, out=str(target), sha256=sha256)
    why = f"{target} is there already, and not made from this with these options: remove it"
    return Outcome(request.path, "refused", one.kind, sha256=sha256, why=why)


def _remove_empty(folders: set[Path]) -> None:
    for folder in sorted(folders, reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _in_a_process(request: Request) -> Outcome:
    done = subprocess.run(
        _command(request), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    failed = Outcome(request.path, "failed")
    if done.returncode < 0:
        return replace(failed, why=f"its process was killed by signal {-done.returncode}")
    try:
        row = json.loads(done.stdout)["results"][0]
        error = row["error"] or {}
        return Outcome(
            path=row["path"],
            status=row["status"],
            kind=row["kind"],
            out=row["out"],
            sha256=row["sha256"],
            report=row["report"],
            verified=row["verified"],
            notes=tuple(row["notes"]),
            why=error.get("message"),
            where=error.get("path"),
        )
    except (ValueError, KeyError, IndexError, TypeError):
        lines = done.stderr.decode("utf-8", "replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        return replace(failed, why=f"its process ended with {done.returncode}: {last}")


def _command(request: Request) -> Sequence[str]:
    assert request.out is not None
    command = [*COMMAND, "-o", request.out]
    for option, value in (
        ("--model", request.model),
        ("--optimizer", request.optimizer),
        ("--from", request.tf_version),
    ):
        if value is not None:
            command += [option, value]
    command += ["--model-only"] if request.model_only else []
    command += ["--exact-training"] if request.exact_training else []
    return [*command, "--", request.path]
