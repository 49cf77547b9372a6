"""Publishes a file or a folder: whole or not at all, and never over another.

It is made in a folder beside its place, synced, and then linked to its name; for a store in a
scratch folder, uploaded beside its place, and moved. Whoever dies on the way leaves such a folder,
which the next run to that place removes.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from keras_mp.files import locked_folders
from keras_mp.files.atomic_writing import sync_file, sync_folder
from keras_mp.files.stores import uploads
from keras_mp.files.stores.errors import ThereAlready
from keras_mp.files.stores.objects import refuse_web
from keras_mp.files.stores.scratch import Scratch
from keras_mp.files.stores.urls import is_inside, is_url, local_of, name, parent, redacted
from keras_mp.migration.writing import can_be_folder, folders_made, link_new

NO_FOLDER = "the folder {} does not exist and cannot be created"
CAME = "another program made it during this run"
_OTHER = "choose another {}, or remove it"


class Refused(Exception):
    """An output is not written.

    Args:
        why: As a sentence.
        reason: In few words, one of `ledger.REASONS`.
    """

    def __init__(self, why: str, reason: str = "options") -> None:
        super().__init__(why, reason)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


def check(out: str | Path, *, folder: bool = False) -> None:
    """Refuses a place where a new `.keras` file, or a new folder, cannot be.

    Args:
        out: A local path, or an address.
        folder: Whether it is to be a folder, which no store can have.

    Raises:
        Refused: There is something already, no folder, or the name is another.
        StoreError: The store does not tell.
    """
    if is_url(out):
        url = str(out)
        if folder:
            raise Refused(f"{redacted(url)}: --shard-size makes a folder: name one on a disk")
        if not name(url).endswith(".keras"):
            raise Refused(f"{redacted(url)}: the name must end in .keras")
        try:
            refuse_web(url)
            uploads.refuse_existing(url)
        except ThereAlready:
            raise Refused(_there(redacted(url)), "output exists") from None
        return
    out = local_of(out)
    if os.path.lexists(out):
        raise Refused(_there(out, _OTHER.format("folder" if folder else "file")), "output exists")
    if folder and out.suffix == ".keras":
        raise Refused(f"{out}: it becomes a folder of shards: choose a name without .keras")
    if not folder and out.suffix != ".keras":
        raise Refused(f"{out}: the name must end in .keras")
    if not can_be_folder(out.parent):
        raise Refused(f"{out}: {NO_FOLDER.format(out.parent)}")


def check_folder(source: str | Path, out: str | Path) -> None:
    """Refuses an output that is not a folder, or is inside the folder of the inputs.

    Raises:
        Refused: It is so.
    """
    if is_url(out) or is_url(source):
        if is_inside(str(out), str(source)):
            raise Refused(f"{redacted(out)} is inside {redacted(source)}: write elsewhere")
        return
    there, folder = local_of(out), local_of(source)
    if there.exists() and not there.is_dir():
        raise Refused(f"{there} exists and is not a folder")
    inside, outside = there.resolve(), folder.resolve()
    if inside == outside or outside in inside.parents:
        raise Refused(f"{there} is inside {folder}: write elsewhere")


@contextlib.contextmanager
def staged_output(
    out: str | Path,
    scratch: Scratch | None = None,
    size: int = 0,
    *,
    tidy: bool = True,
    folder: bool = False,
) -> Iterator[Path]:
    """Yields the local path to write to; at the end, what is there becomes `out`.

    Args:
        out: A local path, or an address.
        scratch: Where it is made if it is for a store.
        size: The bytes to reserve there; 0 where they are reserved already.
        tidy: Whether to remove first what killed runs left beside `out`. A run with many outputs
            does it once, by `remove_stale`.
        folder: Whether it is a folder, which whoever writes makes, of files. Stores have none.

    Raises:
        Refused: See `check`.
        OSError: It could not be written: nothing is there; or its folder alone is not synced.
    """
    check(out, folder=folder)
    if is_url(out):
        if tidy:
            remove_stale(out_folder(out))
        url, room = str(out), Scratch() if scratch is None else scratch
        with room.reserved(size, url) as work:
            beside = work / "model.keras"
            yield beside
            try:
                uploads.publish(beside, url)
            except ThereAlready:
                raise Refused(_there(redacted(url), CAME), "output exists") from None
        return
    out = local_of(out)
    with folders_made(out.parent), contextlib.ExitStack() as stack:
        if tidy:
            remove_stale(out.parent)
        work = stack.enter_context(locked_folders.made(out.parent))
        beside = work / ("model" if folder else "model.keras")
        yield beside
        (_publish_folder if folder else _publish)(beside, out)


def out_folder(out: str | Path) -> str | Path:
    """Returns the folder, or its address, that an output is in."""
    return parent(str(out)) if is_url(out) else local_of(out).parent


def remove_stale(folder: str | Path) -> None:
    """Removes what runs that were killed left in a folder, or in one of a store.

    Raises:
        StoreError: The store does not tell what there is.
    """
    if is_url(folder):
        uploads.remove_stale(str(folder))
    else:
        locked_folders.remove_stale(local_of(folder))


def _there(out: object, what: str = _OTHER.format("file")) -> str:
    return f"{out} exists already: {what}"


def _publish(beside: Path, out: Path) -> None:
    sync_file(beside)
    try:
        link_new(beside, out)
    except FileExistsError:
        raise Refused(_there(out, CAME), "output exists") from None
    sync_folder(out.parent)


def _publish_folder(beside: Path, out: Path) -> None:
    for file in beside.iterdir():
        sync_file(file)
    sync_folder(beside)
    # A rename replaces an empty folder that came in this moment, and nothing else.
    if os.path.lexists(out):
        raise Refused(_there(out, CAME), "output exists")
    try:
        beside.rename(out)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise Refused(_there(out, CAME), "output exists") from None
        raise
    sync_folder(out.parent)
