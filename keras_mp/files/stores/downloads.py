"""Downloads whole files and checks their size and the store's own checksum.

| problem                           | reaction                                                     |
| --------------------------------- | ------------------------------------------------------------ |
| shorter or longer than listed     | retry a few times; then an error                             |
| not the MD5 that the store gives  | read again: an ETag need not be one. Two equal reads are     |
|                                   | accepted, two different reads are an error                   |
| the store has another version now | an error that says to run again                              |
| the disk is full                  | an error at once                                             |
"""

import errno
import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from keras_mp.files.stores.drivers import PAUSES, with_retries
from keras_mp.files.stores.errors import Changed, NoRoom, StoreError
from keras_mp.files.stores.listing import Entry, entry

_PIECE = 1 << 20
AGAIN = "it changed while it was read: run this again when nobody writes to it"


def with_sizes(entries: Iterable[Entry]) -> list[Entry]:
    """Returns the entries with their sizes, as far as the store reports them; follows links.

    Raises:
        StoreError: The store does not answer.
    """
    return [
        one if one.type == "file" and one.size is not None else _rename(one, entry(one.url))
        for one in entries
    ]


def _rename(listed: Entry, asked_for: Entry) -> Entry:
    return replace(asked_for, name=listed.name, url=listed.url)


def download(entries: Iterable[Entry], folder: Path) -> list[Path]:
    """Downloads files into a folder, under their names, and checks them.

    Args:
        entries: Files, as listed.
        folder: An empty folder.

    Raises:
        Changed: A file changed meanwhile.
        NoRoom: The disk is full.
        StoreError: A file could not be read, or differs from its size or checksum in the store.
    """
    files = []
    entries = list(entries)
    for one in entries:
        to = folder / _local(one)
        to.parent.mkdir(parents=True, exist_ok=True)
        _download(one, to)
        files.append(to)
    for one in entries:
        if not one.is_same(entry(one.url)):
            raise Changed.of(one.url, AGAIN)
    return files


def head(url: str, size: int) -> bytes:
    """Returns the first bytes of a file, or all where it is shorter.

    Raises:
        StoreError: It could not be read.
    """
    return with_retries(url, lambda fs, path: bytes(fs.cat_file(path, start=0, end=size)))


def tail(url: str, size: int) -> bytes:
    """Returns the last bytes of a file, or all where it is shorter.

    Raises:
        StoreError: It could not be read.
    """

    def work(fs: Any, path: str) -> bytes:
        length = fs.info(path)["size"]
        start = None if length is None else max(0, length - size)
        return bytes(fs.cat_file(path, start=start))[-size:]

    return with_retries(url, work)


def _local(one: Entry) -> Path:
    parts = one.name.split("/") if one.name else [one.url.rpartition("/")[2].partition("?")[0]]
    bad = {"", ".", ".."}
    if any(part in bad or "\0" in part or (os.sep != "/" and os.sep in part) for part in parts):
        raise StoreError.of(one.url, "its name is not a valid name of a local file")
    return Path(*parts)


def _download(one: Entry, to: Path) -> None:
    for left in range(len(PAUSES), -1, -1):
        _read(one, to)
        size = to.stat().st_size
        if one.size is None or size == one.size:
            break
        if not one.is_same(entry(one.url)):
            raise Changed.of(one.url, AGAIN)
        if not left:
            why = f"gave {size} bytes, {len(PAUSES) + 1} times, but the store lists {one.size}"
            raise StoreError.of(one.url, why)
    if one.md5 is None or (first := md5_of(to)) == one.md5:
        return
    _read(one, to)
    if md5_of(to) not in (first, one.md5):
        raise StoreError.of(one.url, "two reads of it differ, and neither has the store's checksum")


def _read(one: Entry, to: Path) -> None:
    def work(fs: Any, path: str) -> None:
        to.unlink(missing_ok=True)
        try:
            fs.get_file(path, str(to))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                why = f"the disk of the scratch folder is full ({to.parent}): name another with "
                raise NoRoom.of(one.url, f"{why}--scratch") from None
            raise

    with_retries(one.url, work)


def md5_of(path: Path) -> str:
    """Returns the MD5 of a local file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()
