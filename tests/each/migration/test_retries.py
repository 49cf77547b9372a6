"""A retry of a folder with real artefacts: what is done stays done, and reasons keep their kind."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import h5py
import pytest

from keras_mp.migration import ledger
from keras_mp.migration.artefacts import migrate
from keras_mp.migration.fleet import migrate_folder
from keras_mp.migration.requests import Request
from tests import programs
from tests.fixtures import DATA
from tests.fleet_tasks import outputs

pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")

MODEL = DATA / "tf23/mlp_floor_at_one/model.h5"

SCRIPT = """
import keras


class MyDense(keras.layers.Dense):
    pass


class Broken(keras.layers.Dense):
    def __init__(self, *args, **kwargs):
        raise ValueError("no such layer today")


def unbuilt():
    return keras.Sequential([MyDense(3)])
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", programs.path())
    (tmp_path / "own.py").write_text(SCRIPT)
    old = tmp_path / "old"
    old.mkdir()
    shutil.copyfile(MODEL, old / "good.h5")
    of_class(old / "custom.h5", "MyDense")
    weights_alone(old / "w.h5")
    return tmp_path


def of_class(path, name):
    shutil.copyfile(MODEL, path)
    with h5py.File(path, "a") as file:
        config = file.attrs["model_config"]
        config = config if isinstance(config, str) else config.decode()
        file.attrs["model_config"] = config.replace(
            '"class_name": "Dense"', f'"class_name": "{name}"'
        )


def weights_alone(path):
    with h5py.File(MODEL) as model, h5py.File(path, "w") as file:
        for name in model["model_weights"]:
            model.copy(f"model_weights/{name}", file)
        for key, value in model["model_weights"].attrs.items():
            file.attrs[key] = value


def run(folder, **options):
    with ThreadPoolExecutor(1) as executor:
        migrate_folder(folder / "old", folder / "new", executor=executor, **options)
    rows = [row for _, row in ledger.rows(folder / "new" / ledger.NAME)]
    return {row["name"]: (row["result"], row["reason"]) for row in rows}


def test_a_retry_touches_nothing_that_is_done(folder):
    needs = ("refused", "needs --model")
    first = {"custom.h5": needs, "good.h5": ("done", None), "w.h5": needs}
    assert run(folder) == first
    good = outputs(folder / "new")["good.keras"]
    script = str(folder / "own.py")
    after = first | {"custom.h5": ("done", None)}
    assert run(folder, retry=["refused"], model=script) == after
    assert run(folder) == after, "the first command again"
    made = outputs(folder / "new")
    assert set(made) == {"custom.keras", "good.keras"}
    assert made["good.keras"] == good
    (folder / "new" / ledger.NAME).unlink()
    again = run(folder, model_only=True)
    assert again["good.h5"] == again["custom.h5"] == ("done before", None)


def test_a_model_that_does_not_do_leaves_the_artefact_whole(folder):
    """It was "failed, damaged", as if the file could not be read."""
    script = folder / "own.py"
    out = str(folder / "x.keras")

    def of(name, **options):
        done = migrate(Request(str(folder / "old" / name), out, **options))
        return done.status, done.reason, done.why

    status, reason, why = of("w.h5", model=f"{script}:unbuilt")
    assert (status, reason) == ("refused", "needs --model")
    assert why == (
        f"--model: {script}:unbuilt: the model has no weights yet: build it, or call it once, in "
        "the script"
    )
    of_class(folder / "old" / "broken.h5", "Broken")
    status, reason, why = of("broken.h5", scripts=(str(script),))
    assert (status, reason) == ("refused", "own code")
    assert why == f"--model: {script}, line 11: ValueError: no such layer today"
    status, reason, why = of("good.h5", model_path="generator")
    assert (status, reason) == ("refused", "options")
    assert why == "--model-path is for checkpoints, and this is an HDF5 file: omit it"
    script.unlink()
    status, reason, why = of("good.h5", scripts=(str(script),))
    assert (status, reason) == ("refused", "options")
    assert why.startswith(f"--model: {script}: cannot be read: ")


def test_messages_name_options_of_the_command(folder):
    done = migrate(Request(str(folder / "old/custom.h5"), str(folder / "x.keras")))
    assert done.why.endswith(
        'is "MyDense": a class of your own: name the script that defines it, --model script.py'
    )
    assert (done.status, done.reason) == ("refused", "needs --model")
