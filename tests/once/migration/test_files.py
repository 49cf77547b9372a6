"""What `keras-mp migrate` does with files and folders, whoever loads the models: no keras here."""

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import pytest

from keras_mp.compat.checkpoints.errors import Unreadable
from keras_mp.compat.file_formats.file_kinds import kind_of
from keras_mp.files.atomic_writing import beside
from keras_mp.migration import (
    artefacts,
    backends,
    building,
    fleet,
    ledger,
    publishing,
    running,
    sources,
    tasks,
)
from keras_mp.migration.cli import main
from keras_mp.migration.publishing import Refused
from keras_mp.migration.requests import Outcome, Request
from keras_mp.migration.walking import is_one_checkpoint, walk
from tests.fixtures import FIXTURES

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

HDF5 = b"\x89HDF\r\n\x1a\n"


@pytest.fixture(autouse=True, scope="module")
def no_keras() -> Iterator[None]:
    before = "keras" in sys.modules
    yield
    assert ("keras" in sys.modules) == before, "something here needs keras"


# -- the file that appears whole or not at all ----------------------------------------------------


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "out.keras"
    with publishing.staged_output(out) as beside:
        beside.write_bytes(b"half")
        assert not out.exists()
        beside.write_bytes(b"whole")
    assert out.read_bytes() == b"whole"
    assert [path.name for path in tmp_path.iterdir()] == ["out.keras"]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with publishing.staged_output(tmp_path / "out.keras") as beside:
            beside.write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def existing(out: Path, what: str) -> None:
    match what:
        case "file":
            out.write_bytes(b"")
        case "folder":
            out.mkdir()
        case "link":
            out.with_name("target").write_bytes(b"kept")
            out.symlink_to("target")
        case "dangling link":
            out.symlink_to("nowhere")
        case "pipe":
            os.mkfifo(out)


KINDS = ("file", "folder", "link", "dangling link", "pipe")


@pytest.mark.parametrize("what", KINDS)
def test_nothing_is_written_over(what: str, tmp_path: Path) -> None:
    out = tmp_path / "out.keras"
    existing(out, what)
    before = out.lstat()
    with pytest.raises(Refused, match="exists already"), publishing.staged_output(out):
        pytest.fail("too late")
    assert out.lstat() == before


@pytest.mark.parametrize("links", [True, False])
def test_nothing_is_written_over_what_came_meanwhile(
    links: bool, tmp_path: Path, monkeypatch: Patch
) -> None:
    def no_link(*_: object) -> None:
        raise OSError(errno.EPERM, "no links on this disk")

    if not links:
        monkeypatch.setattr(os, "link", no_link)
    out = tmp_path / "out.keras"

    def write() -> None:
        with publishing.staged_output(out) as beside:
            beside.write_bytes(b"mine")
            out.write_bytes(b"theirs")

    with pytest.raises(Refused, match="exists already"):
        write()
    assert out.read_bytes() == b"theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["out.keras"]


def test_nothing_is_written_over_a_folder_that_came_meanwhile(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    out, rename = tmp_path / "shards", Path.rename

    def late(self: Path, target: Path) -> Path:
        if target == out:
            (out / "theirs").mkdir(parents=True)
        return rename(self, target)

    def write() -> None:
        with publishing.staged_output(out, folder=True) as beside:
            beside.mkdir()
            (beside / "mine").touch()

    monkeypatch.setattr(Path, "rename", late)
    with pytest.raises(Refused, match="made it during this run"):
        write()
    assert [path.name for path in out.iterdir()] == ["theirs"]
    assert [path.name for path in tmp_path.iterdir()] == ["shards"]


def test_disks_without_links(tmp_path: Path, monkeypatch: Patch) -> None:
    def no_link(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links on this disk")

    monkeypatch.setattr(os, "link", no_link)
    with publishing.staged_output(tmp_path / "out.keras") as beside:
        beside.write_bytes(b"whole")
    assert (tmp_path / "out.keras").read_bytes() == b"whole"


def test_folders_above_an_output_are_made(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b" / "out.keras"
    with pytest.raises(ZeroDivisionError), publishing.staged_output(out):
        raise ZeroDivisionError
    assert not (tmp_path / "a").exists(), "they go where nothing is written"
    with publishing.staged_output(out) as beside:
        beside.write_bytes(b"whole")
    assert out.read_bytes() == b"whole"
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "a", tmp_path / "a" / "b", out]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("out.h5", "must end in .keras"),
        ("file/out.keras", "the folder .* does not exist"),
        ("file/deep/out.keras", "the folder .* does not exist and cannot be created"),
    ],
)
def test_places_that_are_none(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Refused, match=why):
        publishing.check(tmp_path / name)


