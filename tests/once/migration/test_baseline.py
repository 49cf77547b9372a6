"""Baselines: what is known is left out, until something new appears."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from keras_mp.migration.cli import main
from keras_mp.migration.code.rewriting import rewrite

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

IMPORTS = "import os\nimport tensorflow as tf\n"
SWITCH = 'os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"\n'
OPTIMIZER = 'opt = tf.keras.mixed_precision.experimental.LossScaleOptimizer(opt, "dynamic")\n'
NEW = "opt = keras_mp.LossScaleOptimizer(opt)\n"
PROGRAM = IMPORTS + SWITCH + OPTIMIZER


@pytest.fixture
def project(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(PROGRAM, encoding="utf-8")
    return tmp_path


def migrate(*arguments: object) -> int:
    return main(["migrate", *map(str, arguments)])


def write_baseline(project: Path) -> Path:
    assert migrate("src", "--write-baseline", "known.json") == 0
    return project / "known.json"


def entries(file: Path) -> list[tuple[str, str, str, int]]:
    found = json.loads(file.read_text(encoding="utf-8"))["findings"]
    return [(row["path"], row["rule"], row["source"], row["count"]) for row in found]


def report(capsys: Capture, *arguments: object) -> Any:
    capsys.readouterr()
    migrate("--json", "--baseline", "known.json", *arguments)
    return json.loads(capsys.readouterr().out)


def test_it_has_what_is_to_be_done(project: Path, capsys: Capture) -> None:
    more = f"{SWITCH}    # mixed_precision\n{OPTIMIZER[:-1]}  # noqa: KMP001\n"
    (project / "src" / "b.py").write_text(PROGRAM + more, encoding="utf-8")
    file = write_baseline(project)
    assert "keras-mp: known.json: written: 5 findings\n" in capsys.readouterr().err
    assert entries(file) == [
        ("src/a.py", "KMP001", OPTIMIZER.strip(), 1),
        ("src/a.py", "KMP011", SWITCH.strip(), 1),
        ("src/b.py", "KMP001", OPTIMIZER.strip(), 1),
        ("src/b.py", "KMP011", SWITCH.strip(), 2),
    ]
    assert (project / "src" / "a.py").read_text(encoding="utf-8") == PROGRAM


def test_it_is_the_same_however_it_is_made(project: Path, monkeypatch: Patch) -> None:
    once = write_baseline(project).read_bytes()
    (project / "link").symlink_to("src")
    assert migrate("--write-baseline", "known.json", project / "src" / ".." / "src", "link") == 0
    assert (project / "known.json").read_bytes() == once
    monkeypatch.chdir("src")
    assert migrate("--write-baseline", "../known.json", "a.py", "--jobs", 1) == 0
    assert (project / "known.json").read_bytes() == once
    assert migrate("--write-baseline", "beside.json", ".") == 0
    assert {path for path, *_ in entries(Path("beside.json"))} == {"a.py"}
    assert migrate("--check", "--baseline", project / "known.json", project) == 0


def test_check_passes_until_something_is_new(project: Path, capsys: Capture) -> None:
    assert migrate("--check", "src") == 1
    write_baseline(project)
    capsys.readouterr()
    assert migrate("--check", "--baseline", "known.json", "src") == 0
    out, err = capsys.readouterr()
    assert err == "keras-mp: known.json: 2 known findings left out\n"
    assert "KMP011  0           0       0     1 " in out
    path = project / "src" / "a.py"
    moved = f"# above\n\n{IMPORTS}\nif True:\n    {SWITCH}    {OPTIMIZER}"
    path.write_text(moved, encoding="utf-8")
    assert migrate("--check", "--baseline", "known.json", "src") == 0
    path.write_text(f"{moved}    {SWITCH}", encoding="utf-8")
    capsys.readouterr()
    assert migrate("--check", "--baseline", "known.json", "src") == 1
    out, err = capsys.readouterr()
    # Of two that are the same, the first one is known.
    assert [line.split()[0] for line in out.splitlines() if ": KMP" in line] == ["src/a.py:9:16:"]
    assert "no longer found" not in err


def test_what_is_new_is_rewritten_and_what_is_known_is_not(project: Path) -> None:
    write_baseline(project)
    path = project / "src" / "a.py"
    assert migrate("--write", "--baseline", "known.json", "src") == 0
    assert path.read_text(encoding="utf-8") == PROGRAM
    other = OPTIMIZER.replace("opt =", "other =")
    path.write_text(f"{IMPORTS}{other}{SWITCH}{OPTIMIZER}", encoding="utf-8")
    assert migrate("--check", "--baseline", "known.json", "src") == 1
    assert migrate("--write", "--baseline", "known.json", "src") == 0
    expected = IMPORTS.replace("import t", "import keras_mp\nimport t")
    expected += f"{NEW.replace('opt =', 'other =')}{SWITCH}{OPTIMIZER}"
    assert path.read_text(encoding="utf-8") == expected
    assert migrate("--check", "--baseline", "known.json", "src") == 0
    # Without the baseline, it is as if the two had been rewritten at once.
    assert migrate("--write", "src") == 0
    assert path.read_text(encoding="utf-8") == rewrite(f"{IMPORTS}{other}{SWITCH}{OPTIMIZER}").text


def test_an_import_stays_known(project: Path, capsys: Capture) -> None:
    path = project / "src" / "a.py"
    text = "from tensorflow.keras import mixed_precision as mp\nmp.set_global_policy('float32')\n"
    path.write_text(text, encoding="utf-8")
    write_baseline(project)
    assert migrate("--check", "--baseline", "known.json", "src") == 0
    path.write_text(f"{text}mp.global_policy()\n", encoding="utf-8")
    found = report(capsys, "src")
    (row,) = found["results"]
    assert [(f["line"], f["verdict"]) for f in row["findings"]] == [(3, "rewritten")]
    assert [(f["line"], f["by"]) for f in row["suppressed"]] == [(1, "baseline"), (2, "baseline")]
    assert found["summary"]["baseline"]["gone"] == []
    assert migrate("--write", "--baseline", "known.json", "src") == 0
    new = path.read_text(encoding="utf-8")
    assert new == f"import keras_mp\n{text}keras_mp.global_policy()\n"


def test_in_a_notebook(project: Path, capsys: Capture) -> None:
    shell = "!TF_ENABLE_AUTO_MIXED_PRECISION=1 python train.py"
    bash = "%%bash\nTF_ENABLE_AUTO_MIXED_PRECISION=1 python train.py"
    path = project / "src" / "b.ipynb"
    path.write_text(notebook(IMPORTS, SWITCH, shell, OPTIMIZER, bash), encoding="utf-8")
    file = write_baseline(project)
    assert [entry[1:3] for entry in entries(file) if entry[0] == "src/b.ipynb"] == [
        ("KMP001", OPTIMIZER.strip()),
        ("KMP011", SWITCH.strip()),
        ("KMP016", shell),
        ("KMP016", bash.splitlines()[1]),
    ]
    assert migrate("--check", "--baseline", "known.json", "src") == 0
    moved = notebook("x = 1", IMPORTS, bash, shell, OPTIMIZER, SWITCH, shell, NEW, OPTIMIZER)
    path.write_text(moved, encoding="utf-8")
    found = report(capsys, "src/b.ipynb")
    (row,) = found["results"]
    new = [f for f in row["findings"] if f["verdict"] != "kept"]
    assert [(f["cell"], f["rule"]) for f in new] == [(7, "KMP016"), (9, "KMP001")]
    assert found["summary"]["suppressed"] == {"noqa": 0, "baseline": 4}
    assert found["summary"]["baseline"]["gone"] == []


def test_it_says_what_is_gone(project: Path, capsys: Capture) -> None:
    (project / "src" / "b.py").write_text(PROGRAM, encoding="utf-8")
    (project / "src" / "c.py").write_text(PROGRAM, encoding="utf-8")
    write_baseline(project)
    assert report(capsys, "src")["summary"]["baseline"] == {"path": "known.json", "gone": []}
    (project / "src" / "a.py").write_text(IMPORTS + OPTIMIZER, encoding="utf-8")
    (project / "src" / "b.py").unlink()
    gone = [
        ("src/a.py", "KMP011", SWITCH.strip(), 1),
        ("src/b.py", "KMP001", OPTIMIZER.strip(), 1),
        ("src/b.py", "KMP011", SWITCH.strip(), 1),
    ]
    for paths, expected in ((["src"], gone), (["src/c.py"], gone[1:]), (["src/a.py"], gone)):
        found = report(capsys, *paths)["summary"]["baseline"]["gone"]
        assert [tuple(row.values()) for row in found] == expected, paths
    # What nobody looked for may be there.
    found = report(capsys, "src", "--only", "KMP001")["summary"]["baseline"]["gone"]
    assert [row["path"] for row in found] == ["src/b.py", "src/b.py"]
    assert migrate("--check", "--baseline", "known.json", "src") == 0
    err = capsys.readouterr().err
    assert (
        "known.json: 3 findings of the baseline no longer found: update it with --write-baseline\n"
        in err
    )
    assert f"  src/a.py: KMP011 {SWITCH}" in err
    (project / "src" / "a.py").write_text("loss_scale = (", encoding="utf-8")
    assert [row["path"] for row in report(capsys, "src")["summary"]["baseline"]["gone"]] == [
        "src/b.py",
        "src/b.py",
    ]


def test_much_that_is_gone_is_cut_short(project: Path, capsys: Capture) -> None:
    lines = [OPTIMIZER.replace("opt =", f"opt{i:02} =") for i in range(12)]
    (project / "src" / "a.py").write_text(IMPORTS + "".join(lines), encoding="utf-8")
    write_baseline(project)
    (project / "src" / "a.py").write_text(IMPORTS, encoding="utf-8")
    capsys.readouterr()
    assert migrate("--baseline", "known.json", "src") == 0
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 2 + 10 + 1
    assert err[-1] == "  and 2 more"


def test_a_noqa_comes_first(project: Path, capsys: Capture) -> None:
    write_baseline(project)
    text = PROGRAM.replace(SWITCH, f"{SWITCH[:-1]}  # noqa\n")
    (project / "src" / "a.py").write_text(text, encoding="utf-8")
    summary = report(capsys, "src")["summary"]
    assert summary["suppressed"] == {"noqa": 1, "baseline": 1}
    assert [row["rule"] for row in summary["baseline"]["gone"]] == ["KMP011"]


def test_with_several_processes(project: Path, capsys: Capture) -> None:
    for i in range(8):
        text = PROGRAM.replace("opt =", f"opt{i} =")
        (project / "src" / f"a{i}.py").write_text(text, encoding="utf-8")
    write_baseline(project)
    assert migrate("--check", "--jobs", 2, "--baseline", "known.json", "src") == 0
    assert "18 known findings left out" in capsys.readouterr().err


def test_a_copy_leaves_alone_what_is_known(project: Path) -> None:
    write_baseline(project)
    assert migrate("src", "-o", "out", "--baseline", "known.json") == 0
    assert (project / "out" / "a.py").read_text(encoding="utf-8") == PROGRAM


# -- the file -------------------------------------------------------------------------------------


def test_it_is_replaced_as_a_whole(project: Path, monkeypatch: Patch, capsys: Capture) -> None:
    file = write_baseline(project)
    before = file.read_bytes()
    file.chmod(0o640)
    (project / "src" / "a.py").write_text(IMPORTS, encoding="utf-8")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        assert migrate("--write-baseline", "known.json", "src") == 2
    assert "known.json cannot be written: No space left on device" in capsys.readouterr().err
    assert file.read_bytes() == before
    assert sorted(path.name for path in project.iterdir()) == ["known.json", "src"]
    assert migrate("--write-baseline", "known.json", "src") == 0
    assert entries(file) == []
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize("what", ["a program", "a folder"])
def test_nothing_else_is_replaced(what: str, project: Path, capsys: Capture) -> None:
    target = "src/a.py" if what == "a program" else "src"
    assert migrate("--write-baseline", target, "src") == 2
    assert (project / "src" / "a.py").read_text(encoding="utf-8") == PROGRAM
    assert "or choose another file" in capsys.readouterr().err


ROW = {"path": "a.py", "rule": "KMP001", "source": "x", "count": 1}
DAMAGED = {
    "<<<<<<< ours": "is not a baseline: Expecting value: line 1 column 1 (char 0)",
    "[" * 100_000: "is not a baseline: ",
    "\xff": "is not a baseline: ",
    "[]": "is not a baseline: $ must be an object",
    "{}": "is not a baseline: $.schema is null, not 1",
    '{"schema": 2, "findings": []}': "is not a baseline: $.schema is 2, not 1",
    '{"schema": 1}': "is not a baseline: $.findings must be an array",
    '{"schema": 1, "findings": [3]}': "is not a baseline: $.findings[0] must be an object",
    **{
        json.dumps({"schema": 1, "findings": [ROW, ROW | wrong]}): f"$.findings[1].{said}"
        for wrong, said in (
            ({"path": 1}, "path must be a string"),
            ({"rule": None}, "rule must be a string"),
            ({"source": ["x"]}, "source must be a string"),
            ({"count": 0}, "count must be a whole number of at least 1"),
            ({"count": True}, "count must be a whole number of at least 1"),
            ({"count": 1.5}, "count must be a whole number of at least 1"),
        )
    },
}


@pytest.mark.parametrize(("text", "said"), DAMAGED.items(), ids=range(len(DAMAGED)))
def test_a_damaged_one_is_one_error(text: str, said: str, project: Path, capsys: Capture) -> None:
    file = project / "known.json"
    file.write_text(text, encoding="latin-1")
    for option in ("--baseline", "--write-baseline"):
        assert migrate(option, "known.json", "src") == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1
        assert err.startswith("keras-mp: error: known.json ")
        assert said in err
        assert "remove it and recreate it with --write-baseline" in err
    assert file.read_text(encoding="latin-1") == text
    assert migrate("--json", "--baseline", "known.json", "src") == 2
    out, err = capsys.readouterr()
    assert said in json.loads(out)["results"][0]["error"]["message"]
    assert err == ""


def test_one_that_is_not_there(project: Path, capsys: Capture) -> None:
    assert migrate("--check", "--baseline", "known.json", "src") == 2
    assert capsys.readouterr().err == "keras-mp: error: known.json: No such file or directory\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(project: Path, capsys: Capture) -> None:
    os.mkfifo(project / "known.json")
    assert migrate("--check", "--baseline", "known.json", "src") == 2
    assert "it is a pipe or a device" in capsys.readouterr().err


def test_a_file_that_failed_is_not_in_it(project: Path) -> None:
    (project / "src" / "b.py").write_text("loss_scale = (", encoding="utf-8")
    assert migrate("--write-baseline", "known.json", "src") == 2
    assert {path for path, *_ in entries(project / "known.json")} == {"src/a.py"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--check"], "--check writes nothing: omit --write-baseline"),
        (["--write"], "--write-baseline cannot be combined with --write or -o"),
        (["-o", "out"], "--write-baseline cannot be combined with --write or -o"),
        (["--baseline", "b"], "--write-baseline writes all findings: omit --baseline"),
    ],
)
def test_what_does_not_go_together(
    options: list[str], said: str, project: Path, capsys: Capture
) -> None:
    assert migrate("src", "--write-baseline", "known.json", *options) == 2
    assert said in capsys.readouterr().err
    assert [path.name for path in project.iterdir()] == ["src"]


def notebook(*cells: str) -> str:
    rows = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": one} for one in cells]
    return json.dumps({"cells": rows, "metadata": {}, "nbformat": 4, "nbformat_minor": 2})
