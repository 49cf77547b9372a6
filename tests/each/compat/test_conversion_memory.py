"""What `restore` and `keras-mp migrate` take of memory and disk: the model, and one tensor."""

import json
import sys
import zipfile

import h5py
import keras
import numpy as np
import pytest

import keras_mp
from tests import bundles, programs
from tests.backends import on_one

MB = 1 << 20
WIDTH, LAYERS, LARGEST = 1024, 12, 4 * MB
WEIGHTS = LAYERS * LARGEST
WITH_ADAM = 3 * WEIGHTS
SPARE = 40 * MB  # what the backend compiles, and does not give back at once

if sys.platform != "linux":
    pytest.skip("only Linux says how much memory a process had", allow_module_level=True)

whole_shards = pytest.mark.skipif(
    tuple(map(int, keras.__version__.split(".")[:2])) < (3, 11),
    reason="refused: this Keras loses state in shards",
)
# Each does something small first, which imports what it needs, and then the same with what is
# large. `before` and `start` are from in between.
MEASURES = """
import json, sys
from pathlib import Path

def number(file, name):
    return int(Path("/proc/self", file).read_text().split(name + ":")[1].split()[0])

def now():
    return number("status", "VmRSS") << 10, number("io", "wchar")

def report(before, start):
    more, written = (number("status", "VmHWM") << 10) - before, number("io", "wchar") - start
    print(json.dumps({"more": more, "written": written}))

small, large, *rest = sys.argv[1:]
"""
RESTORES = """
import keras
from keras_mp.compat import restore

def built(folder):
    model = keras.models.model_from_json(Path(folder, "model.json").read_text())
    optimizer = json.loads(Path(folder, "optimizer.json").read_text())
    model.compile(keras.optimizers.deserialize(optimizer))
    model.optimizer.build(model.trainable_variables)
    return model

restore(Path(small, "ckpt"), built(small))
model = built(large)
restore(Path(large, "ckpt"), model)  # now the zeros, which take no memory yet, are written over
before, start = now()
restore(Path(large, "ckpt"), model)
report(before, start)
"""
READS = """
from keras_mp.compat.restoring.keras_archives import Archive

def read(folder):
    with Archive(Path(folder, "old.keras")).weights() as root:
        group = root.group("vars")
        return sum(group.array(name).nbytes for name in group.names())

read(small)
before, start = now()
read(large)
report(before, start)
"""
MIGRATES = """
import tempfile
from keras_mp.migration.cli import main

def migrate(folder):
    out = Path(tempfile.mkdtemp(dir=folder), rest[0] + ("-shards" if rest[1:] else ".keras"))
    arguments = [str(Path(folder, rest[0])), "-o", str(out), *rest[1:]]
    if rest[0] == "ckpt":
        for option in ("model", "optimizer"):
            arguments += ["--" + option, str(Path(folder, option + ".json"))]
    assert main(["migrate", *arguments]) == 0

migrate(small)
before, start = now()
migrate(large)
report(before, start)
"""


def write(folder, layers, width):
    """Writes a model in each form: a checkpoint with the state of Adam, HDF5, and an archive."""
    random = np.random.default_rng(0)

    def kernels():
        return [random.random((width, width), dtype="float32") for _ in range(layers)]

    dense = [keras.layers.Dense(width, use_bias=False) for _ in range(layers)]
    model = keras.Sequential([keras.Input((width,)), *dense])
    (folder / "model.json").write_text(model.to_json())
    adam = keras.optimizers.Adam(1e-3)
    adam = keras.optimizers.serialize(keras_mp.LossScaleOptimizer(adam))
    (folder / "optimizer.json").write_text(json.dumps(adam))
    bundles.write_objects(
        folder / "ckpt",
        {
            "model": {f"layer_with_weights-{i}": {"kernel": k} for i, k in enumerate(kernels())},
            "optimizer": {
                "_iterations": np.asarray(7),
                "_learning_rate": np.asarray(1e-3, "float32"),
                "_momentums": kernels(),
                "_velocities": kernels(),
            },
        },
    )
    names = [f"dense_{i}" for i in range(layers)]
    listed = [
        {"class_name": "Dense", "config": {"name": name, "units": width, "use_bias": False}}
        for name in names
    ]
    listed[0]["config"]["batch_input_shape"] = [None, width]
    config = {"class_name": "Sequential", "config": {"name": "net", "layers": listed}}
    with h5py.File(folder / "model.h5", "w") as file:
        file.attrs["model_config"] = json.dumps(config)
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = names
        for name, kernel in zip(names, kernels(), strict=True):
            group[f"{name}/{name}/kernel:0"] = kernel
            group[name].attrs["weight_names"] = [f"{name}/kernel:0"]
    with h5py.File(folder / "weights.h5", "w") as file:
        for i, kernel in enumerate(kernels()):
            file[f"vars/{i}"] = kernel
    with zipfile.ZipFile(folder / "old.keras", "w") as archive:
        archive.writestr("config.json", json.dumps(config))
        archive.write(folder / "weights.h5", "model.weights.h5")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    small, large = tmp_path_factory.mktemp("small"), tmp_path_factory.mktemp("large")
    write(small, 1, 16)
    write(large, LAYERS, WIDTH)
    return small, large


# What is freed goes back at once, or else the last copy hides in what was taken before; and threads
# have no heap each, of which some keep 40 MB and some none.
AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
# What JAX reads and writes of it takes megabytes, more than is spare where it is empty.
NO_CACHE = {"JAX_ENABLE_COMPILATION_CACHE": "false"}


def measured(program, folders, *arguments):
    said = programs.run("-c", MEASURES + program, *folders, *arguments, **AT_ONCE, **NO_CACHE)
    return json.loads(said.splitlines()[-1])


def within(limit, program, folders, *arguments):
    """Returns a measurement below the limit, or the sixth: what threads free late only adds."""
    for _ in range(6):
        found = measured(program, folders, *arguments)
        if found["more"] < limit:
            break
    return found


def test_a_checkpoint_is_restored_tensor_by_tensor(folders):
    assert measured(RESTORES, folders)["more"] < LARGEST + SPARE


def test_the_weights_of_an_archive_are_read_in_their_place(folders):
    found = measured(READS, folders)
    assert found["more"] < 2 * LARGEST
    assert found["written"] < MB


@pytest.mark.parametrize(
    ("name", "size", "options", "times"),
    [
        ("ckpt", WITH_ADAM, [], 2),
        pytest.param("ckpt", WITH_ADAM, ["--shard-size", "20MB"], 1, marks=[on_one, whole_shards]),
        pytest.param("model.h5", WEIGHTS, [], 2, marks=on_one),
    ],
    ids=["checkpoint", "checkpoint into shards", "HDF5"],
)
def test_migrating_takes_the_model_and_a_tensor(name, size, options, times, folders):
    limit = size + LARGEST + SPARE
    found = within(limit, MIGRATES, folders, name, *options)
    assert found["more"] < limit
    # As files of Keras, and packed into one.
    assert times * size < found["written"] < times * size + MB
