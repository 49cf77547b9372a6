"""The request for an artefact, and its outcome: plain data that other processes can receive."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.file_formats.file_kinds import Kind
from keras_mp.files.stores.scratch import Scratch
from keras_mp.files.stores.urls import local_of
from keras_mp.migration import model_choice, sources
from keras_mp.migration.limited import Limits
from keras_mp.migration.publishing import Refused


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for.

    Attributes:
        path: The artefact.
        out: Where to write; None to write nothing.
        given: Each `--model`, as `choice_for` reads it; `for_artefact` says what follows.
        model: "model.json" or "script.py:factory".
        scripts: Scripts whose classes and functions may be named.
        beside: The config that lies beside it, for want of a model; of several none is the one.
        optimizer: "optimizer.json".
        model_path, optimizer_path: What they were called in a checkpoint of several objects.
        tf_version: The TensorFlow that wrote the artefact.
        model_only: Whether to leave the optimizer out.
        exact_training: As of `keras_mp.compat.configs.convert`.
        expect: The recording of predictions, an `.npz`, to compare the model with.
        from_graph: As of `keras_mp.compat.load_model`, of SavedModels.
        compare: Whether to compare what the model of a SavedModel predicts with its graphs.
        accept_differences: Whether to write a model that predicts otherwise, too.
        as_code: Where to write a program that builds the model; None for none.
        scratch: Where files of stores are kept meanwhile.
        source: What the output calls the artefact, whose copy `path` is in the scratch folder,
            with as much room beside it; its path if None.
        tidy: As of `publishing.staged_output`.
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
    expect: str | None = None
    from_graph: bool | str = False
    compare: bool = True
    accept_differences: bool = False
    as_code: str | None = None
    scratch: Scratch = field(default_factory=Scratch)
    source: str | None = None
    tidy: bool = True
    shard_size: int | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def differences(self) -> Literal["refuse", "tell", "ignore"]:
        """As of `keras_mp.compat.load_model`."""
        if not self.compare:
            return "ignore"
        return "tell" if self.accept_differences else "refuse"

    def options(self) -> dict[str, object]:
        """Returns what the result depends on besides the artefact; files by their checksums.

        Raises:
            Refused: A file that is named cannot be read.
        """
        found: dict[str, object] = {"tf_version": self.tf_version, "model_only": self.model_only}
        if self.exact_training:
            found["exact_training"] = True
        if self.from_graph:
            found["from_graph"] = self.from_graph
        if not self.compare:
            found["compare"] = False
        if self.accept_differences:
            found["accept_differences"] = True
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
        if self.expect is not None:
            found["expect"] = _checksum("--expect", self.expect)
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
        choice = model_choice.choice_for(self.given, name)
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

    @classmethod
    def of_storage(cls, path: str, kind: Kind | None, error: OSError) -> "Outcome":
        """Returns that of an artefact that could not be read, or its output written."""
        return cls(
            path, "failed", kind, why=f"{error.filename}: {error.strerror}", reason="storage"
        )

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
