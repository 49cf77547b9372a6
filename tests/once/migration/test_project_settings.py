"""`[tool.keras-mp]` of pyproject.toml: rules and files that are left out."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from keras_mp.migration.cli import main
from keras_mp.migration.rules import RULES

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

IMPORTS = "import os\nimport tensorflow as tf\n"
SWITCH = 'os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"\n'
OPTIMIZER = 'opt = tf.keras.mixed_precision.experimental.LossScaleOptimizer(opt, "dynamic")\n'
PROGRAM = IMPORTS + SWITCH + OPTIMIZER
FILES = ("a.py", "legacy/b.py", "legacy/deep/c.py", "tests/d.py", "tests/deep/e.ipynb")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: Patch) -> Path:
    for name in FILES:
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": PROGRAM}
        book = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 2}
        path.write_text(PROGRAM if path.suffix == ".py" else json.dumps(book), encoding="utf-8")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def setting(folder: Path, *lines: str) -> None:
    text = "\n".join(["[tool.keras-mp]", *lines])
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")


def migrate(*arguments: object) -> int:
    return main(["migrate", *map(str, arguments)])


def found(capsys: Capture, *arguments: object) -> dict[str, str]:
    """Returns file -> rules of what is not kept there."""
    capsys.readouterr()
    assert migrate("--json", *arguments) == 0
    return {
        row["path"]: " ".join(f["rule"] for f in row["findings"] if f["verdict"] != "kept")
        for row in json.loads(capsys.readouterr().out)["results"]
    }


BOTH = "KMP011 KMP001"


def test_nothing_is_set(project: Path, capsys: Capture) -> None:
    assert found(capsys, ".") == dict.fromkeys(FILES, BOTH)
    (project / "pyproject.toml").write_text("[tool.ruff]\nignore = [3]\n", encoding="utf-8")
    assert found(capsys, ".") == dict.fromkeys(FILES, BOTH)


def test_ignore(project: Path, capsys: Capture) -> None:
    setting(project, 'ignore = ["KMP011", "KMP016"]')
    assert found(capsys, ".") == dict.fromkeys(FILES, "KMP001")
    assert migrate("--write", ".") == 0
    assert migrate("--check", ".") == 0


def test_per_file_ignores(project: Path, capsys: Capture) -> None:
    setting(project, 'per-file-ignores = {"tests/*" = ["KMP011"], "b.py" = ["KMP001"]}')
    expected = dict.fromkeys(FILES, BOTH) | {"legacy/b.py": "KMP011"}
    expected |= {"tests/d.py": "KMP001", "tests/deep/e.ipynb": "KMP001"}
    assert found(capsys, ".") == expected
    assert found(capsys, "tests/d.py") == {"tests/d.py": "KMP001"}


@pytest.mark.parametrize(
    ("globs", "left"),
    [
        (["legacy/*"], (0, 3, 4)),
        (["legacy"], (0, 3, 4)),
        (["/legacy/"], (0, 3, 4)),
        (["legacy/*.py"], (0, 2, 3, 4)),
        (["*.py"], (4,)),
        (["/*.py"], (1, 2, 3, 4)),
        (["deep"], (0, 1, 3)),
        (["tests/**/*.ipynb", "a.py"], (1, 2, 3)),
        (["elsewhere"], (0, 1, 2, 3, 4)),
    ],
)
def test_exclude(globs: list[str], left: tuple[int, ...], project: Path, capsys: Capture) -> None:
    setting(project, f"exclude = {globs}")
    assert [*found(capsys, ".")] == [FILES[i] for i in left]
    capsys.readouterr()
    assert migrate(project) == 0
    err = capsys.readouterr().err
    count = len(FILES) - len(left)
    what = f"{count} file{'s' if count > 1 else ''} excluded by pyproject.toml"
    assert (f"keras-mp: {project}: left out: {what}\n" in err) == bool(count)


def test_what_is_named_is_looked_at(project: Path, capsys: Capture) -> None:
    setting(project, 'exclude = ["legacy", "*.ipynb"]')
    assert [*found(capsys, "legacy/b.py", "a.py")] == ["legacy/b.py", "a.py"]
    assert [*found(capsys, "legacy")] == ["legacy/b.py", "legacy/deep/c.py"]
    assert [*found(capsys, "legacy/deep")] == ["legacy/deep/c.py"]
    assert [*found(capsys, "tests")] == ["tests/d.py"]
    assert [*found(capsys, ".", "legacy/b.py")] == ["a.py", "tests/d.py", "legacy/b.py"]
    force = "--force-exclude"
    assert [*found(capsys, force, "legacy/b.py", "a.py")] == ["a.py"]
    assert [*found(capsys, force, "legacy", "tests")] == ["tests/d.py"]
    assert migrate("--check", force, "legacy/b.py") == 0
    assert "keras-mp: legacy/b.py: left out: 1 file excluded" in capsys.readouterr().err


def test_a_copy_has_what_is_excluded_as_it_is(project: Path, capsys: Capture) -> None:
    setting(project, 'exclude = ["legacy/*"]')
    assert migrate(".", "-o", "../out") == 0
    assert "left out" not in capsys.readouterr().err
    out = {name: (project.parent / "out" / name).read_bytes() for name in FILES}
    same = [name for name in FILES if out[name] == (project / name).read_bytes()]
    assert same == ["legacy/b.py", "legacy/deep/c.py"]


def test_a_folder_that_may_not_be_read(project: Path, monkeypatch: Patch) -> None:
    scandir = os.scandir

    def closed(path: str) -> Any:
        if Path(path).name == "legacy":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr("os.scandir", closed)
    assert migrate(".") == 2
    setting(project, 'exclude = ["legacy"]')
    assert migrate(".", "--diff") == 0


def test_the_nearest_counts(project: Path, capsys: Capture, monkeypatch: Patch) -> None:
    setting(project.parent, 'ignore = ["KMP011"]')
    assert found(capsys, "a.py") == {"a.py": "KMP001"}
    (project / "pyproject.toml").write_text("[project]\nname = 'a'\n", encoding="utf-8")
    assert found(capsys, "a.py") == {"a.py": "KMP001"}
    setting(project / "tests", 'ignore = ["KMP001"]', 'exclude = ["d.py"]')
    nearest = dict.fromkeys(FILES, "KMP001") | {"tests/deep/e.ipynb": "KMP011"}
    del nearest["tests/d.py"]
    assert found(capsys, ".") == nearest
    monkeypatch.chdir("tests/deep")
    assert found(capsys, "e.ipynb", project / "a.py") == {
        "e.ipynb": "KMP011",
        f"{project}/a.py": "KMP001",
    }
    setting(project)
    assert found(capsys, project / "a.py") == {f"{project}/a.py": BOTH}


def test_the_command_line_goes_first(project: Path, capsys: Capture) -> None:
    setting(project, 'ignore = ["KMP011"]', 'per-file-ignores = {"a.py" = ["KMP001"]}')
    assert found(capsys, "a.py") == {"a.py": ""}
    assert found(capsys, "a.py", "--only", "KMP011") == {"a.py": "KMP011"}
    assert found(capsys, "a.py", "--only", "KMP001,KMP011") == {"a.py": BOTH}
    assert found(capsys, "legacy/b.py", "--skip", "KMP001") == {"legacy/b.py": ""}


def test_a_baseline_and_ignored_rules(project: Path, capsys: Capture) -> None:
    assert migrate("--write-baseline", "known.json", ".") == 0
    setting(project, 'ignore = ["KMP011"]', 'exclude = ["legacy"]')
    capsys.readouterr()
    assert migrate("--check", "--json", "--baseline", "known.json", ".") == 0
    assert json.loads(capsys.readouterr().out)["summary"]["baseline"]["gone"] == []


KEYS = "use one of ignore, exclude, per-file-ignores"
KNOWN = ", ".join(RULES)
WRONG = {
    "ignore = [": "is not TOML: ",
    "x = " + "[" * 100_000: "is not TOML: ",
    "# \xff": "is not TOML: ",
    "#" * (1 << 20): "it has more than 1048576 bytes",
    'igore = ["KMP016"]': f"unknown setting tool.keras-mp.igore: {KEYS}",
    'ignore = "KMP016"': "tool.keras-mp.ignore is a string: write an array of rules, such as "
    '["KMP016"]',
    "ignore = {a = 1}": "tool.keras-mp.ignore is a table: write an array of rules",
    'ignore = ["KMP001", 16]': "tool.keras-mp.ignore[1] is a number: write an array of rules",
    "ignore = [true]": "tool.keras-mp.ignore[0] is a boolean: write an array of rules",
    "ignore = [2026-01-01]": "tool.keras-mp.ignore[0] is a date or a time: write an array",
    'ignore = ["KMP999"]': f"tool.keras-mp.ignore has 'KMP999': remove it, or write one of {KNOWN}",
    "exclude = 3": "tool.keras-mp.exclude is a number: write an array of globs, such as "
    '["legacy/*"]',
    "exclude = [[]]": "tool.keras-mp.exclude[0] is an array: write an array of globs",
    'exclude = [""]': "tool.keras-mp.exclude has '': write a glob as in a .gitignore",
    'exclude = ["!a"]': "tool.keras-mp.exclude has '!a': write a glob as in a .gitignore, without "
    "a leading !",
    'exclude = ["[a"]': "tool.keras-mp.exclude has '[a': write a glob",
    "exclude = [" + '"a",' * 10_001 + "]": "tool.keras-mp.exclude: it has 10001 patterns",
    "per-file-ignores = []": "tool.keras-mp.per-file-ignores is an array: write a table",
    'per-file-ignores = {"a/*" = "KMP001"}': 'tool.keras-mp.per-file-ignores."a/*" is a string: ',
    'per-file-ignores = {"a/*" = ["E501"]}': "tool.keras-mp.per-file-ignores.\"a/*\" has 'E501': ",
    'per-file-ignores = {"!a" = []}': "tool.keras-mp.per-file-ignores has '!a': write a glob",
    'exclude = ["# a"]': "tool.keras-mp.exclude has '# a': write a glob",
}


@pytest.mark.parametrize(("line", "said"), WRONG.items(), ids=range(len(WRONG)))
def test_what_is_wrong_is_one_error(line: str, said: str, project: Path, capsys: Capture) -> None:
    (project / "pyproject.toml").write_text(f"[tool.keras-mp]\n{line}\n", encoding="latin-1")
    for path in ".", "a.py", "tests":
        assert migrate("--write", path) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1
        assert err.startswith(f"keras-mp: error: {project / 'pyproject.toml'}")
        assert said in err
    assert (project / "a.py").read_text(encoding="utf-8") == PROGRAM


def test_a_table_that_is_none(project: Path, capsys: Capture) -> None:
    (project / "pyproject.toml").write_text("[tool]\nkeras-mp = 3\n", encoding="utf-8")
    assert migrate(".") == 2
    assert "tool.keras-mp is a number: write a table" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(project: Path, capsys: Capture) -> None:
    os.mkfifo(project / "pyproject.toml")
    assert migrate(".") == 2
    assert "pyproject.toml: it is a pipe or a device" in capsys.readouterr().err


def test_a_folder_of_that_name_is_none(project: Path, capsys: Capture) -> None:
    (project / "pyproject.toml").mkdir()
    assert found(capsys, "a.py") == {"a.py": BOTH}
