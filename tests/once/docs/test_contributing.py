"""CONTRIBUTING.md and the packages' docstrings are maps of the tree: what they name is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "CONTRIBUTING.md"
LINES = PAGE.read_text(encoding="utf-8").splitlines()
NAMED = {
    path: number
    for number, line in enumerate(LINES, 1)
    for path in re.findall(r"\]\(((?!https:)[^)#\s]+)", line)
}


def packages():
    """Returns the folders of the three rooms that are packages, from the root."""
    found = set()
    for room in ("keras_mp", "compat", "migration"):
        found |= {path.parent for path in (ROOT / room).rglob("__init__.py")}
    return sorted(
        path.relative_to(ROOT).as_posix() for path in found if path.resolve().is_relative_to(path)
    )


def listed_modules(package):
    """Returns the names in the table of modules of a package's docstring; none without a table."""
    text = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text("utf-8"))) or ""
    _, table, rows = text.partition("| module")
    cells = (row.split("|")[1] for row in rows.splitlines()[2:] if row.startswith("|"))
    return [name.strip() for cell in cells for name in cell.split(",")] if table else []


@pytest.mark.parametrize("path", NAMED)
def test_what_the_page_names_is_there(path):
    where = f"CONTRIBUTING.md, line {NAMED[path]}"
    assert (ROOT / path).exists(), f"{where}: there is no {path}; write where it is now"


def test_the_page_is_short():
    assert len(" ".join(LINES).split()) <= 1000


@pytest.mark.parametrize("package", [p for p in packages() if p.count("/") < 2])
def test_each_package_of_the_core_is_on_the_page(package):
    room, _, name = package.partition("/")
    if not name or room != "keras_mp":
        assert room in NAMED
    else:
        row = f"| [{name}]({package}) |"
        assert any(line.startswith(row) for line in LINES), f"CONTRIBUTING.md has no row '{row}'"


@pytest.mark.parametrize("package", [p for p in packages() if listed_modules(p)])
def test_a_table_of_modules_is_complete(package):
    folder = ROOT / package
    there = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    there |= {path.parent.name for path in folder.glob("*/__init__.py")}
    if package == "keras_mp":
        there -= {"compat", "migration"}
    assert sorted(listed_modules(package)) == sorted(there)


def test_large_packages_have_a_table():
    large = [p for p in packages() if len([*(ROOT / p).glob("*.py")]) > 10]
    named = {p for p in large if listed_modules(p)}
    # Modules that are alike, one rule or one kind of thing each: their names are the map.
    alike = {p for p in large if p.startswith(("migration/", "compat/"))} - {"compat/restoring"}
    assert set(large) == named | alike


@pytest.mark.parametrize("package", packages())
def test_every_package_has_tests(package):
    """In the folder of its name, or of the package that it is in."""
    elsewhere = {"keras_mp": "core", "keras_mp/rendering": "monitor"}
    names = [elsewhere.get(package, package.removeprefix("keras_mp/"))]
    while "/" in names[-1]:
        names.append(names[-1].rpartition("/")[0])
    found = [name for name in names if any((ROOT / "tests").glob(f"*/{name}/**/test_*.py"))]
    assert found, f"{package} has no tests/*/{names[0]}"


def test_every_folder_of_tests_is_a_package():
    rooms = {"core", "docs", *(room.removeprefix("keras_mp/") for room in packages())}
    for folder in (ROOT / "tests").glob("[eo][an]c[eh]/**/"):
        name = folder.relative_to(ROOT / "tests").as_posix().partition("/")[2]
        if name and any(folder.glob("test_*.py")):
            assert name in rooms, f"{folder} is the folder of no package"


def test_every_folder_of_tests_is_on_the_page():
    for folder in (ROOT / "tests").iterdir():
        if folder.is_dir() and any(folder.rglob("*.py")):
            room = f"tests/{folder.name}"
            assert room in NAMED, f"CONTRIBUTING.md does not name {room}; add it"


def test_what_make_does_is_listed():
    named = set(re.findall(r"\bmake (?:-\w+ )?([a-z-]+)", "\n".join(LINES)))
    phony = " ".join(
        re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    ).split()
    assert len(phony) > 15
    for target in phony:
        if not target.startswith("clients-"):
            assert target in named, f"CONTRIBUTING.md does not say what `make {target}` does"
