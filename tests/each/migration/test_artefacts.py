"""`keras-mp migrate` of artefacts: what it writes is what they held, bit for bit, or nothing."""

import contextlib
import json
import os
import random
import re
import runpy
import shutil
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp.compat.configs import convert
from keras_mp.compat.inspecting import inspect
from keras_mp.compat.restoring import models, plan
from keras_mp.migration import artefacts, building, loading, verifying
from keras_mp.migration.cli import main
from keras_mp.migration.fleet import migrate_folder
from keras_mp.migration.optimizer_choice import config_of as config_of_optimizer
from keras_mp.migration.requests import Request
from tests import bundles, legacy_cases, programs
from tests.backends import on_one
from tests.fixtures import FIXTURES

# One layer of some models has the policy float64, and JAX has no float64 unless asked to.
pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")


def found(*names):
    folders = sorted(path.parent for path in FIXTURES.glob("tf*/*/oracle.json"))
    for folder in folders:
        for name in names:
            if (folder / name).exists():
                key = f"{folder.parent.name}/{folder.name}/{name}"
                yield pytest.param(folder / name, id=key)


def is_plain(path):
    """Whether its classes are all of Keras, and it was saved at all."""
    text = json.dumps(legacy_cases.read(path.parent / "oracle.json")["case"])
    return "subclassed" not in text and path.parent.parent.name != "tf115"


ALL = [p for p in found("model.h5", "model.keras", "saved_model") if is_plain(p.values[0])]
REFUSED = [p for p in ALL if re.search("multiplier|custom", p.values[0].parent.name)]
MIGRATED = [p for p in ALL if p not in REFUSED]
ONE = next(p.values[0] for p in MIGRATED if p.values[0].name == "model.h5")
SUBCLASSED = [
    p for p in found("model.keras", "saved_model") if "subclassed" in p.values[0].parent.name
]


def migrate(*arguments):
    return main(["migrate", *map(str, arguments)])


@pytest.mark.parametrize("path", legacy_cases.divided(MIGRATED))
def test_what_is_written_holds_what_was_recorded(path, tmp_path):
    case, out = legacy_cases.Case(path.parent), tmp_path / "out.keras"
    outcome = artefacts.migrate(Request(str(path), str(out)))
    assert (outcome.status, outcome.why) == ("converted", None)
    model = keras.saving.load_model(out)
    case.assert_weights(model)
    assert outcome.verified["weights"] == len(model.weights)
    state = outcome.kind == "saved_model"
    if model.optimizer is not None and inspect(path).optimizers[0].iterations is not None:
        if "product of Nadam" not in " ".join(outcome.notes):
            case.assert_optimizer(model, model.optimizer, scale=state)
        assert outcome.verified["optimizer"] == len(model.optimizer.variables)
    assert [p.name for p in tmp_path.iterdir()] == ["out.keras"]


