"""Errors of a local copy name the address that it is a copy of."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from keras_mp.files.stores.urls import redacted


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
