"""What CI leaves out, and what it says at the end."""

import re

import pytest

from tests import ci

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
    "tests/data/durations.json": "{}",
}


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("file", "checks"),
    [
        ("pyproject.toml", {"oldest", "matrix", "clean-environments", "clients", "audit"}),
        ("keras_mp/backends/jax/backend.py", {"oldest", "matrix", "clean-environments", "clients"}),
        ("keras_mp/deep/hooked.py", {"oldest", "matrix", "clean-environments", "clients"}),
        ("tests/each/monitor/test_callback.py", {"oldest"}),
        ("tests/each/core/test_a.py", {"matrix"}),
        ("tests/clients/test_one.py", {"clients"}),
        ("tests/constraints-oldest.txt", {"oldest"}),
        ("compat/plain.py", set()),
    ],
)
def test_what_asks_for_a_check_again(root, file, checks):
    before = {target: ci.checksum(target, root) for target in ci.RELEASE}
    (root / file).write_text(f"# changed\n{FILES[file]}", encoding="utf-8")
    assert {t for t in ci.RELEASE if ci.checksum(t, root) != before[t]} == checks


def test_a_file_that_was_renamed_asks_again(root):
    before = ci.checksum("clients", root)
    (root / "tests/clients/test_one.py").rename(root / "tests/clients/test_two.py")
    assert ci.checksum("clients", root) != before


def test_each_check_depends_on_what_is_there():
    """The patterns name files of this repository, and each source that names keras.src is found."""
    for target, patterns in ci.RELEASE.items():
        for pattern in patterns:
            assert any(ci.ROOT.glob(pattern)), f"{target}: there is no {pattern}"
        assert all(file.is_file() for file in ci.inputs(target))
    assert ci.ROOT / "keras_mp" / "backends" / "keras_hooks.py" in ci.inputs("clients")
    assert len([f for f in ci.inputs("oldest") if f.name.startswith("test_")]) > 20


def test_each_part_is_a_target_of_make():
    makefile = (ci.ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {name for line in re.findall(r"^([\w -]+):", makefile, re.M) for name in line.split()}
    assert {part.target for part in (*ci.PARTS, *ci.ONLY_THEN)} <= targets
    assert {*ci.RELEASE} <= {part.target for part in ci.PARTS}


@pytest.fixture
def ran(root):
    """A function as `main`, and the targets that ran; those in `fails` fail, `says` is printed."""
    targets, fails, says = [], set(), {}

    def run(part):
        targets.append(part.target)
        return part, 2 * (part.target in fails), 61.0, says.get(part.target, "passed\n")

    return lambda *argv: ci.main(argv, root, run), targets, fails, says


def test_what_passed_is_left_out_until_something_changes(ran, root, capsys):
    main, targets, _, _ = ran
    assert main() == 0
    assert {*targets} == {part.target for part in ci.PARTS}
    targets.clear()
    capsys.readouterr()
    assert main() == 0
    assert {*targets} == {part.target for part in ci.PARTS} - {*ci.RELEASE}
    last = capsys.readouterr().out.splitlines()[-2:]
    assert last[0].endswith(": oldest, matrix, clean-environments, clients, audit")
    assert last[1] == "`make release-check` runs them"
    targets.clear()
    (root / "tests/clients/test_one.py").write_text("changed", encoding="utf-8")
    main()
    assert {*targets} & {*ci.RELEASE} == {"clients"}
    targets.clear()
    assert main("--release") == 0
    assert {*targets} == {*ci.RELEASE, "fuzz", "coverage", "all-jax", "all-tensorflow", "all-torch"}


def test_what_failed_is_run_again_and_named(ran, capsys):
    main, targets, fails, says = ran
    fails.add("oldest")
    says["audit"] = "not audited: no answer\n"
    assert main() == 1
    out = capsys.readouterr().out
    assert "    1:01  oldest  FAILED, exit status 2\n" in out
    targets.clear()
    main()
    assert {*targets} & {*ci.RELEASE} == {"oldest", "audit"}


def test_the_slowest_comes_first():
    results = [(ci.Part("a"), 0, 5.4, ""), (ci.Part("b"), 0, 150.0, "")]
    assert ci.summary(results, []).splitlines()[2:] == ["    2:30  b", "    0:05  a"]
