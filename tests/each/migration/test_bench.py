"""`keras-mp bench`: a file in, a table or JSON out, nothing written."""

import json

import keras
import numpy as np
import pytest

from keras_mp.migration.benching import read_data
from keras_mp.migration.cli import main
from tests.backends import on_one, on_torch
from tests.fixtures import DATA

QUICK = ("--steps", "1", "--seconds", "0.2")
LEGACY = DATA / "without_gradients" / "tf23" / "adam" / "model.h5"


def bench(*arguments):
    return main(["bench", *map(str, arguments)])


@pytest.fixture
def saved(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)], name="net")
    # A rule that no kernel has: one variant fewer to compile.
    model.compile(keras.optimizers.Nadam(1e-3), "mse")
    model.save(tmp_path / "net.keras")
    return tmp_path / "net.keras"


def test_a_table(saved, tmp_path, capsys):
    x = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    np.savez(tmp_path / "data.npz", x=x, y=x[:, :1])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    # Without it, JAX compiles each operation by itself.
    jit = "--jit" if keras.backend.backend() == "jax" else "--no-jit"
    arguments = ("--data", tmp_path / "data.npz", "--batch-size", 2, jit)
    assert bench(saved, *arguments, *QUICK) == 0
    out, err = capsys.readouterr()
    backend = keras.backend.backend()
    assert " ".join(out.split("\n\n")[0].split()) == (
        f"net on {backend}, cpu: 5 rounds of 1 step, after 4; data given, x (2, 4) float32; "
        "y (2, 1) float32"
    )
    assert "not measured, mixed_float16, fused: fused=True supports Adam" in out
    assert "Recommended: " in out
    assert err == ""
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@on_torch
def test_a_file_of_tf_keras(capsys):
    """It has two outputs, one without a loss, of which Keras warns on PyTorch; data is made up."""
    assert bench(LEGACY, "--json", *QUICK) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["path"] == str(LEGACY)
    assert found["made_up"]
    names = [result["name"] for result in found["results"]]
    assert names[0] == "float32"
    assert found["recommended"] in names
    assert not set(names) & set(found["failed"])
    assert all(result["loss"] != "nan" for result in found["results"])


@on_one
def test_what_it_refuses(saved, tmp_path, capsys):
    assert bench(tmp_path / "none.keras", *QUICK) == 2
    assert "none.keras" in capsys.readouterr().err
    assert bench(saved, "--data", tmp_path / "none.npz", "--json") == 2
    out, err = capsys.readouterr()
    assert "none.npz" in json.loads(out)["error"]
    assert "none.npz" in err
    assert bench(saved, "--steps", "0") == 2
    assert bench(saved, "--seconds", "-1") == 2
    assert "expected a positive number, but got -1" in capsys.readouterr().err


@on_one
def test_data(tmp_path):
    path = tmp_path / "data.npz"

    def read(**arrays):
        np.savez(path, **arrays)
        return read_data(str(path))

    one, two = np.ones(1), np.ones(2)
    x, y, weight = read(x=one, y=two)
    assert (x.size, y.size, weight) == (1, 2, None)
    x, y, _ = read(**{"x/a": one, "x/b": two, "y": one})
    assert {name: array.size for name, array in x.items()} == {"a": 1, "b": 2}
    for wrong in ({"y": one}, {"x": one, "labels": one}, {}):
        with pytest.raises(ValueError, match=r"expected x, y and optionally sample_weight"):
            read(**wrong)
    for content in (b"", b"x = 1", b"PK\x03\x04 damaged"):
        path.write_bytes(content)
        with pytest.raises((ValueError, OSError), match=r"data\.npz"):
            read_data(str(path))
    np.savez(path, x=np.array([{"pickled": 1}], dtype=object))
    with pytest.raises(ValueError, match=r"data\.npz: cannot be read"):
        read_data(str(path))
