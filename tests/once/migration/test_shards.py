"""`--shard-size` as far as no model is needed: sizes, and folders that appear whole or not."""

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from keras_mp.migration import publishing, shards
from keras_mp.migration.cli import main
from keras_mp.migration.publishing import Refused

SIZES = {
    "5GB": 5 * 10**9,
    "500mb": 5 * 10**8,
    "2 GiB": 2 << 30,
    "1.5KB": 1500,
    "4000000": 4_000_000,
    "0.1GB": 10**8,
    "20000B": 20_000,
}


@pytest.mark.parametrize("text", SIZES)
def test_sizes(text: str) -> None:
    assert shards.size(text) == SIZES[text]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' is not a size"),
        ("5 apples", "'5 apples' is not a size: write one such as 20GB"),
        ("-5GB", "'-5GB' is not a size"),
        ("nan", "'nan' is not a size"),
        ("999", "expected 1000 bytes or more"),
        ("0", "'0' is not a size"),
    ],
)
def test_what_is_no_size(
    text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    out = str(tmp_path / "out")
    assert main(["migrate", str(tmp_path / "model.h5"), "-o", out, f"--shard-size={text}"]) == 2
    assert f"argument --shard-size: {why}" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["model.h5"]


@pytest.mark.parametrize("name", ["train.py", "model.json"])
def test_it_is_for_artefacts(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text("{}")
    assert main(["migrate", str(tmp_path / name), "--shard-size", "5GB"]) == 2
    assert "--shard-size is for artefacts" in capsys.readouterr().err


def test_it_is_for_one_artefact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    out = str(tmp_path / "out")
    assert main(["migrate", str(tmp_path / "in"), "-o", out, "--shard-size", "5GB"]) == 2
    assert "--shard-size writes one model: name one artefact" in capsys.readouterr().err
    assert not Path(out).exists()


# -- the folder that appears whole or not at all --------------------------------------------------


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("out.keras", "it becomes a folder of shards: choose a name without .keras"),
        ("there/file/out", "the folder .* does not exist"),
        ("there", "exists already: choose another folder"),
    ],
)
def test_places_that_are_none(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    with pytest.raises(Refused, match=why):
        publishing.check(tmp_path / name, folder=True)


def test_a_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with publishing.staged_output(out, folder=True) as beside:
        beside.mkdir()
        (beside / "a").write_bytes(b"a")
        assert not out.exists()
        (beside / "b").write_bytes(b"b")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {"a": b"a", "b": b"b"}
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("what", ["file", "folder", "late file", "late folder"])
def test_nothing_is_written_over_what_came_meanwhile(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def come() -> None:
        if what.endswith("file"):
            out.write_bytes(b"theirs")
        else:
            out.mkdir()
            (out / "theirs").write_bytes(b"theirs")

    def write() -> None:
        with publishing.staged_output(out, folder=True) as beside:
            beside.mkdir()
            (beside / "mine").write_bytes(b"mine")
            if not what.startswith("late"):
                come()

    if what.startswith("late"):
        # After it was looked for, and before the rename.
        lexists = os.path.lexists
        asked: list[object] = []

        def nothing_there(path: Path) -> bool:
            asked.append(path)
            found = lexists(path)
            if len(asked) == 2:
                come()
            return found

        monkeypatch.setattr(os.path, "lexists", nothing_there)
    with pytest.raises(Refused, match="another program made it during this run"):
        write()
    theirs = out if what.endswith("file") else out / "theirs"
    assert theirs.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [out]


def test_an_error_of_the_disk_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def write() -> None:
        with publishing.staged_output(tmp_path / "out", folder=True) as beside:
            beside.mkdir()
            (beside / "a").write_bytes(b"a")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write()
    assert list(tmp_path.iterdir()) == []


WRITER = """
import sys
from pathlib import Path
from keras_mp.migration import publishing
print("ready", flush=True)
with publishing.staged_output(Path(sys.argv[1]), folder=True) as beside:
    beside.mkdir()
    for i in range(100):
        (beside / str(i)).write_bytes(bytes([i]) * 50_000)
print("done", flush=True)
"""


def start(out: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", WRITER, out], stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    return process


def is_whole(out: Path) -> bool:
    return {path.name: path.stat().st_size for path in out.iterdir()} == {
        str(i): 50_000 for i in range(100)
    }


def test_killed_at_any_moment_it_is_whole_or_not_there(tmp_path: Path) -> None:
    chance = random.Random(7)
    process, began = start(tmp_path / "first"), time.perf_counter()
    process.communicate()
    duration = time.perf_counter() - began
    assert is_whole(tmp_path / "first")
    seen = {True}
    for i in range(8):
        out = tmp_path / f"out-{i}"
        process = start(out)
        time.sleep(chance.uniform(0, duration))
        process.kill()
        process.communicate()
        assert process.returncode in (0, -signal.SIGKILL)
        seen.add(out.exists())
        assert not out.exists() or is_whole(out)
    assert False in seen, "nothing was killed in time"


def test_a_full_disk(tmp_path: Path) -> None:
    # Files of more than 20 kB cannot be written: as a full disk, in the midst of it.
    limit = "import resource, signal\n" + "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += f"resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, {resource.RLIM_INFINITY}))\n"
    command = [sys.executable, "-c", limit + WRITER, tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []
