"""Errors of stores: OSErrors that name the address without its secrets, also of a local copy."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from keras_mp.files.stores.urls import redacted


class StoreError(OSError):
    """A store failed.

    `filename` is the redacted address, and `strerror` the reason.

    >>> raise StoreError.of("sftp://me:secret@host/a.keras", "is being repaired")
    Traceback (most recent call last):
    keras_mp.files.stores.errors.StoreError: sftp://me:***@host/a.keras: is being repaired
    """

    number = errno.EIO

    @classmethod
    def of(cls, url: str, why: str) -> Self:
        """Returns the error for an address."""
        return cls(cls.number, why, redacted(url))

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class NotThere(StoreError, FileNotFoundError):
    """Nothing has that name."""

    number = errno.ENOENT


class ThereAlready(StoreError, FileExistsError):
    """The name is taken."""

    number = errno.EEXIST


class Denied(StoreError, PermissionError):
    """The store denies this with these credentials, or without any."""

    number = errno.EACCES


class Changed(StoreError):
    """A file changed while it was read."""


class NoDriver(StoreError):
    """A package that reaches the store is not installed."""


class NoRoom(StoreError):
    """The scratch folder is full, or its limit is too small."""

    number = errno.ENOSPC


@contextlib.contextmanager
def named(folder: Path, url: str) -> Iterator[None]:
    """Makes errors name an address instead of a local folder."""
    old, new = str(folder), redacted(url).rstrip("/")

    def said(value: object) -> object:
        return value.replace(old, new) if isinstance(value, str) else value

    try:
        yield
    except Exception as error:
        error.args = tuple(said(value) for value in error.args)
        attributes = vars(error) if hasattr(error, "__dict__") else {}
        for key, value in list(attributes.items()):
            if isinstance(value, str):
                setattr(error, key, said(value))
        if isinstance(error, OSError) and error.filename is not None:
            error.filename = said(str(error.filename))
        raise
