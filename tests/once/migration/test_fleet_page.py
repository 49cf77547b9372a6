"""The programs of docs/how-to/fleets.md do what they say, where what they need is installed."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import fleet_tasks, programs

pytestmark = pytest.mark.processes

PAGE = programs.ROOT / "docs/how-to/fleets.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
# Tasks that cost nothing: it is the executors that are of interest here.
CHEAP = """
from keras_mp.migration import tasks
from tests import fleet_tasks
tasks.migrate_task = fleet_tasks.cheap
"""


def block(word: str) -> str:
    (found,) = [one for one in BLOCKS if word in one]
    return str(found)


def needs(*modules: str) -> Any:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


CASES = [
    pytest.param("jobs=", [], id="processes"),
    pytest.param("Ray()", [], id="ray", marks=needs("ray")),
    pytest.param("distributed.Client", [], id="dask", marks=needs("distributed")),
    pytest.param("MPIPoolExecutor", ["-m", "mpi4py.futures"], id="mpi", marks=needs("mpi4py")),
]


@pytest.mark.parametrize(("word", "options"), CASES)
def test_a_program_of_the_page(word: str, options: list[str], tmp_path: Path) -> None:
    fleet_tasks.folder_of(tmp_path / "old", 20)
    program = tmp_path / "program.py"
    text = block(word).replace('"old"', repr(f"{tmp_path}/old"))
    program.write_text(CHEAP + text.replace('"new"', repr(f"{tmp_path}/new")))
    environment = {
        "PYTHONPATH": f"{programs.ROOT}:{programs.path()}",
        "KERAS_BACKEND": "jax",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    if word == "MPIPoolExecutor":
        mpiexec = shutil.which("mpiexec", path=Path(sys.executable).parent) or "mpiexec"
        started = ["-c", "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])", mpiexec, "-n", 3]
        said = programs.run(*started, sys.executable, *options, program, **environment)
    else:
        said = programs.run(program, **environment)
    assert "Counter({'done': 20})" in said
    assert len(fleet_tasks.outputs(tmp_path / "new")) == 20


def test_the_programs_are_all_here() -> None:
    assert len(BLOCKS) == len(CASES)
