"""Downloads artefacts from stores: all files that make up one.

A store is asked for names only, and what a name means is asked of `locating`, as for local files:
of a folder with empty files by these names.
"""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from keras_mp.compat.checkpoints import locating
from keras_mp.compat.checkpoints.bundle import Bundle
from keras_mp.compat.checkpoints.errors import Unreadable
from keras_mp.files.stores.downloads import download, with_sizes
from keras_mp.files.stores.errors import NotThere, StoreError, named
from keras_mp.files.stores.listing import Entry, entry, listed
from keras_mp.files.stores.objects import read_text
from keras_mp.files.stores.scratch import Scratch
from keras_mp.files.stores.urls import is_url, join, local_of, name, parent, redacted, scheme

_PROTO = "saved_model.pb"
# Of a SavedModel; other files in its folder are somebody else's.
_FILES = (_PROTO, "keras_metadata.pb", "fingerprint.pb")
_FOLDERS = ("variables/", "assets/")


@dataclass(frozen=True, slots=True)
class Remote:
    """The files of a store that make up an artefact.

    Attributes:
        folder: The address of the folder that the artefact is in.
        name: Of the artefact there.
        files: Its files; their names begin in that folder.
    """

    folder: str
    name: str
    files: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """In bytes, as far as the store tells it."""
        return sum(one.size or 0 for one in self.files)


@contextlib.contextmanager
def local_artefact(
    path: str | Path, scratch: Scratch | None = None, *, copies: int = 1
) -> Iterator[Path]:
    """Yields a local path for an artefact: its own, or of a copy that is removed at the end.

    Errors that name the copy are made to name the address.

    Args:
        path: A local path, which comes back untouched, or an address.
        scratch: Where to put the files of a store; by default into the system's folder for such.
        copies: How many times its size is reserved there, as for an output as large.

    Raises:
        Unreadable: It does not exist, could not be had, or changed meanwhile.
        NoRoom: There is no room for it.
    """
    if not is_url(path):
        yield local_of(path)
        return
    url = str(path)
    with store_errors_as_unreadable(url):
        remote = files_of(url)
    with contextlib.ExitStack() as stack:
        with store_errors_as_unreadable(url):
            room = Scratch() if scratch is None else scratch
            folder = stack.enter_context(room.reserved(remote.size * copies, url))
            download(remote.files, folder)
        with named(folder, remote.folder):
            yield folder / remote.name


@contextlib.contextmanager
def store_errors_as_unreadable(url: str) -> Iterator[None]:
    """Makes what a store did not do an error of files that cannot be read."""
    from keras_mp.files.stores.errors import NoDriver, NoRoom

    try:
        yield
    except (NoDriver, NoRoom):
        raise
    except StoreError as error:
        file, why = str(error.filename), str(error.strerror)
        raise Unreadable(file or redacted(url), "", why) from None


def files_of(url: str) -> Remote:
    """Returns which files make up an artefact. It is asked for by few requests, of names only.

    Args:
        url: Of a file, of the prefix of a checkpoint or one of its files, or of a folder.

    Raises:
        Unreadable: There is no artefact.
        StoreError: The store does not answer.
    """
    own = name(url)
    try:
        one = entry(url)
    except NotThere:
        one = None
    if one is not None and one.type == "folder":
        return _with_sizes(_folder(url, own))
    if one is not None and own == _PROTO:
        return _with_sizes(_folder(parent(url), name(parent(url)), own))
    is_part = own == locating.STATE_FILE or locating.without_suffix(own) != own
    if one is not None and not is_part:
        return _with_sizes(Remote(parent(url), own, (replace(one, name=own),)))
    return _with_sizes(_checkpoint(url, own))


def _with_sizes(remote: Remote) -> Remote:
    return replace(remote, files=tuple(with_sizes(remote.files)))


def _folder(url: str, own: str, below: str = "") -> Remote:
    there = [one for one in listed(url, deep=True) if one.name]
    names = {one.name for one in there}
    if _PROTO in names:
        wanted = [one for one in there if one.name in _FILES or one.name.startswith(_FOLDERS)]
    else:
        wanted = _parts(url, "", there)
    files = tuple(replace(one, name=f"{own}/{one.name}") for one in wanted)
    return Remote(parent(url), f"{own}/{below}" if below else own, files)


def _checkpoint(url: str, own: str) -> Remote:
    """Returns the files of a checkpoint that is named by its prefix, or by one of its files."""
    folder = parent(url)
    try:
        there = listed(folder, deep=own == locating.STATE_FILE)
    except NotThere:
        there = []
    if own != locating.STATE_FILE:
        prefix = locating.without_suffix(own)
        there = [one for one in there if locating.without_suffix(one.name) == prefix]
        if not there and scheme(url) in ("http", "https"):
            there = _files_without_listing(join(folder, prefix))
        if not there:
            raise Unreadable(redacted(url), "", "there is no such file")
    return Remote(folder, own, tuple(_parts(folder, own, there)))


def _files_without_listing(prefix: str) -> list[Entry]:
    """Returns the files of a checkpoint of a web server that does not show its folders."""
    try:
        index = _entry(f"{name(prefix)}.index", prefix)
    except NotThere:
        return []
    found = [index]
    with tempfile.TemporaryDirectory(prefix="keras-mp-") as folder:
        download(found, Path(folder))
        with contextlib.suppress(Unreadable):  # reading it says why
            shards = Bundle(Path(folder, name(prefix))).shards
            for i in range(shards):
                data = f"{name(prefix)}.data-{i:05d}-of-{shards:05d}"
                found.append(_entry(data, prefix))
    return found


def _entry(own: str, beside: str) -> Entry:
    return replace(entry(join(parent(beside), own)), name=own)


def _parts(url: str, own: str, there: Iterable[Entry]) -> list[Entry]:
    """Returns the files of the checkpoint that a name in a folder stands for, or the folder."""
    is_asked = own in ("", locating.STATE_FILE)
    by_name = {}
    for one in there:
        short = locating.without_suffix(one.name)
        is_part = short != one.name and (is_asked or short == locating.without_suffix(own))
        if one.type in ("file", "link") and (is_part or one.name == locating.STATE_FILE):
            by_name[one.name] = one
    with tempfile.TemporaryDirectory(prefix="keras-mp-") as skeleton, named(Path(skeleton), url):
        root = Path(skeleton)
        for each in by_name:
            file = root / each
            if root in file.resolve().parents:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch()
        state = by_name.get(locating.STATE_FILE)
        if state is not None and is_asked:
            text = read_text(join(url, locating.STATE_FILE)) or ""
            (root / locating.STATE_FILE).write_text(text, encoding="utf-8")
        prefix = Path(locating.prefix_of(root / own)).relative_to(root).as_posix()
    parts = [one for each, one in by_name.items() if locating.without_suffix(each) == prefix]
    return [state, *parts] if state is not None and is_asked else parts
