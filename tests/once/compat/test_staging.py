"""Which files of a store make up an artefact, and that a copy of them is as good as they are."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from keras_mp.compat.checkpoints import Checkpoint, Unreadable, staging
from keras_mp.compat.checkpoints.staging import local_artefact
from keras_mp.compat.inspecting import inspect
from keras_mp.files.stores.errors import NoRoom
from keras_mp.files.stores.scratch import Scratch
from tests.faulty_store import FaultyFileSystem
from tests.fixtures import FIXTURES
from tests.store_servers import PASSWORD, Store

MANY = FIXTURES / "tf115" / "graph_adam_dynamic"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[str]:
    """The address of a folder in memory with two checkpoints, of one and two data files."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    fs.put(f"{MANY}/", "/run/", recursive=True)
    yield "memory://run"
    fs.store.clear()


def names(folder: Path) -> list[str]:
    return sorted(one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file())


LATEST = ["model.ckpt-4.data-00000-of-00001", "model.ckpt-4.index"]
OBJECTS = [*(f"objects.data-0000{i}-of-00002" for i in range(2)), "objects.index"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("objects", OBJECTS),
        ("objects.index", OBJECTS),
        ("objects.data-00001-of-00002", OBJECTS),
        ("checkpoint", ["checkpoint", *LATEST]),
        ("oracle.json", ["oracle.json"]),
        ("", [f"run/{name}" for name in ["checkpoint", *LATEST]]),
    ],
)
def test_what_belongs_together(path: str, expected: list[str], memory: str, tmp_path: Path) -> None:
    with local_artefact(f"{memory}/{path}".rstrip("/"), Scratch(tmp_path)) as local:
        root = local.parent
        assert names(root) == expected
        assert all(
            (root / name).read_bytes() == (MANY / Path(name).name).read_bytes() for name in expected
        )
    assert list(tmp_path.iterdir()) == []


def test_a_saved_model_comes_with_its_folders(tmp_path: Path) -> None:
    fs = fsspec.filesystem("memory")
    for name in ("saved_model.pb", "variables/variables.index", "assets/a.txt", "other.txt"):
        fs.pipe_file(f"/saved/{name}", b"x")
    for path in ("memory://saved", "memory://saved/saved_model.pb"):
        with local_artefact(path, Scratch(tmp_path)) as local:
            root = tmp_path if local.is_dir() else local.parent.parent
            found = [name for name in names(root) if "/saved/" in f"/{name}"]
            assert [name.partition("saved/")[2] for name in found] == [
                "assets/a.txt",
                "saved_model.pb",
                "variables/variables.index",
            ]
    fs.rm("/saved", recursive=True)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("none", "memory://run/none: there is no such file"),
        ("none.h5", "memory://run/none.h5: there is no such file"),
        ("none/in/it", "there is no such file"),
        ("lost", "memory://run/lost.index: there is no such file, which lost.data-00000-of-00001"),
    ],
)
def test_what_is_not_there(path: str, words: str, memory: str) -> None:
    fsspec.filesystem("memory").pipe_file("/run/lost.data-00000-of-00001", b"x")
    for read in (Checkpoint, inspect):
        with pytest.raises(Unreadable) as error:
            read(f"{memory}/{path}")
        assert words in str(error.value)


@pytest.mark.parametrize("path", ["run", "run/checkpoint"])
def test_a_state_file_reaches_no_file_of_this_machine(
    path: str, memory: str, tmp_path: Path
) -> None:
    shutil.copy(MANY / "objects.index", tmp_path / "mine.index")
    state = f'model_checkpoint_path: "{tmp_path}/mine"'
    fsspec.filesystem("memory").pipe_file("/run/checkpoint", state.encode())
    with (
        pytest.raises(
            Unreadable, match=r"^memory://run/checkpoint: names .*mine, which is outside"
        ),
        local_artefact(f"memory://{path}"),
    ):
        pass


