"""The functions that carry plans out: in place, or as copies in another folder."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from keras_mp.files.atomic_writing import write_atomically
from keras_mp.files.locked_folders import remove_stale
from keras_mp.migration.code.findings import Failure, Plan
from keras_mp.migration.publishing import Refused
from keras_mp.migration.writing import write_new


def write(plan: Plan) -> Failure | None:
    """Writes a file in place, if it is to change; returns what went wrong."""
    if not plan.changes or plan.failure is not None:
        return plan.failure
    try:
        if plan.path.read_bytes() != plan.before:
            return Failure("changed during the run: rerun the command")
        write_atomically(plan.path, plan.after)
    except OSError as error:
        return Failure(f"cannot be written: {error.strerror or error}")
    return None


def copy(plans: Sequence[Plan], source: Path, out: Path, links: Iterable[Path] = ()) -> list[Path]:
    """Writes all files, rewritten or as they are, to the same places below another folder.

    What is there and has the same bytes already stays, so that it can be interrupted and run again.

    Args:
        plans: For the files in `source`; or for `source`, if it is a file.
        source: A file or a folder.
        out: What becomes of it.
        links: Symbolic links in the folder; those that lead to something in it are made, too.

    Returns:
        The links that lead elsewhere, and so are left out.

    Raises:
        Refused: A file is there, and another; then nothing was written.
        OSError: A file could not be read or written.
    """
    todo = []
    for plan in plans:
        target = out if plan.path == source else out / plan.path.relative_to(source)
        if not os.path.lexists(target):
            todo.append((plan, target))
        elif not target.is_file() or target.read_bytes() != _bytes(plan):
            why = "exists already with other content: choose another place"
            raise Refused(f"{target} {why}, or remove it")
    tidied: set[Path] = set()
    for plan, target in todo:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.parent not in tidied:
            remove_stale(target.parent)
            tidied.add(target.parent)
        try:
            write_new(target, _bytes(plan), like=plan.path, sync=plan.changes)
        except FileExistsError:
            raise Refused(
                f"{target} exists already: another program made it during this run"
            ) from None
        except OSError as error:  # it names a file that nobody knows of
            raise OSError(error.errno, error.strerror, os.fspath(target)) from error
    return [link for link in links if not _linked(link, source, out)]


def _bytes(plan: Plan) -> bytes:
    return plan.after if plan.changes else plan.path.read_bytes()


def _linked(link: Path, source: Path, out: Path) -> bool:
    """Makes a link to what was copied; returns whether it is there."""
    inside, target = Path(os.path.realpath(source)), Path(os.path.realpath(link))
    made = out / link.relative_to(source)
    if not target.is_relative_to(inside) or not made.parent.is_dir():
        return False
    target = out / target.relative_to(inside)
    if target.exists() and not os.path.lexists(made):
        made.symlink_to(os.path.relpath(target, made.parent))
    return target.exists()
