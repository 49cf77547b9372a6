"""Groups of an HDF5 file that is not trusted: their texts, lists of names and arrays.

Links to other files are not followed, and no array is read before its shape has been checked.
"""

import functools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.file_formats.values import Array, Value

# What h5py raises on damaged files.
FAILURES = (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, MemoryError)
_MOST_NAMES = 1 << 20
_SMALL, _MOST_RATIO = 1 << 24, 1000
_NOT_FOLLOWED = "which is not followed"
_NOT_READ = "which is not read"
_SHOWN, _LONGEST = 3, 200  # files, and characters of each


class Group:
    """A group of an HDF5 file.

    Args:
        file: What to call the file in errors.
        path: Of the group in it; empty for the root.
        group: The `h5py.Group`.
        root: The root; None where this is it.
    """

    def __init__(self, file: str, path: str, group: Any, root: "Group | None" = None) -> None:
        self.file = file
        self.path = path
        self.root = self if root is None else root
        self._group = group
        self._datasets: dict[str, Any] = {}  # found and checked; finding one takes longest

    def __contains__(self, name: str) -> bool:
        with self._reading(name):
            return _link(self._group, name) is not None

    @property
    def address(self) -> int:
        """The address in the file, which is the same under every name that links to the group."""
        import h5py

        with self._reading(""):
            return int(h5py.h5o.get_info(self._group.id).addr)

    def names(self) -> list[str]:
        """Returns the names of the members."""
        with self._reading(""):
            return [str(name) for name in self._group]

    def group(self, name: str) -> "Group":
        """Returns a group inside.

        Raises:
            Unreadable: It is missing, or not a group.
        """
        import h5py

        found = self._member(name)
        if not isinstance(found, h5py.Group):
            raise Unreadable(self.file, self.at(name), "is not a group")
        return Group(self.file, self.at(name), found, self.root)

    def is_group(self, name: str) -> bool:
        """Returns whether the member of that name is a group."""
        import h5py

        with self._reading(name):
            return is_own(self._group, name) and (
                self._group.get(name, getclass=True) is h5py.Group
            )

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of an array, without reading it."""
        with self._reading(name):
            return tuple(map(int, self._dataset(name).shape))

    def array(self, name: str) -> Array:
        """Returns an array.

        Raises:
            Unreadable: It is damaged, or not of numbers.
        """
        dataset = self._dataset(name)
        with self._reading(name):
            if dataset.dtype.kind not in "biuf":
                raise Unreadable(
                    self.file, self.at(name), f"has the dtype {dataset.dtype}, not numbers"
                )
            if (what := excess_size(dataset)) is not None:
                raise Unreadable(self.file, self.at(name), what)
            return np.asarray(dataset[()])

    def check_all(self) -> None:
        """Refuses what Keras 3.15 refuses in all groups below, and what 3.10 follows or allocates.

        That is a link, an array that lies elsewhere, or one that claims more than is stored.

        Raises:
            Unreadable: There is one.
        """
        with self._reading(""):
            for path, link, child in members(self._group):
                what = leads_to(link, child) or excess_size(child)
                if what is not None:
                    raise Unreadable(self.file, self.at(path), what)

    def value(self, name: str) -> Value:
        """Returns an array to be read later, as long as the file is open."""
        return Value(self.at(name), functools.partial(self.array, name))

    def text(self, name: str) -> str | None:
        """Returns an attribute that is text; None if there is no such attribute."""
        with self._reading(f"attribute {name}"):
            value = self._group.attrs.get(name)
            value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise Unreadable(self.file, self.at(f"attribute {name}"), "is not UTF-8") from None
        if value is not None and not isinstance(value, str):
            raise Unreadable(self.file, self.at(f"attribute {name}"), "is not text")
        return value

    def texts(self, name: str) -> list[str] | None:
        """Returns an attribute that is a list of text; Keras splits a long one into several."""
        parts = [name]
        with self._reading(f"attribute {name}"):
            attributes = self._group.attrs
            if name not in attributes:
                if f"{name}0" not in attributes:
                    return None
                parts = [f"{name}{i}" for i in range(len(attributes)) if f"{name}{i}" in attributes]
            values = [item for part in parts for item in np.ravel(attributes[part]).tolist()]
        if len(values) > _MOST_NAMES:
            raise Unreadable(
                self.file,
                self.at(f"attribute {name}"),
                f"has {len(values)} names, which is too many",
            )
        found = []
        for value in values:
            if not isinstance(value, str | bytes):
                where = self.at(f"attribute {name}")
                raise Unreadable(self.file, where, "is not a list of names")
            found.append(as_text(value))
        if len(found) > len(set(found)):
            twice, count = Counter(found).most_common(1)[0]
            why = f"names {twice!r} {count} times: each name belongs to one"
            raise Unreadable(self.file, self.at(f"attribute {name}"), why)
        return found

    def at(self, name: str) -> str:
        """Returns the path of a member."""
        return f"{self.path}/{name}" if self.path else name

    def _dataset(self, name: str) -> Any:
        import h5py

        if name in self._datasets:
            return self._datasets[name]
        found = self._member(name)
        if not isinstance(found, h5py.Dataset):
            raise Unreadable(self.file, self.at(name), "is not an array")
        with self._reading(name):
            if lies_elsewhere(found):
                raise Unreadable(self.file, self.at(name), stored_where(found))
        self._datasets[name] = found
        return found

    def _member(self, name: str) -> Any:
        import h5py

        here = self._group
        with self._reading(name):
            for part in name.split("/"):
                is_name = isinstance(here, h5py.Group) and part not in ("", ".", "..")
                link = _link(here, part) if is_name else None
                if link is None:
                    raise Unreadable(self.file, self.at(name), "is missing")
                if not isinstance(link, h5py.HardLink):
                    raise Unreadable(self.file, self.at(name), where_to(link))
                here = here[part]
        return here

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except Unreadable:
            raise
        except FAILURES as error:
            raise Unreadable(self.file, self.at(name), reason(error)) from None


@contextmanager
def open_hdf5(file: str | Path | BinaryIO, shown: str) -> Iterator[Group]:
    """Opens an HDF5 file for reading.

    Args:
        file: Its path, or the file itself, which was opened.
        shown: What to call it in errors.

    Raises:
        Unreadable: It is not one.
    """
    import h5py

    try:
        root = h5py.File(file, "r")
    except FAILURES as error:
        raise Unreadable(shown, "", f"cannot be opened as HDF5: {reason(error)}") from None
    with root:
        yield Group(shown, "", root)


def as_text(value: object) -> str:
    """Returns what stands for text in a file; bytes that are no UTF-8 are replaced."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def is_own(group: Any, name: str) -> bool:
    """Returns whether what a group has under a name is in the file: no link to elsewhere.

    Anything else that h5py offers follows the link, which may wait for ever or open any file.
    """
    import h5py

    return isinstance(_link(group, name), h5py.HardLink)


