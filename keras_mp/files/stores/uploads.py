"""A file that appears in a store whole or not at all, and never replaces another.

It is uploaded into a temporary folder beside its place, checked there, and moved to its name last.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_mp.files import locked_folders
from keras_mp.files.stores import owners
from keras_mp.files.stores.downloads import md5_of
from keras_mp.files.stores.drivers import with_retries
from keras_mp.files.stores.errors import NotThere, StoreError, ThereAlready
from keras_mp.files.stores.listing import Entry, entry, exists, listed
from keras_mp.files.stores.objects import make_folder, read_text, refuse_web, write_text
from keras_mp.files.stores.urls import join, name, parent, plain


def publish(file: Path, url: str) -> None:
    """Uploads a file, and makes it visible last.

    Args:
        file: On the disk.
        url: Its address; missing folders are created.

    Raises:
        ThereAlready: The name is taken. The file there is unchanged.
        StoreError: It failed, and nothing was published.
    """
    refuse_web(url)
    refuse_existing(url)
    with _temporary(parent(url)) as folder:
        beside = join(folder, name(url))
        with_retries(beside, lambda fs, path: fs.put_file(str(file), path))
        _check(beside, file)
        refuse_existing(url)
        _move(beside, url)
    there, size = entry(url), file.stat().st_size
    if there.size is not None and there.size != size:
        raise StoreError.of(url, f"has {there.size} bytes after the move, instead of {size}")


def refuse_existing(url: str) -> None:
    """Raises an error if the name is taken.

    Raises:
        ThereAlready: It is.
        StoreError: The store gives no answer.
    """
    if exists(url):
        raise ThereAlready.of(url, "exists already: choose another, or remove it")


def remove_stale(folder: str) -> None:
    """Removes what killed processes left in a folder of a store.

    Raises:
        StoreError: The store cannot be listed.
    """
    try:
        there = listed(folder, deep=False)
    except NotThere:
        return
    for one in there:
        start, end = locked_folders.START, locked_folders.END
        if not (one.name.startswith(start) and one.name.endswith(end)) or one.type == "link":
            continue
        # Another process may remove it first.
        with contextlib.suppress(StoreError):
            if _is_stale(one):
                _remove(one.url)


def _is_stale(one: Entry) -> bool:
    text = read_text(join(one.url, owners.NAME)) if one.type == "folder" else None
    if text is not None:
        return owners.is_dead(text)
    # A text being written, or a folder whose owner is about to write who it is.
    return one.modified is not None and time.time() - one.modified > owners.DEAD


@contextlib.contextmanager
def _temporary(parent_url: str) -> Iterator[str]:
    """Yields the address of a new folder; it is removed at the end with its content."""
    folder = join(parent_url, locked_folders.new_name())
    end = threading.Event()
    owner = join(folder, owners.NAME)

    def beat() -> None:
        while not end.wait(owners.BEAT):
            # The next heartbeat may succeed; an upload that fails raises its own error.
            with contextlib.suppress(StoreError):
                write_text(owner, owners.me())

    heart = threading.Thread(target=beat, name="keras-mp-heartbeat", daemon=True)
    try:
        make_folder(folder)
        write_text(owner, owners.me(), atomic=False)
        heart.start()
        yield folder
    finally:
        end.set()
        if heart.is_alive():
            heart.join()
        with contextlib.suppress(StoreError):
            _remove(folder)


def _remove(folder: str) -> None:
    def work(fs: Any, path: str) -> None:
        fs.invalidate_cache()
        if fs.exists(path):
            fs.rm(path, recursive=True)

    with_retries(folder, work)


def _check(url: str, file: Path) -> None:
    there, size = entry(url), file.stat().st_size
    if there.size is not None and there.size != size:
        raise StoreError.of(url, f"was uploaded with {size} bytes, but the store has {there.size}")
    if there.md5 is not None and md5_of(file) != there.md5:
        # An ETag need not be an MD5: read the file back.
        _compare(url, file)


def _compare(url: str, file: Path) -> None:
    def work(fs: Any, path: str) -> bool:
        with fs.open(path, "rb") as theirs, file.open("rb") as mine:
            while piece := mine.read(1 << 20):
                if theirs.read(len(piece)) != piece:
                    return False
        return True

    if not with_retries(url, work):
        raise StoreError.of(url, "the bytes in the store differ from those uploaded")


def _move(source: str, target: str) -> None:
    def work(fs: Any, path: str) -> None:
        try:
            fs.mv(path, fs._strip_protocol(plain(target)))
        except FileNotFoundError:
            # An earlier try may have moved it, and its answer was lost.
            if not (fs.exists(fs._strip_protocol(plain(target))) and not fs.exists(path)):
                raise

    with_retries(source, work)
