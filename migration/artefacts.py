"""`keras-mp migrate` for one artefact: loaded, saved, loaded again and compared.

Imports keras only when an artefact is loaded.
"""

import contextlib
import json
import os
import sys
import traceback
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.checkpoints.checkpoint import VALUE
from keras_mp.compat.checkpoints.staging import local_artefact
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.file_formats.file_kinds import SHARDS, Kind, kind_of
from keras_mp.compat.file_formats.zip_archives import ZIP_FAILURES
from keras_mp.files.stores.urls import is_inside, is_url, local_of, redacted
from keras_mp.migration import (
    archives,
    backends,
    building,
    loading,
    model_choice,
    publishing,
    shards,
    sources,
    verified_outputs,
)
from keras_mp.migration.console import missing_package
from keras_mp.migration.publishing import Refused
from keras_mp.migration.requests import Outcome, Request
from keras_mp.migration.wording import in_command_words
from keras_mp.migration.writing import can_be_folder, folders_made, write_new

NEEDS_MODEL = (
    "a checkpoint has no model config: pass --model model.json (from model.to_json()) or "
    "--model script.py:factory"
)
WEIGHTS_ONLY = NEEDS_MODEL.replace("a checkpoint has", "the file has weights and")
WITHOUT = "--model-only writes the model without its optimizer"
OF_CHECKPOINTS = "--{} is for checkpoints, and this is {}: omit it"
NO_GRAPH = "--from-graph is for SavedModels, which have graphs, and this is of the kind {}: omit it"
ENDED = (
    "--model: {} ended the program ({!r}): move everything but definitions under "
    "`if __name__ == '__main__'`"
)
# What the artefacts need besides Keras; a module that the user's script misses is another matter.
_OURS = ("google_crc32c", "h5py", "numpy")
_WITH_PATHS = ("checkpoint", "saved_model")

Step = Callable[[str, int], object]


def migrate(request: Request, step: Step = lambda _what, _more: None) -> Outcome:
    """Migrates one artefact: all of it, or nothing is written.

    Args:
        request: What to do.
        step: Is told what goes on, and how many bytes more are done.

    Returns:
        What became of it. It raises nothing that the artefact or the disk may cause.
    """
    outcome = _migrate_or_explain(request, step)
    return outcome if outcome.why is None else replace(outcome, why=in_command_words(outcome.why))


def _migrate_or_explain(request: Request, step: Step) -> Outcome:
    outcome = Outcome(redacted(request.source or request.path), "failed")
    copies = 3 if request.out is not None and is_url(request.out) else 1
    try:
        if request.out is not None and is_url(request.path):
            publishing.check(request.out)  # before anything is downloaded
        with local_artefact(request.path, request.scratch, copies=copies) as path:
            outcome = replace(outcome, kind=kind_of(path))
            # What the user's code prints is no result of ours.
            with contextlib.redirect_stdout(sys.stderr):
                return _migrate(request, path, outcome, step)
    except SystemExit as end:
        named = " and ".join([*([request.model] if request.model else []), *request.scripts])
        why = ENDED.format(named, end.code)
        return replace(outcome, status="refused", why=why, reason="own code")
    except Refused as error:
        return replace(outcome, status="refused", why=str(error), reason=error.reason)
    except backends.NoBackend as error:
        return replace(outcome, status="refused", why=str(error), reason="not installed")
    except LegacyError as error:
        why = in_command_words(str(error))
        reason = "needs --model" if error.needs_code else "no counterpart"
        of_optimizer = "optimizer" in why or "loss_scale" in why
        if of_optimizer and not request.model_only and "--model-only" not in why:
            why = f"{why} ({WITHOUT})"
        return replace(outcome, status="refused", why=why, where=error.path, reason=reason)
    except OSError as error:
        return replace(outcome, why=_of_os(error), reason="storage")
    except Exception as error:  # noqa: BLE001 - of Keras, or of the user's script
        return _unexpected(error, outcome, request)


