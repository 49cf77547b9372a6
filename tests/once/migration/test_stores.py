"""The command with addresses: what is found in stores, inspected and refused. No keras here."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from keras_mp.files.stores.listing import exists, listed
from keras_mp.files.stores.scratch import Scratch
from keras_mp.files.stores.urls import TAKEN, parent, redacted
from keras_mp.migration import publishing, sources, tasks
from keras_mp.migration.cli import main
from keras_mp.migration.fleet import migrate_folder
from keras_mp.migration.publishing import Refused
from keras_mp.migration.requests import Request
from keras_mp.migration.tasks import Task
from keras_mp.migration.walking import is_folder_of_store, walk
from keras_mp.monitor.run_folder import write_run
from tests.faulty_store import FaultyFileSystem
from tests.fixtures import FIXTURES
from tests.store_servers import KEY, PASSWORD, Store

CASE = FIXTURES / "tf23" / "embed_adam"
MANY = FIXTURES / "tf115" / "graph_adam_dynamic"


@pytest.fixture
def faulty() -> Iterator[FaultyFileSystem]:
    """A store in memory that counts what it is asked."""
    fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
    fs = fsspec.filesystem("faulty")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    FaultyFileSystem.asked.clear()
    FaultyFileSystem.faults.clear()
    yield fs
    fs.store.clear()


def put(fs: FaultyFileSystem, *names: str) -> None:
    for name in names:
        fs.pipe_file(f"/m/{name}", b"x")


def found(url: str) -> dict[str, tuple[str, str]]:
    start = len(url) + 1
    return {one.path[start:]: (one.kind, one.out.as_posix()) for one in walk(url).found}


def test_artefacts_are_known_by_their_names(faulty: FaultyFileSystem) -> None:
    put(faulty, "a.h5", "b/m.h5", "b/m.keras", "b/m.hdf5", "notes.txt", ".git/a.h5", "faiss.index")
    put(
        faulty, *(f"two/ckpt-{i}.{end}" for i in (1, 2) for end in ("index", "data-00000-of-00001"))
    )
    put(faulty, "alone/x.index", "alone/x.data-00000-of-00001", "alone/notes.txt")
    put(faulty, "manager/checkpoint", "manager/c-1.index", "manager/c-1.data-00000-of-00001")
    put(faulty, "manager/c-2.index", "manager/c-2.data-00000-of-00001")
    put(faulty, "no_index/x.data-00000-of-00001", "no_index/a.h5")
    put(faulty, "saved/saved_model.pb", "saved/variables/variables.index")
    put(faulty, "saved/variables/variables.data-00000-of-00001", "saved/assets/model.h5")
    put(faulty, "outer/inner/ckpt.index", "outer/inner/ckpt.data-00000-of-00001")
    faulty.asked.clear()
    assert found("faulty://m") == {
        "a.h5": ("h5", "a.keras"),
        "alone": ("checkpoint", "alone.keras"),
        "b/m.h5": ("h5", "b/m.h5.keras"),
        "b/m.hdf5": ("h5", "b/m.hdf5.keras"),
        "b/m.keras": ("keras", "b/m.keras.keras"),
        "manager": ("checkpoint", "manager.keras"),
        "no_index/a.h5": ("h5", "no_index/a.keras"),
        "no_index/x": ("checkpoint", "no_index/x.keras"),
        "outer/inner": ("checkpoint", "outer/inner.keras"),
        "saved": ("saved_model", "saved.keras"),
        "two/ckpt-1": ("checkpoint", "two/ckpt-1.keras"),
        "two/ckpt-2": ("checkpoint", "two/ckpt-2.keras"),
    }
    assert [what for what, _ in faulty.asked] == ["find"], "one listing, and nothing else"


def test_names_that_differ_in_case_only(faulty: FaultyFileSystem, tmp_path: Path) -> None:
    put(faulty, "A.h5", "a.h5", "B/x.h5", "b/x.h5")
    expected = {
        "A.h5": ("h5", "A.keras"),
        "B/x.h5": ("h5", "B/x.keras"),
        "a.h5": ("h5", "a~2.keras"),
        "b/x.h5": ("h5", "b/x~2.keras"),
    }
    assert found("faulty://m") == expected
    assert walk("faulty://m").renamed == 2
    if (tmp_path / "a").mkdir() or not (tmp_path / "A").exists():  # a disk that tells them apart
        for name in expected:
            path = tmp_path / "m" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"\x89HDF\r\n\x1a\n")
        assert found(str(tmp_path / "m")) == expected


def test_a_version_is_otherwise_when_a_file_is(faulty: FaultyFileSystem) -> None:
    FaultyFileSystem.tag = lambda data: f"tag-{data!r}"
    put(faulty, "a.h5", "b.h5")
    before = {one.path: one.version for one in walk("faulty://m").found}
    faulty.pipe_file("/m/a.h5", b"y")
    after = {one.path: one.version for one in walk("faulty://m").found}
    FaultyFileSystem.tag = None
    assert before["faulty://m/b.h5"] == after["faulty://m/b.h5"]
    assert before["faulty://m/a.h5"] != after["faulty://m/a.h5"]


def test_a_folder_of_many_is_listed_once(faulty: FaultyFileSystem) -> None:
    ends = ("h5", "index", "data-00000-of-00001")
    put(faulty, *(f"m{i}.{end}" for i in range(500) for end in ends))
    faulty.asked.clear()
    assert len(walk("faulty://m").found) == 1000
    assert [what for what, _ in faulty.asked] == ["find"]


def test_what_is_a_folder_of_artefacts(faulty: FaultyFileSystem) -> None:
    put(faulty, "one/c.index", "one/c.data-00000-of-00001", "saved/saved_model.pb", "two/a.h5")
    put(faulty, "deep/one/c.index", "deep/one/c.data-00000-of-00001")
    kinds = {
        name: is_folder_of_store(f"faulty://m/{name}") for name in ("one", "saved", "two", "deep")
    }
    assert kinds == {"one": False, "saved": False, "two": True, "deep": True}
    assert not is_folder_of_store("faulty://m/two/a.h5")
    assert not is_folder_of_store("faulty://m/one/c")


def test_links_of_a_server_are_counted(sftp_server: Store) -> None:
    url = sftp_server.put(CASE, "walked", "case")
    assert sftp_server.folder is not None
    folder = sftp_server.folder / "walked"
    (folder / "loop").symlink_to(".")
    (folder / "link.h5").symlink_to("case/model.h5")
    walked = walk(parent(url))
    assert [one.path.rpartition("/walked/")[2] for one in walked.found] == [
        "case/ckpt",
        "case/model.h5",
    ]
    assert (walked.links, walked.left) == (2, 2)


def test_the_servers_list_what_is_there(server: Store) -> None:
    url = server.put(CASE, "listed-artefacts", "case")
    assert found(parent(url)) == {
        "case/ckpt": ("checkpoint", "case/ckpt.keras"),
        "case/model.h5": ("h5", "case/model.keras"),
    }


def test_inspect(server: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = server.put(CASE, "inspected")
    for name in ("model.h5", "ckpt"):
        assert main(["inspect", "--json", f"{url}/{name}", "--scratch", str(tmp_path)]) == 0
        there = json.loads(capsys.readouterr().out)
        assert main(["inspect", "--json", str(CASE / name)]) == 0
        here = json.loads(capsys.readouterr().out)
        assert there == here | {"path": f"{redacted(url)}/{name}"}
    assert main(["inspect", f"{url}/model.h5", "--scratch-size", "1KB"]) == 2
    said = "".join(capsys.readouterr())
    assert "takes 26.5 KB of scratch, more than the limit of 1 KB (--scratch-size" in said
    assert main(["inspect", f"{url}/oracle.txt"]) == 2
    said += "".join(capsys.readouterr())
    assert f"error: {redacted(url)}/oracle.txt: there is no such file" in said
    assert PASSWORD not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "limit", "reason", "why"),
    [
        ("gone.h5", None, "no artefact", "there is no such file"),
        ("model.h5", 1000, "storage", "more than the limit of 1 KB"),
    ],
)
def test_the_row_of_what_is_not_downloaded(
    file: str, limit: int | None, reason: str, why: str, server: Store, tmp_path: Path
) -> None:
    url = f"{server.put(CASE, f'rows-{file}')}/{file}"
    request = Request(url, str(tmp_path / "m.keras"), scratch=Scratch(tmp_path, limit))
    row = tasks.migrate_task(Task(file, "h5", request, "m.keras", "jax"))
    assert (row["result"], row["reason"]) == ("failed", reason)
    assert why in row["why"]
    assert PASSWORD not in row["why"]
    assert list(tmp_path.iterdir()) == []


def test_a_process_says_nothing_secret(server: Store) -> None:
    url = server.put(CASE / "model.h5", "said", "model.h5")
    for path in (url, f"{url}.h5"):
        command = [sys.executable, "-W", "default", "-m", "keras_mp.migration", "inspect", path]
        env = {**os.environ, **server.env}
        done = subprocess.run(command, env=env, capture_output=True, timeout=60, check=False)
        said = (done.stdout + done.stderr).decode()
        assert done.returncode == (0 if path == url else 2), said
        assert PASSWORD not in said
        assert KEY not in said
        assert "Traceback" not in said


def test_outputs_and_their_marks(writable_server: Store, tmp_path: Path) -> None:
    import zipfile

    out = writable_server.url("marks", "new", "a.keras")
    source = f"https://me:{PASSWORD}@host/a.h5?key={KEY}"
    with publishing.staged_output(out) as beside:
        with zipfile.ZipFile(beside, "w") as archive:
            archive.writestr("config.json", "{}" * 50_000)
        sources.write_mark(beside, source, "ab", {"model_only": False})
        assert not exists(out)
        assert all(secret.encode() not in beside.read_bytes() for secret in (PASSWORD, KEY))
    marked = sources.read_mark(out)
    assert (marked["sha256"], marked["options"]) == ("ab", {"model_only": False})
    assert marked["from"] == "https://***@host/a.h5?***"
    assert sources.read_mark(f"{out}.keras") == {}
    with pytest.raises(Refused, match="exists already"):
        publishing.check(out)
    with pytest.raises(ZeroDivisionError), publishing.staged_output(f"{out}.keras") as beside:
        beside.write_bytes(bytes(1 // 0))
    assert [one.name for one in listed(parent(out), deep=True)] == ["a.keras"]


def test_a_config(
    writable_server: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old.json"
    old.write_text('{"class_name": "Adam", "config": {"lr": 0.5}}')
    url, out = (
        writable_server.put(old, "configs", "old.json"),
        writable_server.url("configs", "new.json"),
    )
    assert main(["migrate", str(old)]) == 0
    expected = capsys.readouterr().out
    assert main(["migrate", url, "-o", out]) == 0
    assert exists(out)
    assert main(["migrate", url, "-o", out]) == 0, "the same again"
    local = tmp_path / "new.json"
    assert main(["migrate", url, "-o", str(local)]) == 0
    assert local.read_text() == capsys.readouterr().out.strip() or json.loads(local.read_text())
    assert json.loads(local.read_text()) == json.loads(expected)
    assert main(["migrate", url, "--from", "2.2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["path"] == redacted(url)
    old.write_text('{"class_name": "SGD", "config": {"lr": 0.5}}')
    assert main(["migrate", str(old), "-o", out]) == 2
    assert "exists already with other content" in capsys.readouterr().err


def test_a_run_is_plotted_and_reported(
    writable_server: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "run", {"backend": "jax", "overflows": [], "layers": []})
    row = '{"step": %d, "epoch": 0, "loss_scale": 8.0, "kind": 0, "variable": null}\n'
    (tmp_path / "run" / "trace.jsonl").write_text("".join(row % step for step in range(3)))
    assert main(["plot", "--json", str(tmp_path / "run")]) == 0
    expected = json.loads(capsys.readouterr().out)
    url = writable_server.put(tmp_path / "run", "runs", "one")
    assert main(["plot", "--json", url]) == 0
    assert json.loads(capsys.readouterr().out) == expected | {"path": redacted(url)}
    page = writable_server.url("runs", "page.html")
    assert main(["report", url, "-o", page]) == 0
    assert exists(page)
    assert main(["report", url, "-o", page]) == 2, "nothing is overwritten"
    assert "exists already" in capsys.readouterr().err
    assert main(["plot", writable_server.url("runs", "none")]) == 2
    assert "there is no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["s3://a/train.py"], "source code must be a local path"),
        (
            ["s3://a/ckpt", "--model", "s3://a/model.json"],
            "--model s3://a/model.json: it must be a local path",
        ),
        (["s3://a/m.h5", "-o", "s3://a/m.h5"], "is the input"),
        (["s3://a/m.h5", "-o", "s3://a/m.h5", "--scratch-size", "much"], "is not a size"),
        (["s3://a/m.h5", "--write"], "--write is for source code, not for artefacts"),
        (["faulty://a/m.h5", "-o", "faulty://a/m.hdf5"], "the name must end in .keras"),
        (
            ["faulty://a/m.h5", "-o", "https://a/m.keras"],
            "https:// is for reading: write elsewhere",
        ),
    ],
)
@pytest.mark.usefixtures("faulty")
def test_what_is_refused(arguments, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", *arguments]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("command", ["inspect", "migrate", "plot", "report", "bench"])
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("memory://a/m.h5", "memory:// exists in one process, and ends with it"),
        ("zip://m.h5::file:///a.zip", "cannot read inside archives"),
    ],
)
def test_what_no_command_can_read(
    path: str, why: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, path]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{path}: {why}: {TAKEN}" in said


def test_a_fleet_of_processes_has_no_memory_in_common(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"memory:// exists in one process.*supported are file://"):
        migrate_folder(tmp_path, "memory://new")


ON_THE_DISK = ["file://{}", "local://{}", "simplecache::file://{}", "FILE://localhost{}"]


@pytest.mark.parametrize("address", ON_THE_DISK)
def test_addresses_of_the_disk_are_paths(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old"
    (old / "deep").mkdir(parents=True)
    (old / "deep" / "m.h5").write_bytes((CASE / "model.h5").read_bytes())
    (old / "train.py").write_text("from tensorflow.keras.mixed_precision import Policy\n")
    (old / "policy.json").write_text('{"class_name": "Policy", "config": {"name": "float32"}}')
    for command in (
        ["inspect", old / "deep" / "m.h5"],
        ["inspect", "--audit", old],
        ["migrate", "--json", old],
        ["migrate", "--diff", old / "train.py"],
        ["migrate", "--as", "policy", old / "policy.json"],
        ["report", old],
        ["plot", old / "deep"],
        ["bench", old / "train.py"],
    ):
        *options, path = map(str, command)
        code, told = main([*options, path]), capsys.readouterr()
        assert main([*options, address.format(path)]) == code, options
        assert capsys.readouterr() == told, options
    out = tmp_path / "new policy.json"
    given = [
        address.format(old / "policy.json"),
        "-o",
        address.format(str(out).replace(" ", "%20")),
    ]
    assert main(["migrate", "--as", "policy", *given]) == 0
    assert out.is_file()


def test_behind_a_cache(server: Store, capsys: pytest.CaptureFixture[str]) -> None:
    url = server.put(CASE, "cached", "case")
    told = {}
    for address in (url, f"simplecache::{url}", f"filecache://::{url}"):
        for command in ("inspect", "migrate"):
            for path in (address, f"{address}/model.h5"):
                arguments = [command, path, *(["--check"] if command == "migrate" else [])]
                code, said = main(arguments), capsys.readouterr()
                key = command, path.removeprefix(address)
                assert told.setdefault(key, (code, said)) == (code, said)
    assert {code for code, _ in told.values()} <= {0, 1}
