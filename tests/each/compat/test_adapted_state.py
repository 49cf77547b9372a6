"""Vocabularies, bins and statistics that preprocessing layers of tf.keras have learned.

The models, and what TF 2.4.4, 2.10.1 and 2.15.1 predicted, are those of tests/data/lookups.
"""

import io
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_mp import compat
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.restoring.comparison import Differs
from keras_mp.compat.restoring.graph_flags import INVERT_2_10
from keras_mp.compat.restoring.plan import RestoreError
from tests.loaded_models import load

pytest.importorskip("tensorflow", reason="lookup layers of Keras 3 look up in TensorFlow")

FOLDER = Path(__file__).parents[2] / "data" / "lookups"
NAMES = sorted(path.stem for path in FOLDER.glob("*.keras"))
EXPECTED = np.load(FOLDER / "expected.npz")


SAVED = {}
for path in sorted(FOLDER.glob("saved-*.zip")):
    with zipfile.ZipFile(path) as archive:
        names = sorted({name.partition("/")[0] for name in archive.namelist()} - {"expected.npz"})
    SAVED |= {f"{path.stem.removeprefix('saved-')}-{name}": (path, name) for name in names}


def leaves(model):
    for layer in model.layers:
        yield from leaves(layer) if isinstance(layer, keras.Model) else [layer]


def predicts(model, name, recorded=EXPECTED):
    """Whether it does as TensorFlow; layer by layer, as models of JAX and torch take no text."""
    found = recorded[f"{name}/x"]
    for layer in leaves(model) if found.dtype.kind != "f" else [model]:
        if not isinstance(layer, keras.layers.InputLayer):
            found = layer(found)
    expected = recorded[f"{name}/y"]
    if expected.dtype.kind == "U":
        return np.array_equal(np.array(found).astype(str), expected)
    found = keras.ops.convert_to_numpy(found)
    return found.shape == expected.shape and np.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_archives_of_tf_2_15(name, tmp_path):
    model = compat.load_model(FOLDER / f"{name}.keras")
    assert predicts(model, name)
    model.save(tmp_path / "model.keras")
    assert predicts(keras.models.load_model(tmp_path / "model.keras"), name)


def unpacked(case, folder):
    """Returns the folder of a recorded SavedModel, its name, and what was predicted."""
    path, name = SAVED[case]
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder, [each for each in archive.namelist() if name in each])
        return folder / name, name, np.load(io.BytesIO(archive.read("expected.npz")))


@pytest.mark.parametrize("case", SAVED)
def test_saved_models(case, tmp_path):
    path, name, recorded = unpacked(case, tmp_path)
    if case == "2.10.1-inverted":
        with pytest.raises(Differs, match="predictions differ from the graph in the file"):
            load(path)
        loaded = load(path, differences="tell")
        assert any(change.what == INVERT_2_10 for change in loaded.report.changes)
        assert loaded.report.comparison.predictions.differs
        return
    model = load(path).model
    if name == "string_inverted" and keras.backend.backend() != "tensorflow":
        assert model.layers[1].get_vocabulary()[-4:] == ["[UNK]", "x", "a", "b"]
        pytest.skip("Keras decodes the words of vectors only, but on TensorFlow")
    if case == "2.4.4-string_inverted":  # but for index 0
        recorded = dict(recorded)
        recorded[f"{name}/y"] = np.where(recorded[f"{name}/x"] == 0, "[UNK]", recorded[f"{name}/y"])
    assert predicts(model, name, recorded)
    model.save(tmp_path / "model.keras")
    assert predicts(keras.models.load_model(tmp_path / "model.keras"), name, recorded)


def test_load_weights_brings_the_words_of_a_saved_model(tmp_path):
    path, name, recorded = unpacked("2.15.1-embedded", tmp_path)
    model = compat.load_model(path)
    for bring in (compat.load_weights, compat.restore):
        model.layers[1].set_vocabulary(["other"])
        bring(path, model)
        assert predicts(model, name, recorded)


@pytest.mark.parametrize("by", ["name", "link"])
def test_words_of_a_saved_model_are_of_its_folder(tmp_path, by):
    path, _, _ = unpacked("2.15.1-string_file", tmp_path)
    (tmp_path / "string_file" / "wd.txt").write_text("secret")
    graph, asset = path / "saved_model.pb", path / "assets" / "words.txt"
    if by == "name":
        graph.write_bytes(graph.read_bytes().replace(b"words.txt", b"../wd.txt"))
    else:
        asset.unlink()
        asset.symlink_to(path / "wd.txt")
    with pytest.raises(Unreadable, match="is a link, or leads out of the folder"):
        compat.load_model(path)


def test_load_weights_brings_the_words():
    path = FOLDER / "embedded.keras"
    model = compat.load_model(path)
    model.layers[1].set_vocabulary(["other"])
    report = compat.load_weights(path, model)
    assert report.rows[0].source == "assets/layers/string_lookup/vocabulary.txt"
    assert predicts(model, "embedded")


def changed(folder, name, **members):
    """Returns the archive `name` with other members."""
    path = folder / f"{name}.keras"
    with zipfile.ZipFile(FOLDER / path.name) as old, zipfile.ZipFile(path, "w") as new:
        for each in {*old.namelist(), *members}:
            new.writestr(each, members[each] if each in members else old.read(each))
    return path


WORDS = "assets/layers/string_lookup/vocabulary.txt"
INTEGERS = "assets/layers/integer_lookup/vocabulary.txt"


@pytest.mark.parametrize(
    ("name", "member", "data"),
    [
        ("string_int", WORDS, b"\xff\xfe"),
        ("string_int", WORDS, b"[UNK]\na\na"),
        ("string_padded", WORDS, b"[UNK]\n" + b"\n".join(b"%d" % i for i in range(20))),
        ("integer_int", INTEGERS, b"-1\none"),
        ("integer_int", INTEGERS, b"-1\n99999999999999999999"),
    ],
)
def test_damaged_words_are_one_error(tmp_path, name, member, data):
    path = changed(tmp_path, name, **{member: data})
    with pytest.raises(Unreadable, match=r"vocabulary\.txt"):
        compat.load_model(path)


def test_words_of_no_layer_are_not_lost_in_silence(tmp_path):
    path = changed(tmp_path, "string_int", **{"assets/layers/dense/vocabulary.txt": b"a"})
    with pytest.raises(RestoreError, match=r"assets/layers/dense/vocabulary\.txt"):
        compat.load_model(path)


def test_a_layer_that_was_never_adapted(tmp_path):
    model = compat.load_model(changed(tmp_path, "string_int", **{WORDS: b""}))
    assert model.layers[1].vocabulary_size() == 1
