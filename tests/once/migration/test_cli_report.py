"""`keras-mp report` of a migration: what it prints where, writes, and returns."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from keras_mp.migration.cli import main
from keras_mp.migration.console import report_failure
from keras_mp.migration.ledger_page import ledger_page
from keras_mp.migration.ledger_reading import read_ledger
from tests.ledgers import many, row, write

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "out", many(60), torn=b'{"sch')


def test_the_summary_is_printed(tmp_path: Path, capsys: Capture) -> None:
    odd = row("b\x1b[2J", "refused", reason="no counterpart", where="$.x", why="is odd")
    odd["bytes"] = 500_000
    write(tmp_path, [row("a"), odd, row("c", "failed", seconds=61.0)])
    before = (tmp_path / "migration.jsonl").read_bytes()
    assert main(["report", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[:31] == [
        "3 artefacts in 3 lines of 1 run",
        "",
        "artefacts                   3",
        "done                        1",
        "done before                 0",
        "refused                     1",
        "failed                      1",
        "done, with changes to read  0",
        "size                        502 kB",
        "written                     900 B",
        "time, of all processes      1 min 5 s",
        "speed of a process          500 B/s",
        "",
        "reason          result   artefacts    size  kinds",
        "damaged         failed           1    1 kB  h5 1",
        "no counterpart  refused          1  500 kB  h5 1",
        "",
        "reason          artefact  why",
        "damaged         c         it ends early",
        "no counterpart  b\\x1b[2J  $.x: is odd",
        "",
        "kind  done  refused  failed",
        "h5       1        1       1",
        "",
        "written by      done  refused  failed",
        "TensorFlow 2.3     1        1       1",
        "",
        "has layers of policy  done  refused  failed",
        "float32                  1        1       1",
        "mixed_float16            1        1       1",
        "",
    ]
    assert "\nslowest        time\nc         1 min 1 s\na               2 s\n" in told.out
    assert told.err == ""
    assert [path.name for path in tmp_path.iterdir()] == ["migration.jsonl"], "only -o writes"
    assert (tmp_path / "migration.jsonl").read_bytes() == before


def test_a_torn_line_is_said(folder: Path, capsys: Capture) -> None:
    assert main(["report", str(folder / "migration.jsonl")]) == 0
    assert "60 lines of 1 run; 1 torn line, as a killed run leaves" in capsys.readouterr().out


def test_a_page_is_written(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "page.html"
    assert main(["report", str(folder), "-o", str(out)]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"keras-mp: {out}: written\n")
    ledger = read_ledger(folder / "migration.jsonl")
    assert out.read_text("utf-8") == ledger_page(ledger, "out")


def test_json(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["report", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["path"], found["artefacts"], found["torn"], found["out"]) == (
        str(folder),
        60,
        1,
        None,
    )
    out = str(tmp_path / "page.html")
    assert main(["report", str(folder), "--json", "-o", out]) == 0
    assert json.loads(capsys.readouterr().out) == {**found, "out": out}


def test_a_broken_line_is_named(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    file, out = folder / "migration.jsonl", tmp_path / "page.html"
    file.write_bytes(file.read_bytes() + b"\nnonsense\n")
    out.write_text("old")
    for more in (["--json"], ["-o", str(out)]):
        assert main(["report", str(folder), *more]) == 2
        told = capsys.readouterr()
        assert f"keras-mp: error: {file}, line 62 is not valid JSON" in told.err
        assert len(told.err.splitlines()) == 1
        assert not told.out or "line 62" in json.loads(told.out)["error"]
    assert out.read_text() == "old"


def test_the_ledger_is_not_overwritten(folder: Path, capsys: Capture) -> None:
    file = folder / "migration.jsonl"
    before = file.read_bytes()
    assert main(["report", str(folder), "-o", str(file)]) == 2
    assert "is the input: write elsewhere" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_a_folder_of_neither(tmp_path: Path, capsys: Capture) -> None:
    assert main(["report", str(tmp_path)]) == 2
    told = f"{tmp_path}: there is neither run.json nor migration.jsonl in this folder"
    assert capsys.readouterr().err == f"keras-mp: error: {told}\n"


def test_json_is_for_migrations(tmp_path: Path, capsys: Capture) -> None:
    assert main(["report", str(tmp_path / "run"), "--json"]) == 2
    assert "--json is for a migration" in json.loads(capsys.readouterr().out)["error"]


def test_neither_keras_nor_numpy_is_imported(folder: Path, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from keras_mp.migration.cli import main\n"
        f"code = main(['report', {str(folder)!r}, '-o', 'page.html'])\n"
        "sys.exit(code or any(name in sys.modules for name in ('keras', 'numpy')))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert found.returncode == 0, found.stderr


def test_a_reader_that_goes_away_is_no_failure(capsys: Capture) -> None:
    """As of `keras-mp report new | head -5`: `main` returns 141."""
    with pytest.raises(BrokenPipeError):
        report_failure(BrokenPipeError(32, "Broken pipe"), "new", as_json=False)
    assert capsys.readouterr().err == ""
