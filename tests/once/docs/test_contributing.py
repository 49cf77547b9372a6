"""The map in CONTRIBUTING.md is that of the tree: what it names is there, no room is missing."""

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


@pytest.mark.parametrize("path", NAMED)
def test_what_the_map_names_is_there(path):
    where = f"CONTRIBUTING.md, line {NAMED[path]}"
    assert (ROOT / path).exists(), f"{where}: there is no {path}; write where it is now"


@pytest.mark.parametrize("room", [*packages(), "benchmarks"])
def test_every_room_is_on_the_map(room):
    rows = [line for line in LINES if line.startswith(f"| [{room}]({room}) |")]
    assert rows, f"CONTRIBUTING.md has no row '| [{room}]({room}) | what it is for |'; add it"


@pytest.mark.parametrize("room", packages())
def test_every_room_has_tests(room):
    """In the folder of its name, or of the room that it is in, or where CONTRIBUTING.md says."""
    elsewhere = {"dry_run": "overflow_search", "rendering": "monitor", "keras_mp": "core"}
    name = room.removeprefix("keras_mp/").partition("/")[0]
    folder = elsewhere.get(name, name)
    assert any((ROOT / "tests").glob(f"*/{folder}/test_*.py")), f"{room} has no tests/*/{folder}"


def test_every_folder_of_tests_is_a_room():
    rooms = {"core", "docs", *(room.removeprefix("keras_mp/") for room in packages())}
    for folder in (ROOT / "tests").glob("[eo][an]c[eh]/**/"):
        name = folder.relative_to(ROOT / "tests").as_posix().partition("/")[2]
        if name and any(folder.glob("test_*.py")):
            assert name in rooms, f"{folder} is the folder of no room"


def test_every_folder_of_tests_is_on_the_map():
    for folder in (ROOT / "tests").iterdir():
        if folder.is_dir() and any(folder.rglob("*.py")):
            room = f"tests/{folder.name}"
            assert room in NAMED, f"CONTRIBUTING.md has no row for {room}; add it"


def test_what_make_does_is_listed():
    named = set(re.findall(r"\bmake (?:-\w+ )?([a-z-]+)", "\n".join(LINES)))
    phony = " ".join(
        re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    ).split()
    assert len(phony) > 15
    for target in phony:
        if not target.startswith("clients-"):
            assert target in named, f"CONTRIBUTING.md does not say what `make {target}` does"
