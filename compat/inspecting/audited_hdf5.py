"""Audits an HDF5 file: links, arrays that lie elsewhere, sizes, and names."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_mp.compat.file_formats.hdf5_groups import (
    excess_size,
    lies_elsewhere,
    members,
    stored_where,
    where_to,
)
from keras_mp.compat.inspecting.findings import Finding

_LISTS = ("layer_names", "weight_names")


def of_file(root: Any, where: str) -> Iterator[Finding]:
    """Yields what is to be looked at in an opened file; a group is gone through once.

    Args:
        root: The `h5py.File`.
        where: What to call it.
    """
    import h5py

    if root.userblock_size:
        what = f"begins with {root.userblock_size:,} bytes that are not of HDF5"
        yield Finding("size", where, what)
    yield from _of_names(root, f"{where}: /")
    for path, link, child in members(root):
        place, name = f"{where}: /{path}", path.rpartition("/")[2]
        if not name.isprintable():
            yield Finding("name", place, f"has characters that are not seen: {name!a}")
        if child is None:
            yield Finding("link", place, where_to(link))
        elif isinstance(child, h5py.Dataset):
            yield from _of_array(child, place)
        elif isinstance(child, h5py.Group):
            yield from _of_names(child, place)


def _of_array(array: Any, where: str) -> Iterator[Finding]:
    if lies_elsewhere(array):
        yield Finding("link", where, stored_where(array))
        return
    if (what := excess_size(array)) is not None:
        yield Finding("size", where, what)


def _of_names(group: Any, where: str) -> Iterator[Finding]:
    """Yields what is odd in the lists by which Keras finds layers and weights."""
    for key in group.attrs:
        if key.rstrip("0123456789") not in _LISTS:
            continue
        names = Counter(np.ravel(group.attrs[key]).tolist())
        name, count = next(iter(names.most_common(1)), ("", 0))
        if count > 1:
            yield Finding("name", where, f"{key} has {_text(name)!a} {count:,} times")


def _text(name: object) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
