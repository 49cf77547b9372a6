"""Programs of TF 2.3 run on with other import lines, and end where TF 2.3.4 ended."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

from tests import programs

SCRIPTS = Path(__file__).parents[2] / "data" / "scripts"
RECORDED = json.loads((SCRIPTS / "recorded_tf23.json").read_text())

OLD = "from tensorflow.keras.mixed_precision import experimental as mixed_precision\n"
NEW = "from keras_mp.compat.mixed_precision import experimental as mixed_precision\n"
# Where there is no TensorFlow, `tf` is only the home of keras.
NO_TF = (
    "import tensorflow as tf\n",
    "import keras, types; tf = types.SimpleNamespace(keras=keras)\n",
)


def run(source, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(programs.warning("error", "UserWarning") + source)
    done = programs.completed(script, timeout=250, imported=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def replaced(source, before, after):
    assert source.count(before) == 1
    return source.replace(before, after)


def assert_close(now, before):
    """Asserts the same numbers, up to what float16 kernels differ in."""
    for found, expected in zip(now, before, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    source = replaced((SCRIPTS / "fit_tf23.py").read_text(), OLD, NEW)
    if keras.backend.backend() != "tensorflow":
        source = replaced(source, *NO_TF)
    return run(source, tmp_path_factory.mktemp("fit"))


def test_fit(fitted):
    now, before = fitted[0], RECORDED["fit"]
    for key in ("loss_scale", "period", "iterations", "learning_rate"):
        assert now[key] == before[key]
    assert_close(now["weights"], before["weights"])


def test_each_old_name_says_once_what_to_write(fitted):
    said = [line for line in fitted[1].splitlines() if "DeprecationWarning" in line]
    names = [line.split("experimental.")[1].split()[0] for line in said]
    assert sorted(names) == [
        "LossScaleOptimizer",
        "Policy",
        "get_layer_policy",
        "global_policy",
        "set_policy",
    ]
    assert all("script.py:" in line for line in said), "they name the caller's line"


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.GradientTape")
def test_tape(tmp_path):
    source = replaced((SCRIPTS / "tape_tf23.py").read_text(), OLD, NEW)
    now, before = run(source, tmp_path)[0], RECORDED["tape"]
    assert (now["scales"], now["iterations"]) == (before["scales"], before["iterations"])
    assert_close(now["weights"], before["weights"])
    assert_close(now["slots"], before["slots"])


def test_twin(tmp_path):
    now, before = run((SCRIPTS / "twin.py").read_text(), tmp_path)[0], RECORDED["tape"]
    assert (now["scales"], now["iterations"]) == (before["scales"], before["iterations"])
    assert_close(now["weights"], before["weights"])
    assert_close(now["slots"], before["slots"])
