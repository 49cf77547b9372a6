"""What starts at once needs nothing installed but Python, and loads nothing else."""

import json
import shutil
from pathlib import Path

import pytest

import keras_mp
from keras_mp.compat.configs import convert
from tests import programs

EXAMPLE = Path(keras_mp.__file__).parent / "migration" / "example_tf23.json"

# Nothing that was not brought with Python is to be had; `asked` is what somebody wanted of it.
ALONE = """
import sys

class Nothing:
    asked = set()

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in ("keras_mp", "org"):
            return None  # org: `copy` of Python looks whether this is Jython
        self.asked.add(top)
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nothing())
try:
    code = CODE
except ModuleNotFoundError as error:
    code = f"{error.name} is missing"
print(f"{code}; {sorted(Nothing.asked)}", file=sys.stderr)
"""
COMMAND = "__import__('keras_mp.migration.cli').migration.cli.main(sys.argv[1:])"


def alone(code, *arguments):
    """Returns stdout, what it came to, and what was asked for in vain."""
    done = programs.completed("-c", ALONE.replace("CODE", code), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout, *done.stderr.splitlines()[-1].split("; ")


@pytest.fixture
def config(tmp_path):
    return shutil.copy(EXAMPLE, tmp_path / "config.json")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["migrate", "--help"]])
def test_help_needs_nothing(arguments):
    out, code, asked = alone(COMMAND, *arguments)
    assert (code, asked) == ("0", "[]")
    assert "keras-mp" in out


def test_a_config_needs_nothing(config):
    out, code, asked = alone(COMMAND, "migrate", config)
    assert (code, asked) == ("0", "[]")
    assert json.loads(out) == convert(json.loads(EXAMPLE.read_text())).config


@pytest.mark.parametrize("option", ["--check", "--json", "-o"])
def test_nor_do_its_options(option, config, tmp_path):
    more = [tmp_path / "out.json"] if option == "-o" else []
    _, code, asked = alone(COMMAND, "migrate", config, option, *more)
    assert (code, asked) == ("1" if option == "--check" else "0", "[]")


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("__import__('keras_mp').LossScaleOptimizer", "keras"),
        (COMMAND.replace("sys.argv[1:]", "['inspect', 'nothing']"), "numpy"),
    ],
)
def test_the_probe_can_see_what_is_needed(code, name):
    _, came_to, asked = alone(code)
    assert came_to != "0"
    assert f"'{name}'" in asked
