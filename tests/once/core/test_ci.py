"""What CI leaves out, and what it says at the end."""

import ast
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests import ci, durations, passed

OF_KERAS = "from keras.src import ops\n"
FILES = {
    "Makefile": (
        "HOOKED = optimizer/apply \\\n\tmonitor/callback\nQUICK = tests/each/core/test_a.py\n"
    ),
    "pyproject.toml": "a",
    "conftest.py": "b",
    "tox.ini": "c",
    "tests/constraints.txt": "d",
    "tests/constraints-oldest.txt": "e",
    "tests/each/optimizer/test_apply.py": "f",
    "tests/each/core/test_a.py": "g",
    "tests/each/monitor/test_callback.py": "h",
    "tests/clients/test_one.py": "i",
    "keras_mp/backends/jax/backend.py": "j",
    "keras_mp/deep/hooked.py": OF_KERAS,
    "compat/plain.py": "import keras\n",
    "tests/each/compat/test_files.py": "k",
    "tests/once/compat/test_bytes.py": "l",
    "tests/each/core/test_fit.py": "m",
    "tests/ci.py": "n",
    "tests/helper.py": "o",
    "tests/data/durations.json": "{}",
}


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.delenv("KERAS_MP_FIXTURES", raising=False)
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


LEGACY = {f"legacy on {suite}" for suite in ("jax", "tensorflow", "torch", "once")}
TRAINING = {f"training on {suite}" for suite in ("jax", "tensorflow", "torch")}
ENVIRONMENTS = {"oldest", "matrix", "clean-environments", "clients"}


@pytest.mark.parametrize(
    ("file", "checks"),
    [
        ("pyproject.toml", {*ENVIRONMENTS, "audit", *LEGACY, *TRAINING}),
        ("keras_mp/backends/jax/backend.py", {*ENVIRONMENTS, *LEGACY, *TRAINING}),
        ("keras_mp/deep/hooked.py", {*ENVIRONMENTS, *LEGACY, *TRAINING}),
        ("tests/each/monitor/test_callback.py", {"oldest", *TRAINING}),
        ("tests/each/core/test_a.py", {"matrix"}),
        ("tests/clients/test_one.py", {"clients"}),
        ("tests/constraints-oldest.txt", {"oldest"}),
        ("compat/plain.py", LEGACY),
        ("tests/each/compat/test_files.py", LEGACY - {"legacy on once"}),
        ("tests/once/compat/test_bytes.py", {"legacy on once"}),
        ("tests/helper.py", {*LEGACY, *TRAINING}),
        ("tests/each/core/test_fit.py", set()),
        ("tests/ci.py", set()),
        ("tests/data/durations.json", set()),
    ],
)
def test_what_asks_for_a_check_again(root, file, checks):
    before = {check: passed.checksum(check, root) for check in ci.CHECKS}
    (root / file).write_text(f"# changed\n{FILES[file]}", encoding="utf-8")
    assert {c for c in ci.CHECKS if passed.checksum(c, root) != before[c]} == checks


def test_more_recordings_ask_for_tests_of_old_files_again(root, monkeypatch, tmp_path_factory):
    more = tmp_path_factory.mktemp("more")

    def changed():
        now = {check: passed.checksum(check, root) for check in ci.CHECKS}
        try:
            return {check for check in ci.CHECKS if now[check] != before[check]}
        finally:
            before.update(now)

    before = {check: passed.checksum(check, root) for check in ci.CHECKS}
    (more / "saved_model.pb").write_bytes(b"a")
    monkeypatch.setenv("KERAS_MP_FIXTURES", str(more))
    assert changed() == LEGACY
    assert changed() == set()
    (more / "saved_model.pb").write_bytes(b"b")
    assert changed() == LEGACY


