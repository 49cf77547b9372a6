"""The hooks of .pre-commit-hooks.yaml, installed and run by pre-commit itself, without a network.

pip builds and installs them as for a user. What they need it finds installed here, and setuptools
among the wheels that virtualenv brings along.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("pre_commit", reason="pre-commit is not installed: pip install '.[dev]'")
yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[3]
PACKAGED = ("pyproject.toml", "setup.py", "README.md", "LICENSE", ".pre-commit-hooks.yaml")
OLD = """\
import tensorflow as tf

opt = tf.keras.mixed_precision.experimental.LossScaleOptimizer(opt, "dynamic")
"""
NEW = """\
import keras_mp
import tensorflow as tf

opt = keras_mp.LossScaleOptimizer(opt)
"""
PERSON = 'import os\n\nos.environ["TF_ENABLE_AUTO_MIXED_PRECISION"] = "1"\n'
CHECK, WRITE = "keras-mp-migrate", "keras-mp-migrate-write"


class Hooks(NamedTuple):
    """A repository of hooks, and the environment of processes that use it."""

    repository: Path
    environment: dict[str, str]

    def run(self, project: Path, *hooks: str) -> tuple[int, str]:
        """Returns the exit status of pre-commit in a project that has all files, and its output."""
        revision = git(self.repository, self.environment, "rev-parse", "HEAD").strip()
        repo = {"repo": str(self.repository), "rev": revision, "hooks": [{"id": h} for h in hooks]}
        config = project / ".pre-commit-config.yaml"
        config.write_text(yaml.safe_dump({"repos": [repo]}), encoding="utf-8")
        git(project, self.environment, "init", "--quiet")
        git(project, self.environment, "add", "--all")
        done = subprocess.run(
            [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color=never"],
            cwd=project,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout


def git(folder: Path, environment: dict[str, str], *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Hooks:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    embedded = pytest.importorskip("virtualenv.seed.wheels.embed").BUNDLE_FOLDER
    if not list(embedded.glob("setuptools-*.whl")):
        pytest.skip("this virtualenv brings no setuptools along, and there may be no network")
    folder = tmp_path_factory.mktemp("pre-commit")
    installed = folder / "installed"
    installed.mkdir()
    for entry in {*map(Path, map(sysconfig.get_path, ("purelib", "platlib")))}:
        for one in entry.iterdir():
            # The hooks are to find what pip made of the package, and not the one of the tests.
            if not one.name.startswith(("keras_mp", "__")) and one.suffix != ".pth":
                (installed / one.name).symlink_to(one)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    environment = {
        **{key: value for key, value in inherited.items() if not key.startswith("GIT_")},
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "PIP_FIND_LINKS": str(embedded),
        "PIP_NO_COMPILE": "1",
        "PIP_NO_INDEX": "1",
        "PRE_COMMIT_HOME": str(folder / "home"),
        "PYTHONPATH": str(installed),
    }
    repository = folder / "hooks"
    repository.mkdir()
    for name in PACKAGED:
        shutil.copy(ROOT / name, repository)
    leave = shutil.ignore_patterns("__pycache__")
    for name in ("keras_mp", "compat", "migration"):
        shutil.copytree(ROOT / name, repository / name, symlinks=True, ignore=leave)
    git(repository, environment, "init", "--quiet")
    git(repository, environment, "add", "--all")
    git(repository, environment, "commit", "--quiet", "--message", "hooks")
    return Hooks(repository, environment)


def notebook(source: str) -> str:
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": source}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 2})


def test_they_are_what_the_package_offers() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    assert [hook["id"] for hook in yaml.safe_load(text)] == [CHECK, WRITE]
    for hook in yaml.safe_load(text):
        assert hook["additional_dependencies"] == [".[migrate]"]
    assert "migrate" in (metadata("keras-mp").get_all("Provides-Extra") or ())


def test_one_checks(hooks: Hooks, tmp_path: Path) -> None:
    sources = {"old.py": OLD, "person.py": PERSON, "book.ipynb": notebook(OLD), "readme.md": OLD}
    for name, text in sources.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    code, out = hooks.run(tmp_path, CHECK)
    assert code == 1, out
    for line in (
        "keras-mp: old.py: would change",
        "keras-mp: book.ipynb: would change",
        "person.py:3:12: KMP011 ",
    ):
        assert f"\n{line}" in out
    assert "readme.md" not in out
    for name, text in sources.items():
        assert (tmp_path / name).read_text(encoding="utf-8") == text
    # It was pip's package that ran.
    made = Path(hooks.environment["PRE_COMMIT_HOME"])
    assert list(made.rglob("site-packages/keras_mp/migration/cli.py"))


def test_one_checks_what_is_not_silenced(hooks: Hooks, tmp_path: Path) -> None:
    (tmp_path / "legacy").mkdir()
    (tmp_path / "legacy" / "old.py").write_text(OLD, encoding="utf-8")
    (tmp_path / "person.py").write_text(f"{PERSON.strip()}  # noqa: KMP011\n", encoding="utf-8")
    code, out = hooks.run(tmp_path, CHECK)
    assert code == 1
    assert "legacy/old.py: would change" in out
    (tmp_path / "pyproject.toml").write_text(
        '[tool.keras-mp]\nexclude = ["legacy/*"]\n', encoding="utf-8"
    )
    code, out = hooks.run(tmp_path, CHECK)
    assert code == 0, out


def test_the_other_rewrites(hooks: Hooks, tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(OLD, encoding="utf-8")
    (tmp_path / "book.ipynb").write_text(notebook(OLD), encoding="utf-8")
    code, out = hooks.run(tmp_path, WRITE)
    assert code == 1
    assert "files were modified by this hook" in out
    assert (tmp_path / "old.py").read_text(encoding="utf-8") == NEW
    assert (tmp_path / "book.ipynb").read_text(encoding="utf-8") == notebook(NEW)
    code, out = hooks.run(tmp_path, CHECK, WRITE)
    assert code == 0, out
