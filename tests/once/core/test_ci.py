"""What CI leaves out, and what it says at the end."""

import os
import re
import subprocess
import sys

import pytest

from tests import ci, passed

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
def root(tmp_path):
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


def test_more_recordings_ask_for_slow_tests_again(root, monkeypatch):
    monkeypatch.delenv("KERAS_MP_FIXTURES", raising=False)
    before = {check: passed.checksum(check, root) for check in ci.CHECKS}
    monkeypatch.setenv("KERAS_MP_FIXTURES", str(root))
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
        assert all((passed.ROOT / folder).is_dir() for folder in slow.folders)
    assert passed.ROOT / "keras_mp" / "backends" / "keras_hooks.py" in passed.inputs("clients")
    assert len([f for f in passed.inputs("oldest") if f.name.startswith("test_")]) > 20


def test_each_part_is_a_target_of_make():
    makefile = (passed.ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {name for line in re.findall(r"^([\w -]+):", makefile, re.M) for name in line.split()}
    assert {part.target for part in (*ci.PARTS, *ci.ONLY_THEN)} <= targets
    assert {*passed.RELEASE} <= {part.target for part in ci.PARTS}


@pytest.fixture
def ran(root):
    """A function as `main`, and what ran; parts in `fails` fail, and print what `says` has."""
    parts, fails, says = {}, set(), {}

    def run(part):
        parts[part.target] = " ".join(part.variables)
        return part, 2 * (part.target in fails), 61.0, says.get(part.target, "passed\n")

    def main(*argv):
        parts.clear()
        return ci.main(argv, root, run)

    return main, parts, fails, says


SUITES = {"all-jax", "all-tensorflow", "all-torch", "all-once"}


def test_what_passed_is_left_out_until_something_changes(ran, root, capsys):
    main, parts, _, _ = ran
    assert main() == 0
    assert {*parts} == {part.target for part in ci.PARTS}
    assert not any("leave-out" in variables for variables in parts.values())
    capsys.readouterr()
    assert main() == 0
    assert {*parts} == {part.target for part in ci.PARTS} - {*passed.RELEASE}
    for suite in SUITES:
        folders = [f for its in passed.slow_checks(suite).values() for f in its]
        assert re.findall("--leave-out=(\\S+)", parts[suite]) == folders
        assert "--in-slices -p tests.left_out" in parts[suite]
    last = capsys.readouterr().out.splitlines()[-2:]
    assert ": oldest, matrix, clean-environments, clients, audit, slow tests of " in last[0]
    assert ", slow tests of legacy on once" in last[0]
    assert last[1] == "`make release-check` runs them"
    (root / "tests/clients/test_one.py").write_text("changed", encoding="utf-8")
    main()
    assert {*parts} & {*passed.RELEASE} == {"clients"}
    (root / "compat/plain.py").write_text("changed", encoding="utf-8")
    main()
    assert {suite for suite in SUITES if "compat" in parts[suite]} == set()
    assert {suite for suite in SUITES if "optimizer" in parts[suite]} == SUITES - {"all-once"}
    assert main("--release") == 0
    assert {*parts} == {*passed.RELEASE, *SUITES, "fuzz", "coverage"}
    assert {parts[suite] for suite in SUITES} == {"ALL="}


def test_what_failed_is_run_again_and_named(ran, capsys):
    main, parts, fails, says = ran
    fails |= {"oldest", "all-jax"}
    says["audit"] = "not audited: no answer\n"
    assert main() == 1
    out = capsys.readouterr().out
    assert "    1:01  oldest  FAILED, exit status 2\n" in out
    main()
    assert {*parts} & {*passed.RELEASE} == {"oldest", "audit"}
    assert {suite for suite in SUITES if "leave-out" in parts[suite]} == SUITES - {"all-jax"}


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
