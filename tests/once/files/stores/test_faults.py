"""Stores that refuse, time out, throttle, cut off or change, and a disk that is full."""

import errno
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from keras_mp.files.stores import drivers, objects, owners, uploads
from keras_mp.files.stores.downloads import download
from keras_mp.files.stores.errors import Changed, Denied, NoDriver, NoRoom, NotThere, StoreError
from keras_mp.files.stores.listing import entry, listed
from tests.faulty_store import FaultyFileSystem, throttled

BYTES = bytes(range(256)) * 10


class Answer(Exception):
    """An error with a status of HTTP, as aiohttp has it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"answered with {status}")
        self.status = status


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FaultyFileSystem]]:
    """The faulty store, with a file, and without pauses between tries."""
    fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
    monkeypatch.setattr(drivers.time, "sleep", lambda _: None)
    fs = fsspec.filesystem("faulty")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    fs.pipe_file("/in/a.bin", BYTES)
    FaultyFileSystem.faults.clear()
    FaultyFileSystem.asked.clear()
    FaultyFileSystem.tag = None
    yield FaultyFileSystem
    FaultyFileSystem.tag = None


def read(folder: Path) -> bytes:
    (path,) = download(listed("faulty://in", deep=True), folder)
    return path.read_bytes()


def times(store: type[FaultyFileSystem], what: str) -> int:
    return sum(asked == what for asked, _ in store.asked)


@pytest.mark.parametrize(
    "error",
    [
        throttled(),
        TimeoutError(),
        ConnectionResetError(errno.ECONNRESET, "reset"),
        Answer(429),
        Answer(503),
        EOFError(),
    ],
    ids=["throttled", "timeout", "reset", "429", "503", "eof"],
)
def test_what_passes_is_asked_again(store, error: Exception, tmp_path: Path) -> None:
    store.faults["get"] = [error, error]
    assert read(tmp_path) == BYTES
    assert times(store, "get") == 3
    store.faults["get"] = [error] * 20
    with pytest.raises(StoreError, match=r"a\.bin: the store did not answer as it should, 5 times"):
        read(tmp_path)
    assert times(store, "get") == 3 + len(drivers.PAUSES) + 1


@pytest.mark.parametrize(
    ("error", "expected", "words"),
    [
        (PermissionError("Access Denied"), Denied, "the store refuses it: .*Access Denied"),
        (Answer(403), Denied, "the store refuses it"),
        (Answer(404), NotThere, "there is no such file"),
        (ValueError("odd"), StoreError, "ValueError: odd"),
        (NotImplementedError(), StoreError, "does not support that"),
    ],
)
def test_a_refusal_is_not_asked_again(store, error, expected, words, tmp_path: Path) -> None:
    store.faults["get"] = [error] * 9
    with pytest.raises(expected, match=words):
        read(tmp_path)
    assert times(store, "get") == 1


def test_what_is_cut_off_is_read_again(store, tmp_path: Path) -> None:
    store.faults["get"] = [lambda data: data[:100]]
    assert read(tmp_path) == BYTES
    store.faults["get"] = [lambda data: data[:100]] * 9
    with pytest.raises(StoreError, match="gave 100 bytes, 5 times, but the store lists 2560"):
        read(tmp_path)


def test_an_md5_is_compared(store, tmp_path: Path) -> None:
    store.tag = lambda data: f'"{hashlib.md5(data).hexdigest()}"'
    assert read(tmp_path) == BYTES
    assert times(store, "get") == 1
    store.faults["get"] = [lambda data: data[::-1]]
    assert read(tmp_path) == BYTES, "damaged on its way, and then not"
    store.faults["get"] = [lambda data: data[::-1], lambda data: b"x" * len(data)]
    with pytest.raises(StoreError, match="two reads of it differ"):
        read(tmp_path)


def test_a_tag_that_is_no_md5(store, tmp_path: Path) -> None:
    store.tag = lambda data: hashlib.md5(data + b"salt").hexdigest()
    assert read(tmp_path) == BYTES
    assert times(store, "get") == 2
    store.tag = lambda data: hashlib.md5(data).hexdigest() + "-2"  # of several parts
    assert read(tmp_path) == BYTES
    assert times(store, "get") == 3


def test_what_changes_meanwhile(store, tmp_path: Path) -> None:
    store.tag = lambda data: hashlib.md5(data).hexdigest()

    def written(data: bytes) -> bytes:
        fsspec.filesystem("faulty").pipe_file("/in/a.bin", b"n" * len(BYTES))
        return data

    store.faults["get"] = [written]
    with pytest.raises(Changed, match="it changed while it was read: run this again"):
        read(tmp_path)
    store.faults["get"] = [
        lambda _: fsspec.filesystem("faulty").pipe_file("/in/a.bin", b"short") or b"short"
    ]
    with pytest.raises(Changed):
        read(tmp_path)

    def removed(data: bytes) -> bytes:
        fsspec.filesystem("faulty").rm_file("/in/a.bin")
        return data

    store.faults["get"] = [removed]
    with pytest.raises(NotThere):
        read(tmp_path)


def test_a_full_disk(store, tmp_path: Path) -> None:
    store.faults["get"] = [OSError(errno.ENOSPC, "No space left on device")] * 9
    with pytest.raises(NoRoom, match=r"the disk of the scratch folder is full .*--scratch"):
        read(tmp_path)
    assert times(store, "get") == 1


@pytest.mark.parametrize("name", ["..", "a/../../b", "nul\0"])
def test_names_that_lead_out(store, name: str, tmp_path: Path) -> None:
    one = listed("faulty://in", deep=True)[0]
    with pytest.raises(StoreError, match="its name is not a valid name of a local file"):
        download([type(one)(name, one.url, "file", one.size)], tmp_path)


def test_an_upload_that_breaks_leaves_nothing(store, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(BYTES)
    for what, fault, words in [
        ("put", PermissionError("no"), "the store refuses it"),
        ("put", lambda data: data[:-1], "was uploaded with 2560 bytes, but the store has 2559"),
        ("copy", Answer(403), "the store refuses it"),
    ]:
        store.faults[what] = [fault]
        with pytest.raises(StoreError, match=words):
            uploads.publish(file, "faulty://out/a.bin")
        assert fsspec.filesystem("faulty").find("/out") == []
    store.tag = lambda data: hashlib.md5(data).hexdigest()
    store.faults["put"] = [lambda data: data[::-1]]
    with pytest.raises(StoreError, match="the bytes in the store differ from those uploaded"):
        uploads.publish(file, "faulty://out/a.bin")
    store.faults["put"] = [throttled()]
    store.faults["copy"] = [throttled()]
    uploads.publish(file, "faulty://out/a.bin")
    assert fsspec.filesystem("faulty").find("/out") == ["/out/a.bin"]
    assert entry("faulty://out/a.bin").size == len(BYTES)


def test_what_came_meanwhile_is_kept(store, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(BYTES)

    def theirs(data: bytes) -> bytes:
        fsspec.filesystem("faulty").pipe_file("/out/a.bin", b"theirs")
        return data

    store.faults["put"] = [theirs]
    with pytest.raises(StoreError, match="exists already"):
        uploads.publish(file, "faulty://out/a.bin")
    assert objects.read_text("faulty://out/a.bin") == "theirs"
    assert fsspec.filesystem("faulty").find("/out") == ["/out/a.bin"]


def test_drivers_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="fsspec has no driver for nothing://"):
        entry("nothing://a/b")
    with pytest.raises(StoreError, match="files inside another file are not supported"):
        entry("zip://a.h5::s3://a/b.zip")
    for module, url, words in [
        ("gcsfs", "gs://a/b", "gs://a/b: needs gcsfs: pip install gcsfs"),
        ("fsspec.core", "memory://a", r"needs fsspec: pip install 'keras-mp\[remote\]'"),
    ]:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(NoDriver, match=words):
                entry(url)


def test_owners_of_other_machines_are_known_by_their_beat(monkeypatch) -> None:
    text = owners.me()
    assert not owners.is_dead(text)
    monkeypatch.setattr(owners, "_host", lambda: ["another"])
    assert not owners.is_dead(text)
    later = owners.time.time() + owners.DEAD + 1
    monkeypatch.setattr(owners.time, "time", lambda: later)
    assert owners.is_dead(text)
    assert owners.is_dead("nonsense")
    assert owners.is_dead("{}")
