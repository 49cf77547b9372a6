"""Errors of stores: OSErrors that name the address without its secrets."""

import errno
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
