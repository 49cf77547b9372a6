"""Whatever is in a file, it is read, or refused in one line that is meant for people.

Checkpoints, SavedModels, HDF5 and configs have such tests beside their others.
"""

import ast
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from keras_mp.migration.code import ignoring
from keras_mp.migration.code.planning import plan
from keras_mp.migration.code.rewriting import Options
from keras_mp.monitor.run_folder import RunFolder
from keras_mp.monitor.trace import Trace
from tests import runs
from tests.fuzzing import damaged, examples

PATTERNS = Path(__file__).parents[2] / "data" / "source_patterns"
SOURCES = [
    path.read_bytes()
    for path in sorted(PATTERNS.glob("*.py.txt"))
    if not path.name.endswith(".after.py.txt")
]
WORDS = [
    *(b"mixed_precision", b"tf.", b"LossScaleOptimizer(", b"(", b")", b"[", b"]", b"{", b":"),
    *(
        b"\n",
        b"\r",
        b"\r\n",
        b"\t",
        b"    ",
        b"'''",
        b'"',
        b"\\",
        b"#",
        b";",
        b"lambda ",
        b"async ",
    ),
    *(b"\x00", b"\xff", b"\xef\xbb\xbf", b"# -*- coding: latin-1 -*-\n", b"\xc3\xa9", b"f'{", b"*"),
]
JSON_WORDS = [b"null", b"[[[[", b"{}", b'"', b"1e999", b"-0", b"NaN", b"\\ud800", b"9" * 30]


def compiles(data):
    try:
        ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged(SOURCES, WORDS))
def test_programs(data):
    planned = plan(Path("program.py"), data, Options())
    if planned.failure is not None:
        assert planned.failure.trace == "", planned.failure
        assert planned.failure.message
        assert "\n" not in planned.failure.message
        assert planned.after == data
    elif compiles(data):
        assert compiles(planned.after)


BOOKS = [
    json.dumps(
        {
            "cells": [
                {"cell_type": "markdown", "metadata": {}, "source": ["mixed_precision"]},
                {"cell_type": "code", "metadata": {}, "outputs": [], "source": text.split("\n")},
                {"cell_type": "code", "metadata": {}, "outputs": [], "source": f"%time x\n{text}"},
            ],
            "metadata": {"language_info": {"name": "python"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        },
        indent=1,
    ).encode()
    for text in (source.decode() for source in SOURCES[:40])
]


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged(BOOKS, [*WORDS, *JSON_WORDS]))
def test_notebooks(data):
    planned = plan(Path("book.ipynb"), data, Options())
    if planned.failure is not None:
        assert planned.failure.trace == "", planned.failure
        assert "\n" not in planned.failure.message
        assert planned.after == data
    elif planned.changes:
        before, after = (json.loads(each.decode("utf-8")) for each in (data, planned.after))
        assert len(before["cells"]) == len(after["cells"])


@given(damaged([b"a.py\n!b.py\n/pkg/*\n**/x?\n[a-z]/\n", b"*\n"], [b"**", b"[", b"]", b"!", b"\\"]))
def test_ignore_files(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("ignored")
    (folder / ".gitignore").write_bytes(data)
    patterns = ignoring.read_gitignore(folder)
    for name in ("a.py", "pkg/b.py", "pkg"):
        found = ignoring.is_ignored(patterns, str(folder / name), is_folder=name == "pkg")
        assert found in (True, False)


def refusal(read, path):
    """Returns what is said of a file that is not read; None if it is."""
    try:
        read(path)
    except (ValueError, OSError) as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    runs.write(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_runs(run, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("run")
    name = data.draw(st.sampled_from(sorted(run)))
    for each, content in run.items():
        (folder / each).write_bytes(content)
    (folder / name).write_bytes(data.draw(damaged([run[name]], JSON_WORDS)))
    for read in (RunFolder.read, Trace.load):
        said = refusal(read, folder)
        assert said is None or (str(folder) in said and "\n" not in said)


LOG = b"epoch,loss_scale,skipped_steps\n0,32768.0,0\n1,65536.0,2\n"


@settings(max_examples=examples(200), deadline=None)
@given(damaged([LOG], [b",", b'"', b"\n", b"inf", b"1e400"]))
def test_tables(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("table") / "log.csv"
    path.write_bytes(data)
    said = refusal(lambda path: Trace.load(path).summary(), path)
    assert said is None or (str(path) in said and "\n" not in said)