WRITER = """
import sys
from pathlib import Path
from keras_mp.migration import publishing
print("ready", flush=True)
with publishing.staged_output(Path(sys.argv[1])) as beside:
    with beside.open("wb") as file:
        for i in range(400):
            file.write(bytes([i % 256]) * 50_000)
print("done", flush=True)
"""
WHOLE = 400 * 50_000


def start(out: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", WRITER, out], stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    return process


def test_killed_at_any_moment_it_is_whole_or_not_there(tmp_path: Path) -> None:
    chance, out = random.Random(7), tmp_path / "out.keras"
    began = time.perf_counter()
    start(out).communicate()
    duration = time.perf_counter() - began
    seen = set()
    for _ in range(24):
        out.unlink(missing_ok=True)
        process = start(out)
        time.sleep(chance.uniform(0, duration))
        process.kill()
        process.communicate()
        seen.add(out.exists())
        assert not out.exists() or out.stat().st_size == WHOLE
    assert seen == {True, False}, "nothing was killed, or all was"
    publishing.remove_stale(tmp_path)
    # Folders that were not locked yet are left for a minute.
    left = [path for path in tmp_path.iterdir() if path != out]
    assert not any((path / "lock").exists() for path in left)


DIES = """
import os, signal, sys
from keras_mp.migration import writing
from keras_mp.migration.cli import main
writing.link_new = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
main(["migrate", *sys.argv[1:]])
"""


@pytest.mark.parametrize("name", ["old.json", "old.py"])
def test_a_file_that_a_killed_run_left_is_removed(name: str, tmp_path: Path) -> None:
    old, out = tmp_path / name, tmp_path / "out" / f"new{Path(name).suffix}"
    json_text = '{"class_name": "Adam", "config": {"lr": 0.5}}'
    old.write_text(json_text if name.endswith(".json") else "import tensorflow as tf\n")
    out.parent.mkdir()
    command = [sys.executable, "-c", DIES, str(old), "-o", str(out)]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == -9
    (left,) = out.parent.iterdir()
    assert left.name.startswith(".keras-mp-")
    with beside(out) as living:
        assert main(["migrate", str(old), "-o", str(out)]) == 0
        assert set(out.parent.iterdir()) == {out, living}
    assert list(out.parent.iterdir()) == [out]


def test_what_a_killed_run_left_is_removed_and_a_living_one_is_not(tmp_path: Path) -> None:
    process = start(tmp_path / "other.keras")
    while not list(tmp_path.glob(".keras-mp-*/lock")):
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGSTOP)
    (living,) = tmp_path.glob(".keras-mp-*")
    try:
        dead = tmp_path / ".keras-mp-0123456789ab.tmp"
        dead.mkdir()
        (dead / "lock").touch()
        unlocked = tmp_path / ".keras-mp-111111111111.tmp"
        unlocked.mkdir()
        old = tmp_path / ".keras-mp-222222222222.tmp"
        old.mkdir()
        (old / "unnamed").touch()
        os.utime(old, (0, 0))
        (tmp_path / ".keras-mp-333333333333.tmp" / "lock").mkdir(parents=True)  # of another's
        before = set(tmp_path.iterdir())
        publishing.remove_stale(tmp_path)
        assert before - set(tmp_path.iterdir()) == {dead, old}
        assert (living / "lock").exists()
    finally:
        os.kill(process.pid, signal.SIGCONT)
        process.communicate()
    assert process.returncode == 0
    assert (tmp_path / "other.keras").stat().st_size == WHOLE


