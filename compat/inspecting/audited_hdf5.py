"""What is to be looked at in an HDF5 file: links, arrays that lie elsewhere, sizes, and names."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_mp.compat.file_formats.hdf5_groups import is_own
from keras_mp.compat.inspecting.findings import Finding

_PIECE, _MOST_RATIO = 1 << 24, 1000
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
    seen = {h5py.h5o.get_info(root.id).addr}
    waiting = [("", root)]
    while waiting:
        path, group = waiting.pop()
        yield from _of_names(group, f"{where}: {path or '/'}")
        for name in group:
            place = f"{where}: {path}/{name}"
            if not name.isprintable():
                yield Finding("name", place, f"has characters that are not seen: {name!a}")
            if not is_own(group, name):
                yield Finding("link", place, _link(group.get(name, getlink=True)))
                continue
            child = group[name]
            if isinstance(child, h5py.Dataset):
                yield from _of_array(child, place)
            elif isinstance(child, h5py.Group):
                address = h5py.h5o.get_info(child.id).addr
                if address not in seen:
                    seen.add(address)
                    waiting.append((f"{path}/{name}", child))


def _link(link: Any) -> str:
    import h5py

    if isinstance(link, h5py.ExternalLink):
        return f"a link to {link.path!a} of the file {link.filename!a}"
    if isinstance(link, h5py.SoftLink):
        return f"a soft link to {link.path!a}"
    return "a link of a kind that HDF5 leaves to plugins"


def _of_array(array: Any, where: str) -> Iterator[Finding]:
    if array.is_virtual:
        files = sorted({str(one.file_name) for one in array.virtual_sources()})
        yield Finding("link", where, f"its numbers are in other arrays, of {', '.join(files)!a}")
        return
    if array.external:
        files = sorted({str(name) for name, _, _ in array.external})
        yield Finding("link", where, f"its numbers are in other files, {', '.join(files)!a}")
        return
    size = math.prod(map(int, array.shape or ())) * int(array.dtype.itemsize)
    stored = int(array.id.get_storage_size())
    if size > _PIECE and stored < size // _MOST_RATIO:
        yield Finding("size", where, f"claims {size:,} bytes, of which {stored:,} are stored")


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
