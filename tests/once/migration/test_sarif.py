"""`--format sarif`: a log in SARIF 2.1.0, with what the specification asks for."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest

import keras_mp
from keras_mp.migration.cli import main
from keras_mp.migration.code.findings import Place
from keras_mp.migration.code.notebooks import places_in_file
from keras_mp.migration.code.rewriting import rewrite
from keras_mp.migration.rules import RULES

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = "KERAS_MP_SARIF_SCHEMA"
IMPORTS = "import os\nimport tensorflow as tf\n"
SWITCH = 'os.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"'
OPTIMIZER = 'opt = tf.keras.mixed_precision.experimental.LossScaleOptimizer(opt, "dynamic")'
PROGRAM = f"{IMPORTS}{SWITCH}\nif True:\n    {OPTIMIZER}\n    # mixed_precision\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    return tmp_path


def write(path: str, text: str = PROGRAM) -> None:
    Path(path).write_text(text, encoding="utf-8", newline="")


def notebook(*sources: str | list[str], **options: Any) -> str:
    rows = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": one} for one in sources]
    book = {"cells": rows, "metadata": {}, "nbformat": 4, "nbformat_minor": 2}
    return json.dumps(book, **options)


def log(capsys: Capture, *arguments: object, code: int = 0) -> Any:
    capsys.readouterr()
    assert main(["migrate", "--format", "sarif", *map(str, arguments)]) == code
    found = json.loads(capsys.readouterr().out)
    assert_valid(found)
    return found["runs"][0]


def assert_valid(found: Any) -> None:
    """Holds a log to what SARIF 2.1.0 says; the numbers are those of its sections."""
    assert found.keys() == {"$schema", "version", "runs"}
    assert found["version"] == "2.1.0"  # 3.13.2
    assert re.fullmatch(r"https://.*/sarif-schema-2\.1\.0\.json", found["$schema"])
    (run,) = found["runs"]
    driver = run["tool"]["driver"]  # 3.14.6, 3.18.2, 3.19.8
    assert (driver["name"], driver["version"]) == ("keras-mp", keras_mp.__version__)
    ids = [rule["id"] for rule in driver["rules"]]  # 3.19.23, 3.49.3
    assert len({*ids}) == len(ids)
    for rule in driver["rules"]:
        assert isinstance(rule["name"], str)  # 3.49.7
        for text in ("shortDescription", "fullDescription", "help"):
            assert rule[text]["text"]  # 3.12.3
    for one in run["invocations"]:
        assert type(one["executionSuccessful"]) is bool  # 3.20.14
        for notification in one["toolExecutionNotifications"]:
            assert notification["message"]["text"]  # 3.58.5
            assert notification["level"] == "error"
            assert_locations(notification, run)
    assert run["columnKind"] == "unicodeCodePoints"  # 3.14.17
    for result in run["results"]:
        assert result["message"]["text"]  # 3.27.11
        assert result["level"] in ("warning", "note")  # 3.27.10
        assert ids[result["ruleIndex"]] == result["ruleId"]  # 3.27.5, 3.27.6
        kinds = [one["kind"] for one in result["suppressions"]]  # of all results or none: 3.27.23
        assert kinds in ([], ["inSource"], ["external"])  # 3.35.2
        assert_locations(result, run)


def assert_locations(of: Any, run: Any) -> None:
    (location,) = of["locations"]
    artifact = location["physicalLocation"]["artifactLocation"]  # 3.29.3
    # Of RFC 3986: what is not reserved, and what is escaped; a first part with a colon is a scheme.
    assert re.fullmatch(r"(file://)?([\w.~/-]|%[0-9A-F]{2})+", artifact["uri"], re.ASCII)
    base = artifact.get("uriBaseId")  # 3.4.4: of relative ones only
    assert (base is None) == artifact["uri"].startswith("file://")
    assert base is None or base in run["originalUriBaseIds"]
    region = location["physicalLocation"].get("region")
    if region is not None:  # 3.30.5, 3.30.6
        assert region["startLine"] >= 1
        assert region["startColumn"] >= 1


def told(run: Any) -> list[tuple[str, str, str, list[str]]]:
    """Returns rule, level, what stands at the place in the file, and kinds of suppression."""
    rows = []
    for result in run["results"]:
        physical = result["locations"][0]["physicalLocation"]
        name = os.fsdecode(unquote_to_bytes(physical["artifactLocation"]["uri"]))
        lines = Path(name).read_bytes().decode().split("\n")
        region = physical["region"]
        text = lines[region["startLine"] - 1][region["startColumn"] - 1 :]
        kinds = [one["kind"] for one in result["suppressions"]]
        rows.append((result["ruleId"], result["level"], text[:12], kinds))
    return rows


FOUND = [("KMP011", "warning", SWITCH[11:23], []), ("KMP001", "note", OPTIMIZER[6:18], [])]


def test_of_a_program(project: Path, capsys: Capture) -> None:
    write("src/a.py")
    run = log(capsys, "src", "--check", code=1)
    assert told(run) == FOUND
    messages = [f.message for f in rewrite(PROGRAM).findings if f.verdict != "kept"]
    assert [result["message"]["text"] for result in run["results"]] == [
        messages[0],
        f"would be rewritten: {messages[1]}",
    ]
    assert run["invocations"][0] == {"executionSuccessful": True, "toolExecutionNotifications": []}


def test_it_has_all_rules(project: Path, capsys: Capture) -> None:
    write("a.py", "x = 1\n")
    run = log(capsys, "a.py")
    assert run["results"] == []
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [*RULES]
    guide = (ROOT / "migration" / "README.md").read_text(encoding="utf-8")
    for rule in rules:
        assert rule["shortDescription"]["text"] == RULES[rule["id"]].title
        # As GitHub makes an anchor of a heading.
        (heading,) = re.findall(rf"^### ({rule['id']}: .*)$", guide, re.MULTILINE)
        anchor = re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-")
        assert rule["help"]["text"].endswith(f"See migration/README.md#{anchor}")


@pytest.mark.parametrize(
    "options", [{}, {"indent": 1}, {"indent": "\t", "ensure_ascii": False}], ids=str
)
@pytest.mark.parametrize("as_lines", [True, False])
def test_of_a_notebook(as_lines: bool, options: Any, project: Path, capsys: Capture) -> None:
    text = f'"\t\\ \U0001f600 é \u2028"; {SWITCH}\nif True:\n\t{OPTIMIZER}\n'
    sources: list[Any] = [IMPORTS, text]
    if as_lines:
        sources = [one.splitlines(keepends=True) for one in sources]
    write("a.ipynb", notebook(*sources, **options))
    run = log(capsys, "a.ipynb")
    # In JSON a quote is escaped.
    expected = ["TF_ENABLE_AU", OPTIMIZER[6:18]]
    rows = told(run)
    assert [row[:2] for row in rows] == [row[:2] for row in FOUND]
    assert rows[1][2] == expected[1]
    place = run["results"][0]["locations"][0]["physicalLocation"]["region"]
    line = (project / "a.ipynb").read_bytes().decode().split("\n")[place["startLine"] - 1]
    assert line[place["startColumn"] - 1 :].startswith(json.dumps(SWITCH)[12:24])
    assert run["results"][0]["message"]["text"].startswith("cell 2:1:")
    assert run["results"][1]["message"]["text"].startswith("cell 2:3:8: would be rewritten: ")


def test_places_of_odd_notebooks() -> None:
    odd = b'\xef\xbb\xbf{"nbformat": 4, "cells": [{"cell_type": "code",\n'
    odd += b'"source": ["\\u0061b\\nc",\n "d", ""]}]}'
    of = {(1, 1): (2, 13), (1, 2): (2, 19), (2, 1): (2, 22), (2, 2): (3, 3), (2, 9): (2, 11)}
    places = [Place(line, column, cell=1) for line, column in of]
    assert [*places_in_file(odd, places).values()] == [*of.values()]


def test_what_is_suppressed(project: Path, capsys: Capture) -> None:
    write("src/a.py", f"{IMPORTS}{OPTIMIZER}\n")
    assert main(["migrate", "--write-baseline", "known.json", "src"]) == 0
    write("src/a.py", f"{IMPORTS}{OPTIMIZER}\n{SWITCH}  # noqa\n{SWITCH}\n")
    run = log(capsys, "src", "--baseline", "known.json")
    rows = [("KMP001", "note", ["external"]), ("KMP011", "warning", ["inSource"])]
    rows += [("KMP011", "warning", [])]
    assert [(rule, level, kinds) for rule, level, _, kinds in told(run)] == rows


NAMES = ["a b.py", "a%20b.py", "a#b?.py", "é😀.py", "C:a.py", "a&b='.py", "a\\b.py", "a\nb.py"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_files(name: str, project: Path, capsys: Capture) -> None:
    try:
        write(f"src/{name}")
    except OSError:
        pytest.skip("this file system has no such names")
    assert told(log(capsys, "src")) == FOUND
    (uri,) = {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for result in log(capsys, Path("src") / name)["results"]
    }
    assert unquote_to_bytes(uri) == os.fsencode(f"src/{name}")


@pytest.mark.skipif(sys.platform != "linux", reason="names are text there")
def test_a_name_that_is_no_text(project: Path, capsys: Capture) -> None:
    Path(os.fsdecode(b"src/\xff.py")).write_text(PROGRAM, encoding="utf-8")
    assert told(log(capsys, "src")) == FOUND


def test_elsewhere(project: Path, capsys: Capture, monkeypatch: Patch) -> None:
    write("a b.py")
    monkeypatch.chdir("src")
    run = log(capsys, project / "a b.py")
    artifact = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": (project / "a b.py").as_uri()}


def test_what_could_not_be_done(project: Path, capsys: Capture) -> None:
    write("src/a.py", "x = 1\nloss_scale = (\n")
    write("src/b.ipynb", notebook("x", "loss_scale = ("))
    write("src/c.ipynb", "loss_scale")
    write("src/d.py")
    run = log(capsys, "src", code=2)
    assert told(run) == FOUND
    (invocation,) = run["invocations"]
    assert not invocation["executionSuccessful"]
    a, b, c = invocation["toolExecutionNotifications"]
    assert a["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "src/a.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 2, "startColumn": 14},
    }
    assert a["message"]["text"].startswith("does not parse: ")
    assert b["message"]["text"].startswith("cell 2:1:14: does not parse: ")
    assert c["message"]["text"].startswith("not a notebook: ")
    assert "region" not in b["locations"][0]["physicalLocation"]


def test_stdout_has_nothing_else(project: Path, capsys: Capture) -> None:
    write("src/a.py")
    (project / "src" / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    assert main(["migrate", "--format", "sarif", "src"]) == 0
    out, err = capsys.readouterr()
    assert_valid(json.loads(out))
    assert out.isascii()
    said = "src: an artefact is left as before: for source code only: --format sarif"
    assert said in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "sarif", "--write"], "cannot be combined with --write, -o or --diff"),
        (["--format", "sarif", "--diff"], "cannot be combined with --write, -o or --diff"),
        (["--format", "sarif", "-o", "out"], "cannot be combined with --write, -o or --diff"),
        (["--format", "sarif", "--json"], "--json is --format json: use only one"),
        (["--format", "text", "--json"], "--json is --format json: use only one"),
        (["--format", "xml"], "invalid choice: 'xml'"),
    ],
)
def test_what_does_not_go_together(
    options: list[str], said: str, project: Path, capsys: Capture
) -> None:
    write("a.py")
    assert main(["migrate", "a.py", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


def test_it_is_for_source_code(project: Path, capsys: Capture) -> None:
    write("a.json", "{}")
    assert main(["migrate", "--format", "sarif", "a.json"]) == 2
    assert "--format sarif is for source code, not for configs" in capsys.readouterr().err


def test_the_other_formats(project: Path, capsys: Capture) -> None:
    write("a.py")
    shown = []
    for options in [], ["--format", "text"], ["--json"], ["--format", "json"]:
        assert main(["migrate", "a.py", *options]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2] == shown[3]


@pytest.mark.skipif(
    SCHEMA not in os.environ,
    reason=f"{SCHEMA} names no copy of sarif-schema-2.1.0.json of docs.oasis-open.org",
)
def test_the_schema_of_oasis_has_it(project: Path, capsys: Capture) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(Path(os.environ[SCHEMA]).read_text(encoding="utf-8"))
    validator = jsonschema.validators.validator_for(schema)(schema)
    write("src/a.py", f"{PROGRAM}{SWITCH}  # noqa\n")
    write("src/b c.ipynb", notebook(PROGRAM))
    write("src/d.py", "loss_scale = (")
    assert main(["migrate", "--write-baseline", "known.json", "src"]) == 2
    write("src/e.py")
    capsys.readouterr()
    assert main(["migrate", "--format", "sarif", "--baseline", "known.json", "src"]) == 2
    found = json.loads(capsys.readouterr().out)
    validator.validate(found)
    del found["runs"][0]["results"][0]["message"]["text"]
    assert list(validator.iter_errors(found)), "it would see what is missing"