def test_a_full_disk(tmp_path: Path) -> None:
    # Files of more than a megabyte cannot be written: as a full disk, in the midst of it.
    limit = "import resource, signal\n" + "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += f"resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, {resource.RLIM_INFINITY}))\n"
    command = [sys.executable, "-c", limit + WRITER, tmp_path / "out.keras"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


# -- checksums and marks --------------------------------------------------------------------------


def test_checksums_are_those_of_sha256sum(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 3)
    files = [tmp_path / "a", tmp_path / "b"]
    program = shutil.which("sha256sum")
    if program is None:
        pytest.skip("there is no sha256sum")
    one = subprocess.run([program, "a"], cwd=tmp_path, capture_output=True, check=True).stdout
    two = subprocess.run([program, "a", "b"], cwd=tmp_path, capture_output=True, check=True).stdout
    of_two = subprocess.run([program], input=two, capture_output=True, check=True).stdout
    assert sources.checksum(files[:1]) == one.split()[0].decode()
    assert sources.checksum(files) == of_two.split()[0].decode()


def test_a_checksum_of_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=r"gone: cannot be read: No such file or directory"):
        sources.checksum([tmp_path / "gone"])


def test_an_output_says_what_it_is_made_of(tmp_path: Path) -> None:
    path = tmp_path / "out.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")
    assert sources.read_mark(path) == {}
    sources.write_mark(path, "x" * 10**5, "aa", {"model_only": False})
    marked = sources.read_mark(path)
    assert (marked["sha256"], marked["options"]) == ("aa", {"model_only": False})
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["config.json"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"[1]"])
def test_what_is_marked_by_nobody(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "out.keras"
    path.write_bytes(content)
    assert sources.read_mark(path) == {}
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = content
    assert sources.read_mark(path) == {}


# -- the backend ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "keras_json", "installed", "chosen"),
    [
        ({"KERAS_BACKEND": "torch"}, None, "torch jax", None),
        ({"KERAS_BACKEND": "mine"}, None, "jax", None),
        ({}, None, "jax torch tensorflow", None),
        ({}, None, "jax torch", "jax"),
        ({}, None, "torch", "torch"),
        ({}, '{"backend": "torch"}', "jax torch", None),
        ({}, '{"backend": "torch"}', "jax", "jax"),
        ({}, "no json", "torch", "torch"),
        ({"KERAS_BACKEND": ""}, None, "torch", "torch"),
    ],
)
def test_backends(
    environ: dict[str, str],
    keras_json: str | None,
    installed: str,
    chosen: str | None,
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(backends, "_is_installed", lambda name: name in installed.split())
    if keras_json is not None:
        (tmp_path / "keras.json").write_text(keras_json)
    environ = {**environ, "KERAS_HOME": str(tmp_path)}
    said = environ.get("KERAS_BACKEND") or None
    assert backends.choose(environ) == chosen
    assert environ.get("KERAS_BACKEND") == (chosen or said)


@pytest.mark.parametrize(("said", "why"), [("torch", "keras-mp\\[torch\\]"), ("", "none is inst")])
def test_no_backend(said: str, why: str, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(backends, "_is_installed", lambda _: False)
    with pytest.raises(backends.NoBackend, match=why):
        backends.choose({"KERAS_BACKEND": said, "KERAS_HOME": str(tmp_path)})


# -- walking --------------------------------------------------------------------------------------


def model_h5(path: Path, *, weights_only: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.attrs["layer_names" if weights_only else "model_config"] = "{}"
    return path


def checkpoint(prefix: Path) -> Path:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("index", "data-00000-of-00001"):
        Path(f"{prefix}.{suffix}").write_bytes(b"")
    return prefix


def keras_zip(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")
    return path


def saved_model(folder: Path) -> Path:
    checkpoint(folder / "variables" / "variables")
    (folder / "saved_model.pb").write_bytes(b"")
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "in"
    model_h5(root / "a.h5")
    keras_zip(root / "b" / "m.keras")
    model_h5(root / "b" / "m.h5")
    saved_model(root / "b" / "saved")
    checkpoint(root / "b" / "ckpt-1")
    checkpoint(root / "b" / "ckpt-2")
    checkpoint(root / "manager" / "ckpt-7")
    checkpoint(root / "manager" / "ckpt-9")
    (root / "manager" / "checkpoint").write_text('model_checkpoint_path: "ckpt-9"')
    checkpoint(root / "alone" / "ckpt")
    (root / "b" / "no_index.data-00000-of-00001").write_bytes(b"")
    (root / "notes.txt").write_text("not an artefact")
    with zipfile.ZipFile(root / "arrays.npz", "w") as archive:
        archive.writestr("a.npy", b"")
    (root / "link.h5").symlink_to(root / "a.h5")
    (root / "around").symlink_to(root)
    return root


def test_walking(tree: Path) -> None:
    found = walk(tree)
    rows = {
        Path(one.path).relative_to(tree).as_posix(): (one.kind, str(one.out)) for one in found.found
    }
    assert rows == {
        "a.h5": ("h5", "a.keras"),
        "alone": ("checkpoint", "alone.keras"),
        "b/ckpt-1": ("checkpoint", "b/ckpt-1.keras"),
        "b/ckpt-2": ("checkpoint", "b/ckpt-2.keras"),
        "b/m.h5": ("h5", "b/m.h5.keras"),
        "b/m.keras": ("keras", "b/m.keras.keras"),
        "b/no_index": ("checkpoint", "b/no_index.keras"),
        "b/saved": ("saved_model", "b/saved.keras"),
        "manager": ("checkpoint", "manager.keras"),
    }
    assert [one.path for one in found.found] == sorted(one.path for one in found.found)
    assert (found.left, found.links) == (2, 2)


@pytest.mark.parametrize(
    "where", ["venv", ".git", "node_modules/a", "lib/site-packages/a", "a/__pycache__"]
)
def test_what_is_nobodys_artefact(where: str, tmp_path: Path) -> None:
    model_h5(tmp_path / where / "m.h5")
    if where == "venv":
        (tmp_path / "venv" / "pyvenv.cfg").touch()
    assert walk(tmp_path).found == []
    assert len(walk(tmp_path / where).found) == 1, "it is named itself"


def test_an_index_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "faiss.index").write_bytes(b"IxF2" * 100)
    shutil.copyfile(FIXTURES / "edge" / "single.index", tmp_path / "alone.index")
    (tmp_path / "link.index").symlink_to("faiss.index")
    (tmp_path / "link.data-00000-of-00001").symlink_to("faiss.index")
    (tmp_path / "m.h5.data-00000-of-00001").touch()
    model_h5(tmp_path / "m.h5")
    found = walk(tmp_path)
    assert [(Path(one.path).name, one.kind) for one in found.found] == [
        ("alone", "checkpoint"),
        ("m.h5", "checkpoint"),
        ("m.h5", "h5"),
    ]
    assert (found.left, found.links) == (1, 2)


@pytest.mark.parametrize(
    ("name", "kind"), [("m.hdf5", "h5"), ("m.keras", "keras"), ("m.zip", None), (".h5", "h5")]
)
def test_files_that_are_kept_by_their_names(name: str, kind: str | None, tmp_path: Path) -> None:
    start = b"PK\x03\x04" if name in ("m.keras", "m.zip") else HDF5
    (tmp_path / name).write_bytes(start + b"broken")
    found = walk(tmp_path)
    expected = [] if kind is None else [(name, kind)]
    assert [(Path(one.path).name, one.kind) for one in found.found] == expected
    stem = ".h5" if name == ".h5" else "m"
    assert [str(one.out) for one in found.found] == ([f"{stem}.keras"] if kind else [])


def test_what_may_not_be_read_costs_only_itself(
    tree: Path, made: list[str], monkeypatch: Patch, capsys: Capture
) -> None:
    def refusing(real: Any) -> Any:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            if Path(path).name in ("a.h5", "notes.txt", "b"):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *arguments, **options)

        return call

    monkeypatch.setattr(os, "scandir", refusing(os.scandir))
    monkeypatch.setattr(Path, "open", refusing(Path.open))
    monkeypatch.setattr(os, "open", refusing(os.open))
    keras_zip(tree / "z" / "ok.keras")
    assert migrate("--json", tree) == 2
    rows = {row["path"]: row for row in json.loads(capsys.readouterr().out)["results"]}
    errors = {
        Path(path).name: row["error"]["message"]
        for path, row in rows.items()
        if row["status"] == "failed"
    }
    assert errors["b"].startswith("this folder cannot be read")
    assert "Permission denied" in errors["a.h5"]
    assert errors.keys() == {"a.h5", "b"}
    assert rows[str(tree / "z" / "ok.keras")]["status"] == "would convert"


def test_a_file_that_goes_after_it_was_found_costs_only_itself(
    tree: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    def looked_at() -> dict[str, Any]:
        assert migrate("--json", tree) == 2
        rows = json.loads(capsys.readouterr().out)["results"]
        return {Path(row["path"]).relative_to(tree).as_posix(): row for row in rows}

    def gone(path: str) -> object:
        if path.endswith("m.h5"):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return kind_of(path)

    before = looked_at()
    monkeypatch.setattr(running, "kind_of", gone)
    after = looked_at()
    assert before.pop("b/m.h5")["status"] == "would convert"
    row = after.pop("b/m.h5")
    assert row["status"] == "failed"
    assert "No such file" in row["error"]["message"]
    assert after == before


def test_a_folder_that_is_one_checkpoint(tree: Path) -> None:
    found = {name: is_one_checkpoint(tree / name) for name in ("manager", "alone", "b", ".")}
    assert found == {"manager": True, "alone": True, "b": False, ".": False}


# -- folders --------------------------------------------------------------------------------------


class Here(ThreadPoolExecutor):
    """Instead of processes, threads of this one."""

    def __init__(self, jobs: int, environment: dict[str, str]) -> None:
        super().__init__(jobs)

    def kill(self) -> None:
        self.shutdown(wait=True, cancel_futures=True)


@pytest.fixture
def made(monkeypatch: Patch) -> list[str]:
    """Instead of Keras, something that writes a marked archive; returns what it was given."""
    given: list[str] = []

    def convert(request: Request) -> Outcome:
        path = Path(request.path)
        kind = kind_of(path)
        if request.model is None and not sources.holds_model(path, kind):
            return Outcome(request.path, "refused", kind, why=artefacts.NEEDS_MODEL)
        given.append(request.path)
        if path.name == "m.keras":
            return Outcome(request.path, "failed", why="it is broken\nsays a second line")
        assert request.out is not None
        with publishing.staged_output(Path(request.out)) as beside:
            keras_zip(beside)
            files = sources.files_of(path, "saved_model" if path.is_dir() else "h5")
            sources.write_mark(beside, request.path, sources.checksum(files), request.options())
            written = (beside.stat().st_size, sources.checksum([beside]))
        return Outcome(request.path, "converted", kind, out=request.out, written=written)

    def caught(request: Request) -> Outcome:
        try:
            return convert(request)
        except Unreadable as error:
            return Outcome(request.path, "failed", why=str(error))

    monkeypatch.setattr(artefacts, "migrate", caught)
    monkeypatch.setattr(tasks, "_prepare", lambda backend: None)
    monkeypatch.setattr(fleet, "Processes", Here)
    monkeypatch.setattr(backends, "backend_and_note", lambda is_here: ("jax", None))
    return given


def migrate(*arguments: object) -> int:
    return main(["migrate", *map(str, arguments)])


def statuses(out: str, tree: Path) -> dict[str, str]:
    rows = [line.split()[:2] for line in out.splitlines()[1:]]
    return {Path(path).relative_to(tree).as_posix(): status for path, status in rows}


def test_a_folder(tree: Path, tmp_path: Path, made: list[str], capsys: Capture) -> None:
    assert migrate(tree, "-o", tmp_path / "out") == 2
    out, err = capsys.readouterr()
    assert statuses(out, tree) == {
        "a.h5": "converted",
        "alone": "refused",
        "b/ckpt-1": "refused",
        "b/ckpt-2": "refused",
        "b/m.h5": "converted",
        "b/m.keras": "failed",
        "b/no_index": "failed",
        "b/saved": "converted",
        "manager": "refused",
    }
    assert out.count("a checkpoint has no model config: pass --model") == 4
    assert "it is broken" in out
    assert "a second line" not in out
    assert f"{tree}: 9 artefacts, 2 other files, 2 symbolic links not followed" in err
    assert err.endswith("keras-mp: 3 converted, 2 failed, 4 refused\n")
    written = sorted(
        p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*")
    )
    assert written == ["a.keras", "b", "b/m.h5.keras", "b/saved.keras", ledger.NAME]


def test_no_empty_folders_are_left(tmp_path: Path, made: list[str]) -> None:
    keras_zip(tmp_path / "in" / "deep" / "deeper" / "m.keras")
    model_h5(tmp_path / "in" / "other" / "m.h5")
    assert migrate(tmp_path / "in", "-o", tmp_path / "out") == 2
    assert len(made) == 2
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"other", ledger.NAME}


def test_an_interrupted_run_leaves_no_empty_folders(tmp_path: Path, made: list[str]) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    model_h5(tmp_path / "in" / "a" / "m.h5")
    with pytest.raises(KeyboardInterrupt):
        fleet.migrate_folder(tmp_path / "in", tmp_path / "out", on_row=interrupt)
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_dir()] == [
        path.parent for path in (tmp_path / "out").rglob("*.keras")
    ]


def test_a_folder_that_cannot_be_made(tree: Path, made: list[str], capsys: Capture) -> None:
    out = tree.parent / "file" / "out"
    out.parent.write_text("no folder")
    assert migrate(tree, "-o", out) == 2
    assert f"{tree}: error: {out}: Not a directory" in capsys.readouterr().err
    assert made == []


def test_a_second_run_goes_on(tree: Path, tmp_path: Path, made: list[str], capsys: Capture) -> None:
    for name in ("alone", "manager"):
        shutil.rmtree(tree / name)
    for path in (tree / "b").iterdir():
        if path.name not in ("m.h5", "saved"):
            path.unlink()
    assert migrate(tree, "-o", tmp_path / "out") == 0
    made.clear()
    assert migrate(tree, "-o", tmp_path / "out") == 0
    assert made == []
    (tmp_path / "out" / "b" / "saved.keras").unlink()
    model_h5(tree / "a.h5", weights_only=False).write_bytes((tree / "a.h5").read_bytes() + b"new")
    keras_zip(tmp_path / "out" / "other.keras")
    capsys.readouterr()
    assert migrate(tree, "-o", tmp_path / "out") == 2
    assert made == [str(tree / "b" / "saved")]
    out = capsys.readouterr().out
    assert statuses(out, tree) == {"a.h5": "refused", "b/m.h5": "skipped", "b/saved": "converted"}
    assert "exists already and was not made from this artefact" in out
    assert migrate(tree, "-o", tmp_path / "out", "--model-only") == 2, "other options, other file"
    assert made == [str(tree / "b" / "saved")]


@pytest.mark.parametrize("where", ["inside", "the same", "by a link", "a file"])
def test_outputs_are_not_in_the_input(
    where: str, tree: Path, tmp_path: Path, made: list[str], capsys: Capture
) -> None:
    out = {"inside": tree / "out", "the same": tree, "a file": tree / "a.h5"}.get(where)
    if out is None:
        out = tmp_path / "link"
        out.symlink_to(tree / "b")
    before = sorted(tree.rglob("*"))
    assert migrate(tree, "-o", out) == 2
    assert sorted(tree.rglob("*")) == before
    assert made == []
    expected = "and is not a folder" if where == "a file" else "write elsewhere"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--check"], ["--json"]])
def test_without_o_a_folder_is_only_listed(
    options: list[str], tree: Path, tmp_path: Path, made: list[str], capsys: Capture
) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert migrate(tree, *options) == 2
    assert made == []
    assert sorted(tmp_path.rglob("*")) == before
    capsys.readouterr()
    for name in ("alone", "manager", "b"):
        shutil.rmtree(tree / name)
    assert migrate(tree, *options) == (1 if "--check" in options else 0)
    out = capsys.readouterr().out
    if not options:
        assert statuses(out, tree) == {"a.h5": "would"}
    if options == ["--json"]:
        (row,) = json.loads(out)["results"]
        assert (row["status"], row["out"], row["error"]) == ("would convert", "a.keras", None)


@pytest.mark.parametrize("option", ["--optimizer", "--model"])
def test_a_file_that_is_not_there_is_said_before_anything_is_done(
    option: str, tree: Path, tmp_path: Path, made: list[str], capsys: Capture
) -> None:
    assert migrate(tree, "-o", tmp_path / "out", option, tmp_path / "none.json") == 2
    error = capsys.readouterr().err
    assert "none.json" in error
    assert "Traceback" not in error
    assert made == []
    assert not (tmp_path / "out").exists()


def test_model_is_for_those_that_hold_none(tree: Path) -> None:
    def given(name: str, model: str) -> tuple[str | None, tuple[str, ...], str | None]:
        path = tree / name
        request = Request(str(path), given=(model,), optimizer="o.json").for_artefact(name, None)
        fitted = artefacts.without_unneeded_options(request, kind_of(path))
        return fitted.model, fitted.scripts, fitted.optimizer

    assert given("b/ckpt-1", "net.py:make") == ("net.py:make", (), "o.json")
    assert given("a.h5", "net.py:make") == (None, ("net.py",), None), "its classes may be needed"
    assert given("a.h5", "model.json") == (None, (), None)
    assert given("manager", "model.json") == ("model.json", (), "o.json")


def test_what_may_not_be_read_is_a_failure_of_its_own(
    tree: Path, tmp_path: Path, made: list[str], monkeypatch: Patch
) -> None:
    looked_up = sources.files_of

    def refuse(path: Path, kind: Any) -> Any:
        if path.name == "a.h5":
            raise PermissionError(13, "Permission denied", str(path))
        return looked_up(path, kind)

    monkeypatch.setattr(sources, "files_of", refuse)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.keras").touch()
    rows: dict[str, dict[str, Any]] = {}
    fleet.migrate_folder(tree, tmp_path / "out", on_row=lambda row: rows.update({row["name"]: row}))
    refused = rows.pop("a.h5")
    assert (refused["result"], refused["why"]) == ("failed", f"{tree / 'a.h5'}: Permission denied")
    assert "done" in {row["result"] for row in rows.values()}


# -- one artefact, up to where keras is needed ----------------------------------------------------


@pytest.mark.parametrize("what", KINDS)
def test_an_output_that_is_there(what: str, tmp_path: Path, capsys: Capture) -> None:
    source, out = model_h5(tmp_path / "m.h5"), tmp_path / "out.keras"
    existing(out, what)
    assert migrate(source, "-o", out) == 2
    assert "exists already" in capsys.readouterr().err


def test_an_output_inside_the_artefact(tmp_path: Path, capsys: Capture) -> None:
    source = saved_model(tmp_path / "saved")
    assert migrate(source, "-o", source / "out.keras") == 2
    assert "is inside the artefact" in capsys.readouterr().err


@pytest.mark.parametrize("as_json", [False, True])
def test_a_checkpoint_needs_a_model(as_json: bool, tmp_path: Path, capsys: Capture) -> None:
    source = checkpoint(tmp_path / "ckpt")
    options = ["--json"] if as_json else []
    assert migrate(*options, source, "-o", tmp_path / "out.keras") == 2
    out, err = capsys.readouterr()
    assert artefacts.NEEDS_MODEL in (out if as_json else err)
    assert not (tmp_path / "out.keras").exists()


def test_weights_need_a_model(tmp_path: Path, capsys: Capture) -> None:
    source = model_h5(tmp_path / "w.h5", weights_only=True)
    assert migrate(source, "-o", tmp_path / "out.keras") == 2
    assert "the file has weights and no model config: pass --model" in capsys.readouterr().err


def test_a_file_of_keras_3_is_left_alone(tmp_path: Path, capsys: Capture) -> None:
    source = keras_zip(tmp_path / "m.keras")
    with zipfile.ZipFile(source, "a") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.4.1"}))
    assert migrate(source, "-o", tmp_path / "out.keras") == 0
    assert "Keras 3.4.1 wrote it: nothing to do" in capsys.readouterr().err
    assert not (tmp_path / "out.keras").exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (HDF5, "m.h5: cannot be opened"),
        (b"junk", "is not a checkpoint"),
        (b"", "is empty"),
    ],
)
def test_junk(content: bytes, why: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "m.h5").write_bytes(content)
    assert migrate(tmp_path / "m.h5", "-o", tmp_path / "out.keras") == 2
    assert why in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["m.h5"]


def test_what_is_not_installed_is_named(monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    assert main(["inspect", str(FIXTURES / "edge" / "single")]) == 2
    error = capsys.readouterr().err
    assert "google_crc32c" in error
    assert "pip install 'keras-mp[migrate]'" in error
    assert len(error.splitlines()) == 1


def test_scripts(tmp_path: Path) -> None:
    script = tmp_path / "net.py"
    (tmp_path / "beside_net.py").write_text("WIDTH = 3\n")
    text = "import beside_net\nfrom shutil import move\nclass Net: width = beside_net.WIDTH\n"
    script.write_text(f"{text}def loss(y, p): return 0\n")
    path = list(sys.path)
    try:
        building.run_script(str(script))
        objects = building.objects_of([building.run_script(str(script))])
        assert objects["Net"].width == 3
        assert objects.keys() == {"Net", "loss"}, "no functions of others"
    finally:
        sys.path[:] = path
    with pytest.raises(Refused, match="does not exist"):
        building.run_script(str(tmp_path / "missing.py"))
