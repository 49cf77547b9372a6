"""Artefacts of several files, of which one is missing: it is named, by every reader and command."""

import shutil
from pathlib import Path

import pytest

from keras_mp.compat.checkpoints import Checkpoint, Unreadable
from keras_mp.compat.file_formats.file_kinds import kind_of
from keras_mp.compat.inspecting import inspect
from keras_mp.migration.cli import main
from tests.fixtures import FIXTURES

SAVED_MODEL = sorted(FIXTURES.glob("tf*/*mlp*/saved_model"))[0]
INDEX, DATA = "variables/variables.index", "variables/variables.data-00000-of-00001"
WITHOUT_INDEX = "variables.index: there is no such file, which variables.data-00000-of-00001 needs"


@pytest.fixture
def saved(tmp_path):
    copy = tmp_path / "saved"
    shutil.copytree(SAVED_MODEL, copy, copy_function=shutil.copyfile)
    for folder in (copy, copy / "variables"):
        folder.chmod(0o755)
    return copy


@pytest.fixture
def sharded(tmp_path):
    for file in (FIXTURES / "edge").glob("sharded.*"):
        if ".data-" in file.name or file.suffix == ".index":
            shutil.copyfile(file, tmp_path / file.name)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "sharded"\n', encoding="utf-8")
    return tmp_path


def said_by_commands(path, capsys):
    """What `inspect` and `migrate` say of a path that cannot be read."""
    texts = []
    for command in (["inspect", str(path)], ["migrate", str(path), "-o", f"{path}.keras"]):
        assert main(command) == 2
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        texts.append(f"{out}{err}")
    return texts


LOST = {
    "index, by the folder of variables": ([INDEX], "variables", WITHOUT_INDEX),
    "index, by the prefix": ([INDEX], "variables/variables", WITHOUT_INDEX),
    "index, by the data": ([INDEX], DATA, WITHOUT_INDEX),
    "graph": (
        ["saved_model.pb"],
        ".",
        "saved_model.pb: there is no such file: it belongs beside the folder 'variables', which is "
        "a checkpoint by itself",
    ),
    "all variables, by their folder": (
        [INDEX, DATA],
        "variables",
        "variables.index: there is no such file: the SavedModel has lost its variables",
    ),
}


@pytest.mark.parametrize(("lost", "named", "words"), LOST.values(), ids=LOST)
def test_of_a_saved_model(lost, named, words, saved, capsys):
    for name in lost:
        (saved / name).unlink()
    path = saved / named
    for read in (kind_of, inspect, Checkpoint):
        with pytest.raises(Unreadable) as error:
            read(path)
        assert words in str(error.value)
    inspected, migrated = said_by_commands(path, capsys)
    assert words in inspected
    # Of a folder with nothing in it that is said, as of any.
    assert (words if any(path.parent.rglob("variables.*")) else "nor an artefact") in migrated


@pytest.mark.parametrize(
    ("lost", "missing"),
    [
        pytest.param([INDEX], INDEX, id="index"),
        pytest.param([INDEX, DATA], INDEX, id="all"),
        pytest.param([DATA], DATA, id="data"),
    ],
)
@pytest.mark.parametrize("named", [".", "saved_model.pb"])
def test_of_a_saved_model_named_as_a_whole(lost, missing, named, saved, capsys):
    """What the rest says of the model is told all the same."""
    for name in lost:
        (saved / name).unlink()
    found = inspect(saved / named)
    assert found.model is not None
    assert {damage.file for damage in found.damage} == {str(saved / missing)}
    assert all("there is no such file" in damage.why for damage in found.damage)
    assert main(["inspect", str(saved / named)]) == 2
    assert f"{saved / missing}: " in "".join(capsys.readouterr())


def test_of_an_empty_folder_of_variables(saved):
    shutil.rmtree(saved / "variables")
    (saved / "variables").mkdir()
    (damage,) = inspect(saved).damage
    assert damage.file == str(saved / INDEX)


@pytest.mark.parametrize(
    "named", [".", "checkpoint", "sharded", "sharded.index", "sharded.data-00001-of-00003"]
)
def test_of_a_checkpoint_without_its_index(named, sharded, capsys):
    (sharded / "sharded.index").unlink()
    words = "sharded.index: there is no such file, which sharded.data-00000-of-00003 needs"
    with pytest.raises(Unreadable) as error:
        Checkpoint(sharded / named)
    assert words in str(error.value)
    for text in said_by_commands(sharded / named, capsys):
        assert words in text


def test_what_was_left_at_the_old_place_does_not_hide_the_new_one(sharded, tmp_path_factory):
    """A `checkpoint` file may name the folder that the files were moved from."""
    old = tmp_path_factory.mktemp("old") / "sharded"
    state = f'model_checkpoint_path: "{old}"\n'
    (sharded / "checkpoint").write_text(state, encoding="utf-8")
    for left in (Path(f"{old}.data-00000-of-00003"), old):
        left.write_bytes(b"")
        assert Checkpoint(sharded).prefix == str(sharded / "sharded")


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        pytest.param([INDEX], WITHOUT_INDEX, id="index"),
        pytest.param([INDEX, DATA], "variables.index: there is no such file", id="all"),
    ],
)
def test_of_the_checkpoint_in_a_saved_model(lost, words, saved):
    for name in lost:
        (saved / name).unlink()
    with pytest.raises(Unreadable) as error:
        Checkpoint(saved)
    assert words in str(error.value)


def test_of_a_checkpoint_without_one_of_its_data_files(sharded):
    (sharded / "sharded.data-00001-of-00003").unlink()
    found = inspect(sharded)
    assert {Path(damage.file).name for damage in found.damage} == {"sharded.data-00001-of-00003"}
    assert {damage.why for damage in found.damage} == {
        "there is no such file, which sharded.index needs"
    }
    assert 0 < len(found.damage) < len(found.tensors), "the others can be read"


def test_a_folder_of_a_checkpoint_below_is_named(tmp_path):
    (tmp_path / "chief").mkdir()  # as of BackupAndRestore
    (tmp_path / "chief" / "checkpoint").write_text('model_checkpoint_path: "ckpt-1"')
    with pytest.raises(Unreadable, match="in this folder; there is one in chief"):
        Checkpoint(tmp_path)


def test_other_folders_are_none(tmp_path):
    (tmp_path / "variables").mkdir()
    (tmp_path / "x.data-1-of-2").write_bytes(b"")
    for folder in (tmp_path / "variables", tmp_path):
        with pytest.raises(Unreadable, match="there is no checkpoint in this folder"):
            Checkpoint(folder)