@pytest.mark.parametrize("path", MIGRATED[:: max(1, len(MIGRATED) // 12)])
def test_inspect_agrees_with_what_was_written(path, tmp_path):
    out = tmp_path / "out.keras"
    assert migrate(path, "-o", out) == 0
    before, after = inspect(path), inspect(out)
    assert after.damage == []
    assert after.written_by == f"Keras {keras.__version__}"
    assert after.model.layers >= before.model.layers
    if before.optimizers[0].iterations is not None:
        assert after.optimizers[0].iterations == before.optimizers[0].iterations
    if before.optimizers[0].loss_scale is not None:
        state = [(o.loss_scale, o.counter) for o in (before.optimizers[0], after.optimizers[0])]
        assert state[0] == state[1]


@pytest.mark.parametrize("path", legacy_cases.divided(REFUSED))
def test_an_optimizer_without_counterpart_is_refused_or_left_out(path, tmp_path, capsys):
    out = tmp_path / "out.keras"
    assert migrate(path, "-o", out) == 2
    assert "--model-only writes the model without its optimizer" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert migrate(path, "-o", out, "--model-only") == 0
    model = keras.saving.load_model(out)
    legacy_cases.Case(path.parent).assert_weights(model)
    assert getattr(model, "optimizer", None) is None


# -- checkpoints ----------------------------------------------------------------------------------


def checkpoints():
    for oracle in sorted(FIXTURES.glob("tf2*/*/oracle.json")):
        folder = oracle.parent
        for name in ("ckpt", "weights_tf", "manager", "weights.h5", "model.weights.h5"):
            if (folder / f"{name}.index").exists() or (folder / name).exists():
                key = f"{folder.parent.name}/{folder.name}/{name}"
                yield pytest.param(folder / name, id=key)


def config_of(case):
    config = case.config()
    return config if "layers" in config.get("config", {}) else None


CHECKPOINTS = list(checkpoints())
# A case of each version is enough here: the restoring has tests of its own for all of them.
FEW = CHECKPOINTS[:: max(1, len(CHECKPOINTS) // 40)]


@pytest.mark.parametrize("path", legacy_cases.divided(FEW))
def test_with_the_config_of_the_model(path, tmp_path, capsys):
    case, out = legacy_cases.Case(path.parent), tmp_path / "out.keras"
    config = config_of(case)
    if config is None or case.refused():
        pytest.skip("its model has no config, or its optimizer no counterpart")
    (tmp_path / "model.json").write_text(json.dumps(config))
    (tmp_path / "optimizer.json").write_text(json.dumps(case.oracle["optimizer_config"]))
    options = ["--model", tmp_path / "model.json", "--from", case.version]
    has_state = path.name != "weights.h5" and inspect(path).optimizers
    if has_state:
        told = config_of_optimizer(inspect(path).optimizers[0])
        if path.name.endswith(".h5") or isinstance(told, str):
            assert migrate(path, "-o", out, *options) == 2
            assert "pass --optimizer optimizer.json" in capsys.readouterr().err
        options += ["--optimizer", tmp_path / "optimizer.json"]
    assert migrate(path, "-o", out, *options) == 0
    model = keras.saving.load_model(out)
    case.assert_weights(model)
    if has_state and "Nadam" not in case.recipe["optimizer"]["class"]:
        scale = not path.name.endswith(".h5")
        case.assert_optimizer(model, model.optimizer, scale=scale)


TOLD = [p for p in CHECKPOINTS if re.search(r"tf2[24]/(cnn_adam|embed|mlp_rms).*/ckpt", p.id)]


@pytest.mark.parametrize("path", legacy_cases.divided(TOLD))
def test_with_the_config_beside_it_and_the_optimizer_that_it_tells(path, tmp_path, capsys):
    case, out = legacy_cases.Case(path.parent), tmp_path / "out.keras"
    folder = tmp_path / "run"
    folder.mkdir()
    for file in path.parent.glob(f"{path.name}.*"):
        shutil.copy(file, folder)
    config = folder / "model.json"
    config.write_text(json.dumps(case.config()))
    assert migrate(folder / path.name, "-o", out, "--from", case.version) == 0
    said = capsys.readouterr().err
    assert f"uses the model config {config}, next to the weights" in said
    assert "with TensorFlow's defaults for the rest: " in said
    model = keras.saving.load_model(out)
    case.assert_weights(model)
    case.assert_optimizer(model, model.optimizer)
    (made,) = inspect(out).optimizers
    patterns = ["(^|/)embedding/embeddings$"] if "embed" in path.parent.name else ()
    old = case.oracle["optimizer_config"]
    done = convert(old, kind="optimizer", tf_version=case.version, sparse_variables=patterns)
    inner = done.config["config"]["inner_optimizer"]
    assert made.class_name == inner["class_name"]
    for key, value in inner["config"].items():
        assert key == "name" or made.config[key] == value, key


@pytest.mark.parametrize("path", FEW[::4])
def test_model_only_leaves_nothing_else_out(path, tmp_path, capsys):
    case, out = legacy_cases.Case(path.parent), tmp_path / "out.keras"
    config = config_of(case)
    if config is None:
        pytest.skip("its model has no config")
    (tmp_path / "model.json").write_text(json.dumps(config))
    assert migrate(path, "-o", out, "--model", tmp_path / "model.json", "--model-only") == 0
    model = keras.saving.load_model(out)
    case.assert_weights(model)
    assert getattr(model, "optimizer", None) is None
    capsys.readouterr()
    text = json.dumps(config).replace('"units": 8', '"units": 7')
    if '"units": 7' in text:
        (tmp_path / "model.json").write_text(text)
        again = tmp_path / "again.keras"
        assert migrate(path, "-o", again, "--model", tmp_path / "model.json", "--model-only") == 2
        assert "in the file" in capsys.readouterr().err
        assert not again.exists()


SCRIPT = """
import os
import keras
import keras_mp
import numpy as np
from nets import Block, Net

print("defining")


def make():
    model = Net()
    model(np.zeros((1, 5), "float32"))
    return model


def compiled():
    keras_mp.set_global_policy("mixed_float16")
    model = make()
    optimizer = keras_mp.LossScaleOptimizer(
        keras.optimizers.Adam(0.01), initial_scale=512, dynamic_growth_steps=4
    )
    model.compile(optimizer=optimizer, loss="mse")
    return model


def number():
    return 3


def fails():
    raise KeyError("of the user's own")


def ends():
    raise SystemExit("need arguments")


def twice(x):
    return 2 * x
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A program of a user: a script, and a module beside it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    for name in ("nets", building._OF_SCRIPT):
        monkeypatch.delitem(sys.modules, name, raising=False)
    text = Path(legacy_cases.__file__).read_text(encoding="utf-8")
    start, end = text.index("class Block("), text.index("    def by_old_name")
    (tmp_path / "nets.py").write_text(f"import keras\n\n\n{text[start:end]}")
    path = tmp_path / "net.py"
    path.write_text(SCRIPT)
    yield path
    keras_mp.set_global_policy("float32")
    for name in ("nets", building._OF_SCRIPT):
        sys.modules.pop(name, None)


def assert_net(case, model):
    names = {"net/block/gain:0": model.blocks[0].gain, "net/dense_2/bias:0": None}
    names["net/dense_2/bias:0"] = model.heads["main"].bias
    rows = {row["name"]: row for row in case.rows}
    for name, variable in names.items():
        expected = case.arrays[f"weight/{rows[name]['index']}"]
        legacy_cases.assert_bits(variable, expected, name)


OWN = [p for p in CHECKPOINTS if "subclassed_adam" in p.id and "h5" not in p.id]


@pytest.mark.parametrize("path", OWN[:3])
def test_with_the_model_of_a_script(path, script, tmp_path):
    case, out = legacy_cases.Case(path.parent), tmp_path / "out.keras"
    assert migrate(path, "-o", out, "--model", f"{script}:compiled") == 0
    nets = sys.modules["nets"]
    custom = {"Net": nets.Net, "Block": nets.Block}
    model = keras.saving.load_model(out, custom_objects=custom)
    assert_net(case, model)
    state = float(model.optimizer.loss_scale), int(model.optimizer.dynamic_counter)
    assert state == case.loss_scale()
    iterations = int(ops.convert_to_numpy(model.optimizer.inner_optimizer.iterations))
    assert iterations == case.saved["iterations"]


@pytest.mark.parametrize(
    ("factory", "why"),
    [
        ("missing", "has no function 'missing'"),
        ("number", "number() returned int, not a Keras model"),
        ("fails", 'KeyError: "of the user\'s own"'),
        ("ends", "ended the program ('need arguments')"),
        ("make", "pass --optimizer optimizer.json, or --model-only"),
    ],
)
def test_factories_that_are_none(factory, why, script, tmp_path, capsys):
    before = set(tmp_path.iterdir())
    # The migration assumes no optimizer for this checkpoint of TF 2.11.
    path = next(p.values[0] for p in OWN if p.id == "tf211/subclassed_adam/ckpt")
    out = tmp_path / "out.keras"
    assert migrate(path, "-o", out, "--model", f"{script}:{factory}") == 2
    assert why in capsys.readouterr().err.replace("'of the user\\'s own'", '"of the user\'s own"')
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("path", legacy_cases.divided(SUBCLASSED))
def test_classes_of_a_script(path, script, tmp_path, capsys):
    out = tmp_path / "out.keras"
    assert migrate(path, "-o", out) == 2
    assert "name the script that defines it, --model script.py" in capsys.readouterr().err
    assert migrate(path, "-o", out, "--model", script) == 0
    nets = sys.modules["nets"]
    custom = {"Net": nets.Net, "Block": nets.Block}
    model = keras.saving.load_model(out, custom_objects=custom)
    assert_net(legacy_cases.Case(path.parent), model)


def own_activation(folder):
    """A model of then with a function of its user's as activation."""
    path = folder / "model.h5"
    shutil.copyfile(ONE, path)
    with h5py.File(path, "r+") as file:
        config = file.attrs["model_config"]
        config = config if isinstance(config, str) else config.decode()
        file.attrs["model_config"] = re.sub(
            '"activation": "[a-z]+"', '"activation": "twice"', config
        )
    return path


def test_functions_of_a_script(script, tmp_path, capsys):
    path, out = own_activation(tmp_path), tmp_path / "out.keras"
    assert migrate(path, "-o", out) == 2
    error = capsys.readouterr().err
    assert "twice" in error
    assert "name the script that defines it, --model script.py" in error
    assert migrate("--json", path, "-o", out, "--model", script) == 0
    printed, said = capsys.readouterr()
    assert json.loads(printed)["results"][0]["status"] == "converted"
    assert "defining" in said, "not into the report"
    assert keras.saving.load_model(out, custom_objects={"twice": lambda x: 2 * x}).weights


@pytest.mark.parametrize("code", ["", "0", "'need arguments'"])
def test_a_script_that_ends_the_program(code, script, tmp_path, capsys):
    script.write_text(f"import sys\nprint('usage')\nsys.exit({code})\n")
    assert migrate("--json", ONE, "-o", tmp_path / "out.keras", "--model", script) == 2
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert row["status"] == "refused"
    assert f"ended the program ({code or None})" in row["error"]["message"]


# -- what it prints, and when it fails ------------------------------------------------------------


@on_one
def test_the_table(tmp_path, capsys):
    out = tmp_path / "out.keras"
    assert migrate(ONE, "-o", out) == 0
    table, said = capsys.readouterr()
    head, *rows = table.splitlines()
    assert head.split() == ["in", "the", "file", "in", "Keras", "3", "dtype", "shape", "sha256"]
    assert f"keras-mp: {out}: written, and loaded again: " in said
    model = keras.saving.load_model(out)
    for weight in model.weights:
        digest = plan.digest(np.asarray(ops.convert_to_numpy(weight)))
        assert any(row.split()[1] == weight.path and row.endswith(digest) for row in rows)


@on_one
def test_without_o_nothing_is_written(tmp_path, capsys):
    source = tmp_path / "model.h5"
    shutil.copyfile(ONE, source)
    for options, code in (([], 0), (["--check"], 1), (["--json"], 0), (["--check", "--json"], 1)):
        assert migrate(source, *options) == code
        out, err = capsys.readouterr()
        assert [p.name for p in tmp_path.iterdir()] == ["model.h5"]
        if not options:
            assert "nothing written: pass -o OUT.keras" in err
            assert out.startswith("in the file")
        if options == ["--check"]:
            assert (out, f"{source}: would change" in err) == ("", True)


@on_one
def test_json_is_one_report(tmp_path, capsys):
    out = tmp_path / "out.keras"
    assert migrate("--json", ONE, "-o", out) == 0
    printed, said = capsys.readouterr()
    (row,) = json.loads(printed)["results"]
    assert "keras-mp" not in said
    assert (row["path"], row["kind"], row["status"]) == (str(ONE), "h5", "converted")
    assert (row["out"], row["error"]) == (str(out), None)
    assert len(row["sha256"]) == 64
    assert row["report"]["restored"]
    assert row["verified"]["weights"] == len(keras.saving.load_model(out).weights)


class Lossy(keras.layers.Dense):
    """Saves something else than it has."""

    def save_own_variables(self, store):
        store["0"] = np.asarray(ops.convert_to_numpy(self.kernel)) * (1 + 1e-7)
        store["1"] = np.asarray(ops.convert_to_numpy(self.bias))


def a_model(layer):
    model = keras.Sequential([keras.Input((2,)), layer])
    model.layers[0].kernel.assign(np.ones(model.layers[0].kernel.shape))
    return model


def report_of(model):
    return models.RestoreReport("file", (), (), (), ())


@pytest.mark.parametrize("layer", [Lossy, keras.layers.Dense])
def test_what_reads_back_differently_is_not_kept(layer, tmp_path, monkeypatch, capsys):
    def load(path, **options):
        model = a_model(layer(1))
        return (model, report_of(model))

    monkeypatch.setattr(models, "load_model", load)
    out = tmp_path / "out.keras"
    code = migrate(ONE, "-o", out)
    assert (code, out.exists()) == ((2, False) if layer is Lossy else (0, True))
    if layer is Lossy:
        assert "differs after reloading" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []


@keras.saving.register_keras_serializable("tests")
class Unloadable(keras.layers.Dense):
    @classmethod
    def from_config(cls, config):
        raise KeyError("of the user's own")


@pytest.mark.parametrize("failing", ["loading", "loading again"])
def test_what_cannot_be_loaded_is_not_kept(failing, tmp_path, monkeypatch, capsys):
    def load(path, **options):
        if failing == "loading":
            raise OSError("the file is of no use")
        model = a_model(Unloadable(1))
        return (model, report_of(model))

    monkeypatch.setattr(models, "load_model", load)
    assert migrate(ONE, "-o", tmp_path / "out.keras") == 2
    told = {
        "loading": f"keras-mp: {ONE}: error: the file is of no use\n",
        "loading again": "error: the written file cannot be loaded: ",
    }
    assert told[failing] in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


METADATA = [None, b"{", b"[]", b"{}", b'{"keras_version": "x"}', b'{"keras_version": "2.15.0"}']


@pytest.mark.parametrize("metadata", METADATA)
def test_an_archive_that_does_not_say_its_version_is_read_as_an_old_one(
    metadata, tmp_path, monkeypatch
):
    read = []

    def load(path, **options):
        read.append(path)
        model = a_model(keras.layers.Dense(1))
        return (model, report_of(model))

    monkeypatch.setattr(models, "load_model", load)
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")
        if metadata is not None:
            archive.writestr("metadata.json", metadata)
    assert migrate(path) == 0
    assert read == [path]


@on_one
@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--optimizer", "bad.json"], loading.OWN_OPTIMIZER),
        (["--model", "bad.json"], "--model: bad.json: not JSON: line 1, column 2"),
    ],
    ids=["--optimizer", "--model"],
)
def test_configs_that_are_none(options, why, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text("{")
    assert migrate(ONE, "-o", "out.keras", *options) == 2
    assert why in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]


@pytest.mark.parametrize("wrong", ["rate", "slot", "counter", "class"])
def test_the_optimizer_is_compared_too(wrong, tmp_path):
    model = a_model(keras.layers.Dense(1))
    model.compile(keras_mp.LossScaleOptimizer(keras.optimizers.Adam()), "mse")
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "m.keras")
    options = {"rows": (), "custom_objects": {}}
    assert verifying.reload_and_compare(tmp_path / "m.keras", model, **options)
    match wrong:
        case "rate":
            model.optimizer.inner_optimizer.beta_1 = 0.8
        case "slot":
            slot = model.optimizer.inner_optimizer.variables[-1]
            slot.assign(slot + 1e-30)
        case "counter":
            model.optimizer.step_counter.assign(1)
        case "class":
            model.compile(keras.optimizers.SGD(), "mse")
            model.optimizer.build(model.trainable_variables)
    with pytest.raises(verifying.Mismatch):
        verifying.reload_and_compare(tmp_path / "m.keras", model, **options)


def test_rows_are_looked_for_in_what_was_written(tmp_path):
    model = a_model(keras.layers.Dense(1))
    model.save(tmp_path / "m.keras")
    kernel = np.ones((2, 1), "float32")
    options = {"custom_objects": {}}
    for array, fits in ((kernel, True), (kernel + 1, False)):
        row = plan.Restored("k", model.weights[0].path, (2, 1), "float32", plan.digest(array))
        if fits:
            verifying.reload_and_compare(tmp_path / "m.keras", model, [row], **options)
        else:
            with pytest.raises(verifying.Mismatch, match="differs from k after reloading"):
                verifying.reload_and_compare(tmp_path / "m.keras", model, [row], **options)


@on_one
def test_what_is_not_installed_is_named(tmp_path, monkeypatch, capsys):
    path = next(p.values[0] for p in CHECKPOINTS if p.values[0].name == "ckpt")
    case = legacy_cases.Case(path.parent)
    (tmp_path / "model.json").write_text(json.dumps(config_of(case)))
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    options = ["--model", tmp_path / "model.json", "--model-only"]
    assert migrate(path, "-o", tmp_path / "out.keras", *options) == 2
    error = capsys.readouterr().err
    assert "pip install 'keras-mp[migrate]'" in error
    assert "Traceback" not in error


@on_one
def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch, capsys):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert migrate(ONE, "-o", tmp_path / "out.keras") == 2
    assert "error: No space left on device" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@on_one
def test_a_folder_that_cannot_be_written_to(tmp_path, monkeypatch, capsys):
    def refuse(self, *_, **__):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert migrate(ONE, "-o", tmp_path / "out.keras") == 2
    assert "Permission denied" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# -- processes ------------------------------------------------------------------------------------

READY = """
import sys
import keras
from keras_mp.compat.restoring import models, plan
from keras_mp.migration import verifying
from keras_mp.migration.cli import main
print("ready", flush=True)
sys.exit(main(sys.argv[1:]))
"""


@on_one
def test_killed_at_any_moment_it_is_whole_or_not_there(tmp_path):
    chance, out = random.Random(11), tmp_path / "out.keras"
    said = tmp_path / "said"
    command = ["-c", READY, "migrate", ONE, "-o", out]

    @contextlib.contextmanager
    def started():
        with (
            said.open("wb") as file,
            programs.started(*command, stdout=file, imported=True) as process,
        ):
            while not said.read_bytes().startswith(b"ready\n"):
                assert process.poll() is None
                time.sleep(0.001)
            yield process, time.perf_counter()

    with started() as (process, began):
        while process.poll() is None and not out.exists():
            time.sleep(0.001)
        duration = time.perf_counter() - began
        assert process.wait(60) == 0
    assert out.exists()
    seen = set()
    for tenth in (1, 4, 7, 9):
        out.unlink(missing_ok=True)
        with started():
            time.sleep(duration * (tenth + chance.random()) / 10)
        seen.add(out.exists())
        if out.exists():
            legacy_cases.Case(ONE.parent).assert_weights(keras.saving.load_model(out))
    assert False in seen, "nothing was killed in time"


@on_one
def test_a_folder_in_processes(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    shutil.copyfile(ONE, os.fsdecode(os.fsencode(source) + b"/caf\xe9.h5"))
    with h5py.File(source / "broken.h5", "w") as file:
        file.attrs["model_config"] = "{"
    command = ["-m", "keras_mp.migration", "migrate", "--json", source, "-o", tmp_path / "out"]
    done = programs.completed(*command, "--jobs", 2)
    assert done.returncode == 2, done.stderr
    rows = json.loads(done.stdout)["results"]
    assert [row["status"] for row in rows] == ["failed", "converted"]
    assert "model_config" in rows[0]["error"]["message"]
    made = sorted(os.listdir(os.fsencode(tmp_path / "out")))  # noqa: PTH208 - bytes
    assert made == [b"caf\xe9.keras", b"migration.jsonl"]


WITHOUT = """
import sys


class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(name, name=name)


sys.meta_path.insert(0, Missing)
from keras_mp.migration.cli import main
code = main(sys.argv[1:])
assert "keras" in sys.modules
sys.exit(code)
"""


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="one backend is enough: it is chosen")
def test_needs_no_tensorflow_and_chooses_what_is_there(tmp_path):
    program = WITHOUT.format(missing=["tensorflow", "torch"])
    environment = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"}
    environment["KERAS_HOME"] = str(tmp_path)
    command = [sys.executable, "-c", program, "migrate", ONE, "-o", tmp_path / "out.keras"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "note: Keras runs on jax, as KERAS_BACKEND is not set" in done.stderr
    assert (tmp_path / "out.keras").exists()


def test_exact_training_takes_the_layers_of_then(tmp_path):
    source = FIXTURES / "tf22/cnn_adam_2048_500/model.h5"
    out = tmp_path / "model.keras"
    assert main(["migrate", "--exact-training", str(source), "-o", str(out)]) == 0
    layers = keras.saving.load_model(out).layers
    (norm,) = [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]
    assert type(norm).__module__ == "keras_mp.compat.layers.keras2"


NET_OF_TWO = """
import keras

def net():
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="out")])
"""


NET_OF_OWN = """
import keras

class Own(keras.layers.Dense):
    def call(self, inputs):
        return 2 * super().call(inputs)
"""
TWICE = "def twice(x):\n    return 2 * x\n"


def own_config(units=2, activation="linear", kind="Own"):
    layer = {"class_name": kind, "config": {"units": units, "activation": activation}}
    layer["config"] |= {"name": "out", "batch_input_shape": [None, 3]}
    return {"class_name": "Sequential", "config": {"name": "net", "layers": [layer]}}


def own_weights(path, units=2):
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = ["out"]
        group = file.create_group("out")
        names = group.attrs["weight_names"] = ["out/kernel:0", "out/bias:0"]
        for name, value in zip(names, (np.ones((3, units)), np.full(units, 5.0)), strict=True):
            group[name] = value.astype("float32")
    return path


def test_a_config_and_scripts_with_its_classes(tmp_path, capsys):
    weights, out = own_weights(tmp_path / "w.h5"), tmp_path / "out.keras"
    config, layers, functions = (tmp_path / name for name in ("c.json", "layers.py", "more.py"))
    config.write_text(json.dumps(own_config(activation="twice")))
    layers.write_text(NET_OF_OWN)
    functions.write_text(TWICE)
    given = ["--model", config]
    assert migrate(weights, "-o", out, *given) == 2
    assert '.class_name is "Own": a class of your own' in capsys.readouterr().err
    given += ["--model", layers]
    assert migrate(weights, "-o", out, *given) == 2
    assert "activation function identifier: twice" in capsys.readouterr().err
    assert migrate(weights, "-o", out, *given, "--model", functions) == 0
    custom = {"Own": runpy.run_path(str(layers))["Own"], "twice": lambda x: 2 * x}
    model = keras.saving.load_model(out, custom_objects=custom)
    np.testing.assert_allclose(model.predict(np.ones((1, 3)), verbose=0), [[32.0, 32.0]])


def test_a_folder_with_a_model_for_each_part(tmp_path, capsys):
    tree, out = tmp_path / "tree", tmp_path / "out"
    tree.mkdir()
    for name, units in (("g", 2), ("d", 4), ("e", 6)):
        own_weights(tree / name / "w.h5", units)
        place = tree / "e" / "model.json" if name == "e" else tmp_path / f"{name}.json"
        place.write_text(json.dumps(own_config(units, kind="Dense")))
    given = []
    for name in ("g", "d"):
        given += ["--model", f"{name}/*={tmp_path / name}.json"]
    unknown = ["--model", f"x/*={tmp_path / 'g.json'}"]
    assert migrate(tree, "--json", *given, *unknown) == 0
    printed = capsys.readouterr()
    rows = json.loads(printed.out)["results"]
    assert [row["status"] for row in rows] == ["would convert"] * 3
    assert f"{unknown[1]}: matches no artefact in this folder" in printed.err
    assert printed.err.count("no artefact") == 1

    def run(**options):
        with ThreadPoolExecutor(1) as here:  # where Keras is imported already
            return dict(migrate_folder(tree, out, model=given[1::2], executor=here, **options))

    assert run() == {"done": 3}
    for name, units in (("g", 2), ("d", 4), ("e", 6)):
        assert keras.saving.load_model(out / name / "w.keras").layers[0].units == units
    assert run() == {"done before": 3}
    (tree / "e" / "model.json").write_text(json.dumps(own_config(5, kind="Dense")))
    assert run() == {"done before": 3}, "what is done stays done, whatever model is beside it now"
    (tree / "e" / "config.json").write_text(json.dumps(own_config(6, kind="Dense")))
    (out / "e" / "w.keras").unlink()
    told = []
    counts = run(retry=["refused"], on_row=told.append)
    assert counts == {"done before": 2, "refused": 1}
    (why,) = [row["why"] for row in told if row["result"] == "refused"]
    assert "ambiguous: 2 model configs next to it (model.json, config.json)" in why


def test_one_model_of_several_objects(tmp_path, capsys):
    dense = {"kernel": np.ones((3, 2), "float32"), "bias": np.full(2, 5.0, "float32")}
    other = {"kernel": np.zeros((3, 2), "float32"), "bias": np.zeros(2, "float32")}
    nets = {name: {"layer_with_weights-0": one} for name, one in (("g", dense), ("d", other))}
    bundles.write_objects(tmp_path / "ckpt", {**nets, "step": np.asarray(3)})
    script, out = tmp_path / "net.py", tmp_path / "out.keras"
    script.write_text(NET_OF_TWO)
    options = [tmp_path / "ckpt", "-o", out, "--model", f"{script}:net"]
    assert migrate(*options) == 2
    assert "pass --model-path, one of g, d" in capsys.readouterr().err
    assert migrate(*options, "--model-path", "x") == 2
    assert "has no object called 'x': pass --model-path, one of g, d, step" in (
        capsys.readouterr().err
    )
    assert migrate(*options, "--model-path", "g") == 0
    assert "not asked for, and left out: d, step" in capsys.readouterr().err
    np.testing.assert_array_equal(keras.saving.load_model(out).get_weights()[1], dense["bias"])
