"""Listing, downloads, uploads and small texts with real servers."""

import hashlib
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import pytest

from keras_mp.files import locked_folders
from keras_mp.files.stores import drivers, objects, owners, uploads
from keras_mp.files.stores.downloads import download, tail, with_sizes
from keras_mp.files.stores.errors import Denied, NotThere, StoreError, ThereAlready
from keras_mp.files.stores.listing import entry, exists, listed
from keras_mp.files.stores.urls import join, parent
from tests.store_servers import PASSWORD, Store

BYTES = bytes(range(256)) * 300


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.bin").write_bytes(BYTES)
    (folder / "inner" / "b.bin").write_bytes(BYTES[:1000])
    (folder / "inner" / "c c.txt").write_text("text")
    return folder


def test_a_listing_has_what_is_there(server: Store, files: Path) -> None:
    url = server.put(files, "listed")
    found = with_sizes(listed(url, deep=True))
    names = ["a.bin", "inner/b.bin", "inner/c c.txt"]
    assert [one.name.replace("%20", " ") for one in found] == names
    assert [one.size for one in found] == [len(BYTES), 1000, 4]
    if server.name == "s3":
        assert found[0].md5 == hashlib.md5(BYTES).hexdigest()
    assert not exists(server.url("listed", "none"))
    for deep in (True, False):
        with pytest.raises(NotThere):
            listed(server.url("nothing"), deep=deep)


def test_a_download_is_what_was_put(server: Store, files: Path, tmp_path: Path) -> None:
    url = server.put(files, "downloaded")
    found = [one for one in with_sizes(listed(url, deep=True)) if one.name.endswith(".bin")]
    (tmp_path / "here").mkdir()
    paths = download(found, tmp_path / "here")
    assert [path.read_bytes() for path in paths] == [BYTES, BYTES[:1000]]
    assert tail(join(url, "a.bin"), 10) == BYTES[-10:]
    assert tail(join(url, "inner/b.bin"), 5000) == BYTES[:1000]


def test_an_upload_is_there_at_the_end(writable_server: Store, files: Path) -> None:
    url = writable_server.url("uploaded", "more", "a.bin")
    uploads.publish(files / "a.bin", url)
    assert zlib.crc32(tail(url, 10**6)) == zlib.crc32(BYTES)
    assert [one.name for one in listed(parent(url), deep=True)] == ["a.bin"]
    with pytest.raises(ThereAlready, match="exists already"):
        uploads.publish(files / "inner" / "b.bin", url)
    entry_of = entry(url)
    assert (entry_of.type, entry_of.size) == ("file", len(BYTES))


def test_the_web_is_not_written_to(https_server: Store, files: Path) -> None:
    with pytest.raises(StoreError, match="is for reading"):
        uploads.publish(files / "a.bin", https_server.url("new.bin"))
    with pytest.raises(StoreError, match="is for reading"):
        objects.write_text(https_server.url("new.txt"), "text")
    assert not exists(https_server.url("new.bin"))


def test_texts_are_replaced_and_made_once(writable_server: Store) -> None:
    url = writable_server.url("texts", writable_server.name, "ledger.txt")
    assert objects.read_text(url) is None
    objects.write_text(url, "ä\n")
    objects.write_text(url, "ä\nb\n")
    assert objects.read_text(url) == "ä\nb\n"
    lock = join(parent(url), "lock")
    assert objects.create_text(lock, "mine")
    assert not objects.create_text(lock, "yours")
    assert objects.read_text(lock) == "mine"
    assert [one.name for one in listed(parent(url), deep=True)] == ["ledger.txt", "lock"]
    objects.delete(lock)
    objects.delete(lock)
    assert not exists(lock)


def test_links_are_told_and_not_followed(sftp_server: Store, files: Path) -> None:
    url = sftp_server.put(files, "linked")
    assert sftp_server.folder is not None
    (sftp_server.folder / "linked" / "loop").symlink_to("..")
    (sftp_server.folder / "linked" / "link.bin").symlink_to("a.bin")
    found = {one.name: one.type for one in listed(url, deep=True)}
    assert found["loop"] == found["link.bin"] == "link"
    assert len(found) == 5


def test_a_wrong_password_is_refused_once_and_shown_nowhere(sftp_server: Store) -> None:
    wrong = sftp_server.url("a").replace(PASSWORD, "wr0ng-pass")
    start = time.monotonic()
    with pytest.raises(Denied) as error:
        entry(wrong)
    assert time.monotonic() - start < 5
    assert "wr0ng-pass" not in f"{error.value!r} {error.value}"


def test_an_authority_that_nobody_knows(https_server: Store, monkeypatch) -> None:
    from fsspec import config

    # One that trusts nobody; what the environment says is read once, when the driver is imported.
    trusting = {"ssl": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)}
    monkeypatch.setitem(config.conf, "https", trusting)
    with pytest.raises(StoreError, match=r"(?i)certificate"):
        entry(https_server.url("a"))


def test_a_server_that_says_nothing(sftp_server: Store, files: Path, monkeypatch) -> None:
    from fsspec import config

    url = sftp_server.put(files / "a.bin", "silent.bin")
    monkeypatch.setattr(drivers, "SILENCE", 0.3)
    monkeypatch.setitem(config.conf, "sftp", {**sftp_server.conf, "banner_timeout": 0.3})
    assert entry(url).size == len(BYTES)
    goes_on = threading.Timer(1.0, os.kill, (sftp_server.process.pid, signal.SIGCONT))
    os.kill(sftp_server.process.pid, signal.SIGSTOP)
    goes_on.start()
    try:
        assert entry(url).size == len(BYTES), "asked again"
    finally:
        goes_on.join()


DIES = """
import os, sys, signal
from pathlib import Path
from keras_mp.files.stores import drivers, uploads
move = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
uploads._move = move
uploads.publish(Path(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are known by /proc")
def test_what_a_killed_process_left_is_removed(writable_server: Store, files: Path) -> None:
    url = writable_server.url("killed", "a.bin")
    command = [sys.executable, "-W", "ignore", "-c", DIES, str(files / "a.bin"), url]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == -9, done.stderr.decode()
    folder = parent(url)
    left = [one.name for one in listed(folder, deep=True)]
    assert sorted(name.rpartition("/")[2] for name in left) == ["a.bin", owners.NAME]
    assert not exists(url)
    # One that is at work stays.
    live = join(folder, locked_folders.new_name())
    objects.write_text(join(live, owners.NAME), owners.me())
    uploads.remove_stale(folder)
    assert [one.name for one in listed(folder, deep=True)] == [
        f"{live.rpartition('/')[2]}/{owners.NAME}"
    ]
