"""Programs of TF 2.3 to 2.15, migrated, end where they ended then.

Each is as it was written for its TensorFlow. `keras-mp migrate --keras3` rewrites it; hand.json
beside it has what a person then does by hand: what the reports ask for and, as "untold", what
Keras 3 changed and no rule finds.
"""

import contextlib
import difflib
import io
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_mp.migration.cli import main
from tests import programs
from tests.data.scripts.projects import record

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the programs are written with TensorFlow"
)
RECORDED = json.loads(record.RECORDED.read_text(encoding="utf-8"))
# As Python starts a script or a module in the folder of the program.
START = """
import os, runpy, sys
folder, path, first, *rest = sys.argv[1:]
os.chdir(folder)
sys.path[:0] = [folder, *filter(None, path.split(os.pathsep))]
if first == "-m":
    first, *rest = rest
    sys.argv = [first, *rest]
    runpy.run_module(first, run_name="__main__", alter_sys=True)
else:
    sys.argv = [first, *rest]
    runpy.run_path(first, run_name="__main__")
"""


@dataclass(frozen=True)
class Project:
    """A program after the command and the hands.

    Attributes:
        folder: Where it is.
        name: Of the program.
        reports: (file, cell, line) of what the command left to a person, in the program as it was.
        edits: Of hand.json.
        before: (file, cell) -> lines of the program as it was.
        rewritten: The same after the command.
        finished: The same after the edits.
    """

    folder: Path
    name: str
    reports: list
    edits: list
    before: dict
    rewritten: dict
    finished: dict


@pytest.fixture(scope="module", params=list(record.PROGRAMS))
def project(request, tmp_path_factory):
    name = request.param
    folder = tmp_path_factory.mktemp("projects") / name
    shutil.copytree(record.HERE / name, folder)
    before = texts(folder)
    status, told = migrate("--keras3", "--write", "--json", folder)
    assert status == 0
    rewritten = texts(folder)
    edits = json.loads((folder / "hand.json").read_text(encoding="utf-8"))
    for edit in edits:
        by_hand(folder, edit)
    reports = [
        (str(Path(row["path"]).relative_to(folder)), one["cell"], one["line"])
        for row in told["results"]
        for one in row["findings"]
        if one["verdict"] == "manual"
    ]
    return Project(folder, name, reports, edits, before, rewritten, texts(folder))


def migrate(*options):
    """Returns the exit status of the command, and what it printed with --json."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main(["migrate", "--jobs", "1", *map(str, options)])
    return status, json.loads(printed.getvalue()) if "--json" in options else None


def texts(folder):
    """Returns (file, cell) -> lines: cells from 1, of all kinds, and None for a file of Python."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        found[str(path.relative_to(folder)), None] = path.read_text(encoding="utf-8").splitlines()
    for path in sorted(folder.rglob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for number, cell in enumerate(cells, 1):
            found[str(path.relative_to(folder)), number] = "".join(cell["source"]).splitlines()
    return found


def by_hand(folder, edit):
    """Replaces what is in one place of a file, or in one cell of a notebook."""
    path = folder / edit["file"]
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        notebook = json.loads(text)
        cells = ["".join(cell["source"]) for cell in notebook["cells"]]
        [number] = [i for i, cell in enumerate(cells) if edit["before"] in cell]
        after = replaced(cells[number], edit)
        notebook["cells"][number]["source"] = after.splitlines(keepends=True)
        after = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    else:
        after = replaced(text, edit)
    path.write_text(after, encoding="utf-8")


def replaced(text, edit):
    assert text.count(edit["before"]) == 1, edit
    return text.replace(edit["before"], edit["after"])


def lines_now(before, after, line):
    """Returns the lines, from 0, that have taken the place of a line, from 1."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, first, end, now, end_now in matcher.get_opcodes():
        if first < line <= end:
            at = now + line - 1 - first
            return range(at, at + 1) if kind == "equal" else range(now, end_now)
    raise AssertionError(f"there is no line {line}")


def changed_lines(before, after):
    """Returns the lines, from 0, of `before` that `after` does not have."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    changes = [change for change in matcher.get_opcodes() if change[0] != "equal"]
    return {line for _, first, end, _, _ in changes for line in range(first, max(end, first + 1))}


def test_each_report_is_of_a_line_that_has_to_change(project):
    for file, cell, line in project.reports:
        rewritten = project.rewritten[file, cell]
        now = lines_now(project.before[file, cell], rewritten, line)
        changed = changed_lines(rewritten, project.finished[file, cell])
        assert changed.intersection(now), f"{file}:{line} is reported, and right as it is"


def test_what_has_to_change_is_reported(project):
    for edit in project.edits:
        if "untold" in edit:
            continue
        reported = [
            now
            for file, cell, line in project.reports
            if file == edit["file"]
            for now in lines_now(project.before[file, cell], project.rewritten[file, cell], line)
        ]
        place = edited_lines(project, edit)
        assert place.intersection(reported), f"no report asks for {edit}"


def edited_lines(project, edit):
    """Returns the lines, from 0, that an edit begins and ends in."""
    for (file, _), lines in project.rewritten.items():
        start = "\n".join(lines).find(edit["before"])
        if file == edit["file"] and start >= 0:
            first = "\n".join(lines)[:start].count("\n")
            return set(range(first, first + 1 + edit["before"].count("\n")))
    raise AssertionError(f"{edit} is not there")


def test_nothing_is_left(project):
    assert migrate("--keras3", "--check", project.folder)[0] == 0
    assert migrate("--keras3", "--write", project.folder)[0] == 0
    assert texts(project.folder) == project.finished


def test_it_ends_where_it_ended(project):
    recorded = RECORDED[project.name]["runs"]
    _, commands = record.PROGRAMS[project.name]
    for arguments, before in zip(commands, recorded, strict=True):
        now = run(project.folder, arguments)
        assert now.keys() == before.keys()
        for key, expected in before.items():
            if key in ("losses", "weights", "learning_rates", "accuracy"):
                assert_close(now[key], expected, key)
            else:
                assert now[key] == expected, key


def run(folder, arguments):
    """Returns what a command line of the program prints last."""
    done = programs.completed(
        "-c",
        START,
        folder,
        os.pathsep.join(record.stand_ins(arguments)),
        *record.runnable(folder, arguments),
        imported=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return record.last_line(done.stdout)


def assert_close(now, before, key):
    """Asserts the same numbers, up to what float16 kernels differ in."""
    for found, expected in zip(np.atleast_1d(flat(now)), flat(before), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3, err_msg=key)


def flat(numbers):
    """Returns the numbers of nested lists, in one."""
    if isinstance(numbers, list):
        return [one for each in numbers for one in flat(each)]
    return [numbers]
