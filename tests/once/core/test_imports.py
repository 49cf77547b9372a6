"""What importing keras_mp does not do, and that it is told when keras comes."""

import subprocess
import sys

import pytest

import keras_mp
from tests import programs


def run(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": "", "PYTHONPATH": programs.path(), "KERAS_BACKEND": "numpy", **environment},
        capture_output=True,
        text=True,
    )


def test_import_loads_two_modules_and_is_silent():
    program = """
import os, sys, logging
environment, handlers, before = dict(os.environ), list(logging.root.handlers), set(sys.modules)
import keras_mp
loaded = {name for name in set(sys.modules) - before
          if name.partition(".")[0] not in sys.stdlib_module_names}
assert loaded == {"keras_mp", "keras_mp.after_import"}, loaded
assert dict(os.environ) == environment
assert logging.root.handlers == handlers and not logging.getLogger("keras_mp").handlers
"""
    found = run(program)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_names_are_listed_without_loading_them():
    found = run("import sys, keras_mp; print(*dir(keras_mp)); sys.exit('keras' in sys.modules)")
    assert (found.returncode, found.stderr) == (0, "")
    assert {*keras_mp.__all__} <= {*found.stdout.split()} <= {*dir(keras_mp)}


def test_the_probe_can_see_keras():
    found = run("import sys, keras_mp.policies.policy; sys.exit(3 * ('keras' in sys.modules))")
    assert found.returncode == 3, found.stderr


def test_public_names():
    program = """
import keras_mp
for name in keras_mp.__all__:
    assert getattr(keras_mp, name).__name__, name
    assert name in dir(keras_mp)
import keras_mp.compat
assert keras_mp.compat.PolicyScope is keras_mp.policy_scope
"""
    found = run(program)
    assert found.returncode == 0, found.stderr


def test_unknown_names():
    with pytest.raises(AttributeError, match="module 'keras_mp' has no attribute 'nonsense'"):
        _ = keras_mp.nonsense


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [("torch._C", r"pip install 'keras-mp[torch]'"), ("keras", None)],
    ids=["of a backend", "of keras"],
)
def test_a_backend_that_is_missing_is_told_how_to_get(missing, remedy, monkeypatch):
    def fail(name):
        raise ModuleNotFoundError("nothing there", name=missing)

    monkeypatch.setattr(keras_mp.importlib, "import_module", fail)
    monkeypatch.delitem(vars(keras_mp), "Policy", raising=False)
    with pytest.raises(ModuleNotFoundError) as found:
        _ = keras_mp.Policy
    notes = getattr(found.value, "__notes__", [])
    assert [remedy in note for note in notes] == ([] if remedy is None else [True])


@pytest.mark.parametrize(
    "imports",
    [
        *("keras, keras_mp", "keras_mp, keras", "keras_mp, keras.ops"),
        "keras_mp.optimizer.loss_scale_optimizer",
        # Each imports keras, whose import registers classes that need it.
        *("keras_mp.files.deserializing", "keras_mp.compat.restoring.models"),
        *("keras_mp.compat.regularizers", "keras_mp.compat.optimizers"),
    ],
)
def test_classes_are_registered_in_either_order(imports):
    names = (
        *("LossScaleOptimizer", "SGD", "BatchNormalization", "keras2_hard_sigmoid", "InFloat32"),
        *("mixed_precision.LossScaleOptimizer", "experimental.LossScaleOptimizer"),
    )
    program = f"""
import {imports}
import keras
for name in {names}:
    assert keras.saving.get_registered_object("keras_mp>" + name) is not None, name
"""
    found = run(program)
    assert found.returncode == 0, found.stderr


def test_looking_for_keras_is_not_importing_it():
    program = """
import sys, importlib.util, keras_mp
assert importlib.util.find_spec("keras") is not None
assert "keras" not in sys.modules
import keras
assert keras.saving.get_registered_object("keras_mp>LossScaleOptimizer") is not None
left = [f for f in sys.meta_path if type(f).__module__ == "keras_mp.after_import"]
assert not left, "the finder has done its work"
"""
    found = run(program)
    assert found.returncode == 0, found.stderr


def test_a_module_that_is_reloaded_before_keras_comes():
    """Two wait for keras then, here before a finder of old, which has no find_spec."""
    program = """
import importlib, importlib.util, sys, keras_mp
importlib.reload(keras_mp)
class Old:
    def find_module(self, name, path=None):
        return None
sys.meta_path.insert(4, Old())
assert importlib.util.find_spec("keras") is not None
import keras
assert keras.saving.get_registered_object("keras_mp>LossScaleOptimizer") is not None
left = [f for f in sys.meta_path if type(f).__module__ == "keras_mp.after_import"]
assert not left, "the finders have done their work"
"""
    found = run(program)
    assert found.returncode == 0, found.stderr


def test_keras_that_fails_to_import_may_come_again():
    program = """
import os, sys
import keras_mp
os.environ["KERAS_BACKEND"] = "nonsense"
try:
    import keras
except ValueError:
    pass
else:
    raise SystemExit("keras should have refused its backend")
for name in [name for name in sys.modules if name.split(".")[0] == "keras"]:
    del sys.modules[name]
os.environ["KERAS_BACKEND"] = "numpy"
import keras
assert keras.saving.get_registered_object("keras_mp>LossScaleOptimizer") is not None
"""
    found = run(program)
    assert found.returncode == 0, found.stderr


def test_without_keras_nothing_breaks():
    program = """
import sys
sys.modules["keras"] = None
import keras_mp
try:
    keras_mp.LossScaleOptimizer
except ImportError as error:
    assert "keras" in str(error)
else:
    raise SystemExit("no keras, and no error")
"""
    found = run(program)
    assert found.returncode == 0, found.stderr


def test_a_missing_backend_is_named_with_the_remedy():
    program = """
import sys
sys.modules["torch"] = None
import keras_mp
keras_mp.LossScaleOptimizer
"""
    found = run(program, KERAS_BACKEND="torch")
    assert found.returncode == 1
    assert "pip install 'keras-mp[torch]', or set KERAS_BACKEND" in found.stderr
