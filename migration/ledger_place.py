"""The place of a ledger: a local folder, or a store, to which a local copy is uploaded.

A store has no appending. The copy is put there as a whole when it has grown by a fifth, at most
every few seconds, and at the end: what is sent is a few times the ledger, however many its lines.
Rows that a killed run did not put there are not lost: the outputs have them.
"""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from keras_mp.files.stores import objects
from keras_mp.files.stores.urls import is_url, join
from keras_mp.migration import ledger

_PAUSE, _GROWTH = 5.0, 1.2


class Place:
    """A ledger.

    Args:
        path: The local file.
        url: Where else it is to be.
    """

    def __init__(self, path: Path, url: str | None = None) -> None:
        self.path = path
        self._url = url
        self._sent = path.stat().st_size if url is not None and path.exists() else 0
        self._pause_until = time.monotonic() + _PAUSE

    def saved(self, *, now: bool = False) -> None:
        """Uploads it, if the last upload is long enough ago.

        Raises:
            StoreError: It could not be put there.
        """
        if self._url is None:
            return
        size = self.path.stat().st_size
        is_time = time.monotonic() > self._pause_until and size >= self._sent * _GROWTH
        if size == self._sent or not (now or is_time):
            return
        began = time.monotonic()
        objects.write_text(self._url, self.path.read_text(encoding="utf-8", errors="replace"))
        self._sent = size
        # Of the time, a tenth at most is for this.
        self._pause_until = time.monotonic() + max(_PAUSE, 10 * (time.monotonic() - began))


@contextlib.contextmanager
def open_ledger(folder: str) -> Iterator[Place]:
    """Yields the ledger of a folder of outputs, local or of a store.

    Raises:
        OSError: It cannot be had, or put there.
    """
    if not is_url(folder):
        yield Place(Path(folder, ledger.NAME))
        return
    url = join(folder, ledger.NAME)
    with tempfile.TemporaryDirectory(prefix="keras-mp-ledger-") as scratch:
        path = Path(scratch, ledger.NAME)
        text = objects.read_text(url)
        if text is not None:
            path.write_text(text, encoding="utf-8")
        place = Place(path, url)
        try:
            yield place
        finally:
            if path.exists():
                place.saved(now=True)
