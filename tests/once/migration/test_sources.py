"""What `keras-mp migrate` does with source code, whatever the rules make of it: files, folders."""

import codecs
import inspect
import itertools
import json
import multiprocessing
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest

from keras_mp.migration import artefacts, progress
from keras_mp.migration.cli import main
from keras_mp.migration.code import planning, rewriting
from keras_mp.migration.code.files import Undecodable, decode
from keras_mp.migration.code.parsed import Unparsable
from keras_mp.migration.code.planning import plans
from keras_mp.migration.code.rewriting import Options
from keras_mp.migration.code.tree import find
from keras_mp.migration.requests import Outcome, Request
from keras_mp.migration.rules import RULES
from keras_mp.migration.walking import walk

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

OLD = """\
import tensorflow as tf

opt = tf.keras.mixed_precision.experimental.LossScaleOptimizer(opt, "dynamic")
"""
NEW = """\
import keras_mp
import tensorflow as tf

opt = keras_mp.LossScaleOptimizer(opt)
"""
# A person must look, and nothing is rewritten.
PERSON = 'import os\n\nos.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"\n'
PLAIN = "import tensorflow as tf\n"
BROKEN = "loss_scale = (\n"


def migrate(*arguments: object) -> int:
    return main(["migrate", *map(str, arguments)])


def notebook(*cells: str) -> str:
    rows = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": cell.splitlines(True)}
        for cell in cells
    ]
    return json.dumps({"cells": rows, "metadata": {}, "nbformat": 4, "nbformat_minor": 2}, indent=1)


def write(folder: Path, **files: str) -> Path:
    """Writes files; two underscores are a slash, the last one alone the dot of a suffix."""
    for name, text in files.items():
        stem, _, suffix = name.replace("__", "/").rpartition("_")
        path = folder / f"{stem}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write(
        tmp_path / "src",
        old_py=OLD,
        pkg__deep__old_py=OLD,
        pkg__person_py=PERSON,
        pkg__plain_py=PLAIN,
        pkg__book_ipynb=notebook(*OLD.split("\n\n")),
        readme_md=OLD,
    )


# -- what is written, and when --------------------------------------------------------------------


@pytest.mark.parametrize("which", ["old.py", "pkg/book.ipynb", "."])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="bare"),
        pytest.param(["--check"], id="check"),
        pytest.param(["--diff"], id="diff"),
        pytest.param(["--json"], id="json"),
        pytest.param(["--check", "--diff", "--json", "--unsafe"], id="several"),
        pytest.param(["--write"], id="write"),
        pytest.param(["--write", "--diff"], id="write and diff"),
    ],
)
def test_only_write_writes(options: list[str], which: str, tree: Path, capsys: Capture) -> None:
    before = content(tree)
    code = migrate(tree / which, *options)
    assert code == ("--check" in options)
    after = content(tree)
    if "--write" not in options:
        assert after == before
    else:
        changed = {name for name in before if before[name] != after[name]}
        every = {"old.py", "pkg/deep/old.py", "pkg/book.ipynb"}
        assert changed == (every if which == "." else {which})
    assert before.keys() == after.keys()
    assert ("nothing written: " in capsys.readouterr().err) == (options == [])


def test_write_rewrites(tree: Path, capsys: Capture) -> None:
    assert migrate("--write", tree) == 0
    assert (tree / "old.py").read_text() == NEW
    assert (tree / "pkg" / "deep" / "old.py").read_text() == NEW
    out, err = capsys.readouterr()
    assert err == ""
    *changed, line, empty = out[: out.index("\n\n") + 1].split("\n")
    tables = out[out.index("\n\n") + 2 :].splitlines()
    assert len(changed) == 3
    assert f"{tree}/old.py: rewritten, 1 place" in changed
    assert line.startswith(f"{tree}/pkg/person.py:3:12: KMP011 ")
    assert empty == ""
    assert [row.split() for row in tables[:4]] == [
        ["files", "5"],
        ["rewritten", "3"],
        ["need", "manual", "review", "1"],
        ["untouched", "1"],
    ]
    assert tables[5].split() == ["rule", "rewritten", "manual", "kept", "what"]
    assert ["KMP001", "3", "0", "0"] in [row.split()[:4] for row in tables[6:]]


def test_twice_is_once(tree: Path, capsys: Capture) -> None:
    assert migrate("--write", tree) == 0
    once = content(tree)
    capsys.readouterr()
    assert migrate("--diff", tree) == 0
    assert capsys.readouterr().out == ""
    assert migrate("--write", "--unsafe", tree) == 0
    assert content(tree) == once


@pytest.mark.parametrize(
    ("text", "code"), [(OLD, 1), (NEW, 0), (PERSON, 1), (PLAIN, 0), (BROKEN, 2), ("", 0)]
)
def test_check(text: str, code: int, tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, a_py=text) / "a.py"
    assert migrate("--check", path) == code
    assert (f"{path}: would change" in capsys.readouterr().err) == (text is OLD)
    assert migrate(path) == (2 if code == 2 else 0)
    assert migrate("--write", path) == (2 if code == 2 else 0)


