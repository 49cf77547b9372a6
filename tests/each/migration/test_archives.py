"""Archives that depend on the model alone, and that Keras takes as its own."""

import json
import shutil
import zipfile

import keras
import numpy as np
import pytest

import keras_mp
from keras_mp.migration import archives, sources
from tests import programs
from tests.backends import on_one

MADE = {"from": "m.h5", "sha256": "0" * 64, "options": {}, "changes": [], "notes": ["é"]}
SAVES = """
import os, pathlib, sys
os.environ["KERAS_BACKEND"] = sys.argv[2]
import keras
from keras_mp.migration import archives
from tests.each.migration.test_archives import MADE, a_model
for _ in range(int(sys.argv[3])):
    a_model()
keras.utils.clear_session()
with archives.seeds_from("a"):
    model = a_model()
folder = pathlib.Path(sys.argv[1] + ".folder")
archives.write(model, folder, MADE)
archives.pack(folder, pathlib.Path(sys.argv[1]))
"""


def save(model, path, made):
    folder = path.with_name("parts")
    archives.write(model, folder, made)
    archives.pack(folder, path)
    shutil.rmtree(folder)


def a_model():
    """Has what Keras writes otherwise each time: seeds, shared objects, names."""
    shared = keras.initializers.Zeros()
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(4, kernel_initializer=shared, bias_initializer=shared),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(2, kernel_initializer=shared, dtype="mixed_float16"),
        ]
    )
    model.compile(keras_mp.LossScaleOptimizer(keras.optimizers.Adam()), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


@on_one
def test_the_bytes_do_not_depend_on_process_and_time(tmp_path):
    paths = [tmp_path / "a.keras", tmp_path / "b.keras"]
    for i, path in enumerate(paths):
        programs.run("-c", SAVES, path, keras.backend.backend(), i, PYTHONHASHSEED=str(i))
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with zipfile.ZipFile(paths[0]) as archive:
        config = json.loads(archive.read("config.json"))
        numbers = json.dumps(config).count('"shared_object_id": 0')
    assert numbers > 1, "what is shared is so still"


@pytest.mark.parametrize("safe_mode", [True, False])
def test_keras_takes_it(safe_mode, tmp_path):
    model, path = a_model(), tmp_path / "m.keras"
    model.layers[0].kernel.assign(np.arange(12.0).reshape(3, 4))
    save(model, path, MADE)
    sources.write_mark(path, "m.h5", "0" * 64, {})
    again = keras.saving.load_model(path, safe_mode=safe_mode)
    for a, b in zip(model.weights, again.weights, strict=True):
        assert np.array_equal(keras.ops.convert_to_numpy(a), keras.ops.convert_to_numpy(b))
    assert again.optimizer.get_config() == model.optimizer.get_config()
    assert [p.name for p in tmp_path.iterdir()] == ["m.keras"]
    with zipfile.ZipFile(path) as archive:
        # One more, and Keras unpacks all of them on the disk to load it.
        assert archive.namelist() == ["metadata.json", "config.json", "model.weights.h5"]
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        metadata = json.loads(archive.read("metadata.json"))
    assert metadata["keras_version"] == keras.__version__
    assert archives.made_of(path) == MADE


class Vocabulary(keras.layers.Layer):
    """Has a file of its own, as layers for texts do."""

    words = "a b c"

    def call(self, x):
        return x

    def save_assets(self, folder):
        with open(f"{folder}/words.txt", "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(self.words)

    def load_assets(self, folder):
        with open(f"{folder}/words.txt", encoding="utf-8") as file:  # noqa: PTH123
            self.words = file.read()


@on_one
def test_files_of_layers_are_kept(tmp_path):
    model = keras.Sequential([keras.Input((3,)), Vocabulary(), keras.layers.Dense(1)])
    model.layers[0].words = "d e"
    save(model, tmp_path / "m.keras", MADE)
    objects = {"Vocabulary": Vocabulary}
    again = keras.saving.load_model(tmp_path / "m.keras", custom_objects=objects)
    assert again.layers[0].words == "d e"


@on_one
@pytest.mark.parametrize("where", ["local", "store"])
def test_what_says_nothing_of_how_it_came_about(where, tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    paths = {name: tmp_path / name for name in ("other.keras", "none.keras", "ours.keras")}
    model.save(paths["other.keras"])
    paths["none.keras"].write_bytes(b"no zip")
    save(model, paths["ours.keras"], MADE | {"notes": ["long" * 50_000]})
    found = {}
    for name, path in paths.items():
        if where == "store":
            fsspec = pytest.importorskip("fsspec")
            fsspec.filesystem("memory").pipe_file(f"/archives/{name}", path.read_bytes())
            path = f"memory://archives/{name}"
        found[name] = archives.made_of(path)
    assert (found["other.keras"], found["none.keras"]) == ({}, {})
    assert found["ours.keras"]["notes"] == ["long" * 50_000]
