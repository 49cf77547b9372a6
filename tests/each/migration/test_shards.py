"""`keras-mp migrate --shard-size`: a folder from which nothing is missing, or nothing."""

import json
import re
import shutil
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp.compat import load_model
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.restoring import models
from keras_mp.migration import disk_room
from keras_mp.migration.cli import main
from tests import bundles
from tests.backends import on_one

pytestmark = pytest.mark.skipif(
    tuple(map(int, keras.__version__.split(".")[:2])) < (3, 11),
    reason="refused: this Keras loses state in shards",
)
WIDTH, LAYERS = 40, 3
KERNEL = 4 * WIDTH * WIDTH
SHARD = 2 * KERNEL + 1000  # two kernels each, so that slots go over several


def migrate(*arguments):
    return main(["migrate", *map(str, arguments)])


def config_of(model):
    return keras.saving.serialize_keras_object(model.optimizer)


def state_of(model):
    """What a model and its optimizer are, to the bit."""
    variables = [*model.weights, *model.optimizer.variables]
    return [(v.path, np.asarray(ops.convert_to_numpy(v)).tobytes()) for v in variables]


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint with the state of Adam, and the options that say what model it is of."""
    random, folder = np.random.default_rng(5), tmp_path / "in"
    folder.mkdir()

    def kernels():
        return [random.random((WIDTH, WIDTH), dtype="float32") for _ in range(LAYERS)]

    inputs = outputs = keras.Input((WIDTH,))
    for _ in range(LAYERS):
        outputs = keras.layers.Dense(WIDTH, use_bias=False)(outputs)
    model = keras.Model(inputs, outputs)
    (folder / "model.json").write_text(model.to_json())
    optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.Adam(1e-3), initial_scale=2.0**9)
    optimizer = keras.optimizers.serialize(optimizer)
    (folder / "optimizer.json").write_text(json.dumps(optimizer))
    bundles.write_objects(
        folder / "ckpt",
        {
            "model": {f"layer_with_weights-{i}": {"kernel": k} for i, k in enumerate(kernels())},
            "optimizer": {
                "_iterations": np.asarray(7),
                "_learning_rate": np.asarray(0.25, "float32"),
                "_momentums": kernels(),
                "_velocities": kernels(),
            },
        },
    )
    options = [f"--{each}={folder / each}.json" for each in ("model", "optimizer")]
    return [folder / "ckpt", *options]


@pytest.fixture
def made(checkpoint, tmp_path):
    out = tmp_path / "out"
    assert migrate(*checkpoint, "-o", out, "--shard-size", SHARD) == 0
    return out


def by_keras(out):
    model = keras.models.model_from_json((out / "config.json").read_text())
    model.load_weights(out / "model.weights.json")
    return model


@pytest.mark.parametrize("load", [load_model, by_keras])
def test_what_is_in_them_is_what_is_in_one_file(load, made, checkpoint, tmp_path):
    assert migrate(*checkpoint, "-o", tmp_path / "out.keras") == 0
    one, several = keras.saving.load_model(tmp_path / "out.keras"), load(made)
    assert state_of(several) == state_of(one)
    assert config_of(several) == config_of(one)
    assert int(several.optimizer.iterations) == 7
    assert float(several.optimizer.learning_rate.numpy()) == 0.25
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out", "out.keras"}


def test_no_file_is_larger(made):
    files = sorted(made.glob("model_*.weights.h5"))
    assert len(files) == 5, "nine kernels"
    for file in files:
        with h5py.File(file) as opened:
            sizes = []
            opened.visititems(lambda _, x: sizes.append(getattr(x, "nbytes", 0)))  # noqa: B023
            assert 0 < sum(sizes) <= SHARD
    index = json.loads((made / "model.weights.json").read_text())
    assert len(index["weight_map"]["/optimizer/vars"]) > 1, "it goes over several"


def test_it_says_how_to_load_them(checkpoint, tmp_path, capsys):
    out = tmp_path / "out"
    code = tmp_path / "model.py"
    assert migrate(*checkpoint, "-o", out, "--shard-size", SHARD, "--as-code", code) == 0
    said = capsys.readouterr().err
    assert f"{out}: written, and loaded again: 3 weights and " in said
    assert f"keras_mp.compat.load_model({str(out)!r}) loads them" in said
    assert 'model.load_weights("out/model.weights.json")' in code.read_text()


def test_the_folder_says_what_it_is_made_of(checkpoint, tmp_path, capsys):
    out = tmp_path / "out"
    assert migrate("--json", *checkpoint, "-o", out, "--shard-size", SHARD) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert (row["status"], row["out"]) == ("converted", str(out))
    made = json.loads((out / "metadata.json").read_text())["keras_mp"]
    assert made["sha256"] == row["sha256"]
    assert made["options"]["shard_size"] == SHARD


def test_inspect_says_what_it_is(made, capsys):
    assert main(["inspect", str(made)]) == 2
    said = capsys.readouterr().err
    assert "holds weights of Keras 3 in shards: keras_mp.compat.load_model loads" in said


def test_without_the_optimizer(made):
    model = load_model(made, compile=False)
    assert getattr(model, "optimizer", None) is None
    whole = load_model(made)
    assert model.get_weights()[0].tobytes() == whole.get_weights()[0].tobytes()


# -- models that need more than their weights -----------------------------------------------------


def given(model, monkeypatch):
    """Lets the command find a model in any HDF5 file."""
    report = models.RestoreReport("file", (), (), (), ())
    monkeypatch.setattr(models, "load_model", lambda path, **_: (model, report))


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = "{}"
    return path


def test_the_config_is_that_of_one_file(source, tmp_path, monkeypatch):
    shared = keras.initializers.RandomUniform(seed=7)
    dense = [keras.layers.Dense(4, kernel_initializer=shared) for _ in range(2)]
    given(keras.Sequential([keras.Input((4,)), *dense]), monkeypatch)
    assert migrate(source, "-o", tmp_path / "out.keras") == 0
    assert migrate(source, "-o", tmp_path / "out", "--shard-size", "1KB") == 0
    with zipfile.ZipFile(tmp_path / "out.keras") as archive:
        one = json.loads(archive.read("config.json"))
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == one
    assert "shared_object_id" in json.dumps(one)


def test_the_loss_scale_and_its_counter(source, tmp_path, monkeypatch):
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(16, use_bias=False)])
    model.compile(keras_mp.LossScaleOptimizer(keras.optimizers.Adam(), hysteresis=2), "mse")
    model.optimizer.build(model.trainable_variables)
    model.optimizer.dynamic_scale.assign(2.0**12)
    model.optimizer.step_counter.assign(11)
    model.optimizer._skipped_steps.assign(3)
    given(model, monkeypatch)
    assert migrate(source, "-o", tmp_path / "out", "--shard-size", "1100") == 0
    monkeypatch.undo()
    loaded = load_model(tmp_path / "out").optimizer
    assert (float(loaded.dynamic_scale), int(loaded.step_counter)) == (2.0**12, 11)
    assert int(loaded.skipped_steps) == 3
    assert len(list((tmp_path / "out").glob("*.h5"))) > 1


def test_a_vocabulary_is_refused(source, tmp_path, monkeypatch, capsys):
    lookup = keras.layers.IntegerLookup(vocabulary=[1, 2, 3], name="words")
    inputs = keras.Input((1,), dtype="int64")
    given(keras.Model(inputs, keras.layers.Embedding(5, 2)(lookup(inputs))), monkeypatch)
    assert migrate(source, "-o", tmp_path / "out", "--shard-size", "1KB") == 2
    assert "words keeps files of its own (a vocabulary)" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [source]


class Lossy(keras.layers.Dense):
    """Saves something else than it has."""

    def save_own_variables(self, store):
        store["0"] = np.asarray(ops.convert_to_numpy(self.kernel)) * (1 + 1e-7)
        store["1"] = np.asarray(ops.convert_to_numpy(self.bias))


def test_what_reads_back_differently_is_not_kept(source, tmp_path, monkeypatch, capsys):
    model = keras.Sequential([keras.Input((2,)), Lossy(1)])
    model.layers[0].kernel.assign(np.ones((2, 1)))
    given(model, monkeypatch)
    assert migrate(source, "-o", tmp_path / "out", "--shard-size", "1KB") == 2
    assert "differs after reloading" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [source]


# -- refusals and faults --------------------------------------------------------------------------


@on_one
def test_a_tensor_that_is_larger(checkpoint, tmp_path, capsys):
    for options in ([], ["-o", tmp_path / "out"]):
        assert migrate(*checkpoint, *options, "--shard-size", KERNEL - 1) == 2
        said = capsys.readouterr().err
        assert re.search(r"/kernel has 6,400 bytes, and Keras does not split a variable", said)
        assert [path.name for path in tmp_path.iterdir()] == ["in"]


@on_one
@pytest.mark.parametrize(("version", "code"), [("3.10.0", 2), ("3.11.0", 0)])
def test_a_keras_that_loses_state(version, code, checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(keras, "__version__", version)
    assert migrate(*checkpoint, "-o", tmp_path / "out", "--shard-size", SHARD) == code
    assert ("needs Keras 3.11 or later, and this is 3.10.0" in capsys.readouterr().err) == bool(
        code
    )
    assert (tmp_path / "out").exists() == (not code)


@on_one
def test_nothing_is_written_over(made, checkpoint, tmp_path, capsys):
    before = {path: path.read_bytes() for path in made.iterdir()}
    assert migrate(*checkpoint, "-o", made, "--shard-size", SHARD) == 2
    assert "exists already: choose another folder" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in made.iterdir()} == before
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out"}


OUTS = pytest.mark.parametrize("options", [["out.keras"], ["out", "--shard-size", SHARD]], ids=len)


@OUTS
def test_a_disk_without_room_leaves_nothing(options, checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    needed = 9 * KERNEL * (2 if options == ["out.keras"] else 1)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=needed))
    assert migrate(*checkpoint, "-o", *options) == 2
    said = capsys.readouterr().err
    assert re.search(rf"No space left on device: it needs [\d,]+ bytes, and {needed:,} are", said)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


FULL = (
    "[Errno 28] Can't synchronously write data (file write failed: time = Wed Nov 25 02:53:49 2026"
    "\n, filename = 'x.h5', file descriptor = 3, errno = 28, error message = 'No space left on "
    "device', buf = 0x5639f4b8d680, total write size = 1522048, offset = 10485760)"
)


@OUTS
@pytest.mark.parametrize("kind", [OSError, RuntimeError, ValueError])
def test_a_disk_that_gets_full_leaves_nothing(
    kind, options, checkpoint, tmp_path, monkeypatch, capsys
):
    """What h5py raises: by a real limit, HDF5 may end the whole process when it closes the file."""

    def full(self, path, **_):
        path.mkdir(exist_ok=True) if path.suffix == "" else path.write_text("half")
        raise kind(FULL)

    monkeypatch.chdir(tmp_path)
    for name in ("save", "save_weights"):
        monkeypatch.setattr(keras.Model, name, full)
    assert migrate(*checkpoint, "-o", *options) == 2
    assert re.search(r"error: \S+: No space left on device\n", capsys.readouterr().err)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_other_errors_stay_as_they_are():
    with pytest.raises(RuntimeError, match="of its own"), disk_room.named_errors(Path("x")):
        raise RuntimeError("of its own")


@pytest.mark.parametrize("fault", ["a shard", "config", "index", "config is no JSON", "code"])
def test_what_is_damaged_is_named(fault, made, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(made, broken)
    match fault:
        case "a shard":
            (broken / "model_00001.weights.h5").unlink()
        case "config" | "index":
            names = {"config": "config.json", "index": "model.weights.json"}
            (broken / names[fault]).unlink()
        case "config is no JSON":
            (broken / "config.json").write_text("{")
        case "code":
            text = (broken / "config.json").read_text()
            (broken / "config.json").write_text(text.replace('"Dense"', '"__lambda__"'))
    why = {
        "a shard": "model_00001.weights.h5",
        "config": "broken",
        "index": "broken",
        "config is no JSON": "config.json: is not JSON",
        "code": "if you trust it, load it in Python with safe_mode=False",
    }
    with pytest.raises(Unreadable, match=re.escape(why[fault])):
        load_model(broken)


def test_an_index_names_no_file_elsewhere(made, tmp_path):
    index = json.loads((made / "model.weights.json").read_text())
    shutil.copyfile(made / "model_00000.weights.h5", tmp_path / "elsewhere.h5")
    index["weight_map"] = dict.fromkeys(index["weight_map"], "../elsewhere.h5")
    (made / "model.weights.json").write_text(json.dumps(index))
    with pytest.raises(Unreadable, match="elsewhere"):
        load_model(made)


def test_sizes_of_all_dtypes():
    for dtype, size in (("float32", 4), ("bfloat16", 2), ("float16", 2), ("int8", 1), ("bool", 1)):
        variable = keras.Variable(ops.zeros((3, 5), dtype=dtype), dtype=dtype, trainable=False)
        assert disk_room.bytes_of(variable) == 15 * size
