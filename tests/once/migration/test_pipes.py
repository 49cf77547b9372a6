"""Pipes and devices where files belong: an error that names them, where a read would wait."""

import os
import shutil
from pathlib import Path

import pytest

from keras_mp.files import regular_files
from keras_mp.migration.cli import main
from tests.fixtures import DATA

# A test that waits is ended: pytest's limit in pyproject.toml.
Capture = pytest.CaptureFixture[str]
SAVED = "tf215/legacy_mlp_sgdm_decay/saved_model"


def pipe(path: Path) -> Path:
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("name", ["a.py", "a.ipynb", "a.json", "a.h5", "a.keras", "a"])
@pytest.mark.parametrize("command", ["inspect", "migrate", "plot"])
def test_as_a_path(command: str, name: str, tmp_path: Path, capsys: Capture) -> None:
    path = pipe(tmp_path / name)
    assert main([command, str(path)]) == 2
    assert str(path) in (said := capsys.readouterr().err)
    assert regular_files.NOT_REGULAR in said


@pytest.mark.parametrize("option", ["--model", "--optimizer"])
def test_as_an_option(option: str, tmp_path: Path, capsys: Capture) -> None:
    path, model = pipe(tmp_path / "pipe.json"), tmp_path / "model.json"
    model.write_text("{}")
    others = [] if option == "--model" else ["--model", str(model)]
    checkpoint = DATA / SAVED / "variables" / "variables"
    out = tmp_path / "out.keras"
    assert main(["migrate", str(checkpoint), option, str(path), *others, "-o", str(out)]) == 2
    assert f"{path}: cannot be read: {regular_files.NOT_REGULAR}" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    "name",
    ["keras_metadata.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"],
)
def test_in_a_saved_model(name: str, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "saved"
    shutil.copytree(DATA / SAVED, folder)
    path = pipe(folder / name)
    assert main(["inspect", str(folder)]) == 2
    said = capsys.readouterr().err
    assert str(path) in said
    assert regular_files.NOT_REGULAR in said


@pytest.mark.parametrize(
    ("command", "name"),
    [("plot", "trace.jsonl"), ("report", "run.json"), ("report", "migration.jsonl")],
)
def test_in_a_run(command: str, name: str, tmp_path: Path, capsys: Capture) -> None:
    path = pipe(tmp_path / name)
    page = ["-o", str(tmp_path / "page.html")] if command == "report" else []
    assert main([command, str(tmp_path), *page]) == 2
    assert f"{path}: {regular_files.NOT_REGULAR}" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["pipe", "device"])
def test_what_says_what_to_leave_out(what: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a.py").write_text("import tensorflow.keras.mixed_precision\n")
    path = tmp_path / ".gitignore"
    if what == "pipe":
        pipe(path)
    else:
        path.symlink_to("/dev/zero")
    assert main(["migrate", str(tmp_path)]) == 2
    assert f"{regular_files.NOT_REGULAR}: '{path}'" in capsys.readouterr().err


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    (tmp_path / "link").symlink_to(path)
    assert regular_files.read_bytes(tmp_path / "link") == b"12345"
    assert regular_files.read_bytes(path, most=5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        regular_files.read_bytes(path, most=4)
    with pytest.raises(IsADirectoryError):
        regular_files.opened(tmp_path)
