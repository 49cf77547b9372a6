"""`keras-mp migrate` for one artefact: loaded, saved, loaded again and compared.

Imports keras only when an artefact is loaded.
"""

import contextlib
import gc
import json
import os
import sys
import traceback
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.checkpoints.checkpoint import VALUE
from keras_mp.compat.checkpoints.staging import staged
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.file_formats.file_kinds import SHARDS, Kind, kind_of
from keras_mp.compat.file_formats.zip_archives import ZIP_FAILURES
from keras_mp.migration import (
    archives,
    backends,
    building,
    disk_room,
    model_choice,
    publishing,
    shards,
    sources,
)
from keras_mp.migration.console import missing
from keras_mp.migration.limited import Limits
from keras_mp.migration.publishing import Refused
from keras_mp.migration.wording import spoken
from keras_mp.migration.writing import can_be_folder, folders_made, write_new
from keras_mp.stores.scratch import Scratch
from keras_mp.stores.urls import is_inside, is_url, local_of, redacted

NEEDS_MODEL = (
    "a checkpoint holds no model: say --model model.json (what model.to_json() wrote) or "
    "--model script.py:factory"
)
WEIGHTS_ONLY = NEEDS_MODEL.replace("a checkpoint holds", "the file holds weights and")
OWN_OPTIMIZER = "--optimizer goes with --model: the artefact has a config of its own"
WITHOUT = "--model-only writes the model without its optimizer"
OF_CHECKPOINTS = "--{} is for checkpoints, and this is {}: leave it out"
NOT_BUILT = "--model: {}: the model has no weights yet: build it, or call it once, in the script"
ENDED = (
    "--model: {} ended the program ({!r}): put what it runs, other than definitions, under "
    "if __name__ == '__main__'"
)
# What the artefacts need besides Keras; a module that the user's script misses is another matter.
_OURS = ("google_crc32c", "h5py", "numpy")
_WITH_PATHS = ("checkpoint", "saved_model")
_WORTH_COLLECTING = 1 << 25  # bytes; looking through all objects takes longer than loading a few

Step = Callable[[str, int], object]


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for.

    Attributes:
        path: The artefact.
        out: Where to write; None to write nothing.
        given: Each `--model`, as `model_choice.chosen` reads it; `for_artefact` says what follows.
        model: "model.json" or "script.py:factory".
        scripts: Scripts whose classes and functions may be named.
        beside: The config that lies beside it, for want of a model; of several none is the one.
        optimizer: "optimizer.json".
        model_path, optimizer_path: What they were called in a checkpoint of several objects.
        tf_version: The TensorFlow that wrote the artefact.
        model_only: Whether to leave the optimizer out.
        exact_training: As of `keras_mp.compat.configs.convert`.
        as_code: Where to write a program that builds the model; None for none.
        scratch: Where files of stores are kept meanwhile.
        source: What the output calls the artefact, whose copy `path` is in the scratch folder,
            with as much room beside it; its path if None.
        tidy: As of `publishing.staged`.
        shard_size: The most bytes of tensors in a file of a folder, where there is to be one; None
            for a `.keras` file.
        limits: What it may take of the machine. Whoever calls `migrate` keeps them, see `limited`.
    """

    path: str
    out: str | None = None
    given: tuple[str, ...] = ()
    model: str | None = None
    scripts: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    optimizer: str | None = None
    tf_version: str | None = None
    model_path: str | None = None
    optimizer_path: str | None = None
    model_only: bool = False
    exact_training: bool = False
    as_code: str | None = None
    scratch: Scratch = field(default_factory=Scratch)
    source: str | None = None
    tidy: bool = True
    shard_size: int | None = None
    limits: Limits = field(default_factory=Limits)

    def options(self) -> dict[str, object]:
        """Returns what the result depends on besides the artefact; files by their checksums.

        Raises:
            Refused: A file that is named cannot be read.
        """
        found: dict[str, object] = {"tf_version": self.tf_version, "model_only": self.model_only}
        if self.exact_training:
            found["exact_training"] = True
        for name in ("model_path", "optimizer_path"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        if self.shard_size is not None:
            found["shard_size"] = self.shard_size
        models = [*([] if self.model is None else [self.model]), *self.scripts]
        parts = [model_choice.split(one) for one in models]
        told = [[_checksum("--model", file), factory] for file, factory in parts]
        if told:
            found["model"] = told[0] if len(told) == 1 else told
        if self.beside:
            found["beside"] = [_checksum("a config beside it", file) for file in self.beside]
        if self.optimizer is not None:
            found["optimizer"] = _checksum("--optimizer", self.optimizer)
        return found

    def files_of_scripts(self) -> tuple[str, ...]:
        """Returns the scripts of the user's that are run for it."""
        models = [] if self.model is None else [self.model]
        parts = [model_choice.split(one) for one in (*models, *self.scripts)]
        return tuple(file for file, factory in parts if factory is not None)

    def for_artefact(self, name: str, top: Path | None) -> "Request":
        """Returns the same with the model that is meant for its artefact.

        Args:
            name: Of the artefact, in its folder or as given.
            top: The last folder to look in for a config that lies beside it; None for none.

        Raises:
            Refused: `given` says two things.
        """
        choice = model_choice.chosen(self.given, name)
        beside: tuple[str, ...] = ()
        if choice.model is None and top is not None:
            beside = model_choice.beside(local_of(self.path), top)
        return replace(self, given=(), model=choice.model, scripts=choice.scripts, beside=beside)


