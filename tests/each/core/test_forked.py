"""Programs that begin with Keras imported are like others."""

import subprocess

import keras
import pytest

from tests import forked, programs

BACKEND = keras.backend.backend()


def completed(program, *arguments, **options):
    return programs.completed("-c", program, *arguments, imported=True, **options)


def test_what_is_printed_and_handed_over():
    program = (
        "import os, sys; print(sys.argv, os.environ['WHAT'], __name__, 'keras' in sys.modules)"
    )
    done = completed(program, 3, WHAT="x")
    assert (done.stdout, done.stderr) == ("['-c', '3'] x __main__ True\n", "")


def test_any_end():
    done = completed("import sys; print('one'); sys.exit('two')")
    assert (done.returncode, done.stdout, done.stderr) == (1, "one\n", "two\n")
    assert completed("import os; os.kill(os.getpid(), 9)").returncode == -9
    done = completed("raise ValueError('because of this')")
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: because of this\n")


def test_time_that_is_up():
    with pytest.raises(subprocess.TimeoutExpired):
        completed("import time; time.sleep(60)", timeout=0.5)


def test_one_that_has_just_begun_ends(tmp_path):
    """Its group of processes is not there yet."""
    program = "import sys, time; time.sleep(15); open(sys.argv[1], 'w')"
    with pytest.raises(subprocess.TimeoutExpired):
        completed(program, tmp_path / "late", timeout=0)
    assert not (tmp_path / "late").exists()


def test_a_script_and_a_module(tmp_path):
    (tmp_path / "beside.py").write_text("value = 7\n")
    script = tmp_path / "script.py"
    script.write_text("import beside, sys; print(beside.value, sys.argv[1], __name__)\n")
    assert programs.run(script, "a", imported=True) == "7 a __main__\n"
    said = programs.completed("-m", "tests.faults", "nothing", 1, "out", imported=True)
    assert said.stderr.endswith("there is no engine 'nothing'\n")


def test_modules_of_the_project_are_not_there():
    assert completed("import sys; print('keras_mp' in sys.modules)").stdout == "False\n"


def test_the_backend_has_not_begun():
    """Devices are still to be chosen."""
    program = {
        "jax": """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3"
import jax
assert len(jax.devices()) == 3
""",
        "tensorflow": """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
assert len(tf.config.list_logical_devices("CPU")) == 3
""",
        "torch": """
import torch
torch.set_num_interop_threads(1)  # not once work has begun
""",
    }
    done = completed(program[BACKEND])
    assert done.returncode == 0, done.stderr


def test_options_of_python_are_refused():
    with pytest.raises(AssertionError, match="takes no other options"):
        programs.completed("-W", "error", "-c", "pass", imported=True)


def test_what_they_take_is_counted():
    completed("pass")
    before = forked.seconds()
    completed("import time\nwhile time.process_time() < 1: pass")
    assert forked.seconds() - before > 0.5
