"""`keras-mp migrate` for all but configs: does it, and prints what became of the artefacts."""

import argparse
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from keras_mp.migration import artefacts, folders, giving_back, progress, sources
from keras_mp.migration.artefacts import Outcome, Request
from keras_mp.migration.code import command
from keras_mp.migration.code.command import Done
from keras_mp.migration.console import dumped, put, say, table
from keras_mp.migration.kinds import is_source
from keras_mp.migration.parser import only_sources
from keras_mp.migration.publishing import Refused
from keras_mp.migration.walking import is_one_checkpoint, walk

_LARGE = 1 << 24  # so that what is freed is worth the time of giving it back
_HEAD = ("in the file", "in Keras 3", "dtype", "shape", "sha256")


def run(arguments: argparse.Namespace) -> int:
    """Returns the exit status. Source code comes first."""
    try:
        done = command.run(arguments)
    except (Refused, OSError) as error:
        if arguments.json:
            done = command.failed(arguments.paths, str(error))
            put(dumped({"results": done.rows, "summary": done.summary}))
        else:
            say(f"error: {error}")
        return 2
    rest = [path for path in arguments.paths if not is_source(path)]
    look = _untouched if only_sources(arguments) else _outcomes
    outcomes = [one for path in rest for one in look(path, arguments, done)]
    if arguments.json:
        rows = [*done.rows, *(outcome.row() for outcome in outcomes)]
        put(dumped({"results": rows} | ({} if done.summary is None else {"summary": done.summary})))
    elif outcomes:
        if done.summary is not None and not arguments.check and look is _outcomes:
            put("\n")
        _tell(outcomes, arguments)
    if done.failed or any(not outcome.ok for outcome in outcomes):
        return 2
    would = done.pending or any(o.status == "would convert" for o in outcomes)
    return int(arguments.check and would)


def _is_folder(path: Path) -> bool:
    """Returns whether a path is a folder of artefacts, and not one itself."""
    if not path.is_dir() or (path / "saved_model.pb").is_file():
        return False
    return not is_one_checkpoint(path)


def _untouched(path: str, arguments: argparse.Namespace, done: Done) -> list[Outcome]:
    """Says how many artefacts are left alone; there must be source code in a folder."""
    found = 1
    if _is_folder(Path(path)):
        if path not in done.folders:
            return [Outcome(path, "refused", why="there is no source code in this folder")]
        found = len(walk(Path(path)).found)
    if found:
        what = "an artefact is" if found == 1 else f"{found} artefacts are"
        options = ", ".join(only_sources(arguments))
        say(f"{path}: {what} left as before: for source code only: {options}")
    return []


def _outcomes(path: str, arguments: argparse.Namespace, done: Done) -> list[Outcome]:
    request = Request(
        path=path,
        out=arguments.out,
        model=arguments.model,
        optimizer=arguments.optimizer,
        tf_version=arguments.tf_version,
        model_only=arguments.model_only,
        exact_training=arguments.exact_training,
        as_code=arguments.as_code,
        shard_size=arguments.shard_size,
    )
    try:
        if path in done.folders or _is_folder(Path(path)):
            return _of_folder(request, arguments, has_sources=path in done.folders)
        total = _size(Path(path))
        if total > _LARGE:
            giving_back.at_once()
        with progress.shown(total, worth=total > progress.LARGE) as step:
            return [artefacts.migrate(request, step)]
    except Refused as error:
        return [Outcome(path, "refused", why=str(error))]
    except OSError as error:
        return [Outcome(path, "failed", why=f"{error.filename}: {error.strerror}")]


def _of_folder(
    request: Request, arguments: argparse.Namespace, *, has_sources: bool
) -> list[Outcome]:
    if request.as_code is not None:
        raise Refused("--as-code writes one model: name one artefact, and not a folder")
    if request.shard_size is not None:
        raise Refused("--shard-size writes one model: name one artefact, and not a folder")
    found = walk(Path(request.path))
    if not found.found and not found.closed:
        if has_sources:
            return []
        raise Refused("there is neither source code nor an artefact in this folder")
    with progress.shown(len(found.found), worth=True) as step:
        outcomes = folders.migrate(request, arguments.jobs, step)
    if not arguments.json:
        links = f", {found.links} symbolic links not followed" if found.links else ""
        say(f"{request.path}: {len(found.found)} artefacts, {found.left} other files{links}")
    return outcomes


def _size(path: Path) -> int:
    from keras_mp.compat.checkpoints import Unreadable
    from keras_mp.compat.file_formats.file_kinds import kind_of

    try:
        files = sources.files_of(path, kind_of(path))
        return sum(file.stat().st_size for file in files)
    except (Unreadable, OSError):
        return 0


def _tell(outcomes: list[Outcome], arguments: argparse.Namespace) -> None:
    of_folder = [outcome for outcome in outcomes if outcome.path not in arguments.paths]
    for outcome in outcomes:
        for note in dict.fromkeys(outcome.notes):
            say(f"{outcome.path}: note: {note}")
        if outcome.trace:
            say(outcome.trace.rstrip())
        if outcome.why is not None and outcome not in of_folder:
            say(f"{outcome.path}: error: {outcome.why}")
        elif arguments.check and outcome.status == "would convert":
            say(f"{outcome.path}: would change")
    if arguments.check:
        return
    if of_folder:
        _tell_folder(of_folder)
    alone = [outcome for outcome in outcomes if outcome not in of_folder and outcome.ok]
    for outcome in alone:
        _tell_one(outcome, arguments, f"{outcome.path}\n" if len(outcomes) > 1 else "")


def _tell_one(outcome: Outcome, arguments: argparse.Namespace, head: str) -> None:
    if outcome.rows:
        put(head + table([_HEAD, *outcome.rows]) + "\n")
    if outcome.computed:
        put("\n" + table([("layer", "computes"), *outcome.computed]) + "\n")
    if outcome.code is not None:
        say(f"{outcome.code}: written: `build()` in it makes the model")
    if outcome.status == "converted" and outcome.out is not None:
        weights, state = (outcome.verified[what] for what in ("weights", "optimizer"))
        what = f"{weights} weights and {state} variables of the optimizer"
        say(f"{outcome.out}: written, and loaded again: {what}, each bit for bit the same")
        if arguments.shard_size is not None:
            say(f"{outcome.out}: shards: keras_mp.compat.load_model({outcome.out!r}) loads them")
        elif outcome.computed:
            say(f"{outcome.out}: `import keras_mp` before Keras loads it: the operations are there")
    elif outcome.status == "would convert":
        say("nothing was written: name an output with -o OUT.keras")


def _tell_folder(outcomes: Iterable[Outcome]) -> None:
    rows = [(o.path, o.status, _first_line(o.why) or o.out or "") for o in outcomes]
    put(table([("artefact", "status", "output, or why not"), *rows]) + "\n")
    counts = Counter(status for _, status, _ in rows)
    say(", ".join(f"{n} {status}" for status, n in sorted(counts.items())))


def _first_line(text: str | None) -> str:
    return "" if text is None else os.linesep.join(text.splitlines()[:1])
