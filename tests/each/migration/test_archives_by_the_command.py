"""How a model becomes a `.keras` file: first a folder, then one file, and nothing is lost."""

import zipfile
from pathlib import Path

import h5py
import keras
import pytest

from keras_mp.compat.restoring import models
from keras_mp.migration import disk_room
from keras_mp.migration.cli import main
from tests.backends import on_one


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = "{}"
    return path


def given(model, monkeypatch):
    """Lets the command find a model in any HDF5 file."""
    report = models.RestoreReport("file", (), (), (), ())
    monkeypatch.setattr(models, "load_model", lambda path, **_: (model, report))


@pytest.fixture
def words():
    lookup = keras.layers.StringLookup(name="words")
    lookup.adapt(["b", "a", "c", "b"])
    return keras.Model(inputs := keras.Input((1,), dtype="string"), lookup(inputs))


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="only on TensorFlow do layers take text"
)
def test_a_vocabulary_is_in_the_file(words, source, tmp_path, monkeypatch):
    given(words, monkeypatch)
    monkeypatch.chdir(tmp_path)  # of a folder by a relative path, Keras forgets the vocabularies
    assert main(["migrate", str(source), "-o", "out.keras"]) == 0
    again = keras.saving.load_model("out.keras")
    vocabulary = words.get_layer("words").get_vocabulary()
    assert again.get_layer("words").get_vocabulary() == vocabulary
    assert len(vocabulary) == 4


def test_the_file_is_as_keras_makes_it(source, tmp_path, monkeypatch):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    given(model, monkeypatch)
    assert main(["migrate", str(source), "-o", str(tmp_path / "out.keras")]) == 0
    model.save(tmp_path / "theirs.keras")
    found = []
    for name in ("out.keras", "theirs.keras"):
        with zipfile.ZipFile(tmp_path / name) as archive:
            assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
            found.append(archive.namelist())
    assert found[0] == found[1]


@on_one
def test_what_does_not_read_as_it_was_written_is_not_kept(source, tmp_path, monkeypatch, capsys):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    given(model, monkeypatch)
    pack = zipfile.ZipFile.close

    def damaged(self):
        writes, info = (
            self.mode == "x" and self.fp is not None,
            self.NameToInfo.get("model.weights.h5"),
        )
        pack(self)
        if writes and info is not None:
            with Path(self.filename).open("r+b") as file:
                file.seek(info.header_offset + 500)
                file.write(b"?")

    monkeypatch.setattr(zipfile.ZipFile, "close", damaged)
    assert main(["migrate", str(source), "-o", str(tmp_path / "out.keras")]) == 2
    assert (
        "model.weights.h5 reads back differently from what was written" in capsys.readouterr().err
    )
    assert list(tmp_path.iterdir()) == [source]


def test_bytes_of_all_dtypes():
    for dtype, size in (("float32", 4), ("bfloat16", 2), ("float16", 2), ("int8", 1), ("bool", 1)):
        variable = keras.Variable(
            keras.ops.zeros((3, 5), dtype=dtype), dtype=dtype, trainable=False
        )
        assert disk_room.bytes_of(variable) == 15 * size
