"""A file is replaced as a whole or not at all, and is on the disk when that is said."""

import errno
import os
import stat

import pytest

from keras_mp.files.atomic_writing import replacing, write_atomically
from keras_mp.migration.writing import write_new


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("data", "written"),
    [("ß\r\n\n", b"\xc3\x9f\r\n\n"), (b"\xff\x00", b"\xff\x00"), ("", b"")],
)
@pytest.mark.parametrize("old", [None, "old"])
def test_holds_the_data_as_they_are(tmp_path, data, written, old):
    path = tmp_path / "file"
    if old is not None:
        path.write_text(old)
        path.chmod(0o604)
    write_atomically(path, data)
    assert path.read_bytes() == written
    assert old is None or stat.S_IMODE(path.stat().st_mode) == 0o604
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("allowed", [True, False])
def test_owner_and_group_are_kept_where_that_is_allowed(tmp_path, monkeypatch, allowed):
    def chown(path, owner, group):
        given.append((owner, group))
        if not allowed:
            raise PermissionError(errno.EPERM, "not yours")

    given, path = [], tmp_path / "file"
    write_atomically(path, "old")
    there = path.stat()
    monkeypatch.setattr(os, "chown", chown)
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert given == [(-1, there.st_gid), (there.st_uid, -1)]
    assert path.stat().st_mode == there.st_mode


def test_extended_attributes_are_kept(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    try:
        os.setxattr(path, "user.origin", b"a\0b")
    except (AttributeError, OSError) as error:
        pytest.skip(f"there are none here: {error}")
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert os.getxattr(path, "user.origin") == b"a\0b"


def test_attributes_that_may_not_be_set_cost_nothing(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old")

    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "listxattr", lambda _: ["user.a", "security.capability"], raising=False)
    monkeypatch.setattr(os, "getxattr", lambda *_: b"", raising=False)
    monkeypatch.setattr(os, "setxattr", refuse, raising=False)
    write_atomically(path, "new")
    assert path.read_text() == "new"


def test_nobody_else_reads_it_before_it_has_its_mode(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o640)
    with replacing(path) as new:
        new.write_text("new")
        assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_what_a_link_points_to_is_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("old")
    (tmp_path / "link").symlink_to("folder/file")
    write_atomically(str(tmp_path / "link"), "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "file").read_text() == "new"
    assert names(tmp_path / "folder") == ["file"]


def test_a_pipe_is_not(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is not a regular file"):
        write_atomically(tmp_path / "pipe", "new")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_whoever_fails_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail():
        with replacing(path) as new:
            new.write_text("a part")
            assert path.read_text() == "old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


@pytest.fixture
def synced(monkeypatch, tmp_path):
    """What was synced, in order: "file" or "folder", and what the folder held then."""
    done, real = [], os.fsync

    def fsync(descriptor):
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        done.append((kind, "file" in names(tmp_path)))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return done


def test_the_data_are_synced_and_then_the_name(synced, tmp_path):
    write_atomically(tmp_path / "file", "new")
    assert synced == [("file", False), ("folder", True)]


@pytest.mark.parametrize("sync", [True, False])
def test_so_are_those_of_a_new_file_if_asked(synced, tmp_path, sync):
    write_new(tmp_path / "file", "new", sync=sync)
    assert synced == ([("file", False), ("folder", True)] if sync else [])
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "file", "newer", sync=sync)
    assert (tmp_path / "file").read_text() == "new"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize(("number", "fails"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_file_system_that_syncs_no_folders_will_do(monkeypatch, tmp_path, number, fails):
    real = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    if fails:
        with pytest.raises(OSError, match=os.strerror(number)):
            write_atomically(tmp_path / "file", "new")
    else:
        write_atomically(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"