def _unexpected(error: Exception, outcome: Outcome, request: Request) -> Outcome:
    from keras_mp.compat.restoring.comparison import Differs
    from keras_mp.compat.restoring.plan import RestoreError
    from keras_mp.migration.verifying import Mismatch

    if isinstance(error, RestoreError):
        return replace(outcome, status="refused", why=str(error), reason="does not fit")
    if isinstance(error, Differs):
        return replace(outcome, status="refused", why=str(error), reason="predicts otherwise")
    if isinstance(error, Mismatch):
        return replace(outcome, why=str(error), reason="differs")
    if (own := building.of_scripts(error, request.files_of_scripts())) is not None:
        return replace(outcome, status="refused", why=own, reason="own code")
    if isinstance(error, Unreadable | ValueError):
        reason = "no artefact" if outcome.kind is None else "damaged"
        return replace(outcome, why=str(error), reason=reason)
    if isinstance(error, ModuleNotFoundError) and error.name in _OURS:
        return replace(outcome, why=missing_package(error), reason="not installed")
    from keras_mp.compat.restoring.reasons import reason_of

    return replace(outcome, why=reason_of(error), reason="unexpected", trace=traceback.format_exc())


def _of_os(error: OSError) -> str:
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def _migrate(request: Request, path: Path, outcome: Outcome, step: Step) -> Outcome:
    kind = outcome.kind
    assert kind is not None
    if request.beside and sources.holds_model(path, kind):
        request = replace(request, beside=())
    if request.from_graph and kind != "saved_model":
        raise Refused(NO_GRAPH.format(kind))
    refuse_without_model(request, path, kind)
    _refuse_paths(request, kind)
    version = _of_today(path) if kind == "keras" else None
    if version is not None:
        note = f"Keras {version} wrote it: nothing to do, nothing written"
        sha256 = sources.checksum([path])
        return replace(outcome, status="unchanged", sha256=sha256, notes=(note,))
    files = sources.files_of(path, kind)
    _check_outputs(request)
    sha256 = sources.checksum(files, lambda more: step("reading", more))
    options = request.options()
    notes = _choose_backend(request)
    step("loading", 0)
    with archives.seeds_from(sha256):
        loaded = loading.load(request, path)
    outcome = _with_report(replace(outcome, sha256=sha256), request, loaded)
    if request.shard_size is not None:
        shards.check(loaded.model, request.shard_size)
    code = None if request.as_code is None else _code(loaded.model, request)
    if request.out is not None:
        outcome = verified_outputs.write(request, outcome, loaded, files, options, step)
    else:
        status = "would convert" if code is None else "converted"
        outcome = replace(outcome, status=status)
    outcome = replace(outcome, notes=(*notes, *outcome.notes))
    return outcome if code is None else _with_code(outcome, request, code)


def _check_outputs(request: Request) -> None:
    """Refuses places where the outputs cannot be."""
    if request.as_code is not None:
        _check_code(Path(request.as_code))
    if request.out is not None:
        _refuse_inside(request.out, request.path)
        publishing.check(request.out, folder=request.shard_size is not None)


def _choose_backend(request: Request) -> tuple[str, ...]:
    """Chooses the backend of Keras; returns what there is to say of it."""
    chosen = backends.choose()
    if request.shard_size is not None:
        shards.check_version()
    return () if chosen is None else (backends.CHOSEN.format(chosen),)


def _with_report(outcome: Outcome, request: Request, loaded: loading.Loaded) -> Outcome:
    """Returns an outcome with what went where, in the words of the command."""
    report = replace(
        loaded.report,
        notes=tuple(map(in_command_words, loaded.report.notes)),
        changes=tuple(
            replace(one, what=in_command_words(one.what)) for one in loaded.report.changes
        ),
    )
    return replace(
        outcome,
        report=report.to_dict() | ({"file": outcome.path} if is_url(request.path) else {}),
        rows=tuple(
            (row.source.replace(VALUE, ""), row.target, row.dtype, str(list(row.shape)), row.sha256)
            for row in report.rows
        ),
        computed=tuple(
            (layer, expression)
            for change in report.changes
            if change.kind == "computes"
            for layer, _, expression in [change.what.partition(" = ")]
        ),
        notes=tuple(dict.fromkeys(_remarks(report))),
    )


