"""The pictures of the pages are what their script draws now, and the pages show them."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from tests import pictures
from tests.backends import on_one

PAGES = [pictures.ROOT / "README.md", *sorted((pictures.ROOT / "docs").rglob("*.md"))]
SHOWN = [
    (page, *found)
    for page in PAGES
    for found in re.findall(
        r"!\[([^]]*)\]\(((?:\.\./|docs/)pictures/[^)]*)\)", page.read_text("utf-8")
    )
]
NUMBER = re.compile(r"(\d+(?:\.\d+)?)")
# Names of paths begin with a hash of their numbers.
HASH = re.compile(r"\bkm[0-9a-f]{8}(?=-)")
# On another processor a value near the border of two cells is counted in the other one.
CELLS = re.compile(r'<g>\s*<path d="[^"]*"[^>]*var\(--heat\)[^>]*/>\s*</g>\s*')


def words_and_numbers(picture):
    parts = NUMBER.split(CELLS.sub("", HASH.sub("km", picture)))
    return parts[::2], [float(part) for part in parts[1::2]]


@on_one
@pytest.mark.parametrize("name", pictures.DRAWN)
def test_it_is_what_is_drawn(name):
    """To the letter, but for cells of a heat map; numbers as near as other processors compute."""
    stored = (pictures.PICTURES / f"{name}.svg").read_text("utf-8")
    drawn = pictures.DRAWN[name]()
    assert bool(CELLS.search(drawn)) == bool(CELLS.search(stored))
    words, numbers = words_and_numbers(drawn)
    remedy = "run KERAS_BACKEND=jax python -m tests.pictures, and look at the pictures"
    assert words == words_and_numbers(stored)[0], remedy
    assert numbers == pytest.approx(words_and_numbers(stored)[1], rel=0.01, abs=0.02), remedy


@on_one
def test_each_picture_is_drawn_and_shown():
    names = {f"{name}.svg" for name in pictures.DRAWN}
    assert {path.name for path in pictures.PICTURES.iterdir()} == names
    assert {path.rpartition("/")[2] for _, _, path in SHOWN} == names
    for page, alternative, _ in SHOWN:
        assert len(alternative.split()) >= 8, f"{page}: who does not see it reads this"


@on_one
@pytest.mark.parametrize("name", pictures.DRAWN)
def test_it_is_small_and_loads_nothing(name):
    path = pictures.PICTURES / f"{name}.svg"
    text = path.read_text("utf-8")
    assert len(text) < 100_000
    root = ElementTree.fromstring(text)
    assert "prefers-color-scheme: dark" in text
    for element in root.iter():
        assert not element.tag.endswith(("}script", "}image", "}img", "}link")), element.tag
        for key, value in element.attrib.items():
            if key.endswith(("href", "src")):
                assert value.startswith("#"), value
    assert "@import" not in text
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
