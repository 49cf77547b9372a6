"""Programs that are made to do harm to a parser: one error each, soon, and nothing is written."""

import pytest

from tests import programs

DEEP = 100_000
# The parser's stack overflows, which ends its process, or it takes half a minute to say no.
HOSTILE = {
    "a deep program": f"x = {'(' * DEEP}",
    "a long sum": f"x = {'1+' * 20_000}1\ny = (",
}
PROGRAM = """
import sys
from keras_mp.migration.cli import main
from keras_mp.migration.code import depth

depth._SECONDS = 0.5
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["inspect", "migrate"])
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_programs(text, command, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(f"import tensorflow.keras.mixed_precision\n{text}")
    more = ["-o", tmp_path / "out.keras"] if command == "migrate" else []
    done = programs.completed("-c", PROGRAM, command, path, *more, timeout=60)
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 3
    assert [each.name for each in tmp_path.iterdir()] == ["program.py"]