def members(group: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields (path, link, object) of all below an `h5py.Group`; each group is entered once.

    Links to elsewhere are not followed, and have None for the object: the file says where, and it
    is not trusted.
    """
    import h5py

    seen = {h5py.h5o.get_info(group.id).addr}
    waiting = [("", group, name) for name in reversed(list(group))]
    while waiting:
        path, parent, name = waiting.pop()
        where, link = f"{path}{name}", _link(parent, name)
        child = parent[name] if isinstance(link, h5py.HardLink) else None
        yield where, link, child
        if isinstance(child, h5py.Group):
            address = h5py.h5o.get_info(child.id).addr
            if address not in seen:
                seen.add(address)
                waiting += [(f"{where}/", child, inner) for inner in reversed(list(child))]


def leads_to(link: Any, child: Any) -> str | None:
    """Returns where a member leads, as the rest of a sentence; None where it is in the file."""
    import h5py

    if child is None:
        return where_to(link)
    is_array = isinstance(child, h5py.Dataset)
    return stored_where(child) if is_array and lies_elsewhere(child) else None


def where_to(link: Any) -> str:
    """Returns what a link to elsewhere is, as the rest of a sentence."""
    import h5py

    if isinstance(link, h5py.ExternalLink):
        path, file = map(_quoted, (link.path, link.filename))
        return f"is an external link, to {path} in the file {file}, {_NOT_FOLLOWED}"
    return f"is a soft link, to {_quoted(link.path)}, {_NOT_FOLLOWED}"


def stored_where(dataset: Any) -> str:
    """Returns where an array is that `lies_elsewhere`, as the rest of a sentence."""
    if dataset.is_virtual:
        files = [_quoted(source.file_name) for source in dataset.virtual_sources()[:_SHOWN]]
        return f"is a virtual dataset of {', '.join(dict.fromkeys(files))}, {_NOT_READ}"
    names = [_quoted(os.fsdecode(name)) for name, *_ in dataset.external[:_SHOWN]]
    return f"is stored in {', '.join(names)}, {_NOT_READ}"


def _quoted(text: str) -> str:
    return json.dumps(text[:_LONGEST])


def excess_size(member: Any) -> str | None:
    """Returns how much more an array claims than is stored, as the rest of a sentence.

    None where it does not, or is no array. HDF5 stores nothing of what was never written, and
    compresses; nothing that Keras writes becomes a thousandth by that.
    """
    import h5py

    if not isinstance(member, h5py.Dataset):
        return None
    size = math.prod(map(int, member.shape or ())) * int(member.dtype.itemsize)
    stored = int(member.id.get_storage_size())
    if size <= _SMALL or stored >= size // _MOST_RATIO:
        return None
    return f"claims {size:,} bytes, of which {stored:,} are stored"


def lies_elsewhere(dataset: Any) -> bool:
    """Returns whether the numbers of an array are in another file."""
    return bool(dataset.is_virtual or dataset.external)


def _link(group: Any, name: str) -> Any:
    return group.get(name, getlink=True)


def reason(error: Exception) -> str:
    """Returns the message of an error of h5py, on one short line."""
    text = str(error.args[0]) if error.args else type(error).__name__
    cut = re.search(r"truncated file: eof = (\d+).*stored_eof = (\d+)", text)
    if cut is not None:
        return f"cut off: {cut[1]} of its {cut[2]} bytes are there"
    return " ".join(text.split())[:200]
