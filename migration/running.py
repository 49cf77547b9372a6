"""`keras-mp migrate` for all but configs: does it, and prints what became of the artefacts."""

import argparse
import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.file_formats.file_kinds import kind_of
from keras_mp.compat.restoring.comparison import Comparison
from keras_mp.compat.results import columns
from keras_mp.files.stores.errors import StoreError
from keras_mp.files.stores.urls import is_url, local_of, redacted
from keras_mp.migration import (
    artefacts,
    fleet,
    fleet_progress,
    giving_back,
    ledger,
    limited,
    model_choice,
    progress,
    sources,
)
from keras_mp.migration.code import command
from keras_mp.migration.code.command import Done
from keras_mp.migration.console import (
    CLOSED,
    SCHEMA,
    json_text,
    put_exact,
    say,
    say_error,
    say_trace,
    show,
)
from keras_mp.migration.kinds import is_source
from keras_mp.migration.limited import Limits
from keras_mp.migration.parser import only_sources, scratch_of
from keras_mp.migration.processes import Died
from keras_mp.migration.publishing import Refused
from keras_mp.migration.requests import Outcome, Request
from keras_mp.migration.walking import Found, Walk, is_folder_of_artefacts, walk

_LARGE = 1 << 24  # so that what is freed is worth the time of giving it back
_HEAD = ("in the file", "in Keras 3", "dtype", "shape", "sha256")


def run(arguments: argparse.Namespace) -> int:
    """Returns the exit status. Source code comes first."""
    try:
        done = command.run(arguments)
    except (Refused, OSError) as error:
        if arguments.json:
            done = command.failed(arguments.paths, str(error))
            put_exact(json_text({"results": done.rows, "summary": done.summary}))
        else:
            say_error("", str(error))
        return 2
    rest = [path for path in arguments.paths if not is_source(path)]
    look = _untouched if only_sources(arguments) else _outcomes
    outcomes = [one for path in rest for one in look(path, arguments, done)]
    if arguments.json:
        rows = [*done.rows, *(outcome.to_dict() for outcome in outcomes)]
        put_exact(json_text({"results": rows, "summary": _summary(done, outcomes)}))
    elif outcomes:
        if done.summary is not None and not arguments.check and look is _outcomes:
            show([""])
        _tell(outcomes, arguments)
    if done.failed or any(not outcome.ok for outcome in outcomes):
        return 2
    would = done.pending or any(o.status == "would convert" for o in outcomes)
    return int(arguments.check and would)