def without_unneeded_options(request: Request, kind: Kind) -> Request:
    """Returns a request with what is asked for artefacts without a model left out for others."""
    try:
        holds_model = sources.holds_model(Path(request.path), kind)
    except Unreadable:
        holds_model = False  # migrating it says why
    if kind not in _WITH_PATHS:
        request = replace(request, model_path=None, optimizer_path=None)
    if kind != "saved_model":
        request = replace(request, from_graph=False)
    if not holds_model:
        return request
    # It has a config of its own; of a script, it may need the classes.
    file, factory = (None, None) if request.model is None else model_choice.split(request.model)
    scripts = request.scripts if factory is None or file is None else (file, *request.scripts)
    return replace(request, optimizer=None, model=None, scripts=scripts, beside=())


def refuse_without_model(request: Request, path: Path, kind: Kind) -> None:
    """Raises `Refused` where no model is known for an artefact that holds none."""
    if request.model is not None or len(request.beside) == 1 or sources.holds_model(path, kind):
        return
    if request.beside:
        names = ", ".join(Path(file).name for file in request.beside)
        raise Refused(model_choice.SEVERAL.format(len(request.beside), names), "needs --model")
    why = NEEDS_MODEL if kind == "checkpoint" else WEIGHTS_ONLY
    raise Refused(why, "needs --model")


def _refuse_paths(request: Request, kind: Kind) -> None:
    for option in ("model_path", "optimizer_path"):
        if getattr(request, option) is not None and kind not in _WITH_PATHS:
            what = "an HDF5 file" if kind == "h5" else f"a .{kind} file"
            raise Refused(OF_CHECKPOINTS.format(option.replace("_", "-"), what))


def _check_code(path: Path) -> None:
    if os.path.lexists(path):
        why = f"{path} exists already: choose another file, or remove it"
        raise Refused(why, "output exists")
    if path.suffix != ".py":
        raise Refused(f"--as-code {path}: the name must end in .py")
    if not can_be_folder(path.parent):
        raise Refused(f"{path}: {publishing.NO_FOLDER.format(path.parent)}")


def _code(model: Any, request: Request) -> str:
    """Returns the program that builds a model, before anything is written.

    Raises:
        Refused: There is none.
    """
    from keras_mp.compat.model_code import NoCode, model_code

    title = f"The model of {Path(redacted(request.path)).name}, as keras-mp read it."
    weights = "OUT.keras" if request.out is None else Path(request.out).name
    if request.shard_size is not None:
        weights = f"{weights.removesuffix('.keras')}/{SHARDS}"
    try:
        return model_code(model, title=title, weights=weights)
    except NoCode as error:
        raise Refused(f"--as-code: {error}", "no counterpart") from None


def _with_code(outcome: Outcome, request: Request, code: str) -> Outcome:
    assert request.as_code is not None
    path = Path(request.as_code)
    with folders_made(path.parent):
        publishing.remove_stale(path.parent)
        write_new(path, code, sync=True)
    return replace(outcome, code=request.as_code)


def _remarks(report: Any) -> tuple[str, ...]:
    """Returns what a reader should know besides the table."""
    return (
        *report.notes,
        *report.lost,
        *(c.what for c in report.changes if c.matters and c.kind != "computes"),
        *(f"not restored: {name}" for name in report.unused),
        *(f"not in the file: {name}" for name in report.missing),
        *(() if report.comparison is None else report.comparison.remarks()),
    )


def _of_today(path: Path) -> str | None:
    """Returns the version of Keras 3 that wrote a `.keras` file, or None."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo("metadata.json").file_size > archives.MOST_METADATA:
                return None
            metadata = archive.read("metadata.json")
    except (*ZIP_FAILURES, KeyError):
        return None  # loading it says why
    try:
        version = str(json.loads(metadata)["keras_version"])
        return version if int(version.partition(".")[0]) >= 3 else None
    except (ValueError, KeyError, TypeError):
        return None


def _refuse_inside(out: str, path: str) -> None:
    if is_url(out) or is_url(path):
        inside = is_url(out) and is_url(path) and is_inside(out, path)
    else:
        folder = local_of(path).resolve()
        inside = folder.is_dir() and folder in local_of(out).resolve().parents
    if inside:
        raise Refused(f"{redacted(out)} the output is inside the artefact: choose another place")