def test_several_paths_and_each_file_once(tree: Path, capsys: Capture) -> None:
    paths = [tree / "pkg", tree / "old.py", tree, tree / "." / "old.py"]
    assert migrate(*paths, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["results"]
    assert [Path(row["path"]) for row in rows] == [
        tree / "pkg/book.ipynb",
        tree / "pkg/deep/old.py",
        tree / "pkg/person.py",
        tree / "old.py",
    ]
    assert migrate(*paths, "--write") == 0
    assert migrate("--diff", tree) == 0


# -- to the byte ----------------------------------------------------------------------------------


Bytes = Callable[[str], bytes]


def of(
    before: str = "", after: str = "", end: str = "\n", encoding: str = "utf-8", mark: bytes = b""
) -> Bytes:
    """Returns a function that makes a file of a program; in its other lines nothing changes."""
    return lambda text: mark + f"{before}{text.replace(chr(10), end)}{after}".encode(encoding)


LATIN_1 = "# coding: latin-1\n# \xe9\n"
SECOND_LINE = "#!python\r# vim: set fileencoding=latin-1 :\r# \xe9\r"
CP1252 = "# -*- coding: cp1252 -*-\r\n# \u20ac\r\n"
BYTES: dict[str, Bytes] = {
    "lf": of(),
    "crlf": of(end="\r\n"),
    "cr": of(end="\r"),
    "no final newline": lambda text: text.rstrip("\n").encode(),
    "mark": of(mark=codecs.BOM_UTF8),
    "mark and crlf": of(end="\r\n", mark=codecs.BOM_UTF8),
    "latin-1": of(LATIN_1, encoding="latin-1"),
    "latin-1, said in the second line": of(SECOND_LINE, end="\r", encoding="latin-1"),
    "cp1252, crlf": of(CP1252, "# \u2026", end="\r\n", encoding="cp1252"),
    "shift_jis": of("# coding: shift_jis\n# \u65e5\u672c\n", encoding="shift_jis"),
    "utf-8": of("# \u65e5\u672c \U0001f600\n"),
    "a long first line": of(f"# {'é' * 2500}\n"),
    "form feeds": of("# a\x0cb\n\x0c\n", "\x0c\n# \x0b \x1c \x85 \u2028 in a line\n"),
    "mixed line ends": of("# a\n# b\r# c\r\n\n", "# d\r\n\r# e"),
    "spaces at line ends": of("# a  \n   \n", "\t\n"),
    "tabs": of("if 1:\n\tif 2:\n\t\tpass\n"),
}


@pytest.mark.parametrize("made", BYTES.values(), ids=BYTES)
def test_no_other_byte_changes(made: Bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(made(OLD))
    assert migrate("--write", path) == 0
    assert path.read_bytes() == made(NEW)


@pytest.mark.parametrize("made", BYTES.values(), ids=BYTES)
@pytest.mark.parametrize("tool", [["git", "apply", "-p1"], ["patch", "--binary", "-sp1"]])
def test_a_patch_applies(
    made: Bytes,
    tool: list[str],
    tmp_path: Path,
    monkeypatch: Patch,
    capfdbinary: Any,
) -> None:
    if shutil.which(tool[0]) is None:
        pytest.skip(f"there is no {tool[0]}")
    (tmp_path / "my sources").mkdir()
    path = tmp_path / "my sources" / "a.py"
    path.write_bytes(made(OLD))
    monkeypatch.chdir(tmp_path)
    assert migrate("--diff", "my sources") == 0
    patch = capfdbinary.readouterr().out
    subprocess.run(tool, input=patch, check=True, capture_output=True)
    assert path.read_bytes() == made(NEW)


UNDECODABLE = {
    "not utf-8": (b"# \xe9\n", "not utf-8: byte 2 is 0xe9"),
    "not utf-8, later": (b"\n" * 5000 + b"\xff\n", "not utf-8: byte 5000 is 0xff"),
    "unknown": (b"# coding: klingon\n", "unknown encoding: klingon"),
    "two encodings": (codecs.BOM_UTF8 + b"# coding: latin-1\n", "encoding problem: utf-8"),
    "not ascii": (b"# coding: ascii\n# \xe9\n", "not ascii: byte 18 is 0xe9"),
    "unknown, and not utf-8": (b"# coding: klingon\n# \xff\n", "unknown encoding: klingon"),
    "not the same again": (b"# coding: utf-7\n# +AGE-\n", "its text in utf-7 does not give"),
    "one way": (b"# coding: iso2022_jp\n# \x1b\x80\n", r"'\x80' is not in iso2022_jp"),
    "no text": (b"# coding: hex\n", "hex is not a text encoding"),
    "undefined": (b"# coding: undefined\n", "not undefined: "),
    "a long label": (b"# coding: idna\n" + b"a" * 64, "not in idna: "),
}  # fmt: skip


@pytest.mark.parametrize(("data", "why"), UNDECODABLE.values(), ids=UNDECODABLE)
def test_what_is_no_text_is_an_error_of_that_file(
    data: bytes, why: str, tmp_path: Path, capsys: Capture
) -> None:
    with pytest.raises(Undecodable, match=re.escape(why)):
        decode(data)
    write(tmp_path, b_py=OLD)
    (tmp_path / "a.py").write_bytes(data + OLD.encode())
    before = (tmp_path / "a.py").read_bytes()
    assert migrate("--write", tmp_path) == 2
    assert f"keras-mp: {tmp_path}/a.py: error: {why}" in capsys.readouterr().err
    assert (tmp_path / "a.py").read_bytes() == before
    assert (tmp_path / "b.py").read_text() == NEW


def test_what_is_no_python_is_an_error_of_that_file(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, a_py=BROKEN, b_py=OLD, c_py="print 'of Python 2, and of no interest'\n")
    assert migrate("--write", tmp_path) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"keras-mp: {tmp_path}/a.py:")
    assert "error: does not parse: " in err
    assert len(err.splitlines()) == 1
    assert (tmp_path / "b.py").read_text() == NEW
    assert out.splitlines()[:2] == [f"{tmp_path}/b.py: rewritten, 1 place", ""]
    assert [row.split() for row in out.splitlines()[2:6]] == [
        ["files", "3"],
        ["rewritten", "1"],
        ["untouched", "1"],
        ["failed", "1"],
    ]


NO_PYTHON = {
    "bytes and text": ("x = 'a' b'c'", "error: does not parse: cannot mix bytes"),
    "nonlocal": ("nonlocal x", "does not parse: its names cannot be resolved: nonlocal"),
    "deep": (f"x = {'-' * 400}1", "nested too deeply"),
    "deeper": (f"x = {'-' * 3000}1", "nested too deeply"),
}


@pytest.mark.parametrize(("line", "why"), NO_PYTHON.values(), ids=NO_PYTHON)
def test_what_the_parser_cannot_take_is_an_error_of_that_file(
    line: str, why: str, tmp_path: Path, capsys: Capture
) -> None:
    write(tmp_path, a_py=f"{line}  # loss_scale\n", b_py=OLD)
    assert migrate("--write", tmp_path) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(f"keras-mp: {tmp_path}/a.py:")
    assert why in error
    assert (tmp_path / "b.py").read_text() == NEW


def test_an_error_of_the_parser_is_the_same_when_copied() -> None:
    error = Unparsable(2, 3, "invalid syntax")
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.line, copied.column) == (str(error), 2, 3)