def _summary(done: Done, outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Returns what `--json` says of all: of source code, and how many artefacts of each status."""
    counts = Counter(outcome.status for outcome in outcomes)
    artefacts = {"artefacts": dict(sorted(counts.items()))} if counts else {}
    return {"schema": SCHEMA, **(done.summary or {}), **artefacts}


def _untouched(path: str, arguments: argparse.Namespace, done: Done) -> list[Outcome]:
    """Says how many artefacts are left alone; there must be source code in a folder."""
    found = 1
    if is_folder_of_artefacts(Path(path)):
        if path not in done.folders:
            return [Outcome(path, "refused", why="this folder has no source code")]
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
        given=tuple(arguments.model),
        optimizer=arguments.optimizer,
        tf_version=arguments.tf_version,
        model_path=arguments.model_path,
        optimizer_path=arguments.optimizer_path,
        model_only=arguments.model_only,
        exact_training=arguments.exact_training,
        expect=arguments.expect,
        from_graph=arguments.function or arguments.from_graph,
        compare=not arguments.no_compare,
        accept_differences=arguments.accept_differences,
        as_code=arguments.as_code,
        scratch=scratch_of(arguments),
        shard_size=arguments.shard_size,
        limits=Limits(arguments.limit_memory, arguments.limit_seconds),
    )
    path = redacted(path)
    try:
        if request.path in done.folders or is_folder_of_artefacts(request.path):
            if request.expect is not None:
                raise Refused("--expect is for one artefact, and this is a folder of them")
            return _of_folder(request, arguments, has_sources=request.path in done.folders)
        model_choice.check(request.given)
        top = None if is_url(request.path) else local_of(request.path).parent
        request = request.for_artefact(request.path, top)
        total = 0 if is_url(request.path) else _size(local_of(request.path))
        if total > _LARGE:
            giving_back.at_once()
        if request.limits:
            return [_within_limits(request)]
        with progress.show_progress(total, worth=total > progress.LARGE) as step:
            return [artefacts.migrate(request, step)]
    except Refused as error:
        return [Outcome(path, "refused", why=str(error))]
    except fleet.ExecutorGone as error:
        return [Outcome(path, "failed", why=str(error))]
    except StoreError as error:
        return [
            Outcome(path, "failed", why=error.strerror if path == error.filename else str(error))
        ]
    except OSError as error:
        return [Outcome(path, "failed", why=f"{error.filename}: {error.strerror}")]


def _within_limits(request: Request) -> Outcome:
    shown = redacted(request.path)
    try:
        limited.check(request.limits)
        with contextlib.closing(limited.Process(request.limits)) as process:
            outcome: Outcome = process.run(artefacts.migrate, request)
            return outcome
    except limited.Unlimited as error:
        raise Refused(str(error)) from None
    except limited.Exceeded as error:
        return Outcome(shown, "refused", why=error.why, reason=error.reason)
    except Died as error:
        return Outcome(shown, "failed", why=str(error), reason="killed")


def _of_folder(
    request: Request, arguments: argparse.Namespace, *, has_sources: bool
) -> list[Outcome]:
    if request.as_code is not None:
        raise Refused("--as-code writes one model: name one artefact, and not a folder")
    if request.shard_size is not None:
        raise Refused("--shard-size writes one model: name one artefact, and not a folder")
    if request.out is None:
        found = walk(request.path)
        outcomes = [_look(request, one) for one in found.found]
    else:
        found, outcomes = _to_folder(request, arguments)
    if not found.found and not found.closed:
        if has_sources:
            return []
        raise Refused("there is neither source code nor an artefact in this folder")
    names = [fleet.name_of(request.path, one.path) for one in found.found]
    for given in model_choice.idle(request.given, names):
        say(f"--model {given}: matches no artefact in this folder")
    if not arguments.json:
        links = f", {found.links} symbolic links not followed" if found.links else ""
        shown = redacted(request.path)
        say(f"{shown}: {len(found.found)} artefacts, {found.left} other files{links}")
    closed = (Outcome(path, "failed", why=CLOSED, reason="storage") for path in found.closed)
    return [*outcomes, *closed]


def _look(request: Request, one: Found) -> Outcome:
    """Returns what would become of an artefact in a folder, as far as is known unloaded."""
    path, kind = one.path, one.kind
    if is_url(path):
        # Nothing is downloaded for this: what it is of is told by its name.
        return Outcome(redacted(path), "would convert", kind, out=str(one.out))
    try:
        kind_of(path)
        name, top = fleet.name_of(request.path, path), local_of(request.path)
        request = replace(request, path=path).for_artefact(name, top)
        artefacts.refuse_without_model(
            artefacts.without_unneeded_options(request, kind), Path(path), kind
        )
    except Refused as error:
        return Outcome(path, "refused", kind, why=str(error), reason=error.reason)
    except Unreadable as error:
        return Outcome(path, "failed", kind, why=str(error), reason="damaged")
    except OSError as error:
        return Outcome.of_storage(path, kind, error)
    return Outcome(path, "would convert", kind, out=str(one.out))


def _to_folder(request: Request, arguments: argparse.Namespace) -> tuple[Walk, list[Outcome]]:
    of_name: dict[str, Outcome] = {}
    with fleet_progress.show_rows(lines=arguments.json_lines, quiet=arguments.json) as shown:

        def note(row: ledger.Row) -> None:
            of_name[row["name"]] = _outcome(row, request)
            shown.row(row)

        with _executor(arguments) as executor:
            done = fleet.run(
                request,
                executor=executor,
                jobs=arguments.jobs,
                retry=arguments.retry,
                on_row=note,
                on_start=shown.start,
                on_wait=shown.tick,
                with_reports=arguments.json,
            )
    if done.note is not None and not arguments.json:
        say(f"note: {done.note}")
    if done.otherwise and not arguments.retry and not arguments.json:
        say(f"note: {_otherwise(done.otherwise)}")
    if done.torn:
        where = _below(request.out or "", ledger.NAME)
        say(f"{where}: skipped {done.torn} invalid lines")
    return done.walked, [
        of_name[name] for name in sorted(of_name, key=lambda name: Path(name).parts)
    ]


def _otherwise(names: Sequence[str]) -> str:
    few = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return (
        f"already converted with other options; unchanged: {few} ({len(names)}). To convert one "
        "again, remove its output"
    )


def _below(folder: str, name: str) -> str:
    return redacted(fleet.below(folder, Path(name)))


@contextlib.contextmanager
def _executor(arguments: argparse.Namespace) -> Iterator[Executor | None]:
    if arguments.dask is None:
        yield None
        return
    from keras_mp.migration import dask_cluster

    with dask_cluster.connected(arguments.dask) as executor:
        yield executor


def _outcome(row: ledger.Row, request: Request) -> Outcome:
    """Returns what `--json` and the table show of a row."""
    result, out = row["result"], row["out"]
    status = "converted" if out else "unchanged"
    status = {"done": status, "done before": "skipped"}.get(result, str(result))
    said: ledger.Row = row.get("report") or {}
    return Outcome(
        path=_below(request.path, row["name"]),
        status=status,
        kind=row["kind"],
        out=None if out is None else _below(request.out or "", out),
        sha256=row["sha256"],
        report=said.get("report"),
        verified=row["verified"],
        notes=() if result == "done before" else tuple(row["notes"]),
        why=row["why"],
        where=row["where"],
        reason=row["reason"],
    )


def _size(path: Path) -> int:
    try:
        files = sources.files_of(path, kind_of(path))
        return sum(file.stat().st_size for file in files)
    except (Unreadable, OSError):
        return 0


def _tell(outcomes: list[Outcome], arguments: argparse.Namespace) -> None:
    named = [redacted(path) for path in arguments.paths]
    of_folder = [outcome for outcome in outcomes if outcome.path not in named]
    for outcome in outcomes:
        for note in dict.fromkeys(outcome.notes):
            say(f"{outcome.path}: note: {note}")
        if outcome.trace:
            say_trace(outcome.trace)
        if outcome.why is not None and outcome not in of_folder:
            say_error(outcome.path, outcome.why)
        elif arguments.check and outcome.status == "would convert":
            say(f"{outcome.path}: would change")
    if arguments.check:
        return
    if of_folder:
        _tell_folder(of_folder, with_table=not arguments.json_lines)
    alone = [outcome for outcome in outcomes if outcome not in of_folder and outcome.ok]
    for outcome in alone:
        _tell_one(outcome, arguments, [outcome.path] if len(outcomes) > 1 else [])


def _tell_one(outcome: Outcome, arguments: argparse.Namespace, head: list[str]) -> None:
    if outcome.rows:
        show([*head, *columns([_HEAD, *outcome.rows])])
    if outcome.computed:
        show(["", *columns([("layer", "computes"), *outcome.computed])])
    if outcome.code is not None:
        say(f"{outcome.code}: written: `build()` in it makes the model")
    said = (outcome.report or {}).get("comparison")
    if said is not None and (agreement := Comparison.from_dict(said).agreement()):
        say(f"{outcome.path}: {agreement}")
    if outcome.status == "converted" and outcome.out is not None:
        weights, state = (outcome.verified[what] for what in ("weights", "optimizer"))
        what = f"{weights} weights and {state} variables of the optimizer"
        say(f"{outcome.out}: written, and loaded again: {what}, each bit for bit the same")
        if arguments.shard_size is not None:
            say(f"{outcome.out}: shards: keras_mp.compat.load_model({outcome.out!r}) loads them")
        elif outcome.computed:
            say(
                f"{outcome.out}: run `import keras_mp` before Keras loads it: that registers the "
                "operations"
            )
    elif outcome.status == "would convert":
        say("nothing written: pass -o OUT.keras")


def _tell_folder(outcomes: Iterable[Outcome], *, with_table: bool) -> None:
    rows = [(o.path, o.status, (o.why or "").partition("\n")[0] or o.out or "") for o in outcomes]
    if with_table:
        show(columns([("artefact", "status", "output, or why not"), *rows]))
    counts = Counter(status for _, status, _ in rows)
    say(", ".join(f"{n} {status}" for status, n in sorted(counts.items())))