def _checksum(option: str, file: str) -> str:
    """Returns the checksum of a file that an option names: if it fails, no artefact is damaged."""
    try:
        return sources.checksum([Path(file)])
    except Unreadable as error:
        raise Refused(f"{option}: {error}", "options") from None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one artefact.

    Attributes:
        path: It.
        status: "converted"; "would convert", where nothing was to be written; "unchanged", for a
            file of Keras 3; "refused", on purpose; or "failed".
        kind: What it is; None where nobody knows.
        out: What was written.
        written: Its size, and its checksum where it was reckoned.
        code: The program that was written.
        sha256: Of the artefact, see `sources.checksum`.
        report: What went where, as `RestoreReport.to_dict()`.
        rows: The same, as rows of a table.
        computed: What TensorFlow operations and Lambda layers compute: (layer, expression).
        verified: How many arrays were read back and found equal.
        notes: What the reader should know.
        why: Why it was refused or failed.
        where: The JSON path of that, if any.
        reason: That in few words, one of `ledger.REASONS`.
        trace: Of an error that nobody expected.
        options: As the output says that it was made with them; None where they are the request's.
    """

    path: str
    status: str
    kind: Kind | None = None
    out: str | None = None
    written: tuple[int, str | None] | None = None
    code: str | None = None
    sha256: str | None = None
    report: dict[str, Any] | None = None
    rows: tuple[tuple[str, ...], ...] = ()
    computed: tuple[tuple[str, str], ...] = ()
    verified: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    why: str | None = None
    where: str | None = None
    reason: str | None = None
    trace: str = ""
    options: dict[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing went wrong."""
        return self.why is None

    def to_dict(self) -> dict[str, object]:
        """Returns its part of the --json report."""
        error = None if self.why is None else {"path": self.where, "message": self.why}
        return {
            "path": self.path,
            "kind": self.kind,
            "status": self.status,
            "out": self.out,
            "code": self.code,
            "sha256": self.sha256,
            "report": self.report,
            "verified": self.verified,
            "notes": list(self.notes),
            "error": error,
        }


def migrate(request: Request, step: Step = lambda _what, _more: None) -> Outcome:
    """Migrates one artefact: all of it, or nothing is written.

    Args:
        request: What to do.
        step: Is told what goes on, and how many bytes more are done.

    Returns:
        What became of it. It raises nothing that the artefact or the disk may cause.
    """
    outcome = _migrated(request, step)
    return outcome if outcome.why is None else replace(outcome, why=spoken(outcome.why))


