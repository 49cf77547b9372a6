"""The reference has every public name, and the site every page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
API = (ROOT / "tests" / "data" / "api.txt").read_text(encoding="utf-8").splitlines()
REFERENCE = ROOT / "docs" / "reference" / "api.md"


def test_the_reference_has_every_public_name():
    page = REFERENCE.read_text(encoding="utf-8")
    there = set(re.findall(r"^- \[`(\S+)`\]", page, re.MULTILINE))
    public = {re.split(r"[( ]", line)[0] for line in API if line.startswith("keras_mp.")}
    assert there <= public
    for name in public - there:
        assert name.rpartition(".")[0] in there, f"{name} is not in docs/reference/api.md"


def test_the_site_has_every_page():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert f"- {page.relative_to(ROOT / 'docs').as_posix()}\n" in nav


def test_each_page_is_of_one_kind():
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.parent.name in ("tutorials", "how-to", "reference", "explanation"), page


@pytest.mark.parametrize(
    "words",
    [
        "gradient accumulation",
        "early stopping",
        "ONNX",
        "TFLite",
        "quantization",
        "gradient clipping",
        "learning-rate warm-up",
        "loss is NaN",
        "loss scale 1",
        "TensorFlow Hub",
        "Horovod",
        "LoRA",
        "F16_F16_F32",
    ],
)
def test_a_heading_has_the_words_that_people_type(words):
    """The site's search puts a page first whose heading has all of them."""
    headings = [
        set(re.findall(r"[\w-]+", line.lower()))
        for line in (ROOT / "docs" / "how-to" / "recipes.md").read_text("utf-8").splitlines()
        if line.startswith("## ")
    ]
    assert any(set(words.lower().split()) <= heading for heading in headings)


def test_code_of_the_home_page_has_room():
    """At 1280 pixels a line of the site has 108 characters."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```\w*\n(.*?)^```", readme, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            assert len(line) <= 108, line
