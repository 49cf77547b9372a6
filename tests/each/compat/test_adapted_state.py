"""Vocabularies, bins and statistics that preprocessing layers of tf.keras have learned.

The models, and what TF 2.15.1 predicted with them, are those of tests/data/lookups.
"""

import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_mp import compat
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.restoring.plan import RestoreError

pytest.importorskip("tensorflow", reason="lookup layers of Keras 3 look up in TensorFlow")

FOLDER = Path(__file__).parents[2] / "data" / "lookups"
NAMES = sorted(path.stem for path in FOLDER.glob("*.keras"))
EXPECTED = np.load(FOLDER / "expected.npz")


def leaves(model):
    for layer in model.layers:
        yield from leaves(layer) if isinstance(layer, keras.Model) else [layer]


def predicts(model, name):
    """Whether it does as TensorFlow; layer by layer, as models of JAX and torch take no text."""
    found = EXPECTED[f"{name}/x"]
    for layer in leaves(model):
        if not isinstance(layer, keras.layers.InputLayer):
            found = layer(found)
    found = keras.ops.convert_to_numpy(found)
    expected = EXPECTED[f"{name}/y"]
    return found.shape == expected.shape and np.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_archives_of_tf_2_15(name, tmp_path):
    model = compat.load_model(FOLDER / f"{name}.keras")
    assert predicts(model, name)
    model.save(tmp_path / "model.keras")
    assert predicts(keras.models.load_model(tmp_path / "model.keras"), name)


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