@pytest.mark.parametrize(
    ("name", "value"), [("platform", "another"), ("version_info", (3, 99, 0, "final", 0))]
)
def test_another_machine_asks_for_slow_tests_again(root, monkeypatch, name, value):
    before = {check: passed.checksum(check, root) for check in ci.CHECKS}
    monkeypatch.setattr(passed.sys, name, value)
    changed = {c for c in ci.CHECKS if passed.checksum(c, root) != before[c]}
    assert changed == {*LEGACY, *TRAINING}


def test_a_file_that_was_renamed_asks_again(root):
    before = passed.checksum("clients", root)
    (root / "tests/clients/test_one.py").rename(root / "tests/clients/test_two.py")
    assert passed.checksum("clients", root) != before


def test_each_check_depends_on_what_is_there():
    """The patterns name files of this repository, and each source that names keras.src is found."""
    for target, patterns in passed.RELEASE.items():
        for pattern in patterns:
            assert any(passed.ROOT.glob(pattern)), f"{target}: there is no {pattern}"
        assert all(file.is_file() for file in passed.inputs(target))
    for slow in passed.SLOW.values():
        for pattern in (*slow.folders, *slow.sources, *passed.OF_SLOW_TESTS):
            assert any(passed.ROOT.glob(pattern)), f"there is no {pattern}"
    assert all((passed.ROOT / file).is_file() for file in passed.DECIDING)
    assert passed.ROOT / "keras_mp" / "backends" / "keras_hooks.py" in passed.inputs("clients")
    assert len([f for f in passed.inputs("oldest") if f.name.startswith("test_")]) > 20


