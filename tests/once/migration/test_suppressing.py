"""`# noqa`: what a comment says and of which lines, with ruff itself as the oracle."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from keras_mp.migration.code.parsed import Program
from keras_mp.migration.code.suppressing import Suppressions, is_suppressed

# What a comment says of T201, which is ruff's rule against print.
COMMENTS = {
    "# noqa": True,
    "#noqa": True,
    "# NoQA": True,
    "# noqa because": True,
    "# noqa - because": True,
    "# noqa# because": True,
    "# noqa  # T201": True,
    "# why # noqa": True,
    "# type: ignore # noqa: T201": True,
    "# noqa:T201": True,
    "# noqa : T201": True,
    "# noqa: E501,T201": True,
    "# noqa: E501 T201": True,
    "# noqa: E501, T201 because": True,
    "# noqa: T201E501": True,
    "# noqa: E501,,T201": True,
    "# noqa:,T201": True,
    "# noqa: KMP012, T201": True,
    "# noqa: T201# because": True,
    "# noqa: E501": False,
    "# noqa: T2": False,
    "# noqa: T2011": False,
    "# noqa: t201": False,
    "# noqa:": False,
    "# noqa: because": False,
    "# noqa: because T201": False,
    "# noqa: E501 - T201": False,
    "# noqa: E501 # noqa: T201": False,
    "# noqa: T201x": False,
    "# noqa: T201.": False,
    "# noqa: E501;T201": False,
    "# noqaT201": False,
    "# noqa, T201": False,
    "# noqa_x": False,
    "# why noqa": False,
    "# flake8: noqa": False,
}
# Programs that call print, with a comment somewhere.
PROGRAMS = {
    "at the begin of a call": "print(  # noqa: T201\n    1,\n)\n",
    "at the end of a call": "print(\n    1,\n)  # noqa: T201\n",
    "in a call": "print(\n    1,  # noqa: T201\n)\n",
    "on the line of an inner call": "x = [\n    print(1),  # noqa: T201\n]\n",
    "above an inner call": "x = [  # noqa: T201\n    print(1),\n]\n",
    "on a line of its own": "# noqa\nprint(1)\n",
    "after a long string": "print('''a\nb''')  # noqa: T201\n",
    "after long bytes": "print(b'''a\nb''')  # noqa: T201\n",
    "after a long string on a line of its own": "print(\n'''a\nb''')  # noqa: T201\n",
    "after a long f-string": "print(f'''{1}\n{2}''')  # noqa: T201\n",
    "after an f-string with a line end": "print(f'{\n1}')  # noqa: T201\n",
    "after two long strings": "x = print('''a\n''', '''b\n''')  # noqa: T201\n",
    "after another long string": "x = print(1); y = '''a\nb'''  # noqa: T201\n",
    "in a string": "print('# noqa')\n",
    "in a long string": "print('''\n# noqa''')\n",
    "after a backslash in a string": "print('a\\\nb')  # noqa: T201\n",
    "after strings that are joined": "print('a'\n'b')  # noqa: T201\n",
    "after a backslash": "x = 1 + \\\n    print(2)  # noqa: T201\n",
    "after a backslash behind it": "x = print(2) + \\\n    1  # noqa: T201\n",
    "after two backslashes": "x = print(2) + \\\n    1 + \\\n    2  # noqa: T201\n",
    "after a backslash in a call": "x = print(2, \\\n    1,\n    3)  # noqa: T201\n",
    "after a backslash and a string": "x = print(2) + \\\n    '''a\n'''  # noqa: T201\n",
    "after a string and a backslash": "x = print('''a\n''') + \\\n    1  # noqa: T201\n",
    "after a backslash in a comment": "print(1)  # noqa: E501 \\\nprint(2)  # noqa: T201\n",
    "after a form feed": "print(1)\x0c# noqa\n",
    "of another line of a file with carriage returns": "print(1)  # noqa\rprint(2)\r",
    "of another line of a file of Windows": "print(1)  # noqa\r\nprint(2)\r\n",
    "at the end of the file": "print(1)\nprint(2)  # noqa",
}
has_ruff = pytest.mark.skipif(find_spec("ruff") is None, reason="ruff is not installed")


@pytest.mark.parametrize(("comment", "suppressed"), COMMENTS.items())
def test_what_a_comment_says(comment: str, suppressed: bool) -> None:
    assert is_suppressed(comment, "T201") == suppressed


@has_ruff
def test_ruff_reads_comments_so(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("".join(f"print(1)  {comment}\n" for comment in COMMENTS), encoding="utf-8")
    reported = {line for _, line in ruff(path)}
    assert reported == {i for i, said in enumerate(COMMENTS.values(), 1) if not said}


@has_ruff
def test_ruff_finds_their_lines_so(tmp_path: Path) -> None:
    for i, text in enumerate(PROGRAMS.values()):
        (tmp_path / f"{i}.py").write_bytes(text.encode())
    every, reported = ruff(tmp_path, "--ignore-noqa"), ruff(tmp_path)
    for i, (name, text) in enumerate(PROGRAMS.items()):
        suppressions = Suppressions(Program(text))
        lines = {line for file, line in every if file == f"{i}.py"}
        assert lines, name
        left = {line for line in lines if not suppressions.has("T201", [line])}
        assert left == {line for file, line in reported if file == f"{i}.py"}, name


def ruff(path: Path, *options: str) -> set[tuple[str, int]]:
    """Returns the file and the line of each print that ruff reports."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select=T201"]
    command += ["--output-format=json", *options, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return {(Path(row["filename"]).name, row["location"]["row"]) for row in json.loads(done.stdout)}
