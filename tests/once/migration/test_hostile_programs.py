"""Programs that are made to do harm to a parser: one error each, soon, and nothing is written."""

from collections.abc import Callable

import pytest

from keras_mp.migration.code import parsed
from keras_mp.migration.code.rewriting import rewrite
from tests import programs
from tests.counting import growth

DEEP = 100_000
# The parser's stack overflows, which ends its process, or it takes half a minute to say no.
HOSTILE = {
    "a deep program": f"x = {'(' * DEEP}",
    "a long sum": f"x = {'1+' * 20_000}1\ny = (",
    "an import of many names": f"import {'.'.join(['a'] * 20_000)}",
    "an import from many names": f"from {'.'.join(['a'] * 20_000)} import b",
    "a name that is bound and used often": "from a import mixed_precision as m\nm.Policy\n" * 1000,
}
# What is repeated costs as often as it is there, whatever it is.
IMPORT = "from tensorflow.keras import mixed_precision as mp\n"
ASKS = "if isinstance(s.opt, mp.LossScaleOptimizer):\n    s.opt = 1\n    s.opt.loss_scale\n"
REPEATED: dict[str, Callable[[int], str]] = {
    "imports": lambda n: IMPORT * n + "mp.Policy(1)\n",
    "imports of a path": lambda n: "import tensorflow.keras.mixed_precision\n" * n,
    "mentions": lambda n: IMPORT + "f('loss_scale')\n" * n,
    "with": lambda n: f"{IMPORT}with {', '.join(['f(x)'] * n)}:\n" + "    mp.Policy(1)\n" * n,
    "attributes": lambda n: IMPORT + ASKS * n,
}
PROGRAM = """
import sys
from keras_mp.migration.cli import main
from keras_mp.migration.code import libcst_limits

libcst_limits._SECONDS = 0.5
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


@pytest.mark.parametrize("text", REPEATED.values(), ids=REPEATED)
def test_what_is_repeated(text: Callable[[int], str]) -> None:
    assert growth(rewrite, map(text, (6, 12, 24))) < 2.15


def test_places_that_depend_on_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsed, "_LOOKS", 10)
    monkeypatch.setattr(parsed, "_LOOKS_EACH", 0)
    with pytest.raises(parsed.Unparsable, match=parsed.TOO_MUCH):
        rewrite(IMPORT + "mp.Policy(1)\n" * 10)