def test_each_part_is_a_target_of_make():
    makefile = (passed.ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {name for line in re.findall(r"^([\w -]+):", makefile, re.M) for name in line.split()}
    assert {part.target for part in (*ci.PARTS, *ci.ONLY_THEN)} <= targets
    assert {*passed.RELEASE} <= {part.target for part in ci.PARTS}


@pytest.fixture
def ran(root):
    """`main`, the parts that it ran, and what is to be of a part: that it fails, says, or does."""
    parts, fails, says, does = {}, set(), {}, {}

    def run(part):
        parts[part.target] = " ".join(part.variables)
        does.get(part.target, lambda: None)()
        return part, 2 * (part.target in fails), 61.0, says.get(part.target, "passed\n")

    def main(*argv):
        parts.clear()
        return ci.main(argv, root, run)

    return SimpleNamespace(main=main, parts=parts, fails=fails, says=says, does=does)


SUITES = {"all-jax", "all-tensorflow", "all-torch", "all-once"}


def checks_of(ran):
    return {*ran.parts} & {*passed.RELEASE}


def leaving_out(ran, folder):
    return {suite for suite in SUITES if folder in ran.parts[suite]}


def test_what_passed_is_left_out_until_something_changes(ran, root, capsys):
    assert ran.main() == 0
    assert {*ran.parts} == {part.target for part in ci.PARTS}
    assert leaving_out(ran, "tests/") == set()
    capsys.readouterr()
    assert ran.main() == 0
    assert {*ran.parts} == {part.target for part in ci.PARTS} - {*passed.RELEASE}
    for suite in SUITES:
        folders = [f for its in passed.slow_checks(suite).values() for f in its]
        assert re.findall("--leave-out=(\\S+)", ran.parts[suite]) == folders
        assert "--in-slices -p tests.left_out" in ran.parts[suite]
    last = capsys.readouterr().out.splitlines()[-2:]
    assert ": oldest, matrix, clean-environments, clients, audit, slow tests of " in last[0]
    assert ", slow tests of legacy on once" in last[0]
    assert last[1] == "`make release-check` runs them"
    (root / "tests/clients/test_one.py").write_text("changed", encoding="utf-8")
    ran.main()
    assert checks_of(ran) == {"clients"}
    (root / "compat/plain.py").write_text("changed", encoding="utf-8")
    ran.main()
    assert leaving_out(ran, "compat") == set()
    assert leaving_out(ran, "optimizer") == SUITES - {"all-once"}
    assert ran.main("--release") == 0
    assert {*ran.parts} == {*passed.RELEASE, *SUITES, "fuzz", "coverage"}
    assert {ran.parts[suite] for suite in SUITES} == {"ALL="}


def test_what_failed_is_run_again_and_named(ran, capsys):
    ran.fails |= {"oldest", "all-jax"}
    ran.says["audit"] = "not audited: no answer\n"
    assert ran.main() == 1
    assert "    1:01  oldest  FAILED, exit status 2\n" in capsys.readouterr().out
    ran.main()
    assert checks_of(ran) == {"oldest", "audit"}
    assert leaving_out(ran, "compat") == SUITES - {"all-jax"}


def test_what_passed_and_then_failed_is_run_again(ran):
    ran.main()
    ran.fails |= {"matrix", "all-torch"}
    ran.main("--release")
    ran.fails.clear()
    ran.main()
    assert checks_of(ran) == {"matrix"}
    assert leaving_out(ran, "compat") == SUITES - {"all-torch"}


def test_what_changed_while_it_ran_is_run_again(ran, root):
    changed = root / "compat/plain.py"
    ran.does["all-once"] = lambda: changed.write_text("changed", encoding="utf-8")
    ran.main()
    ran.does.clear()
    changed.write_text(FILES["compat/plain.py"], encoding="utf-8")
    ran.main()
    assert "all-once" not in leaving_out(ran, "compat")
    assert leaving_out(ran, "optimizer") == SUITES - {"all-once"}


# What slow tests of training may not need, for it can change without them.
OLD = ("compat", "migration")


def slow_files(folders):
    """Returns {file below one of the folders: the names of its slow tests}."""
    found = {}
    for files in durations.recorded().values():
        for file, tests in files.items():
            if file.startswith(tuple(f"{folder}/" for folder in folders)):
                found.setdefault(file, set()).update(test.partition("[")[0] for test in tests)
    return found


SLOW_FILES = slow_files(passed.SLOW["training"].folders)


def names_of_old(tree):
    """Returns the names by which a program has something of keras_mp.compat or .migration."""
    found = {"keras_mp.compat", "keras_mp.migration"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                path = f"{node.module}.{each.name}".split(".")
                if path[0] == "keras_mp" and path[1] in OLD:
                    found.add(each.asname or each.name)
    return found


@pytest.mark.parametrize("file", sorted(SLOW_FILES))
def test_slow_tests_of_training_need_no_old_files(file):
    tree = ast.parse((passed.ROOT / file).read_text(encoding="utf-8"))
    names = names_of_old(tree)
    for node in tree.body:
        if getattr(node, "name", "").startswith("test_") and node.name not in SLOW_FILES[file]:
            continue
        for part in ast.walk(node):
            if isinstance(part, (ast.Name, ast.Attribute)):
                text = ast.unparse(part)
                assert text not in names, (
                    f"{text}, line {part.lineno}: move it to tests/each/compat"
                )


def test_the_slowest_comes_first():
    results = [(ci.Part("a"), 0, 5.4, ""), (ci.Part("b"), 0, 150.0, "")]
    assert ci.summary(results, []).splitlines()[2:] == ["    2:30  b", "    0:05  a"]


def test_left_out_are_slow_tests_of_a_folder_only(tmp_path):
    """By pytest itself, in a folder of its own."""
    for name in ("one", "one_more"):
        file = tmp_path / name / f"test_{name}.py"
        file.parent.mkdir()
        file.write_text(
            "import pytest\ndef test_a(): pass\n@pytest.mark.slow\ndef test_b(): pass\n",
            encoding="utf-8",
        )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n", encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"),
            *("-p", "tests.left_out", "--leave-out=one", str(tmp_path)),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(passed.ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line for line in done.stdout.splitlines() if "::" in line]
    assert found == [
        "one/test_one.py::test_a",
        *(f"one_more/test_one_more.py::test_{c}" for c in "ab"),
    ]
