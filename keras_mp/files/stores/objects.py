"""Small texts in a store: read, replace, create if missing, remove."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

from keras_mp.files import locked_folders
from keras_mp.files.stores.drivers import SFTP, T, with_retries
from keras_mp.files.stores.errors import NotThere, StoreError, ThereAlready
from keras_mp.files.stores.urls import parent, scheme

_SETTLED = 1.0


def read_text(url: str) -> str | None:
    """Returns a text in UTF-8, or None if there is none.

    Raises:
        StoreError: The store does not answer.
    """

    def work(fs: Any, path: str) -> bytes:
        fs.invalidate_cache()
        return bytes(fs.cat_file(path))

    try:
        return with_retries(url, work).decode("utf-8", "replace")
    except NotThere:
        return None


def write_text(url: str, text: str, *, atomic: bool = True) -> None:
    """Replaces a text as a whole: readers see the old one or the new, never a part.

    Args:
        url: Its address; missing folders are created.
        text: Written as UTF-8.
        atomic: False if nobody reads it yet, which saves a step.

    Raises:
        StoreError: It could not be written.
    """
    refuse_web(url)
    data = text.encode()

    def work(fs: Any, path: str) -> None:
        if not atomic or not _renames(fs):
            fs.pipe_file(path, data)  # an object appears only when it is complete
            return
        beside = f"{path.rpartition('/')[0]}/{locked_folders.new_name()}"
        try:
            fs.pipe_file(beside, data)
            fs.mv(beside, path)
        except FileExistsError:
            fs.rm_file(path)
            fs.mv(beside, path)
        except BaseException:
            with contextlib.suppress(Exception):
                fs.rm_file(beside)
            raise

    _in_folder(url, work)


def create_text(url: str, text: str) -> bool:
    """Writes a text unless one exists; returns whether it did. Of several writers one succeeds.

    If the store cannot do that in one step, each writes, waits, and checks whose text is there.

    Args:
        url: Its address; missing folders are created.
        text: Written as UTF-8; must differ from the texts of other writers.

    Raises:
        StoreError: The store does not answer.
    """
    refuse_web(url)
    data = text.encode()

    def work(fs: Any, path: str) -> bool:
        fs.invalidate_cache()
        if not fs.exists(path):
            if _has_own(fs, "pipe_file"):
                fs.pipe_file(path, data, mode="create")
            elif type(fs).__module__ == SFTP:
                with fs.open(path, "wxb") as file:  # Paramiko's form of "xb"
                    file.write(data)
            else:
                fs.pipe_file(path, data)
                time.sleep(_SETTLED)
        # An earlier try may have written it, and its answer was lost.
        return bytes(fs.cat_file(path)) == data

    try:
        return _in_folder(url, work)
    except ThereAlready:
        return False


def _in_folder(url: str, work: Callable[[Any, str], T]) -> T:
    """Does what `with_retries` does; creates missing folders."""
    try:
        return with_retries(url, work)
    except NotThere:
        make_folder(parent(url))
        return with_retries(url, work)


def delete(url: str) -> None:
    """Removes a file, if it is there.

    Raises:
        StoreError: The store fails to do it.
    """
    with contextlib.suppress(NotThere):
        with_retries(url, lambda fs, path: fs.rm_file(path))


def make_folder(url: str) -> None:
    """Creates a folder and its parents, if the store has folders; never a bucket.

    Raises:
        StoreError: The store fails to do it.
    """

    def work(fs: Any, path: str) -> None:
        if not path.startswith("/"):
            return  # a store of buckets and names
        missing = []
        while path.strip("/") and not fs.exists(path):
            missing.append(path)
            path = fs._parent(path)
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):
                fs.mkdir(each, create_parents=False)

    with_retries(url, work)


def refuse_web(url: str) -> None:
    """Refuses an address of the web, which is read-only.

    Raises:
        StoreError: It is one.
    """
    if scheme(url) in ("http", "https"):
        raise StoreError.of(url, f"{scheme(url)}:// is for reading: write elsewhere")


def _has_own(fs: Any, name: str) -> bool:
    """Returns whether a driver implements a method itself."""
    from fsspec import AbstractFileSystem

    return getattr(type(fs), name) is not getattr(AbstractFileSystem, name)


def _renames(fs: Any) -> bool:
    """Returns whether the store moves files by renaming, not by copying: writing may be visible."""
    return _has_own(fs, "mv")
