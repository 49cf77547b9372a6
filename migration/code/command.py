"""`keras-mp migrate` for source code: finds files, plans, writes where told to, and tells."""

import argparse
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from keras_mp.compat.results import columns
from keras_mp.files.locked_folders import remove_stale
from keras_mp.migration import progress
from keras_mp.migration.code.findings import BASELINE, Failure, Plan
from keras_mp.migration.code.tree import find
from keras_mp.migration.console import (
    CLOSED,
    SCHEMA,
    json_text,
    put_bytes,
    put_exact,
    say,
    say_trace,
    show,
)
from keras_mp.migration.kinds import is_folder, is_source
from keras_mp.migration.publishing import NO_FOLDER, Refused, check_folder
from keras_mp.migration.writing import can_be_folder
from keras_mp.rendering.text import pluralized

if TYPE_CHECKING:
    from keras_mp.migration.code.baseline import Baseline, Entry
    from keras_mp.migration.code.project_settings import Projects
    from keras_mp.migration.code.rewriting import Options

_FEW = 10


@dataclass(slots=True)
class Done:
    """What became of the source code in the PATHs.

    Attributes:
        folders: Those in which there is some.
        rows: Of the --json report.
        summary: Of the same; None where there is no source code.
        failed: Whether something could not be done.
        pending: Whether something would change, or manual review is needed.
    """

    folders: set[str] = field(default_factory=set)
    rows: list[dict[str, object]] = field(default_factory=list)
    summary: dict[str, object] | None = None
    failed: bool = False
    pending: bool = False


@dataclass(slots=True)
class _Input:
    """The source files of a PATH, which is its name."""

    name: str
    path: Path
    files: list[Path]
    links: list[Path] = field(default_factory=list)
    ignored: int = 0
    closed: list[Path] = field(default_factory=list)
    excluded: list[Path] = field(default_factory=list)


def run(arguments: argparse.Namespace) -> Done:
    """Migrates what is source code in the PATHs: files by their names, and what is in folders.

    Raises:
        Refused: What it needs is not installed, or OUT is no place for it.
        OSError: A folder cannot be read, or OUT cannot be written.
    """
    done = Done()
    inputs = _inputs(arguments.paths)
    if not inputs:
        return done
    _need()
    done.folders = {one.name for one in inputs if is_folder(one.path)}
    out = None if arguments.out is None else Path(arguments.out)
    if out is not None:
        _check(inputs[0].path, out)
    from keras_mp.migration.code import applying, baseline
    from keras_mp.migration.code.planning import plans
    from keras_mp.migration.code.project_settings import Projects

    projects = Projects()
    for one in inputs:
        _exclude(one, projects, force=arguments.force_exclude)
    known = None if arguments.baseline is None else baseline.read_baseline(Path(arguments.baseline))
    files = _distinct(inputs)
    options = _options(files, projects, known, arguments)
    with progress.show_progress(len(files), worth=len(files) > 1) as step:
        planned = plans(files, options, arguments.jobs, step)
    gone = {} if known is None else known.gone(planned, options)
    planned += [Plan(path, failure=Failure(CLOSED)) for one in inputs for path in one.closed]
    if out is not None:
        planned += [Plan(path) for path in inputs[0].excluded]
    if arguments.write_baseline is not None:
        count = baseline.write(Path(arguments.write_baseline), planned)
        if not arguments.json:
            say(f"{arguments.write_baseline}: written: {pluralized(count, 'finding')}")
    if arguments.write:
        for folder in {plan.path.parent for plan in planned if plan.changes}:
            remove_stale(folder)
        planned = [replace(plan, failure=applying.write(plan)) for plan in planned]
    elif out is not None and (out_of := _copied(planned, inputs[0])):
        inputs[0].links = applying.copy(out_of, inputs[0].path, out, inputs[0].links)
    done.failed = any(plan.failure is not None for plan in planned)
    done.pending = any(plan.changes or plan.needs_review for plan in planned)
    _tell(planned, inputs, done, arguments)
    if done.summary is not None and known is not None:
        done.summary["baseline"] = known.report(gone)
        if not arguments.json:
            _tell_known(planned, known, gone)
    return done


def failed(paths: Iterable[str], why: str) -> Done:
    """Returns the report for the case that nothing was done."""
    from keras_mp.migration.code import output

    planned = [Plan(Path(path), failure=Failure(why)) for path in paths]
    rows = [output.row(plan, None, written=False, with_diff=False) for plan in planned]
    summary = {"schema": SCHEMA, **output.summary(planned)}
    return Done(rows=rows, summary=summary, failed=True)


def _inputs(paths: Sequence[str]) -> list[_Input]:
    result = []
    for name in paths:
        path = Path(name)
        if is_folder(path):
            if (path / "saved_model.pb").is_file():
                continue
            found = find(path)
            if found.files or found.closed:
                one = _Input(name, path, found.files, found.links, found.ignored, found.closed)
                result.append(one)
        elif is_source(name):
            result.append(_Input(name, path, [path]))
    return result


def _exclude(one: _Input, projects: "Projects", *, force: bool) -> None:
    """Leaves out what pyproject.toml excludes, unless the PATH itself is: who names it means it."""
    named = None
    if not force:
        if not is_folder(one.path):
            return
        above = projects.of(one.path)
        named = above if above and above.excludes(one.path, is_folder=True) else None

    def is_excluded(path: Path, *, is_folder: bool = False) -> bool:
        settings = projects.of(path)
        if settings is None or settings is named:
            return False
        return settings.excludes(path, is_folder=is_folder)

    one.closed = [folder for folder in one.closed if not is_excluded(folder, is_folder=True)]
    one.excluded = [file for file in one.files if is_excluded(file)]
    left = set(one.excluded)
    one.files = [file for file in one.files if file not in left]