def _migrated(request: Request, step: Step) -> Outcome:
    outcome = Outcome(redacted(request.source or request.path), "failed")
    copies = 3 if request.out is not None and is_url(request.out) else 1
    try:
        if request.out is not None and is_url(request.path):
            publishing.check(request.out)  # before anything is downloaded
        with staged(request.path, request.scratch, copies=copies) as path:
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
        why = spoken(str(error))
        reason = "needs --model" if "--model script.py" in why else "no counterpart"
        of_optimizer = "optimizer" in why or "loss_scale" in why
        if of_optimizer and not request.model_only and "--model-only" not in why:
            why = f"{why} ({WITHOUT})"
        return replace(outcome, status="refused", why=why, where=error.path, reason=reason)
    except OSError as error:
        return replace(outcome, why=_of_os(error), reason="storage")
    except Exception as error:  # noqa: BLE001 - of Keras, or of the user's script
        return _unexpected(error, outcome, request)


def _unexpected(error: Exception, outcome: Outcome, request: Request) -> Outcome:
    from keras_mp.compat.restoring.plan import RestoreError
    from keras_mp.migration.verifying import Mismatch

    if isinstance(error, RestoreError):
        return replace(outcome, status="refused", why=str(error), reason="does not fit")
    if isinstance(error, Mismatch):
        return replace(outcome, why=str(error), reason="differs")
    if (own := building.of_scripts(error, request.files_of_scripts())) is not None:
        return replace(outcome, status="refused", why=own, reason="own code")
    if isinstance(error, Unreadable | ValueError):
        reason = "no artefact" if outcome.kind is None else "damaged"
        return replace(outcome, why=str(error), reason=reason)
    if isinstance(error, ModuleNotFoundError) and error.name in _OURS:
        return replace(outcome, why=missing(error), reason="not installed")
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
    refuse_without_model(request, path, kind)
    _refuse_paths(request, kind)
    version = _of_today(path) if kind == "keras" else None
    if version is not None:
        note = f"it is of Keras {version} already: nothing to do, nothing written"
        sha256 = sources.checksum([path])
        return replace(outcome, status="unchanged", sha256=sha256, notes=(note,))
    out = request.out
    files = sources.files_of(path, kind)
    if request.as_code is not None:
        _check_code(Path(request.as_code))
    if out is not None:
        _refuse_inside(out, request.path)
        publishing.check(out, folder=request.shard_size is not None)
    sha256 = sources.checksum(files, lambda more: step("reading", more))
    options = request.options()
    chosen = backends.choose()
    if request.shard_size is not None:
        shards.check_version()
    notes = () if chosen is None else (backends.CHOSEN.format(chosen),)
    step("loading", 0)
    with archives.seeded(sha256):
        model, report, objects = _load(request, path)
    report = replace(
        report,
        notes=tuple(map(spoken, report.notes)),
        changes=tuple(replace(one, what=spoken(one.what)) for one in report.changes),
    )
    said = tuple(dict.fromkeys(_said(report)))
    outcome = replace(
        outcome,
        sha256=sha256,
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
        notes=(*notes, *said),
    )
    if request.shard_size is not None:
        shards.check(model, request.shard_size)
    code = None if request.as_code is None else _code(model, request)
    if out is None:
        if code is None:
            return replace(outcome, status="would convert")
        return _with_code(replace(outcome, status="converted"), request, code)
    from keras_mp.migration.verifying import Saved, reload_and_compare

    # With an artefact of a store, room for both is reserved already.
    has_room = request.source is not None or is_url(request.path)
    size = 0 if has_room else 2 * sum(file.stat().st_size for file in files)
    shard_size = request.shard_size
    with publishing.staged(
        out, request.scratch, size, tidy=request.tidy, folder=shard_size is not None
    ) as beside:
        step("writing", 0)
        disk_room.check_room(model, beside, times=2 if shard_size is None else 1)
        saved, objects = Saved.of(model), objects | building.classes_in(model)
        source = redacted(request.source or request.path)
        # Nothing of where, when, or by whom: the same artefact gives the same bytes.
        made = {
            "from": source,
            "sha256": sha256,
            "options": options,
            "changes": outcome.report["changes"] if outcome.report else [],
            "notes": list(said),
            "verified": saved.counts,
        }
        folder, written = beside.with_suffix(""), None
        if shard_size is None:
            archives.write(model, folder, made)
        else:
            shards.save(model, folder, shard_size, made)
        step("comparing", 0)
        del model  # it need not fit into memory twice
        if saved.nbytes > _WORTH_COLLECTING:
            gc.collect()
        verified = reload_and_compare(folder, saved, report.rows, custom_objects=objects)
        if shard_size is None:
            step("packing", 0)
            archives.pack(folder, beside)
            sources.mark(beside, source, sha256, options)
            written = (beside.stat().st_size, sources.checksum([beside]))
    done = replace(outcome, status="converted", verified=verified, written=written)
    done = replace(done, out=redacted(out))
    return done if code is None else _with_code(done, request, code)


