"""What a store did not do, as errors of the system that name the address without its secrets."""

import errno
from typing import Self

from keras_mp.files.stores.urls import redacted


class StoreError(OSError):
    """A store did not do what it was asked for.

    `filename` is the address as it may be shown, and `strerror` says why.

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
    """There is nothing by that name."""

    number = errno.ENOENT


class ThereAlready(StoreError, FileExistsError):
    """There is something by that name."""

    number = errno.EEXIST


class Denied(StoreError, PermissionError):
    """The store lets nobody do that with these credentials, or without any."""

    number = errno.EACCES


class Changed(StoreError):
    """What was read changed meanwhile."""


class NoDriver(StoreError):
    """A package that is needed to speak with the store is not installed."""


class NoRoom(StoreError):
    """There is no room in the scratch folder, or it may not be taken."""

    number = errno.ENOSPC
