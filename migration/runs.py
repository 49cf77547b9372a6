"""Runs and ledgers on stores: downloaded, and their reports uploaded."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from keras_mp.files.stores.downloads import download, with_sizes
from keras_mp.files.stores.errors import StoreError, named
from keras_mp.files.stores.listing import entry, listed
from keras_mp.files.stores.objects import refuse_web
from keras_mp.files.stores.scratch import Scratch
from keras_mp.files.stores.uploads import publish, refuse_existing
from keras_mp.files.stores.urls import is_url, local_of, name, parent
from keras_mp.migration.ledger import NAME as LEDGER
from keras_mp.migration.writing import folders_made


@contextlib.contextmanager
def local_run(path: str, scratch: Scratch) -> Iterator[str]:
    """Yields a local path for a run, or a migration, or a file of one: its own, or of a copy.

    Raises:
        StoreError: It does not exist, or could not be had.
    """
    if not is_url(path):
        yield str(local_of(path))
        return
    own, one = name(path), entry(path)
    files = [replace(one, name=own)]
    if one.type == "folder":
        wanted = _files()
        there = [each for each in listed(path, deep=False) if each.name in wanted]
        if not there:
            why = f"there is neither {' nor '.join(wanted)} in this folder"
            raise StoreError.of(path, why)
        files = [replace(each, name=f"{own}/{each.name}") for each in there]
    files = with_sizes(files)
    size = sum(each.size or 0 for each in files)
    with scratch.reserved(size, path) as folder, named(folder, parent(path)):
        download(files, folder)
        yield str(folder / own)


@contextlib.contextmanager
def output(out: str | None, scratch: Scratch) -> Iterator[str | None]:
    """Yields the local path to write to; at the end, what is there is at the address.

    Raises:
        ThereAlready: There is something by that name in the store.
        StoreError: It could not be put there.
    """
    if out is None or not is_url(out):
        if out is None:
            yield None
            return
        place = local_of(out)
        with folders_made(place.parent):
            yield str(place)
        return
    refuse_web(out)
    refuse_existing(out)
    with scratch.reserved(0, out) as folder:
        beside = folder / name(out)
        with named(folder, parent(out)):
            yield str(beside)
        publish(beside, out)


def _files() -> tuple[str, ...]:
    from keras_mp.diagnosis.ranges.file import FILE as RANGES
    from keras_mp.monitor.run_folder import RUN  # late: it needs NumPy
    from keras_mp.monitor.trace import FILE as TRACE

    return RUN, TRACE, RANGES, LEDGER