def fitted(request: Request, kind: Kind) -> Request:
    """Returns a request with what is asked for artefacts without a model left out for others."""
    try:
        holds_model = sources.holds_model(Path(request.path), kind)
    except Unreadable:
        holds_model = False  # migrating it says why
    if kind not in _WITH_PATHS:
        request = replace(request, model_path=None, optimizer_path=None)
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
        why = f"{path} is there already: name another file, or remove it"
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


def _said(report: Any) -> tuple[str, ...]:
    """Returns what a reader should know besides the table."""
    return (
        *report.notes,
        *report.lost,
        *(c.what for c in report.changes if c.matters and c.kind != "computes"),
        *(f"not taken from the file: {name}" for name in report.unused),
        *(f"not in the file: {name}" for name in report.missing),
    )


def _load(request: Request, path: Path) -> tuple[Any, Any, dict[str, Any]]:
    """Returns (model, report, classes and functions of the user's scripts)."""
    scripts = [building.run_script(file) for file in request.scripts]
    given = request.model or (request.beside[0] if request.beside else None)
    if given is not None:
        from keras_mp.backends.late_values import late_values

        file, factory = model_choice.split(given)
        if factory is not None:
            own = building.run_script(file)
            model = building.model_of_script(own, file, factory)
            if not model.built:
                raise Refused(NOT_BUILT.format(given), "needs --model")
            return *_restore(request, path, model), building.objects_of([*scripts, own])
        # What the user's own code does with a model before it is loaded is not known.
        with contextlib.nullcontext() if scripts else late_values():
            objects, version = building.objects_of(scripts), request.tf_version
            exact = request.exact_training
            model, changes = building.model_of_config(file, version, exact, objects)
            model, report = _restore(request, path, model)
        said = () if request.model is not None else (_beside(path, file),)
        report = replace(
            report,
            notes=(*said, *report.notes),
            changes=(*changes, *report.changes),
        )
        return model, report, objects
    if request.optimizer is not None:
        raise Refused(OWN_OPTIMIZER)
    from keras_mp.compat.restoring.models import load_model

    objects = building.objects_of(scripts)
    model, report = load_model(
        path,
        custom_objects=objects or None,
        compile=not request.model_only,
        tf_version=request.tf_version,
        exact_training=request.exact_training,
        return_report=True,
    )
    return model, report, objects


def _beside(path: Path, file: str) -> str:
    where = "beside it" if Path(file).parent in (path, path.parent) else "above it"
    return model_choice.FOUND.format(file, where)


def _restore(request: Request, path: Path, model: Any) -> tuple[Any, Any]:
    from keras_mp.compat.restoring.checkpoints import NeedsPath
    from keras_mp.compat.restoring.models import load_weights

    of_model, of_optimizer = request.model_path, request.optimizer_path
    try:
        if request.model_only:
            return model, building.restore_model_only(path, model, of_model)
        said = _compile(request, path, model)
        report = load_weights(path, model, model_path=of_model, optimizer_path=of_optimizer)
        return model, replace(report, notes=(*said, *report.notes))
    except NeedsPath as error:
        option = f"--{error.option.replace('_', '-')}"
        raise Refused(error.what_to_do(option), f"needs {option}") from None


def _compile(request: Request, path: Path, model: Any) -> tuple[str, ...]:
    """Gives a model the optimizer of the file; returns what there is to say."""
    version, said = request.tf_version, ""
    if request.optimizer is not None:
        optimizer = building.optimizer_of_config(request.optimizer, version, model)
    elif getattr(model, "optimizer", None) is not None:
        return ()
    else:
        told = building.optimizer_of_checkpoint(path, version, model, request.optimizer_path)
        if told is None:
            return ()
        optimizer, said = told
    model.compile(optimizer=optimizer, loss=None, auto_scale_loss=False)
    return (said,) if said else ()


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
        raise Refused(f"{redacted(out)} is inside the artefact: write elsewhere")