def test_a_local_path_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "files_of", None)
    with local_artefact(tmp_path) as local:
        assert local == tmp_path
    with local_artefact(f"file://{tmp_path}") as local:
        assert local == tmp_path


def test_a_checkpoint_keeps_its_copy_as_long_as_it_lives(
    memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    there, here = Checkpoint(f"{memory}/objects"), Checkpoint(MANY / "objects")
    assert there.prefix == f"{memory}/objects"
    assert list(tmp_path.iterdir())
    assert {key: there[key].tobytes() for key in there if there.entry(key).dtype != "string"} == {
        key: here[key].tobytes() for key in here if here.entry(key).dtype != "string"
    }
    del there
    assert list(tmp_path.iterdir()) == []


def test_damage_is_told_of_the_address(memory: str) -> None:
    fs = fsspec.filesystem("memory")
    data = bytearray(fs.cat_file("/run/objects.data-00000-of-00002"))
    data[: len(data) // 2] = bytes(len(data) // 2)
    fs.pipe_file("/run/objects.data-00000-of-00002", bytes(data))
    found = inspect(f"{memory}/objects")
    assert found.path == f"{memory}/objects"
    assert found.damage
    assert {one.file for one in found.damage} == {f"{memory}/objects.data-00000-of-00002"}
    checkpoint = Checkpoint(f"{memory}/objects")
    with pytest.raises(Unreadable, match=f"^{memory}/objects.data-00000-of-00002: "):
        dict(checkpoint)
    fs.pipe_file("/run/objects.index", b"nonsense")
    with pytest.raises(Unreadable, match=f"^{memory}/objects.index: "):
        Checkpoint(f"{memory}/objects")


def test_no_more_is_kept_than_allowed(memory: str, tmp_path: Path) -> None:
    size = sum((MANY / name).stat().st_size for name in OBJECTS)
    with local_artefact(f"{memory}/objects", Scratch(tmp_path, size)) as local:
        assert local.name == "objects"
    with (
        pytest.raises(NoRoom, match="more than the limit"),
        local_artefact(f"{memory}/objects", Scratch(tmp_path, size - 1)),
    ):
        pass
    with (
        pytest.raises(NoRoom),
        local_artefact(f"{memory}/objects", Scratch(tmp_path, size), copies=2),
    ):
        pass


def test_nothing_is_asked_for_each_file_of_a_folder(tmp_path: Path) -> None:
    fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
    fs = fsspec.filesystem("faulty")
    fs.store.clear()
    for i in range(500):
        fs.pipe_file(f"/many/other-{i}.txt", b"x")
    for name in OBJECTS:
        fs.pipe_file(f"/many/{name}", (MANY / name).read_bytes())
    FaultyFileSystem.asked.clear()
    with local_artefact("faulty://many/objects", Scratch(tmp_path)) as local:
        assert names(local.parent) == OBJECTS
    assert len(FaultyFileSystem.asked) < 20


def test_a_web_server_that_shows_no_folders(https_server: Store) -> None:
    url = https_server.put(MANY, "hidden", "run")
    assert https_server.folder is not None
    (https_server.folder / "hidden" / "run" / "index.html").write_text('<a href="a.txt">a</a>')
    for name in ("objects", "objects.index", "objects.data-00001-of-00002"):
        assert inspect(f"{url}/{name}").tensors == inspect(MANY / "objects").tensors
    (https_server.folder / "hidden" / "run" / "objects.data-00001-of-00002").unlink()
    with pytest.raises(Unreadable, match=r"objects\.data-00001-of-00002: there is no such file"):
        inspect(f"{url}/objects")
    with pytest.raises(Unreadable, match="none: there is no such file"):
        inspect(f"{url}/none")


def test_the_servers_give_what_is_there(server: Store) -> None:
    url = server.put(MANY, "staged", "run")
    local = inspect(MANY / "objects")
    found = inspect(f"{url}/objects")
    assert found.tensors == local.tensors
    assert found.path.endswith("/staged/run/objects")
    assert PASSWORD not in found.path
    assert inspect(url).tensors == inspect(MANY).tensors
