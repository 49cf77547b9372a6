"""Room for files of stores: a limit that all processes share, and what a killed one left."""

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from keras_mp.files import locked_folders
from keras_mp.files.stores import scratch
from keras_mp.files.stores.errors import NoRoom
from keras_mp.files.stores.scratch import Scratch


def test_more_than_the_limit_is_refused_at_once(tmp_path: Path) -> None:
    room = Scratch(tmp_path, 1000)
    words = r"a: takes 1\.5 KB of scratch, more than the limit of 1 KB \(--scratch-size"
    with pytest.raises(NoRoom, match=words), room.reserved(1500, "a"):
        pass
    with (
        pytest.raises(NoRoom, match="there is no folder"),
        Scratch(tmp_path / "b").reserved(1, "a"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_more_than_the_disk_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda _: usage)
    words = r"has 100 bytes left: name another folder with --scratch"
    with pytest.raises(NoRoom, match=words), Scratch(tmp_path).reserved(101, "a"):
        pass


def test_others_wait_until_there_is_room(tmp_path: Path) -> None:
    room, order = Scratch(tmp_path, 1000), []

    def other() -> None:
        with room.reserved(600, "b"):
            order.append("other")

    with room.reserved(600, "a") as folder:
        (folder / "file").touch()
        with room.reserved(400, "c"):
            waiting = threading.Thread(target=other)
            waiting.start()
            waiting.join(3 * scratch._PAUSE)
            assert waiting.is_alive()
        order.append("first")
    waiting.join(20)
    assert order == ["first", "other"]
    assert list(tmp_path.iterdir()) == []


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "PATIENCE", 0.0)
    room = Scratch(tmp_path, 1000)
    with room.reserved(600, "a"), pytest.raises(NoRoom, match="others hold the scratch folder"):
        room.reserved(600, "b").__enter__()


KILLED = """
import os, signal, sys
from pathlib import Path
from keras_mp.files.stores.scratch import Scratch
with Scratch(Path(sys.argv[1]), 1000).reserved(900, "a") as folder:
    (folder / "file").write_bytes(bytes(900))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")
def test_what_a_killed_process_held_is_free(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    assert subprocess.run(command, timeout=60, check=False).returncode == -9
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(locked_folders.START)
    with Scratch(tmp_path, 1000).reserved(900, "b") as folder:
        assert not left.exists()
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("text", ["", "20", "-1GB", "GB", "1e999GB", "2XB", "0"])
def test_what_is_no_size(text: str) -> None:
    if text == "20":
        assert scratch.parsed_size(text) == 20
        return
    with pytest.raises(ValueError, match="is not a size: write one such as 20GB"):
        scratch.parsed_size(text)