def test_a_result_that_would_not_parse_is_not_taken(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    def syntax_error(text: str) -> SyntaxError | None:
        return SyntaxError("of ours") if "keras_mp" in text else None

    monkeypatch.setattr(rewriting, "syntax_error", syntax_error)
    write(tmp_path, a_py=f"# loss_scale\n{OLD}")
    before = content(tmp_path)
    assert migrate("--write", tmp_path) == 0
    assert content(tmp_path) == before
    assert "not rewritten, because the result would not parse: " in capsys.readouterr().out


def test_a_fault_of_ours_costs_one_file(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    def rewrite(text: str, *given: object, **options: object) -> Any:
        if "faulty" in text:
            raise ZeroDivisionError("of ours")
        return planning_rewrite(text, *given, **options)

    planning_rewrite: Any = planning.rewrite
    monkeypatch.setattr(planning, "rewrite", rewrite)
    write(tmp_path, a_py=f"faulty = 1\n{OLD}", b_py=OLD)
    assert migrate("--write", tmp_path) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert f"{tmp_path}/a.py: error: ZeroDivisionError: of ours" in err
    assert (tmp_path / "b.py").read_text() == NEW


# -- the disk -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o644, 0o755, 0o400])
def test_the_mode_stays(mode: int, tmp_path: Path) -> None:
    path = write(tmp_path, a_py=OLD) / "a.py"
    path.chmod(mode)
    assert migrate("--write", path) == 0
    assert (path.read_text(), path.stat().st_mode & 0o777) == (NEW, mode)
    path.chmod(0o644)
    path.write_text(OLD)
    path.chmod(mode)
    assert migrate(path, "-o", tmp_path / "b.py") == 0
    assert (tmp_path / "b.py").stat().st_mode & 0o777 == mode


def test_a_link_that_is_named_is_followed(tmp_path: Path) -> None:
    path, link = write(tmp_path, a_py=OLD) / "a.py", tmp_path / "link.py"
    link.symlink_to("a.py")
    assert migrate("--write", link) == 0
    assert link.is_symlink()
    assert path.read_text() == NEW


def test_links_in_a_folder_are_not(tmp_path: Path, capsys: Capture) -> None:
    other = write(tmp_path / "other", a_py=OLD, pkg__b_py=OLD)
    src = write(tmp_path / "src", a_py=OLD)
    (src / "loop").symlink_to(".")
    (src / "b.py").symlink_to("a.py")
    (src / "theirs.py").symlink_to(other / "a.py")
    (src / "pkg").symlink_to(other / "pkg")
    (src / "round.py").symlink_to("round.py")
    assert migrate("--write", src) == 0
    assert (src / "a.py").read_text() == NEW
    assert content(other) == {"a.py": OLD.encode(), "pkg/b.py": OLD.encode()}
    assert f"keras-mp: {src}: left out: 5 symbolic links\n" in capsys.readouterr().err


def test_an_interrupted_write_leaves_the_file(
    tree: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    real, calls = os.fsync, itertools.count()

    def full(descriptor: int) -> None:
        if next(calls) == 0:
            raise OSError(28, "No space left on device")
        real(descriptor)

    before = content(tree)
    monkeypatch.setattr(os, "fsync", full)
    assert migrate("--write", tree) == 2
    after = content(tree)
    assert before.keys() == after.keys()
    changed = [name for name in before if before[name] != after[name]]
    assert changed == ["pkg/book.ipynb", "pkg/deep/old.py"]
    assert "error: cannot be written: No space left on device" in capsys.readouterr().err
    assert migrate("--write", tree) == 0
    assert (tree / "old.py").read_text() == NEW


def test_what_changed_meanwhile_is_not_written_over(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    def plan(path: Path, data: bytes, options: Options, elsewhere: Any) -> Any:
        path.write_text("theirs = 1\n")
        return real(path, data, options, elsewhere)

    real = planning.plan
    monkeypatch.setattr(planning, "plan", plan)
    path = write(tmp_path, a_py=OLD) / "a.py"
    assert migrate("--write", path) == 2
    assert path.read_text() == "theirs = 1\n"
    assert "changed during the run" in capsys.readouterr().err


def test_what_cannot_be_read(tmp_path: Path, capsys: Capture) -> None:
    assert migrate("--check", tmp_path / "missing.py", "a\0b.py") == 2
    err = capsys.readouterr().err
    assert f"{tmp_path}/missing.py: error: No such file or directory" in err
    assert r"a\x00b.py: error: embedded null byte" in err


# -- elsewhere: -o --------------------------------------------------------------------------------


def test_a_folder_is_written_whole(tree: Path, tmp_path: Path, capsys: Capture) -> None:
    before, out = content(tree), tmp_path / "out"
    (tree / "pkg" / "plain.py").chmod(0o755)
    (tree / "link.py").symlink_to("pkg/plain.py")
    (tree / "linked").symlink_to(tree / "pkg" / "deep")
    (tree / "theirs.py").symlink_to(os.devnull)
    (tree / "gone.py").symlink_to("nowhere.py")
    write(tree, broken_py=BROKEN)
    assert migrate(tree, "-o", out) == 2, "one file is broken, and copied as it is"
    after = content(out)
    assert after.keys() - {"link.py"} == (before.keys() - {"readme.md"}) | {"broken.py"}
    assert after["old.py"] == NEW.encode()
    assert after["pkg/plain.py"] == PLAIN.encode()
    assert (out / "pkg" / "plain.py").stat().st_mode & 0o777 == 0o755
    assert (out / "link.py").readlink() == Path("pkg/plain.py")
    assert (out / "linked" / "old.py").read_text() == NEW
    assert (out / "linked").resolve().is_relative_to(out.resolve())
    assert {name: tree.joinpath(name).read_bytes() for name in before} == before
    assert "left out: 2 symbolic links to elsewhere\n" in capsys.readouterr().err
    (tree / "gone.py").unlink()
    assert migrate(tree, "-o", out) == 2, "what is there already is not left out"
    assert "left out: 1 symbolic link to elsewhere\n" in capsys.readouterr().err


def test_the_copy_runs(tmp_path: Path) -> None:
    src = write(
        tmp_path / "src",
        run_py="from pkg import made, same\nprint(made.opt.name, same.ONE)\n",
        pkg____init___py="",
        pkg__same_py="ONE = 1\n",
        pkg__made_py=(
            "from tensorflow.keras.mixed_precision import experimental as mp\n"
            "import keras\nopt = mp.LossScaleOptimizer(keras.optimizers.SGD(), 'dynamic')\n"
        ),
    )
    assert migrate(src, "-o", tmp_path / "out") == 0
    program = tmp_path / "out" / "run.py"
    environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout.split()[1:] == ["1"], done.stderr


def test_nothing_is_written_over(tree: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    assert migrate(tree, "-o", out) == 0
    assert migrate(tree, "-o", out) == 0, "what is there is what would be written"
    (out / "pkg" / "plain.py").write_text("mine = 1\n")
    (out / "old.py").unlink()
    capsys.readouterr()
    assert migrate(tree, "-o", out) == 2
    assert not (out / "old.py").exists(), "all is looked at before anything is written"
    assert (out / "pkg" / "plain.py").read_text() == "mine = 1\n"
    err = capsys.readouterr().err
    assert err.startswith(f"keras-mp: error: {out}/pkg/plain.py exists already with other")


@pytest.mark.parametrize("there", ["other", "folder", "input", "inside", "file for a folder"])
def test_places_that_are_none(there: str, tree: Path, tmp_path: Path, capsys: Capture) -> None:
    source, out = tree / "old.py", tmp_path / "out.py"
    match there:
        case "other":
            out.write_text("mine = 1\n")
        case "folder":
            out.mkdir()
        case "input":
            out = source
        case "inside":
            source, out = tree, tree / "pkg" / "out"
        case "file for a folder":
            source = tree
            out.write_text("mine = 1\n")
    before = content(tmp_path)
    assert migrate(source, "-o", out) == 2
    assert content(tmp_path) == before
    assert str(out) in capsys.readouterr().err


def test_a_copy_that_is_interrupted_goes_on(tree: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    real, calls, out = os.link, itertools.count(), tmp_path / "out"

    def link(*arguments: Any, **options: Any) -> None:
        if next(calls) == 2:
            raise KeyboardInterrupt
        real(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", link)
        assert migrate(tree, "-o", out) == 130
    assert len(content(out)) == 2
    assert migrate(tree, "-o", out) == 0
    assert len(content(out)) == 5


# -- which files ----------------------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "core.excludesFile=", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def seen_by_git(folder: Path) -> list[str]:
    listed = git(folder, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return sorted(name for name in listed if name.endswith(".py"))


IGNORES = {
    "folders": {".": "build/\n*.egg\n"},
    "negated": {".": "*.py\n!keep.py\n!/pkg/\n"},
    "negated below a folder": {".": "pkg/\n!pkg/a.py\n"},
    "only some": {".": "/*\n!/pkg/\n/pkg/*\n!/pkg/keep.py\n"},
    "anchored": {".": "/a.py\npkg/deep/a.py\n"},
    "nested": {".": "a.py\n", "pkg": "!a.py\n/keep.py\n", "pkg/deep": "a.py\n"},
    "stars": {".": "**/deep/*.py\nbuild/**\np?g/[ab].py\n"},
    "odd": {".": "#a.py\n\\#b.py\n a.py\na.py   \n!\n\\!c.py\n"},
    "classes of characters": {".": "[[:alpha:]].py\n[[:punct:]a-c]*.py\n[[:klingon:]].egg\n"},
    "crlf": {".": "a.py\r\nbuild/\r\n"},
    "all": {".": "*\n!*/\n!keep.py\n"},
}
NAMES = ["a.py", "b.py", "keep.py", "pkg/a.py", "pkg/keep.py", "pkg/deep/a.py", "pkg/deep/b.py"]
NAMES += ["build/a.py", "pkg/build/keep.py", "#b.py", "!c.py", "x.egg/a.py", "pkg/build.py"]


def repository(folder: Path, ignores: dict[str, str]) -> Path:
    folder.mkdir()
    git(folder, "init", "-q")
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    for where, text in ignores.items():
        (folder / where / ".gitignore").write_bytes(text.encode())
    return folder


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")


@needs_git
@pytest.mark.parametrize("ignores", IGNORES.values(), ids=IGNORES)
def test_gitignore_is_as_git_has_it(ignores: dict[str, str], tmp_path: Path) -> None:
    folder = repository(tmp_path / "repo", ignores)
    found = sorted(path.relative_to(folder).as_posix() for path in find(folder).files)
    assert found == seen_by_git(folder)


@needs_git
def test_gitignore_at_random(tmp_path: Path) -> None:
    chance = random.Random(5)
    parts = ["a.py", "b.py", "*.py", "keep.py", "pkg", "deep", "build", "**", "*", "d*p", "[bk]*"]
    for i in range(40):

        def pattern() -> str:
            body = "/".join(chance.choices(parts, k=chance.choice([1, 1, 2, 3])))
            start, end = chance.choice(["", "", "!", "/", "!/"]), chance.choice(["", "", "/"])
            return f"{start}{body}{end}\n"

        ignores = {
            where: "".join(pattern() for _ in range(chance.randint(1, 4)))
            for where in (".", "pkg", "pkg/deep")
        }
        folder = repository(tmp_path / f"repo{i}", ignores)
        found = sorted(path.relative_to(folder).as_posix() for path in find(folder).files)
        assert found == seen_by_git(folder), ignores


BRACKETS = ["[a--z]", "[z-a]", "[--a]", "[]-a]", "[!a-c]", "[^-]", "[a-]", "[-a]", "[||b]",
            "[a~~z]", "[&&a]", "[[a]", "[a-c-e]", r"[\\]", r"[\]-a]", r"[a-\]]", "[[:alpha:]-z]",
            "[[:punct:]~]", "[[:upper:][:digit:]]", "[+--]", "[.-0]", "[]", "[a", "[!]a]",
            "[^^]"]  # fmt: skip


@needs_git
def test_gitignore_brackets(tmp_path: Path) -> None:
    """Names of one character each."""
    chance = random.Random(5)
    more = [
        f"[{''.join(chance.choices(r'az-~|&^![+09', k=chance.randint(1, 5)))}]" for _ in range(60)
    ]
    git(tmp_path, "init", "-q")
    for character in map(chr, range(33, 127)):
        if character != "/":
            (tmp_path / f"{character}.py").write_text("")
    for bracket in [*BRACKETS, *more]:
        (tmp_path / ".gitignore").write_text(f"{bracket}.py\n")
        found = sorted(path.name for path in find(tmp_path).files)
        assert found == seen_by_git(tmp_path), bracket


@needs_git
def test_what_is_above_counts_up_to_the_repository(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("b.py\n")
    folder = repository(tmp_path / "repo", {".": "pkg/deep/a.py\nbuild/\n"})
    names = [path.name for path in find(folder / "pkg" / "deep").files]
    assert names == ["b.py"]
    assert [path.name for path in find(folder / "build").files] == ["a.py"], "it is named itself"
    inner = repository(folder / "pkg" / "deep" / "inner", {})
    assert len(find(inner).files) == len(NAMES)
    assert find(folder / "pkg").ignored == 2


@pytest.mark.timeout(20)
@pytest.mark.parametrize("pattern", ["*a" * 14 + "*b", "**/a*" * 14 + "/b", "a*" * 2000])
def test_gitignore_with_many_stars(pattern: str, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text(f"{pattern}\n")
    folder = tmp_path / "/".join(["a" * 9] * 40)
    folder.mkdir(parents=True)
    (folder / f"{'a' * 60}.py").write_text(PLAIN)
    assert [path.name for path in find(tmp_path).files] == [f"{'a' * 60}.py"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("".join(f"x{i}/*.py\n" for i in range(100_000)), "it has more than 1048576 bytes"),
        ("a\n" * 10_001, "it has 10001 patterns, the longest of 1 characters"),
        ("a" * 5000, "it has 1 patterns, the longest of 5000 characters"),
    ],
)
def test_gitignore_larger_than_people_write(text: str, why: str, tmp_path: Path) -> None:
    write(tmp_path, a_py=OLD)
    (tmp_path / ".gitignore").write_text(text)
    with pytest.raises(OSError, match=why):
        find(tmp_path)


def test_more_folders_inside_each_other_than_calls(tmp_path: Path) -> None:
    folder = tmp_path / Path(*["d"] * 150)
    folder.mkdir(parents=True)
    write(folder, a_py=OLD, m_h5="\x89HDF")
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        files, artefacts_of = find(tmp_path).files, walk(tmp_path)
    finally:
        sys.setrecursionlimit(before)
    assert files == [folder / "a.py"]
    assert artefacts_of.left == 2


def test_what_is_nobodys_source(tmp_path: Path) -> None:
    for name in ("venv/pyvenv.cfg", "venv/lib/a.py", ".venv/a.py", ".git/hooks/a.py", "a.py",
                 "node_modules/a.py", "__pycache__/a.py", ".ipynb_checkpoints/b.ipynb", "b.ipynb",
                 "lib/site-packages/a.py", "c.pyi", "d.PY", "folder.py/e.py"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    found = [path.relative_to(tmp_path).as_posix() for path in find(tmp_path).files]
    assert found == ["a.py", "b.ipynb", "folder.py/e.py"]


# -- processes ------------------------------------------------------------------------------------


def test_several_processes_are_as_one(tmp_path: Path) -> None:
    texts = itertools.cycle([OLD, PERSON, PLAIN, BROKEN, NEW])
    files = []
    for i, text in zip(range(30), texts, strict=False):
        files.append(tmp_path / f"{i}.py")
        files[-1].write_text(f"# {i}\n{text}")
    steps: list[str] = []
    several = plans(files, Options(), 2, lambda what, more: steps.append(what * more))
    assert several == plans(files, Options())
    assert sorted(steps) == sorted(map(str, files))
    assert {plan.failure is None for plan in several} == {True, False}


def test_a_process_that_is_killed_is_an_error_of_what_it_had_to_do(tmp_path: Path) -> None:
    def kill(_: str, __: int) -> None:
        for child in multiprocessing.active_children():
            child.kill()

    files = [tmp_path / f"{i}.py" for i in range(20)]
    for path in files:
        path.write_text(OLD)
    found = plans(files, Options(), 2, kill)
    assert [plan.path for plan in found] == files
    why = {plan.failure.message for plan in found if plan.failure is not None}
    assert why == {"a worker process was killed: rerun the command"}
    assert any(plan.changes for plan in found)


def test_few_files_start_no_process(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(planning, "ProcessPoolExecutor", None)
    files = [tmp_path / f"{i}.py" for i in range(100)]
    for path in files:
        path.write_text(PLAIN)
    files[7].write_text(OLD)
    assert [plan.changes for plan in plans(files, Options(), 2)].count(True) == 1


# -- what is told ---------------------------------------------------------------------------------

FINDING = {
    "cell": (int, type(None)),
    "line": int,
    "column": int,
    "rule": str,
    "verdict": str,
    "source": str,
    "message": str,
}
ROW = {
    "path": str,
    "kind": str,
    "status": str,
    "out": (str, type(None)),
    "needs_review": bool,
    "findings": list,
    "suppressed": list,
    "diff": (str, type(None)),
    "error": (dict, type(None)),
}


def assert_shape(value: dict[str, Any], shape: dict[str, Any]) -> None:
    assert list(value) == list(shape)
    for key, kind in shape.items():
        assert isinstance(value[key], kind), key


@pytest.mark.parametrize("options", [[], ["--write"], ["--diff"], ["-o"]])
def test_json(options: list[str], tree: Path, tmp_path: Path, capsys: Capture) -> None:
    write(tree, broken_py=f"a = 1\n{BROKEN}")
    if options == ["-o"]:
        options = ["-o", str(tmp_path / "out")]
    assert migrate("--json", tree, *options) == 2
    out, err = capsys.readouterr()
    assert err == ""
    report = json.loads(out)
    assert list(report) == ["results", "summary"]
    written = bool({"--write", "-o"} & set(options))
    status = "rewritten" if written else "would rewrite"
    rows = {Path(row["path"]).relative_to(tree).as_posix(): row for row in report["results"]}
    assert {name: (row["kind"], row["status"]) for name, row in rows.items()} == {
        "broken.py": ("python", "failed"),
        "old.py": ("python", status),
        "pkg/book.ipynb": ("notebook", status),
        "pkg/deep/old.py": ("python", status),
        "pkg/person.py": ("python", "unchanged"),
    }
    for row in rows.values():
        assert_shape(row, ROW)
        assert (row["diff"] is None) == ("--diff" not in options)
        for finding in row["findings"]:
            assert_shape(finding, FINDING)
            assert finding["rule"] in RULES
    expected = str(tmp_path / "out" / "old.py") if "-o" in options else None
    assert rows["old.py"]["out"] == expected
    assert rows["pkg/person.py"]["needs_review"]
    error = rows["broken.py"]["error"]
    assert (error["path"], error["cell"], error["line"]) == (None, None, 2)
    assert error["message"].startswith("does not parse")
    (finding,) = (f for f in rows["old.py"]["findings"] if f["rule"] == "KMP001")
    assert (finding["line"], finding["column"], finding["verdict"]) == (3, 7, "rewritten")
    assert finding["source"] == OLD.splitlines()[2]
    cells = [f["cell"] for f in rows["pkg/book.ipynb"]["findings"] if f["rule"] == "KMP001"]
    assert cells == [2]
    files = {"rewritten": 3, "rewritten_in_part": 0, "manual": 1, "untouched": 1, "failed": 1}
    assert report["summary"]["schema"] == 1
    assert report["summary"]["files"] == files
    assert report["summary"]["rules"]["KMP001"] == {"rewritten": 3, "manual": 0, "kept": 0}


def test_only_and_skip(tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path, a_py=f"{OLD}tf.keras.mixed_precision.set_global_policy('float32')\n")
    for options, rewritten in (
        (["--only", "KMP004"], (False, True)),
        (["--skip", "kmp004"], (True, False)),
        (["--only", "KMP001,KMP004"], (True, True)),
        (["--only", "KMP001", "--only", "KMP004", "--skip", "KMP001, KMP016"], (False, True)),
    ):
        assert migrate("--diff", path, *options) == 0
        patch = capsys.readouterr().out
        assert ("+opt = keras_mp" in patch, "+keras_mp.compat" in patch) == rewritten, options
    assert migrate("--only", "KMP001,KMP999", path) == 2
    assert "invalid choice 'KMP999': use one of KMP001, KMP002" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("terminal", "environment", "coloured"),
    [(True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False),
     (True, {"NO_COLOR": ""}, True), (True, {"TERM": "dumb"}, False)],
)  # fmt: skip
def test_colours(
    terminal: bool, environment: dict[str, str], coloured: bool,
    tmp_path: Path, monkeypatch: Patch, capsys: Capture,
) -> None:  # fmt: skip
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert migrate("--diff", write(tmp_path, a_py=OLD)) == 0
    out = capsys.readouterr().out
    assert ("\x1b[32m+import keras_mp\x1b[0m\n" in out) == coloured
    assert ("\x1b" in out) == coloured


def test_with_artefacts(tree: Path, capsys: Capture) -> None:
    with h5py.File(tree / "model.h5", "w") as file:
        file.attrs["model_config"] = "{}"
    with h5py.File(tree / "junk.h5", "w") as file:
        file.attrs["of"] = "nobody"
    assert migrate("--json", tree) == 2
    report = json.loads(capsys.readouterr().out)
    assert [row["kind"] for row in report["results"]][-2:] == ["h5", "h5"]
    assert [row["status"] for row in report["results"]][-2:] == ["failed", "would convert"]
    assert report["summary"]["files"]["rewritten"] == 3
    (tree / "junk.h5").unlink()
    assert migrate(tree) == 0
    out, err = capsys.readouterr()
    assert "would be rewritten" in out
    assert f"{tree}/model.h5  would convert  model.keras" in out
    assert migrate("--diff", "--skip", "KMP002", tree, tree / "model.h5") == 0
    out, err = capsys.readouterr()
    assert "model" not in out
    said = "an artefact is left as before: for source code only: --diff, --skip"
    assert err.count(said) == 2
    assert migrate("--check", tree) == 1
    assert migrate("--check", "--only", "KMP016", tree) == 0


REFUSED = {
    "check and write": (["--check", "--write", "a.py"], "--check writes nothing"),
    "out and write": (["--write", "a.py", "-o", "b.py"], "use only one"),
    "config": (["--diff", "a.json"], "--diff is for source code, not for configs"),
    "artefact": (["--only", "KMP001", "a.h5"], "--only is for source code, not for artefacts"),
    "stdin": (["--write", "-"], "--write is for source code, not for configs"),
    "model": (["a.py", "--model", "b.py"], "--model is for artefacts, not for source code"),
    "version": (["a.py", "--from", "2.3"], "--from is for artefacts, not for source code"),
    "mixed": (["--json", "a.py", "a.json"], "one kind at a time"),
    "missing": (["--write", "missing"], "missing does not exist"),
    "missing, beside another": (["a.py", "missing"], "missing does not exist"),
    "nowhere": (
        ["a.py", "-o", "a.h5/a.py"],
        "a.py: the folder a.h5 does not exist and cannot",
    ),
    "folder": (["--diff", "empty"], "empty: error: this folder has no source code"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    write(tmp_path, a_py=OLD, a_json="{}", a_h5="junk, and more of it")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    before = content(tmp_path)
    assert migrate(*arguments) == 2
    assert message in capsys.readouterr().err
    assert content(tmp_path) == before


def test_several_artefacts_beside_source_code_are_all_told(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    def told(request: Request, _: object) -> Outcome:
        rows = ((Path(request.path).name, "", "", "", ""),)
        return Outcome(request.path, "would convert", rows=rows)

    monkeypatch.setattr(artefacts, "migrate", told)
    paths = [write(tmp_path / name, saved_model_pb="") for name in ("one", "two")]
    assert migrate(*paths) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in out if "sha256" not in line] == [
        *(str(paths[0]), "one", str(paths[1]), "two")
    ]


def test_json_is_one_report_even_where_nothing_was_done(
    tree: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "out").write_text("a file")
    assert migrate("--json", tree, "-o", tmp_path / "out") == 2
    out, err = capsys.readouterr()
    assert err == ""
    report = json.loads(out)
    (row,) = report["results"]
    assert_shape(row, ROW)
    assert (row["path"], row["status"]) == (str(tree), "failed")
    assert row["error"]["message"] == f"{tmp_path}/out exists and is not a folder"
    assert report["summary"]["files"]["failed"] == 1


def test_what_cannot_be_written_has_its_name(
    tree: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert migrate(tree, "-o", tmp_path / "out") == 2
    err = capsys.readouterr().err
    assert err == f"keras-mp: error: [Errno 28] No space left on device: '{tmp_path}/out/old.py'\n"


def test_names_are_no_markup(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress.show_progress(1, worth=True) as step:
        step("a[/b]/[old].py", 1)
    assert "a[/b]/[old].py" in capsys.readouterr().err


def test_without_rich_there_is_no_bar(monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with progress.show_progress(1, worth=True) as step:
        step("a.py", 1)
    assert capsys.readouterr().err == ""


def test_what_is_not_installed_is_named(tree: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setitem(sys.modules, "libcst", None)
    assert migrate(tree) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "libcst" in err
    assert err.endswith("pip install 'keras-mp[migrate]'\n")
    assert len(err.splitlines()) == 1


PROBE = """
import sys
from keras_mp.migration import artefacts, progress
from keras_mp.migration.requests import Outcome, Request
from keras_mp.migration.cli import main
code = main(sys.argv[2:])
assert code == 0, code
sys.exit(3 * (sys.argv[1] in sys.modules))
"""


@pytest.mark.parametrize(
    ("name", "help_loads", "migrate_loads"),
    [("keras", 0, 0), ("rich", 0, 0), ("libcst", 0, 3)],
)
def test_what_is_loaded(name: str, help_loads: int, migrate_loads: int, tree: Path) -> None:
    for arguments, loaded in (
        (["migrate", "--help"], help_loads),
        (["migrate", tree], migrate_loads),
    ):
        command = [sys.executable, "-c", PROBE, name, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == loaded, done.stderr


def test_a_closed_folder_costs_only_itself(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.py").write_text(
        "import tensorflow as tf\ntf.keras.mixed_precision.Policy('x')\n"
    )
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def refusing(folder):
        if Path(folder).name == "closed":
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    assert main(["migrate", "--write", str(tmp_path)]) == 2
    assert "keras_mp.Policy('x')" in (tmp_path / "a.py").read_text()
    assert "closed: error: this folder cannot be read" in capsys.readouterr().err


def test_an_option_is_written_out(tmp_path, capsys):
    file = tmp_path / "a.py"
    file.write_text("import tensorflow as tf\ntf.keras.mixed_precision.Policy('x')\n")
    assert main(["migrate", "--writ", str(file)]) == 2
    assert "keras_mp" not in file.read_text()