def _options(
    files: Iterable[Path],
    projects: "Projects",
    known: "Baseline | None",
    arguments: argparse.Namespace,
) -> "dict[Path, Options]":
    """Returns how each file is to be rewritten."""
    from keras_mp.migration.code.rewriting import Options

    only = frozenset(arguments.only) if arguments.only else None
    of_file = {} if known is None else known.of_files()
    result = {}
    for file in files:
        skip = frozenset(arguments.skip)
        if only is None and (settings := projects.of(file)) is not None:
            skip |= settings.skipped(file)
        options = Options(
            only, skip, arguments.unsafe, target=arguments.target, keras3=arguments.keras3
        )
        if known is not None:
            options = replace(options, known=of_file.get(known.name(file), {}))
        result[file] = options
    return result


def _need() -> None:
    if importlib.util.find_spec("libcst") is None:
        why = "source code is migrated with libcst, which is not installed"
        raise Refused(f"{why}: pip install 'keras-mp[migrate]'")


def _check(source: Path, out: Path) -> None:
    if is_folder(source):
        check_folder(source, out)
    elif os.path.lexists(out) and not out.is_file():
        raise Refused(f"{out} exists already and is not a file: choose another")
    elif not can_be_folder(out.parent):
        raise Refused(f"{out}: {NO_FOLDER.format(out.parent)}")


def _distinct(inputs: Iterable[_Input]) -> list[Path]:
    """Returns each file once, whatever the PATHs that lead to it."""
    files: dict[str, Path] = {}
    for one in inputs:
        for file in one.files:
            # No file has a null byte in its name; reading it says so.
            key = str(file) if "\0" in str(file) else os.path.realpath(file)
            files.setdefault(key, file)
    return list(files.values())


def _copied(planned: Sequence[Plan], one: _Input) -> list[Plan]:
    """Returns what goes to OUT: of a folder all that can be read, of a file what was rewritten."""
    if is_folder(one.path):
        return [plan for plan in planned if plan.failure is None or plan.before]
    return [plan for plan in planned if plan.failure is None]


def _tell(
    planned: Sequence[Plan], inputs: Sequence[_Input], done: Done, arguments: argparse.Namespace
) -> None:
    from keras_mp.migration.code import output

    written = arguments.write or arguments.out is not None
    done.summary = {"schema": SCHEMA, **output.summary(planned)}
    for plan in planned:
        if plan.failure is not None and plan.failure.trace:
            say_trace(plan.failure.trace)
    if arguments.json:
        out = None if arguments.out is None else Path(arguments.out)
        for plan in planned:
            if plan.changes or plan.findings or plan.suppressed or plan.failure is not None:
                place = out and (out / plan.path.relative_to(inputs[0].path))
                done.rows.append(output.row(plan, place, written=written, with_diff=arguments.diff))
        return
    for plan in planned:
        if plan.failure is not None:
            say(output.failure_line(plan.path, plan.failure))
        elif arguments.check and plan.changes:
            say(f"{plan.path}: would change")
    if arguments.sarif:
        from keras_mp.migration.code import sarif

        put_exact(json_text(sarif.log(planned, Path.cwd())))
        return
    if arguments.diff:
        patch = b"".join(map(output.patch, planned))
        if sys.stdout.isatty():
            put_exact(output.for_terminal(patch, colours=output.wants_colour(sys.stdout)))
        else:
            put_bytes(patch)
    lines = [*output.changed_lines(planned, written=written), *output.manual_lines(planned)]
    for rows in output.tables(planned, written=written):
        lines += [*([""] if lines else []), *columns(rows)]
    # Of --diff, stdout is the patch, and nothing else.
    show(lines, sys.stderr if arguments.diff else sys.stdout)
    for one in inputs:
        _tell_left(one, copied=arguments.out is not None)
    changes = any(plan.changes for plan in planned)
    quiet = arguments.diff or arguments.check or arguments.write_baseline is not None
    if changes and not (written or quiet):
        say(
            "nothing written: use --diff to show the changes, --write to apply them, or -o OUT to "
            "write a copy"
        )


def _tell_left(one: _Input, *, copied: bool) -> None:
    left = [f"{one.ignored} files or folders named by .gitignore"] if one.ignored else []
    if one.links:
        links = "1 symbolic link" if len(one.links) == 1 else f"{len(one.links)} symbolic links"
        left.append(f"{links} to elsewhere" if copied else links)
    if one.excluded and not copied:
        left.append(f"{pluralized(len(one.excluded), 'file')} excluded by pyproject.toml")
    if left:
        say(f"{one.path}: left out: {', '.join(left)}")


def _tell_known(planned: Iterable[Plan], known: "Baseline", gone: "Mapping[Entry, int]") -> None:
    found = (one for plan in planned for one in plan.suppressed)
    count = sum(one.suppressed == BASELINE for one in found)
    say(f"{known.file}: {pluralized(count, 'known finding')} left out")
    if gone:
        lines = [f"{entry.path}: {entry.rule} {entry.source}" for entry in [*gone][:_FEW]]
        more = [f"and {len(gone) - _FEW} more"] if len(gone) > _FEW else []
        why = f"{pluralized(sum(gone.values()), 'finding')} of the baseline no longer found"
        say(f"{known.file}: {why}: update it with --write-baseline", [*lines, *more])
