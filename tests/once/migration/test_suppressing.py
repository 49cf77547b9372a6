"""`# noqa`: what a comment says and of which lines, with ruff itself as the oracle."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from keras_mp.migration.cli import main
from keras_mp.migration.code.parsed import Program
from keras_mp.migration.code.rewriting import rewrite
from keras_mp.migration.code.suppressing import Suppressions, is_suppressed

Capture = pytest.CaptureFixture[str]

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


# -- what it does to a program --------------------------------------------------------------------

SWITCH = 'os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"'
OPTIMIZER = 'tf.keras.mixed_precision.experimental.LossScaleOptimizer(opt, "dynamic")'
OF = "import os\nimport tensorflow as tf\n"


def found(text: str) -> list[tuple[int, str, str, str]]:
    """Returns line, rule, verdict and what it is suppressed by, of all that is not kept."""
    findings = rewrite(text).findings
    return [(f.line, f.rule, f.verdict, f.suppressed) for f in findings if f.verdict != "kept"]


@pytest.mark.parametrize(
    ("comment", "by"),
    [("# noqa", "noqa"), ("# noqa: KMP012, KMP011", "noqa"), ("# noqa: KMP012", ""), ("", "")],
)
def test_what_a_person_must_see(comment: str, by: str) -> None:
    assert found(f"{OF}{SWITCH}  {comment}\n") == [(3, "KMP011", "manual", by)]


@pytest.mark.parametrize("comment", ["# noqa", "# noqa: E501,KMP001"])
def test_what_would_be_rewritten_is_left_alone(comment: str) -> None:
    text = f"{OF}opt = {OPTIMIZER}  {comment}\n"
    assert rewrite(text).text == text
    assert found(text) == [(3, "KMP001", "rewritten", "noqa")]
    other = text.replace("KMP001", "KMP002").replace("# noqa\n", "#\n")
    assert rewrite(other).text != other
    assert found(other) == [(3, "KMP001", "rewritten", "")]


def test_so_is_what_would_be_edited_on_a_further_line() -> None:
    text = f"{OF}opt = {OPTIMIZER}\n".replace('"dynamic"', '\n    "dynamic",  # noqa: KMP001\n')
    assert rewrite(text).text == text
    assert found(text) == [(3, "KMP001", "rewritten", "noqa")]


def test_the_others_are_rewritten() -> None:
    text = f"{OF}a = {OPTIMIZER}  # noqa: KMP001\nb = {OPTIMIZER}\n"
    *_, a, b = rewrite(text).text.splitlines()
    assert (a, b) == (f"a = {OPTIMIZER}  # noqa: KMP001", "b = keras_mp.LossScaleOptimizer(opt)")


def test_the_import_of_what_is_left_alone_stays() -> None:
    text = "from tensorflow.keras import layers, mixed_precision\n"
    text += 'mixed_precision.set_global_policy("mixed_float16")  # noqa: KMP004\n'
    assert rewrite(text).text == text
    assert found(text) == [(2, "KMP004", "rewritten", "noqa")]
    both = f"{text}mixed_precision.global_policy()\n"
    assert rewrite(both).text == f"import keras_mp\n{text}keras_mp.global_policy()\n"
    whole = text.replace("from tensorflow.keras import layers, ", "import tensorflow.keras.")
    whole = whole.replace("\nmixed", "\ntensorflow.keras.mixed")
    assert rewrite(whole).text == whole


def test_so_do_the_others_of_its_import() -> None:
    text = "from tensorflow.keras.mixed_precision import global_policy, set_global_policy\n"
    text += "set_global_policy(x)  # noqa\nglobal_policy()\n"
    assert rewrite(text).text == (
        "import keras_mp\nfrom tensorflow.keras.mixed_precision import set_global_policy\n"
        "set_global_policy(x)  # noqa\nkeras_mp.global_policy()\n"
    )


def test_an_import_can_be_left_alone_by_itself() -> None:
    text = "from tensorflow.keras import mixed_precision  # noqa: KMP013\n"
    text += "mixed_precision.global_policy()\n"
    line, _ = text.splitlines()
    assert rewrite(text).text == f"import keras_mp\n{line}\nkeras_mp.global_policy()\n"


def test_what_is_seen_by_a_person_is_still_of_compat() -> None:
    text = "from tensorflow.keras.mixed_precision import experimental as mp\n"
    text += "print(mp)  # noqa\n"
    assert rewrite(text).text == text.replace("tensorflow.keras.", "keras_mp.compat.")
    assert found(text) == [(1, "KMP013", "rewritten", ""), (2, "KMP013", "manual", "noqa")]


def test_what_is_inside_is_left_alone_with_it() -> None:
    scale = "\n    f(tf.mixed_precision.experimental.FixedLossScale(1))"
    text = f"{OF}opt = {OPTIMIZER}\n".replace('"dynamic"', scale)
    assert found(text) == [(3, "KMP001", "manual", ""), (4, "KMP007", "rewritten", "")]
    assert "keras_mp.compat.mixed_precision.experimental.FixedLossScale(1)" in rewrite(text).text
    text = text.replace("opt,", "opt,  # noqa: KMP001")
    assert rewrite(text).text == text
    assert found(text) == [
        (3, "KMP001", "manual", "noqa"),
        (4, "KMP007", "rewritten", "noqa"),
    ]


def test_attributes_of_an_optimizer_that_is_left_alone_are() -> None:
    text = f"{OF}opt = {OPTIMIZER}  # noqa\nprint(opt.loss_scale(), getattr(opt, '_optimizer'))\n"
    assert rewrite(text).text == text
    assert found(text) == [(3, "KMP001", "rewritten", "noqa")]
    twice = f"{text}opt = {OPTIMIZER}\n"
    assert "opt.loss_scale()" in rewrite(twice).text
    assert [rule for _, rule, verdict, _ in found(twice) if verdict == "manual"] == ["KMP009"] * 2


def test_what_is_right_as_it_is_needs_no_comment() -> None:
    (kept,) = rewrite("x = 1  # mixed_precision  # noqa\n").findings
    assert (kept.verdict, kept.suppressed) == ("kept", "")


@pytest.mark.parametrize(
    ("cell", "rule"),
    [
        (f"x = 1\n{SWITCH}{{}}", "KMP011"),
        ("!TF_ENABLE_AUTO_MIXED_PRECISION=1 python train.py{}", "KMP016"),
        ("%%bash\nTF_ENABLE_AUTO_MIXED_PRECISION=1 python train.py{}", "KMP016"),
    ],
)
def test_in_a_notebook(cell: str, rule: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.ipynb"
    for comment, by in ("", None), (f"  # noqa: {rule}", "noqa"), ("  # noqa: KMP001", None):
        path.write_text(notebook("import os", cell.format(comment)), encoding="utf-8")
        assert main(["migrate", "--check", "--json", str(path)]) == (by is None)
        (row,) = json.loads(capsys.readouterr().out)["results"]
        of = [f for f in row["findings"] if f["verdict"] == "manual"] + row["suppressed"]
        assert [(f["rule"], f["cell"], f.get("by")) for f in of] == [(rule, 2, by)]


def notebook(*cells: str) -> str:
    rows = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": one} for one in cells]
    return json.dumps({"cells": rows, "metadata": {}, "nbformat": 4, "nbformat_minor": 2})


# -- what is told ---------------------------------------------------------------------------------


def test_it_does_not_count(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.py"
    text = f"{OF}{SWITCH}  # noqa: KMP011\nopt = {OPTIMIZER}  # noqa\n"
    path.write_text(text, encoding="utf-8")
    assert main(["migrate", "--check", str(path)]) == 0
    out, err = capsys.readouterr()
    rows = [line.split()[:5] for line in out.splitlines()]
    assert ["rule", "to", "rewrite", "manual", "kept"] in rows
    assert ["KMP001", "0", "0", "0", "1"] in rows
    assert ["KMP011", "0", "0", "0", "1"] in rows
    assert err == ""
    assert main(["migrate", "--write", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == text
    capsys.readouterr()
    assert main(["migrate", "--check", "--json", str(path)]) == 0
    report = json.loads(capsys.readouterr().out)
    (row,) = report["results"]
    assert (row["status"], row["needs_review"]) == ("unchanged", False)
    assert [(f["line"], f["verdict"]) for f in row["suppressed"]] == [
        (3, "manual"),
        (4, "rewritten"),
    ]
    assert report["summary"]["suppressed"] == {"noqa": 2, "baseline": 0}
    assert report["summary"]["files"]["untouched"] == 1
