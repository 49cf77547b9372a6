"""`keras-mp plot` and `keras-mp report`: what they print where, write, and return."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from keras_mp.migration.cli import main
from keras_mp.monitor.run_folder import write_run
from keras_mp.monitor.trace import Trace
from tests import runs

Capture = pytest.CaptureFixture[str]
COMMAND = [sys.executable, "-m", "keras_mp.migration"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    runs.write(tmp_path / "run")
    return tmp_path / "run"


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_plot_prints_a_line_and_a_summary(run: Path, tmp_path: Path, capsys: Capture) -> None:
    before = tree(tmp_path)
    assert main(["plot", str(run)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert re.fullmatch("[▁▂▃▄▅▆▇█]{1,60}", lines[0])
    assert lines[1:] == [
        "steps                 400",
        "skipped steps         4 (1 %): 3 inf, 1 nan",
        "longest run of skips  1",
        "lowest loss scale     32,768",
        "highest loss scale    262,144",
        "last loss scale       131,072",
        "",
        *lines[8:],
    ]
    assert lines[8].split() == ["variable", "skipped", "first", "step", "kind"]
    told = [line.rsplit(maxsplit=3) for line in lines[9:]]
    assert [[name.strip(), int(n), int(first)] for name, n, first, _ in told] == [
        [each["variable"], each["count"], each["first_step"]] for each in runs.trace().overflows()
    ]
    assert [kind for *_, kind in told] == ["inf", "nan"]
    assert err == ""
    assert tree(tmp_path) == before, "only -o writes"


@pytest.mark.parametrize("name", ["trace.csv", "trace.log"])
def test_plot_takes_the_trace_itself(name: str, run: Path, tmp_path: Path, capsys: Capture) -> None:
    """All but the scale at the end, which is not in it: that is in `run.json`."""
    runs.trace().save(tmp_path / name)
    main(["plot", str(run)])
    of_folder = capsys.readouterr().out
    assert main(["plot", str(tmp_path / name)]) == 0
    assert capsys.readouterr().out == of_folder.replace(
        "last loss scale       ", "before the last step  "
    )


def test_plot_of_a_folder_whose_run_cannot_be_read(
    run: Path, tmp_path: Path, capsys: Capture
) -> None:
    (run / "run.json").write_text("{")
    assert main(["plot", str(run)]) == 0
    assert "before the last step  131,072" in capsys.readouterr().out


def test_plot_names_five_variables_and_counts_the_others(tmp_path: Path, capsys: Capture) -> None:
    rows = [(step, 0, 8.0, 1, f"layer{step}/kernel") for step in range(1, 8)]
    Trace.from_rows(rows).save(tmp_path / "trace.csv")
    assert main(["plot", str(tmp_path / "trace.csv")]) == 0
    out = capsys.readouterr().out
    assert out.count("/kernel") == 5
    assert out.endswith("\nand 2 more: --json shows them\n")


def test_plot_of_a_table_of_csv_logger(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "log.csv"
    path.write_text("epoch,loss,loss_scale,skipped_steps\n0,1.5,32768,3\n1,0.5,16384,1\n")
    assert main(["plot", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "█▁",
        "epochs              2",
        "skipped steps       4",
        "lowest loss scale   16,384",
        "highest loss scale  32,768",
        "last loss scale     16,384",
    ]
    path.write_text("epoch,loss_scale\n0,4\n")
    assert main(["plot", str(path)]) == 0
    assert "skipped steps       not recorded" in capsys.readouterr().out


@pytest.mark.parametrize("rows", [[], [(1, 0, float("nan"), 2, None)], [(1, 0, 0.0, 0, None)]])
def test_plot_of_odd_traces(rows: list[object], tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "trace.jsonl"
    Trace.from_rows(rows).save(path)  # type: ignore[arg-type]
    assert main(["plot", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["steps", str(len(rows))]
    assert main(["plot", str(path), "-o", str(tmp_path / "scale.png")]) == 0


def test_plot_as_json(run: Path, capsys: Capture) -> None:
    assert main(["plot", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    trace = runs.trace()
    assert found["variables"] == trace.overflows()
    expected = {**trace.summary(), "end_scale": 131072.0}
    assert {key: found[key] for key in expected} == expected
    assert (found["path"], found["out"]) == (str(run), None)


def test_json_has_no_numbers_that_json_lacks(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "trace.jsonl"
    Trace.from_rows([(1, 0, float("inf"), 0, None)]).save(path)
    assert main(["plot", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (found["last_scale"], found["lowest_scale"]) == ("inf", None)


@pytest.mark.parametrize(
    ("ending", "start"),
    [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("SVG", b"<?xml")],
)
def test_plot_writes_a_picture(
    ending: str, start: bytes, run: Path, tmp_path: Path, capsys: Capture
) -> None:
    out, dark = tmp_path / f"scale.{ending}", tmp_path / f"dark.{ending}"
    assert main(["plot", str(run), "-o", str(out)]) == 0
    assert out.read_bytes().startswith(start)
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"keras-mp: {out}: written\n")
    assert main(["plot", str(run), "-o", str(dark), "--dark"]) == 0
    assert dark.read_bytes() != out.read_bytes()


def test_report_writes_a_page(run: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "report.html"
    before = tree(run)
    assert main(["report", str(run), "-o", str(out)]) == 0
    assert out.read_text("utf-8").startswith("<!doctype html>")
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"keras-mp: {out}: written\n")
    assert tree(run) == before


def test_report_needs_o(run: Path, capsys: Capture) -> None:
    assert main(["report", str(run)]) == 2
    assert "the report of a training run is HTML: pass -o FILE" in capsys.readouterr().err


def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken"
    write_run(path, {"layers": []})
    (path / "trace.jsonl").write_text("nonsense\n")
    return path


@pytest.mark.parametrize("command", ["plot", "report"])
@pytest.mark.parametrize(
    ("make", "told"),
    [
        (broken, r"error: .*trace\.jsonl, line 1: 'nonsense'|the columns are \[\"nonsense\"\]"),
        (lambda folder: folder / "missing", r"error: .*missing.*: No such file or directory"),
        (
            lambda folder: folder,
            r"error: .*: (No such file|there is neither run\.json)",
        ),
    ],
    ids=["damaged", "missing", "no run"],
)
def test_what_cannot_be_read(
    command: str, make: Callable[[Path], Path], told: str, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / ("out.png" if command == "plot" else "out.html")
    out.write_text("old")
    assert main([command, str(make(tmp_path)), "-o", str(out)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(told, captured.err), captured.err
    assert len(captured.err.splitlines()) == 1
    assert out.read_text() == "old"


def test_errors_as_json(tmp_path: Path, capsys: Capture) -> None:
    assert main(["plot", str(tmp_path / "no.csv"), "--json"]) == 2
    assert "No such file" in json.loads(capsys.readouterr().out)["error"]


@pytest.mark.parametrize(
    ("command", "out", "told"),
    [
        ("plot", "scale.gif", r"the name must end in \.png, \.svg, \.pdf"),
        ("plot", "run/run.json/scale.png", "Not a directory"),
        ("report", "run/run.json/deep/report.html", "Not a directory"),
        ("plot", "missing/scale.gif", r"the name must end in \.png, \.svg, \.pdf"),
        ("report", ".", "is not a regular file"),
        ("report", "run/run.json", "is the input: write elsewhere"),
        ("report", "link.html", "is the input: write elsewhere"),
    ],
)
def test_what_cannot_be_written(
    command: str, out: str, told: str, run: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "link.html").symlink_to(run / "trace.jsonl")
    before = tree(tmp_path)
    assert main([command, str(run), "-o", str(tmp_path / out)]) == 2
    assert re.search(told, capsys.readouterr().err)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("command", ["plot", "report"])
def test_folders_above_it_are_made(command: str, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "missing" / "deep" / ("scale.svg" if command == "plot" else "report.html")
    assert main([command, str(run), "-o", str(out)]) == 0
    assert out.stat().st_size


def test_without_matplotlib_the_rest_works(run: Path, tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from keras_mp.migration.cli import main\n"
        f"codes = [main(['plot', {str(run)!r}]), main(['plot', {str(run)!r}, '-o', 'a.png']),\n"
        f"         main(['report', {str(run)!r}, '-o', 'a.html'])]\n"
        "assert 'keras' not in sys.modules\n"
        "sys.exit(codes != [0, 2, 0])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    assert "error: Pictures need matplotlib: pip install 'keras-mp[plot]'." in found.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "run"]


def test_names_do_not_steer_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "trace.jsonl"
    Trace.from_rows([(1, 0, 4.0, 1, "a\x1b[2J\n/b")]).save(path)
    assert main(["plot", str(path)]) == 0
    assert r"a\x1b[2J\n/b" in capsys.readouterr().out


def test_an_encoding_without_blocks_gets_digits(run: Path) -> None:
    found = subprocess.run(
        [*COMMAND, "plot", str(run)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )
    assert re.fullmatch("[0-7]{1,60}", found.stdout.splitlines()[0])


def test_on_a_terminal_the_line_is_as_wide_as_that(run: Path) -> None:
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
    found = subprocess.Popen(
        [*COMMAND, "plot", str(run)], stdout=slave, stderr=subprocess.PIPE, env=environment
    )
    os.close(slave)
    text = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        text += part
    os.close(master)
    assert found.communicate() == (None, b"")
    assert found.returncode == 0
    assert len(text.decode().splitlines()[0]) == 100


def test_a_reader_that_goes_away(run: Path) -> None:
    found = subprocess.run(
        ["sh", "-c", f"'{sys.executable}' -m keras_mp.migration plot '{run}' | true"],
        capture_output=True,
        text=True,
    )
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("command", ["plot", "report"])
def test_help(command: str, capsys: Capture) -> None:
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert "exit status:" in out
    assert main(["--help"]) == 0
    assert f"    {command} " in capsys.readouterr().out
