"""The package as it is installed: folders, wheel and sdist say the same."""

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def packages():
    """Every folder below keras_mp with an __init__.py, by its dotted name; links are followed."""
    found, waiting = [], [("keras_mp", ROOT / "keras_mp")]
    while waiting:
        name, folder = waiting.pop()
        if (folder / "__init__.py").exists():
            found.append(name)
            waiting += [(f"{name}.{f.name}", f) for f in folder.iterdir() if f.is_dir()]
    return sorted(found)


def test_every_folder_is_a_package_of_the_project():
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == packages()


def test_rooms_are_links():
    for room in ("compat", "migration"):
        assert (ROOT / "keras_mp" / room).is_symlink()
        assert (ROOT / "keras_mp" / room).resolve() == ROOT / room


@pytest.mark.parametrize("room", ["compat", "migration"])
def test_a_clone_without_links_is_refused(tmp_path, room):
    """git writes the target of a link into a file where the system lets it make none."""
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "keras_mp").mkdir()
    (tmp_path / "keras_mp" / room).write_text(f"../{room}", encoding="utf-8")
    program = "from setuptools import build_meta; build_meta.get_requires_for_build_wheel()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 1
    assert "git config core.symlinks true; git checkout -f" in done.stderr
    assert str(Path("keras_mp") / room) in done.stderr


def test_version_is_one():
    import keras_mp

    assert keras_mp.__version__ == PROJECT["project"]["version"]
    assert f"## {keras_mp.__version__}" in (ROOT / "CHANGELOG.md").read_text()


# Python 3.11.2 has no filters.
_FILTER = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(sdist, wheel made from that sdist)."""
    work = tmp_path_factory.mktemp("build")
    tree = work / "tree"
    kept = shutil.ignore_patterns(
        *(".venv*", ".tox", ".git", "*cache*", "build", "dist", "*.egg-info"),
        *(".hypothesis", ".coverage*"),
    )
    shutil.copytree(ROOT, tree, symlinks=True, ignore=kept)

    def build(kind, folder):
        program = f"from setuptools import build_meta; build_meta.build_{kind}({str(work)!r})"
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=200,
        )

    build("sdist", tree)
    (sdist,) = work.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(work / "unpacked", **_FILTER)
    build("wheel", next((work / "unpacked").iterdir()))
    return sdist, next(work.glob("*.whl"))


def test_wheel(built):
    names = zipfile.ZipFile(built[1]).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"keras_mp"}
    for name in (
        "keras_mp/py.typed",
        "keras_mp/optimizer/loss_scale_optimizer.py",
        "keras_mp/compat/configs/__init__.py",
        "keras_mp/migration/cli.py",
        "keras_mp/migration/example_tf23.json",
        "keras_mp/migration/ledger_page.css",
        "keras_mp/migration/ledger_page.js",
        "keras_mp/rendering/notebook.css",
        "keras_mp/rendering/page.css",
    ):
        assert name in names


def test_sdist(built):
    with tarfile.open(built[0]) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert {
        "compat/configs/__init__.py",
        "migration/cli.py",
        "keras_mp/settings.py",
        "LICENSE",
    } <= names


def test_wheel_works_elsewhere(built, tmp_path):
    with zipfile.ZipFile(built[1]) as archive:
        archive.extractall(tmp_path / "site")
    program = (
        "import keras_mp, keras_mp.compat.configs, keras_mp.migration.cli as cli; "
        f"assert keras_mp.__file__.startswith({str(tmp_path)!r}), keras_mp.__file__; "
        "raise SystemExit(cli.main(['--version']))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert (found.returncode, found.stdout.split()[0]) == (0, "keras-mp"), found.stderr
